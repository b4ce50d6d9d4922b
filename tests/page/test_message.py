"""A message's own page: its body in safe forms, what became of it, and what can be done."""

import gzip
import json
import struct
import zlib

from harness.api import call
from harness.browser import Browser
from harness.page import Shown, shown
from harness.server import Server
from playwright.async_api import expect

HARM = "<img src=x onerror=\"document.title='harmed'\"><script>document.title='harmed'</script>"
JSON = {"Content-Type": "application/json"}


async def opened(
    server: Server,
    chromium: Browser,
    message_id: str,
    queue: str = "orders",
    *,
    dark: bool = False,
    width: int = 1280,
) -> Shown:
    hash_ = f"#/message/{queue}/{message_id}"
    seen = await shown(chromium, server.url, hash_, dark=dark, width=width)
    await expect(seen.page.get_by_role("heading", level=1)).to_contain_text(message_id)
    return seen


async def published(server: Server, body: bytes, query: str = "", **headers: str) -> str:
    await call(server, "PUT", "/orders")
    named = {name.replace("_", "-").title(): value for name, value in headers.items()}
    reply = await call(server, "POST", f"/orders/messages{query}", data=body, headers=named)
    return reply.id


def a_png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + check

    rows = zlib.compress((b"\0" + b"\xff\0\0" * width) * height)
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


async def test_it_has_a_page_with_all_that_is_known(server: Server, chromium: Browser) -> None:
    body = b'{"n": 12345678901234567890, "a": [1, {}, "x, y"], "a": null}'
    message_id = await published(
        server, body, "?key=table-7&group=g1&tag=a%20b&priority=7", ce_id="1", **JSON
    )
    seen = await shown(chromium, server.url, "#/queue/orders")
    await seen.message(message_id).get_by_role("link", name=message_id).click()
    view = seen.page.get_by_role("region", name=f"Message {message_id}")
    for text in ("ready", "Priority7", "Groupg1", "Tagsa b", "60 bytes"):
        await expect(view).to_contain_text(text)
    # Figures and names that come twice stay as they were written.
    as_json = seen.page.get_by_role("region", name="Body as JSON")
    await expect(as_json).to_have_text(
        '{\n  "n": 12345678901234567890,\n  "a": [\n    1,\n    {},\n    "x, y"\n  ],\n'
        '  "a": null\n}'
    )
    await seen.page.get_by_label("Show as").select_option("Text")
    await expect(seen.page.get_by_role("region", name="Body as text")).to_have_text(body.decode())
    await seen.page.get_by_label("Show as").select_option("Hexadecimal")
    hexadecimal = seen.page.get_by_role("region", name="Body as hexadecimal")
    await expect(hexadecimal).to_contain_text("000000  7b 22 6e 22")
    headers = seen.page.get_by_role("region", name="Headers")
    await expect(headers).to_contain_text("ce-id1")
    await expect(headers).not_to_contain_text("Server")
    assert await seen.tab.barriers() == []
    assert await seen.tab.faint() == []
    assert seen.is_clean(server.url)


async def test_its_history_and_its_failures_outlive_a_sideline(
    server: Server, chromium: Browser
) -> None:
    await call(server, "PUT", "/orders")
    await call(server, "PATCH", "/orders/settings", data=b'{"history": true}', headers=JSON)
    message_id = await published(server, b"one")
    reason = {"type": "OvenError", "text": "too hot", "trace": "in bake\nOvenError: too hot" + HARM}
    said = json.dumps({"messages": [{"id": message_id, "reason": reason}]}).encode()
    assert (await call(server, "POST", "/orders/sidelines", data=said, headers=JSON)).status == 200
    seen = await opened(server, chromium, message_id, "orders_SIDELINE", dark=True, width=360)
    failures = seen.page.get_by_role("region", name="Failures")
    await expect(failures.locator("pre")).to_have_text(reason["trace"])
    await expect(failures).to_contain_text("OvenError")
    events = seen.page.locator(".timeline li strong")
    await expect(events.first).to_have_text("published")
    await expect(events.filter(has_text="sidelined").first).to_be_visible()
    assert await seen.tab.overflow() <= 0
    assert await seen.tab.faint() == []
    assert await seen.page.locator("main img, main script").count() == 0
    assert seen.is_clean(server.url)


async def test_what_can_be_done_with_it(server: Server, chromium: Browser) -> None:
    message_id = await published(server, b"a pizza", "?tag=eu&group=g", x_attribute_shop="north")
    await call(server, "GET", "/orders/messages?visibility=600")
    seen = await opened(server, chromium, message_id)
    view = seen.page.get_by_role("region", name=f"Message {message_id}")
    await view.get_by_role("button", name="Retry now").click()
    await seen.answer("Retry now")
    await expect(view.get_by_text("ready", exact=True)).to_be_visible()
    await view.get_by_role("button", name="Sideline").click()
    await seen.answer("Sideline")
    await expect(view.locator(".note")).to_contain_text("message")
    await expect(view.get_by_role("button", name="Delete")).to_have_count(0)

    aside = await opened(server, chromium, message_id, "orders_SIDELINE")
    again = aside.page.get_by_role("button", name="Publish again")
    await again.click()
    await aside.answer("Publish again")
    await aside.said("Published: ")
    reply = await call(server, "GET", "/orders/messages?visibility=600")
    assert reply.id != message_id
    assert reply.body == b"a pizza"
    kept = ("x-attribute-shop", "X-Message-Tags", "X-Message-Group")
    assert [reply.headers[name] for name in kept] == ["north", "eu", "g"]
    await aside.page.get_by_role("button", name="Delete").click()
    await aside.answer("Delete")
    await aside.said("The message is deleted.")
    state = await call(server, "HEAD", f"/orders_SIDELINE/messages/{message_id}")
    assert state.headers["X-Message-State"] == "removed"


async def test_bodies_do_no_harm(server: Server, chromium: Browser) -> None:
    deep = b"[" * 5000 + b"]" * 5000
    svg = f'<svg xmlns="http://www.w3.org/2000/svg">{HARM}</svg>'.encode()
    cases = [
        (HARM.encode(), "text/html", "text", HARM),
        (svg, "image/svg+xml", "text", "<svg"),
        (b"\xff\xfe\0", "text/plain", "hexadecimal", "ff fe 00"),
        (b"", "text/plain", "text", ""),
        (b'{"a": 1', "application/json", "text", '{"a": 1'),
        (deep, "application/json", "JSON", "[\n  [\n"),
        (b"x" * 1024 * 1024 + "ü".encode(), "text/plain", "text", "xxx"),
    ]
    for body, media_type, way, text in cases:
        message_id = await published(server, body, content_type=media_type)
        seen = await opened(server, chromium, message_id)
        shown_body = seen.page.get_by_role("region", name=f"Body as {way}")
        await expect(shown_body).to_contain_text(text)
        assert await seen.page.locator("main img, main script, main svg").count() == 0
        assert await seen.page.get_by_label("Show as").locator("text=Image").count() == 0
        assert "harmed" not in await seen.page.title()
        assert seen.is_clean(server.url)
        await seen.page.close()


async def test_an_image_is_pixels_once_somebody_asks(server: Server, chromium: Browser) -> None:
    message_id = await published(server, a_png(3000, 2), content_type="image/png")
    seen = await opened(server, chromium, message_id)
    await expect(seen.page.get_by_role("region", name="Body as hexadecimal")).to_be_visible()
    await seen.page.get_by_label("Show as").select_option("Image")
    image = seen.page.get_by_role("img", name="Image, 3000 by 2 pixels")
    await expect(image).to_have_attribute("width", "1024")
    red = await image.evaluate("(it) => [...it.getContext('2d').getImageData(9, 0, 1, 1).data]")
    assert red == [255, 0, 0, 255]
    broken = await published(server, b"\x89PNG and no more", content_type="image/png")
    seen = await opened(server, chromium, broken)
    await seen.page.get_by_label("Show as").select_option("Image")
    await expect(seen.page.get_by_text("The image cannot be decoded.")).to_be_visible()


async def test_an_encoded_body_is_decoded_and_copied_decoded(
    server: Server, chromium: Browser
) -> None:
    packed = gzip.compress(b'{"a": 1}')
    headers = {"Content-Encoding": "gzip", **JSON}
    message_id = await published(server, packed, **headers)
    seen = await opened(server, chromium, message_id)
    await expect(seen.page.get_by_role("region", name="Body as JSON")).to_contain_text('"a": 1')
    await call(server, "DELETE", f"/orders/messages/{message_id}")
    await seen.page.get_by_role("button", name="Publish again").click()
    await seen.answer("Publish again")
    await seen.said("Published: ")
    reply = await call(server, "GET", "/orders/messages")
    assert (reply.body, reply.headers.get("Content-Encoding")) == (b'{"a": 1}', None)


async def test_a_message_that_is_not_there_says_so(server: Server, chromium: Browser) -> None:
    await call(server, "PUT", "/orders")
    for where in ("orders/%3Cimg%20src%3Dx%3E", "orders/..%2F..%2F-%2Fmembers", "none/%zz"):
        seen = await shown(chromium, server.url, f"#/message/{where}")
        await expect(seen.page.locator(".message > .note")).to_contain_text(" ")
        await expect(seen.page.locator(".message .bar button")).to_have_count(0)
        assert await seen.page.locator("main img").count() == 0
        assert not [each for each in seen.tab.requests if each.endswith("/-/members")]
        await seen.page.close()
