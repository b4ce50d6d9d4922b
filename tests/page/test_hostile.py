"""Messages and names that mean harm are text here, and nothing else."""

import json

import pytest
from harness.api import call
from harness.browser import Browser
from harness.page import shown
from harness.server import Server
from playwright.async_api import expect

HARM = "<img src=x onerror=\"document.title='harmed'\"><script>document.title='harmed'</script>"


async def test_bodies_headers_and_keys_are_text(server: Server, chromium: Browser) -> None:
    await call(server, "PUT", "/orders")
    headers = {"Content-Type": "text/html", "x-attribute-harm": HARM}
    reply = await call(server, "POST", "/orders/messages", data=HARM.encode(), headers=headers)
    await call(server, "PUT", "/orders/schedules/s?every=3600", data=HARM.encode())
    seen = await shown(chromium, server.url, "#/queue/orders")
    message = seen.message(reply.id)
    await message.locator("summary").click()
    await expect(message.locator("pre")).to_have_text(HARM)
    await expect(message.locator(".headers")).to_contain_text(HARM)
    await seen.go_to("Schedules")
    await expect(seen.page.locator("[data-schedule]")).to_have_count(1)
    assert await seen.page.locator("main img, main script").count() == 0
    assert "harmed" not in await seen.page.title()
    assert seen.is_clean(server.url)


@pytest.mark.parametrize("name", ["<img src=x onerror=alert(1)>", "../-/members", "%zz", "a/b?c#d"])
async def test_a_link_to_no_queue_does_nothing(
    server: Server, chromium: Browser, name: str
) -> None:
    await call(server, "PUT", "/orders")
    before = await shown(chromium, server.url)
    hash_ = await before.page.evaluate("encodeURIComponent", name)
    seen = await shown(chromium, server.url, f"#/queue/{hash_ if '%' not in name else name}")
    await expect(seen.page.get_by_role("heading", level=1)).to_have_text(name)
    await expect(seen.page.get_by_role("region", name="Messages", exact=True)).to_contain_text(":")
    assert await seen.page.locator("main img").count() == 0
    # Whatever the name is, it is one segment of a path, or was refused as such.
    paths = {each.removeprefix(server.url) for each in seen.tab.requests}
    assert not [each for each in paths if each.startswith("/-/members")]
    assert seen.outside(server.url) == []


async def test_a_script_that_got_in_would_not_run(server: Server, chromium: Browser) -> None:
    seen = await shown(chromium, server.url)
    ran = await seen.page.evaluate("""() => {
        const script = document.createElement("script");
        try { script.text = "document.title = 'harmed'"; } catch { return false; }
        document.body.append(script);
        return document.title === "harmed";
    }""")
    assert ran is False


async def test_it_is_in_nobody_s_frame(server: Server, chromium: Browser) -> None:
    seen = await shown(chromium, server.url)
    tab = await chromium.open("about:blank")
    await tab.page.set_content(f"<iframe src={json.dumps(server.url + '/-/')}></iframe>")
    await expect(tab.page.locator("iframe")).to_be_visible()
    frame = tab.page.frames[-1]
    assert await frame.locator("#main h1").count() == 0
    assert seen.is_clean(server.url)


@pytest.mark.parametrize("path", ["/orders/messages/{id}", "/orders/messages"])
async def test_a_body_that_is_opened_by_itself_runs_nothing(
    server: Server, chromium: Browser, path: str
) -> None:
    await call(server, "PUT", "/orders")
    body = f"<p>a pizza</p>{HARM}".encode()
    reply = await call(
        server, "POST", "/orders/messages", data=body, headers={"Content-Type": "text/html"}
    )
    tab = await chromium.open(server.url + path.format(id=reply.id))
    await expect(tab.page.get_by_text("a pizza")).to_be_visible()
    assert await tab.page.title() == ""
