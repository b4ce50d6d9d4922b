"""The page goes on by itself: when mq is started again, is slow, and when nobody looks."""

from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
from harness.api import call
from harness.browser import Browser
from harness.page import Shown, shown
from harness.processes import Processes
from harness.server import Server
from harness.waiting import comes_true
from playwright.async_api import Route, expect


async def published(url: str) -> None:
    async with aiohttp.ClientSession() as session:
        async with session.put(f"{url}/orders") as reply:
            assert reply.status in (200, 201)
        async with session.post(f"{url}/orders/messages", data=b"x") as reply:
            assert reply.status == 201


async def test_mq_is_started_again(root: Path, daemons: Processes, chromium: Browser) -> None:
    mq = daemons.mq(root)
    await published(mq.url)
    seen = await shown(chromium, mq.url)
    await seen.has_figures("orders", ready=1)
    lost = seen.page.get_by_role("alert")
    await expect(lost).to_have_count(0)
    mq.kill()
    await expect(lost).to_contain_text("mq does not answer")
    # What was seen last is still there.
    await seen.has_figures("orders", ready=1)
    again = daemons.mq(root, port=mq.port)
    await published(again.url)
    await seen.has_figures("orders", ready=2)
    await expect(lost).to_have_count(0)
    assert seen.outside(mq.url) == []


async def with_a_clock(chromium: Browser, url: str) -> Shown:
    """The page, with timers that can be moved on."""
    tab = await chromium.open("about:blank")
    await tab.page.clock.install()
    await tab.page.goto(f"{url}/-/")
    tab.requests.clear()
    return Shown(tab)


async def test_slow_answers_do_not_pile_up(server: Server, chromium: Browser) -> None:
    await call(server, "PUT", "/orders")
    seen = await with_a_clock(chromium, server.url)
    await seen.has_figures("orders", ready=0)
    held: list[Route] = []
    is_slow = True

    async def hold(route: Route) -> None:
        if is_slow:
            held.append(route)
        else:
            await route.continue_()

    await seen.page.route("**/-/queues*", hold)
    await comes_true(lambda: held, "a look that is held")
    # As long as it is, and before it is given up, no other is begun.
    await seen.page.clock.run_for(10_000)
    assert len(held) == 1
    is_slow = False
    await held[0].continue_()
    await call(server, "POST", "/orders/messages", data=b"x")
    await seen.has_figures("orders", ready=1)
    assert seen.is_clean(server.url)


async def test_nothing_is_asked_while_nobody_looks(server: Server, chromium: Browser) -> None:
    await call(server, "PUT", "/orders")
    seen = await with_a_clock(chromium, server.url)
    await seen.has_figures("orders", ready=0)
    hide = """(hidden) => {
        Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
        document.dispatchEvent(new Event("visibilitychange"));
    }"""
    await seen.page.evaluate(hide, True)
    asked = len(seen.tab.requests)
    await seen.page.clock.run_for(60_000)
    assert len(seen.tab.requests) == asked
    await call(server, "POST", "/orders/messages", data=b"x")
    await seen.page.evaluate(hide, False)
    await seen.has_figures("orders", ready=1)
    assert seen.is_clean(server.url)


async def test_it_stands_behind_a_prefix(server: Server, chromium: Browser) -> None:
    """Its own addresses are relative: a proxy may have mq below a path."""
    await call(server, "PUT", "/orders")
    tab = await chromium.open("about:blank")

    async def forward(route: Route) -> None:
        path = urlsplit(route.request.url)
        assert path.path.startswith("/mq/")
        query = f"?{path.query}" if path.query else ""
        reply = await route.fetch(url=f"{server.url}{path.path.removeprefix('/mq')}{query}")
        await route.fulfill(response=reply)

    await tab.page.route("http://prefixed.test/**", forward)
    await tab.page.goto("http://prefixed.test/mq/-/")
    await expect(tab.page.locator('[data-queue="orders"] [data-field="ready"]')).to_have_text("0")
    assert all(each.startswith(("http://prefixed.test/mq/", "about:")) for each in tab.requests)


async def test_what_was_not_answered_may_be_done(server: Server, chromium: Browser) -> None:
    await published(server.url)
    seen = await shown(chromium, server.url, "#/queue/orders")

    async def lose_the_answer(route: Route) -> None:
        await route.fetch()
        await route.abort()

    await seen.page.route("**/orders/messages", lose_the_answer)
    await seen.unfold("Publish a message")
    form = seen.page.get_by_role("region", name="Publish")
    await form.get_by_label("Body").fill("again?")
    await form.get_by_role("button", name="Publish").click()
    await seen.answer("Publish")
    await seen.said("It may have been done; check before you try again: mq does not answer")
    assert b"again?" in (await call(server, "GET", "/orders/peek")).body
