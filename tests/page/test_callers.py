"""The page where callers have to say who they are: it shows what they may, and says what not."""

from harness.access import Tokens
from harness.api import call
from harness.browser import Browser
from harness.page import Shown, shown
from harness.server import Serve, Server
from playwright.async_api import Route, expect


async def guarded(serve: Serve, tokens: Tokens) -> Server:
    server = await serve(tokens=tokens.path)
    for queue in ("orders", "events"):
        await call(server, "PUT", f"/{queue}", headers=tokens.header("root"))
    await call(server, "POST", "/orders/messages", data=b"pizza", headers=tokens.header("root"))
    return server


async def show_token(seen: Shown, token: str) -> None:
    dialog = seen.page.get_by_role("dialog", name="Token")
    await expect(dialog).to_be_visible()
    await dialog.get_by_label("Token", exact=True).last.fill(token)
    await dialog.get_by_role("button", name="Use token").click()
    await expect(dialog).to_have_count(0)


async def test_it_asks_who_looks_and_shows_what_they_may(
    serve: Serve, tokens: Tokens, chromium: Browser
) -> None:
    server = await guarded(serve, tokens)
    seen = await shown(chromium, server.url)
    await show_token(seen, "wrong")
    await expect(seen.page.get_by_text("mq does not accept this token.")).to_be_visible()
    await seen.page.get_by_role("button", name="Enter a token").click()
    await show_token(seen, tokens.of["consumer"])
    await seen.has_figures("orders", ready=1)
    await expect(seen.page.locator("[data-queue]")).to_have_count(1)
    await expect(seen.page.locator("#unknown")).to_be_hidden()
    # May consume: looks, and deletes; may not publish, nor purge, nor see the members.
    await seen.look_into("orders")
    await expect(seen.messages()).to_have_count(1)
    await seen.go_to("Schedules")
    await expect(seen.page.get_by_role("region", name="Schedules")).to_contain_text(
        "The caller lacks the right 'publish'."
    )
    await seen.go_to("Settings")
    await seen.page.get_by_role("button", name="Purge").click()
    await seen.answer("Purge", typed="orders")
    await seen.said("The caller lacks the right 'admin'.")
    await seen.go_to("Messages")
    await seen.messages().get_by_role("button", name="Delete").click()
    await seen.answer("Delete")
    await seen.said("The message is deleted.")
    await seen.page.get_by_role("link", name="Members").click()
    await expect(seen.page.get_by_text("The caller lacks the right 'admin'.").first).to_be_visible()
    # The token went in a header alone, and is kept for this tab.
    token = tokens.of["consumer"]
    assert not [each for each in seen.tab.requests if token in each]
    assert token not in seen.page.url
    await seen.page.reload()
    await expect(seen.page.get_by_role("heading", level=1)).to_have_text("Members")
    await seen.page.get_by_role("link", name="Queues").click()
    await seen.has_figures("orders", ready=0)
    await seen.page.get_by_role("button", name="Token").click()
    await seen.page.get_by_role("button", name="Forget token").click()
    await expect(seen.page.locator("[data-queue]")).to_have_count(0)
    await expect(seen.page.get_by_text("mq requires a token.")).to_be_visible()
    assert await seen.page.evaluate("sessionStorage.length + localStorage.length") == 0


async def test_who_may_publish_alone_is_told_what_is_not_for_them(
    serve: Serve, tokens: Tokens, chromium: Browser
) -> None:
    server = await guarded(serve, tokens)
    seen = await shown(chromium, server.url, "#/queue/orders")
    await show_token(seen, tokens.of["publisher"])
    messages = seen.page.get_by_role("region", name="Messages", exact=True)
    await expect(messages).to_contain_text("The caller lacks the right 'consume'.")
    await seen.unfold("Publish a message")
    form = seen.page.get_by_role("region", name="Publish")
    await form.get_by_label("Body").fill("more")
    await form.get_by_role("button", name="Publish").click()
    await seen.answer("Publish")
    await seen.said("Published: ")
    await expect(seen.figure_of_view("ready")).to_have_text("2")


async def test_another_one_s_queue_is_not_shown(
    serve: Serve, tokens: Tokens, chromium: Browser
) -> None:
    server = await guarded(serve, tokens)
    seen = await shown(chromium, server.url, "#/queue/orders")
    await show_token(seen, tokens.of["stranger"])
    await expect(seen.page.locator(".queue > .note")).to_contain_text("The caller lacks")
    await expect(seen.messages()).to_have_count(0)
    await seen.page.get_by_role("link", name="All queues").click()
    await expect(seen.page.locator("[data-queue]")).to_have_count(1)
    await seen.has_figures("events", ready=0)


async def test_a_token_that_is_known_again_is_not_said_to_be_unknown(
    serve: Serve, tokens: Tokens, chromium: Browser
) -> None:
    server = await guarded(serve, tokens)
    seen = await shown(chromium, server.url)
    await show_token(seen, tokens.of["root"])
    await seen.has_figures("orders", ready=1)
    unknown = seen.page.get_by_text("mq does not accept this token.")

    async def refuse(route: Route) -> None:
        await route.fulfill(status=401)

    await seen.page.route("**/-/queues*", refuse)
    await expect(unknown).to_be_visible()
    await seen.page.unroute("**/-/queues*")
    await call(server, "POST", "/orders/messages", data=b"y", headers=tokens.header("root"))
    await seen.has_figures("orders", ready=2)
    await expect(unknown).to_be_hidden()
