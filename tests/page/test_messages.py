"""A queue's messages: searched, chosen together, and shown as they come."""

from harness.api import call
from harness.browser import Browser
from harness.page import Shown, shown
from harness.server import Server
from harness.waiting import comes_true
from playwright.async_api import Locator, expect


async def opened(server: Server, chromium: Browser) -> Shown:
    return await shown(chromium, server.url, "#/queue/orders")


async def search(seen: Shown, way: str, text: str, state: str = "") -> None:
    await seen.choose_state(state)
    await seen.page.get_by_label("Search by").select_option(way)
    await seen.page.get_by_label("Search for").fill(text)
    await seen.page.get_by_role("button", name="Search", exact=True).click()


async def publish(server: Server, body: bytes, query: str = "", **headers: str) -> str:
    named = {"Content-Type": "text/plain", **headers}
    reply = await call(server, "POST", f"/orders/messages{query}", data=body, headers=named)
    return reply.id


async def test_messages_are_found(server: Server, chromium: Browser) -> None:
    await call(server, "PUT", "/orders")
    for number in range(30):
        await publish(server, b"another", f"?key=eu-{number}")
    key = await publish(server, b"one", "?key=a/b,c")
    tag = await publish(server, b"two", "?tag=night%2Frun&delay=600")
    group = await publish(server, b"three", "?group=table-7")
    header = await publish(server, b"four", **{"x-attribute-shop": "north"})
    seen = await opened(server, chromium)
    for way, text, found in [
        ("tag", "night/run", tag), ("group", "table-7", group),
        ("header", "x-attribute-shop=nor*", header), ("select", "not(key:eu-*),key:*", key),
    ]:  # fmt: skip
        await search(seen, way, text)
        await expect(seen.messages()).to_have_count(1)
        await expect(seen.message(found)).to_be_visible()
    await search(seen, "key", "eu-*", "ready")
    await expect(seen.messages()).to_have_count(25)
    await seen.page.get_by_role("button", name="Next page").click()
    await expect(seen.messages()).to_have_count(5)
    await search(seen, "select", "priority:x")
    region = seen.page.get_by_role("region", name="Messages", exact=True)
    await expect(region).to_contain_text("select is malformed")
    await search(seen, "key", "none")
    await seen.said("No message of orders has the key none.")
    # A whole key or id leads to the page of its message.
    await search(seen, "key", "a/b,c")
    await expect(seen.page.get_by_role("heading", level=1)).to_contain_text(key)
    await seen.page.get_by_role("link", name="orders", exact=True).click()
    await search(seen, "id", group)
    await expect(seen.page.get_by_role("heading", level=1)).to_contain_text(group)


async def test_many_are_chosen_and_acted_on(server: Server, chromium: Browser) -> None:
    await call(server, "PUT", "/orders")
    lines = "\n".join(map(str, range(130))).encode()
    await call(server, "POST", "/orders/messages?split=lines", data=lines)
    seen = await opened(server, chromium)
    bulk = seen.page.get_by_role("group", name="Selected messages")
    delete = bulk.get_by_role("button", name="Delete")
    await expect(seen.messages()).to_have_count(25)
    await expect(delete).to_be_disabled()
    await seen.messages().first.get_by_role("checkbox").check()
    await expect(bulk).to_contain_text("1 selected")
    await bulk.get_by_label("Select all on this page").check()
    await expect(bulk).to_contain_text("25 selected")
    await seen.messages().first.get_by_role("checkbox").uncheck()
    await bulk.get_by_role("button", name="Sideline").click()
    await seen.answer("Sideline")
    await seen.said("24 sidelined.")
    await expect(bulk).to_contain_text("None selected")

    await bulk.get_by_role("button", name="Select all that match").click()
    await expect(bulk).to_contain_text("106 selected")
    await delete.click()
    await expect(seen.page.get_by_role("dialog")).to_contain_text("Delete 106 messages?")
    await seen.answer("Cancel")
    # What was fetched since it was chosen stays.
    held = await call(server, "GET", "/orders/messages?visibility=600")
    await delete.click()
    await seen.answer("Delete")
    await seen.said("105 deleted; 1 not: ")
    await expect(seen.messages()).to_have_count(0)
    said = (await call(server, "GET", "/orders")).json()
    assert (said["ready"], said["in_flight"], said["sidelined"]) == (0, 1, 24)
    await seen.choose_state("delayed")
    await seen.message(held.id).get_by_role("checkbox").check()
    await bulk.get_by_role("button", name="Release").click()
    await seen.answer("Release")
    await seen.said("1 released.")


def rows(seen: Shown) -> Locator:
    return seen.page.locator("[data-tail]")


def asked(seen: Shown, path: str) -> list[str]:
    return [each for each in seen.tab.requests if path in each]


async def follow(seen: Shown) -> Locator:
    region = seen.page.get_by_role("region", name="Live tail")
    await region.get_by_role("button", name="Follow the queue live").click()
    return region


async def test_a_queue_is_followed_and_nothing_is_consumed(
    server: Server, chromium: Browser
) -> None:
    await call(server, "PUT", "/orders")
    await publish(server, b"before")
    seen = await opened(server, chromium)
    region = await follow(seen)
    await expect(rows(seen)).to_have_count(1)
    harm = b"<img src=x onerror=\"document.title='harmed'\">"
    message_id = await publish(server, harm)
    await expect(rows(seen)).to_have_count(2)
    await expect(rows(seen).last).to_contain_text(harm.decode())
    await expect(rows(seen).last.get_by_role("link", name=message_id)).to_be_visible()
    assert await seen.page.locator("main img").count() == 0
    assert (await call(server, "GET", "/orders/peek")).body.count(b'"receives": 0') == 2

    # Scrolling back pauses; the end, or the button, goes on.
    await call(server, "POST", "/orders/messages?split=lines", data=b"\n".join([b"x"] * 60))
    await expect(rows(seen)).to_have_count(62)
    await seen.page.locator(".tail").evaluate("(it) => { it.scrollTop = 0; }")
    await expect(region).to_contain_text("Paused by scrolling; 0 new.")
    await publish(server, b"one more")
    await expect(region).to_contain_text("1 new")
    await expect(rows(seen)).to_have_count(62)
    await region.get_by_role("button", name="Resume").click()
    await expect(rows(seen).last).to_contain_text("one more")

    # The tab keeps a bounded number.
    lines = b"\n".join(b"%d" % number for number in range(900))
    await call(server, "POST", "/orders/messages?split=lines", data=lines)
    await expect(rows(seen).last).to_contain_text("899")
    await expect(rows(seen)).to_have_count(500)
    await region.get_by_role("button", name="Stop following the queue live").click()
    await publish(server, b"after")
    await expect(region).to_contain_text("Stopped.")
    assert await seen.tab.barriers() == []
    assert await seen.tab.faint() == []
    await seen.page.set_viewport_size({"width": 360, "height": 800})
    assert await seen.tab.overflow() <= 0
    assert seen.is_clean(server.url)


async def test_it_is_followed_without_web_sockets(server: Server, chromium: Browser) -> None:
    await call(server, "PUT", "/orders")
    await publish(server, b"before")
    seen = await opened(server, chromium)
    await seen.page.evaluate(
        """() => { window.WebSocket = class extends EventTarget {
            constructor() { super(); setTimeout(() => this.dispatchEvent(new Event("close"))); }
            close() {}
        }; }"""
    )
    region = await follow(seen)
    await expect(rows(seen)).to_have_count(1)
    await expect(region).to_contain_text("looking at the first 1000 ready messages")
    message_id = await publish(server, b"later")
    await expect(rows(seen).last).to_contain_text("later")
    await expect(rows(seen)).to_have_count(2)
    assert (await call(server, "DELETE", f"/orders/messages/{message_id}")).status == 202
    # Elsewhere it looks no more.
    await seen.page.evaluate("location.hash = '#/'")
    await expect(seen.row("orders")).to_be_visible()
    peeks = len(asked(seen, "/orders/peek"))
    polls = len(asked(seen, "/-/queues"))
    await comes_true(lambda: len(asked(seen, "/-/queues")) >= polls + 2)
    assert len(asked(seen, "/orders/peek")) == peeks
