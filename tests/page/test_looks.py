"""That people can see, read and use the page: bright, dark, on a phone, by keyboard, read aloud."""

import re

import pytest
from harness.api import call
from harness.browser import Browser
from harness.page import Shown, shown
from harness.server import Server
from harness.waiting import comes_true
from playwright.async_api import expect

WAYS = [
    pytest.param(False, 1280, id="bright"),
    pytest.param(True, 1280, id="dark"),
    pytest.param(False, 360, id="phone"),
    pytest.param(True, 360, id="dark-phone"),
]
LONG = "a" * 55
TABS = {
    "Messages": "[data-message]",
    "Dead letters": "[data-message]",
    "Schedules": "[data-schedule]",
    "Consumers": ".hint:text('This queue has no consumer.')",
    "Settings": "[data-setting]",
}
"""Of each tab something that is there."""


async def filled(server: Server) -> None:
    """Something of everything, some of it wide."""
    for queue in ("orders", LONG):
        await call(server, "PUT", f"/{queue}")
    headers = {"Content-Type": "text/plain", "x-attribute-long": "x" * 300}
    for _ in range(2):
        await call(server, "POST", "/orders/messages", data=b"w" * 900, headers=headers)
    reply = await call(server, "POST", f"/orders/messages?key={'k' * 60}", data=b"one")
    await call(server, "POST", f"/orders/messages/{reply.id}/sideline")
    await call(server, "PUT", "/orders/schedules/nightly?every=3600", data=b"x")


async def is_well(seen: Shown) -> None:
    assert await seen.tab.overflow() <= 0
    assert await seen.tab.faint() == []
    assert await seen.tab.barriers() == []


@pytest.mark.parametrize(("dark", "width"), WAYS)
async def test_everything_can_be_seen(
    server: Server, chromium: Browser, dark: bool, width: int
) -> None:
    await filled(server)
    seen = await shown(chromium, server.url, dark=dark, width=width)
    await seen.has_figures("orders", ready=2, sidelined=1)
    await seen.has_figures(LONG, ready=0)
    await expect(seen.figure("orders", "in")).to_have_text("0.0")
    await is_well(seen)
    assert len(await seen.page.screenshot()) > 5000
    await seen.look_into("orders")
    await expect(seen.messages()).to_have_count(2)
    for tab, there in TABS.items():
        await seen.go_to(tab)
        await expect(seen.page.locator(there).first).to_be_visible()
        await seen.page.evaluate(
            "document.querySelectorAll('details').forEach((each) => { each.open = true; })"
        )
        await is_well(seen)
    await seen.go_to("Messages")
    await seen.messages().first.get_by_role("button", name="Delete").click()
    await expect(seen.page.get_by_role("dialog")).to_be_visible()
    await is_well(seen)
    await seen.answer("Delete")
    await seen.said("The message is deleted.")
    await is_well(seen)
    await seen.page.get_by_role("link", name="Members").click()
    await expect(seen.page.get_by_role("heading", level=1)).to_have_text("Members")
    await is_well(seen)
    await seen.page.get_by_role("button", name="Token").click()
    await is_well(seen)
    assert seen.is_clean(server.url)


async def focused(seen: Shown) -> str:
    """The name of what has the focus."""
    found = await seen.page.evaluate(
        "(document.activeElement.getAttribute('aria-label')"
        " || document.activeElement.textContent).trim()"
    )
    return str(found)


async def tab_to(seen: Shown, name: str) -> None:
    """Presses Tab until something of this name has the focus, which can be seen to have it."""
    for _ in range(80):
        await seen.page.keyboard.press("Tab")
        if await focused(seen) == name:
            outline = await seen.page.evaluate(
                "getComputedStyle(document.activeElement).outlineStyle"
            )
            assert outline == "solid", name
            return
    raise AssertionError(f"Tab never comes to {name!r}")


async def test_it_is_used_by_keyboard_alone(server: Server, chromium: Browser) -> None:
    await call(server, "PUT", "/orders")
    message_id = (await call(server, "POST", "/orders/messages", data=b"pizza")).id
    seen = await shown(chromium, server.url)
    keyboard = seen.page.keyboard
    await seen.has_figures("orders", ready=1)
    await keyboard.press("Tab")
    assert await focused(seen) == "Skip to the content"
    await keyboard.press("Enter")
    await tab_to(seen, "orders")
    await keyboard.press("Enter")
    heading = seen.page.get_by_role("heading", level=1)
    await expect(heading).to_have_text("orders")
    await expect(heading).to_be_focused()
    await expect(seen.message(message_id)).to_be_visible()
    await tab_to(seen, f"Delete message {message_id}")
    await keyboard.press("Enter")
    dialog = seen.page.get_by_role("dialog")
    await expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
    await keyboard.press("Escape")
    await expect(dialog).to_have_count(0)
    assert await focused(seen) == f"Delete message {message_id}"
    assert (await call(server, "GET", "/orders/peek")).body
    await keyboard.press("Space")
    await expect(dialog).to_be_visible()
    await keyboard.press("Tab")
    assert await focused(seen) == "Delete"
    await keyboard.press("Enter")
    await seen.said("The message is deleted.")
    await expect(seen.message(message_id)).to_have_count(0)
    # Where it was is nothing any more; the focus is near.
    await expect(seen.page.get_by_role("heading", name="Messages")).to_be_focused()
    await keyboard.press("Shift+Tab")
    assert await focused(seen) != ""
    assert seen.is_clean(server.url)


async def test_tabs_are_chosen_by_keys_and_named_by_the_url(
    server: Server, chromium: Browser
) -> None:
    await call(server, "PUT", "/orders")
    seen = await shown(chromium, server.url, "#/queue/orders")
    tabs = seen.page.get_by_role("tab")
    await expect(tabs).to_have_count(len(TABS))
    await tabs.first.focus()
    ways = {"ArrowRight": 1, "End": -1, "ArrowLeft": -2, "Home": 0}
    names = ["messages", "dead-letters", "schedules", "consumers", "settings"]
    for key, at in ways.items():
        await seen.page.keyboard.press(key)
        tab = tabs.nth(at % len(names))
        await expect(tab).to_be_focused()
        await expect(tab).to_have_attribute("aria-selected", "true")
        await expect(seen.page).to_have_url(re.compile(f"#/queue/orders/{names[at]}$"))
        panel = seen.page.get_by_role("tabpanel", name=await tab.inner_text())
        await expect(panel.get_by_role("heading").first).to_be_visible()
    # Tab leaves the list: one of the tabs alone is a stop.
    await seen.page.keyboard.press("Tab")
    await expect(seen.page.get_by_role("tabpanel").locator(":focus")).to_have_count(1)
    await seen.page.goto(f"{server.url}/-/#/queue/orders/settings")
    await seen.page.reload()
    await expect(seen.page.locator("[data-setting]").first).to_be_visible()
    assert seen.is_clean(server.url)


async def test_the_focus_stays_while_figures_change(server: Server, chromium: Browser) -> None:
    for queue in ("events", "orders"):
        await call(server, "PUT", f"/{queue}")
    seen = await shown(chromium, server.url)
    await seen.has_figures("orders", ready=0)
    link = seen.row("orders").get_by_role("link")
    await link.focus()
    await call(server, "POST", "/orders/messages", data=b"x")
    await call(server, "PUT", "/new")
    await seen.has_figures("orders", ready=1)
    await seen.has_figures("new", ready=0)
    await expect(link).to_be_focused()


async def test_it_is_read_aloud(server: Server, chromium: Browser) -> None:
    await call(server, "PUT", "/orders")
    seen = await shown(chromium, server.url, width=360)
    await seen.has_figures("orders", ready=0)
    tree = await seen.tab.tree()
    roles = [(each["role"], each["name"]) for each in tree]
    # A table also where it is laid out as blocks.
    assert ("table", "Queues") in roles
    assert ("columnheader", "In flight") in roles
    assert [name for role, name in roles if role == "rowheader"] == ["orders"]
    assert sum(role == "cell" for role, _ in roles) == 8
    assert {"main", "navigation", "banner"} <= {role for role, _ in roles}
    await seen.look_into("orders")
    await seen.unfold("Over time")

    async def is_told() -> bool:
        return any(
            each["role"] == "image" and each["name"].startswith("Messages. Now: Ready 0")
            for each in await seen.tab.tree()
        )

    await comes_true(is_told, "what the picture says")


async def test_the_focus_is_not_lost_on_the_last_page(server: Server, chromium: Browser) -> None:
    await call(server, "PUT", "/orders")
    for _ in range(26):
        await call(server, "POST", "/orders/messages", data=b"x")
    seen = await shown(chromium, server.url, "#/queue/orders")
    await expect(seen.messages()).to_have_count(25)
    await seen.page.get_by_role("button", name="Next page").press("Enter")
    await expect(seen.messages()).to_have_count(1)
    await expect(seen.page.get_by_role("heading", name="Messages")).to_be_focused()
