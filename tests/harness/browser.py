"""A real browser, Debian's Chromium, which looks at a page as a person would."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser as Launched
from playwright.async_api import Page, async_playwright

from harness.needs import program

_FLAGS = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)

_FAINT = """
(least) => {
    const rgba = (text) => {
        const parts = text.match(/[\\d.]+/g).map(Number);
        return parts.length > 3 ? parts : [...parts, 1];
    };
    const over = (top, under) =>
        [0, 1, 2].map((i) => top[i] * top[3] + under[i] * (1 - top[3])).concat(1);
    const light = (color) => {
        const [r, g, b] = color.slice(0, 3).map((part) => {
            const v = part / 255;
            return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
        });
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const dark = matchMedia('(prefers-color-scheme: dark)').matches;
    const known = new Map([[null, dark ? [0, 0, 0, 1] : [255, 255, 255, 1]]]);
    const behind = (element) => {
        if (!known.has(element)) {
            const under = behind(element.parentElement);
            known.set(element, over(rgba(getComputedStyle(element).backgroundColor), under));
        }
        return known.get(element);
    };
    const found = [];
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
        const element = texts.currentNode.parentElement;
        if (!texts.currentNode.data.trim() || !element.getClientRects().length) continue;
        if (['SCRIPT', 'STYLE', 'title', 'desc'].includes(element.tagName)) continue;
        const style = getComputedStyle(element);
        const back = behind(element);
        const written = element.ownerSVGElement ? style.fill : style.color;
        const [a, b] = [light(over(rgba(written), back)), light(back)];
        const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        if (ratio < least) found.push(`${texts.currentNode.data.trim()}: ${ratio.toFixed(2)}`);
    }
    return found;
}
"""

_TABBED = """
() => {
    const at = document.activeElement;
    return at === document.body ? null
        : [at.tagName.toLowerCase(), at.getAttribute('role') || '', at.className,
           (at.getAttribute('aria-label') || at.textContent).trim().slice(0, 80)];
}
"""


@dataclass(frozen=True)
class Stop:
    """Something that the Tab key comes to."""

    element: str
    role: str
    style: str
    name: str


@dataclass
class Tab:
    """A page, and what it did since it was opened."""

    page: Page
    console: list[str] = field(default_factory=list)
    """Errors and warnings, of the page's scripts and of the browser about the page."""
    requests: list[str] = field(default_factory=list)
    """All that it asked for, itself included."""

    async def overflow(self) -> int:
        """How many pixels the page is wider than its window."""
        return int(
            await self.page.evaluate(
                "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            )
        )

    async def faint(self, least: float = 4.5) -> list[str]:
        """The visible texts whose colour has less contrast with what is behind them."""
        return list(await self.page.evaluate(_FAINT, least))

    async def barriers(self) -> list[str]:
        """What axe finds that keeps people out: a rule's name, and the first element, each. Of
        colours see `faint`, which knows those of SVG too.
        """
        options = {"resultTypes": ["violations"], "rules": {"color-contrast": {"enabled": False}}}
        found = (await Axe().run(self.page, options=options)).response["violations"]
        return [f"{one['id']}: {one['help']}: {one['nodes'][0]['html']}" for one in found]

    async def tree(self) -> list[dict[str, Any]]:
        """The accessibility tree: each node's role, name and description."""
        session = await self.page.context.new_cdp_session(self.page)
        nodes = (await session.send("Accessibility.getFullAXTree"))["nodes"]
        return [
            {key: node.get(key, {}).get("value", "") for key in ("role", "name", "description")}
            for node in nodes
            if not node["ignored"]
        ]

    async def tabbed(self, most: int) -> list[Stop]:
        """Where the Tab key leads to, from the page's begin, so many times at most."""
        stops = []
        for _ in range(most):
            await self.page.keyboard.press("Tab")
            at = await self.page.evaluate(_TABBED)
            if at is None:
                break
            stops.append(Stop(*at))
        return stops


@dataclass
class Browser:
    """A Chromium without a window, whose profile is its own and new."""

    launched: Launched

    async def open(
        self,
        url: str,
        *,
        dark: bool = False,
        width: int = 1280,
        height: int = 900,
        script: bool = True,
    ) -> Tab:
        """A page in a context of its own, loaded; `script`: whether its scripts are run."""
        context = await self.launched.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if dark else "light",
            java_script_enabled=script,
            reduced_motion="reduce",
        )
        tab = Tab(await context.new_page())
        tab.page.on("request", lambda request: tab.requests.append(request.url))
        tab.page.on("pageerror", lambda error: tab.console.append(str(error)))
        tab.page.on(
            "console",
            lambda said: (
                tab.console.append(said.text) if said.type in ("error", "warning") else None
            ),
        )
        await tab.page.goto(url)
        return tab


@asynccontextmanager
async def browser() -> AsyncIterator[Browser]:
    """A browser for a test; it is gone afterwards, with its profile."""
    chromium = program("chromium")
    async with async_playwright() as playwright:
        launched = await playwright.chromium.launch(executable_path=chromium, args=[*_FLAGS])
        try:
            yield Browser(launched)
        finally:
            await launched.close()
