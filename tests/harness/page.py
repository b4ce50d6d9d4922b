"""The page at `/-/`, as somebody who looks at it has it before them."""

from playwright.async_api import Locator, expect

from harness.browser import Browser, Tab
from harness.processes import PATIENCE_S

expect.set_options(timeout=PATIENCE_S * 1000)

FIGURES = ("ready", "in_flight", "delayed", "sidelined")


class Shown:
    """An open page."""

    def __init__(self, tab: Tab) -> None:
        self.tab = tab
        self.page = tab.page

    def row(self, queue: str) -> Locator:
        """A queue's row in the list of all."""
        return self.page.locator(f'[data-queue="{queue}"]')

    def figure(self, queue: str, name: str) -> Locator:
        """A figure of that row."""
        return self.row(queue).locator(f'[data-field="{name}"]')

    def figure_of_view(self, name: str) -> Locator:
        """A figure of the one queue that is looked into."""
        return self.page.locator(f'[data-figure="{name}"]')

    def messages(self) -> Locator:
        """Those that are listed."""
        return self.page.locator("[data-message]")

    def message(self, message_id: str) -> Locator:
        """One of them."""
        return self.page.locator(f'[data-message="{message_id}"]')

    async def has_figures(self, queue: str, **figures: int) -> None:
        """Waits until the row says so."""
        for name, value in figures.items():
            await expect(self.figure(queue, name)).to_have_text(str(value))

    async def look_into(self, queue: str) -> None:
        """Clicks on a queue."""
        await self.row(queue).get_by_role("link", name=queue, exact=True).click()
        await expect(self.page.get_by_role("heading", level=1)).to_have_text(queue)

    async def go_to(self, tab: str) -> None:
        """Clicks on a tab of the queue."""
        link = self.page.get_by_role("tab", name=tab)
        await link.click()
        await expect(link).to_have_attribute("aria-selected", "true")

    async def unfold(self, title: str) -> None:
        """Opens a part that is folded at first."""
        await self.page.locator("summary", has_text=title).first.click()

    async def choose_state(self, state: str) -> None:
        """Has messages of another state be listed."""
        await self.page.get_by_label("State").select_option(state)

    async def answer(self, action: str, *, typed: str = "") -> None:
        """Clicks a button of the dialog that asks whether it is meant, which goes then. `typed`: a
        name that it asks for.
        """
        dialog = self.page.get_by_role("dialog")
        if typed:
            await expect(dialog.get_by_role("button", name=action, exact=True)).to_be_disabled()
            await dialog.get_by_label(f"Type {typed} to go on").fill(typed)
        await dialog.get_by_role("button", name=action, exact=True).click()
        await expect(dialog).to_have_count(0)

    async def said(self, text: str) -> None:
        """Waits until the outcome says this, where a screen reader hears it."""
        await expect(self.page.locator("#outcome[role=status]")).to_contain_text(text)

    def outside(self, url: str) -> list[str]:
        """What it asked for that is not of this mq."""
        return [each for each in self.tab.requests if not each.startswith(url + "/")]

    def is_clean(self, url: str) -> bool:
        """Whether it complained of nothing, and asked nobody else."""
        assert self.tab.console == []
        assert self.outside(url) == []
        return True


async def shown(
    chromium: Browser, url: str, view: str = "", *, dark: bool = False, width: int = 1280
) -> Shown:
    """The page of the mq at this URL."""
    return Shown(await chromium.open(f"{url}/-/{view}", dark=dark, width=width))
