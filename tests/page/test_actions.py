"""What can be done by the page: each thing once it was said that it is meant."""

from harness.api import Reply, call
from harness.browser import Browser
from harness.page import Shown, shown
from harness.server import Server
from harness.waiting import comes_true
from playwright.async_api import expect


async def published(server: Server, *bodies: bytes, query: str = "") -> list[str]:
    await call(server, "PUT", "/orders")
    path = f"/orders/messages{query}"
    return [(await call(server, "POST", path, data=body)).id for body in bodies]


async def opened(server: Server, chromium: Browser) -> Shown:
    return await shown(chromium, server.url, "#/queue/orders")


async def state_of(server: Server, message_id: str, queue: str = "orders") -> Reply:
    return await call(server, "HEAD", f"/{queue}/messages/{message_id}")


async def test_a_queue_is_made(server: Server, chromium: Browser) -> None:
    seen = await shown(chromium, server.url)
    await seen.page.get_by_label("New queue").fill("orders")
    await seen.page.get_by_role("button", name="Make").click()
    await seen.said("The queue orders is there.")
    await seen.has_figures("orders", ready=0)
    assert (await call(server, "GET", "/orders")).status == 200
    # What mq does not take is said as mq says it.
    await seen.page.get_by_label("New queue").fill("no queue")
    await seen.page.get_by_role("button", name="Make").click()
    refused = (await call(server, "PUT", "/no%20queue")).json()
    await seen.said(refused["detail"])


async def test_a_message_is_published(server: Server, chromium: Browser) -> None:
    await call(server, "PUT", "/orders")
    seen = await opened(server, chromium)
    form = seen.page.get_by_role("region", name="Publish")
    await form.get_by_label("Body").fill('{"pizzas": 2} ü')
    await form.get_by_label("Content type").fill("application/json")
    await form.get_by_label("Lookup key").fill("table/7")
    await form.get_by_label("Priority").fill("7")
    await form.get_by_role("button", name="Publish").click()
    await seen.answer("Cancel")
    assert (await call(server, "GET", "/orders/peek")).body == b""
    await form.get_by_role("button", name="Publish").click()
    await seen.answer("Publish")
    await seen.said("Published: ")
    await expect(seen.messages()).to_have_count(1)
    await expect(seen.figure_of_view("ready")).to_have_text("1")
    reply = await call(server, "GET", "/orders/keys/table%2F7")
    assert reply.body.decode() == '{"pizzas": 2} ü'
    assert reply.headers["Content-Type"] == "application/json"
    await form.get_by_label("Delay in seconds").fill("600")
    await form.get_by_label("Body").fill("later")
    await form.get_by_role("button", name="Publish").click()
    await seen.answer("Publish")
    await expect(seen.figure_of_view("delayed")).to_have_text("1")
    assert seen.is_clean(server.url)


async def test_a_message_is_deleted(server: Server, chromium: Browser) -> None:
    one, other = await published(server, b"one", b"other")
    seen = await opened(server, chromium)
    delete = seen.message(one).get_by_role("button", name="Delete")
    await delete.click()
    await seen.answer("Cancel")
    await expect(delete).to_be_focused()
    assert (await state_of(server, one)).headers["X-Message-State"] == "ready"
    await delete.click()
    await seen.answer("Delete")
    await seen.said("The message is deleted.")
    await expect(seen.message(one)).to_have_count(0)
    await expect(seen.message(other)).to_have_count(1)
    assert (await state_of(server, one)).headers["X-Message-State"] == "removed"
    await seen.choose_state("removed")
    await expect(seen.message(one)).to_be_visible()
    await expect(seen.message(one).get_by_role("button")).to_have_count(0)
    assert seen.is_clean(server.url)


async def test_what_was_delivered_since_it_was_seen_stays(
    server: Server, chromium: Browser
) -> None:
    (one,) = await published(server, b"one")
    seen = await opened(server, chromium)
    delete = seen.message(one).get_by_role("button", name="Delete")
    await expect(delete).to_be_visible()
    assert (await call(server, "GET", "/orders/messages?visibility=600")).id == one
    await delete.click()
    await seen.answer("Delete")
    await seen.said("Not done.")
    assert (await state_of(server, one)).headers["X-Message-State"] == "delayed"


async def test_a_message_is_released(server: Server, chromium: Browser) -> None:
    (held,) = await published(server, b"held")
    assert (await call(server, "GET", "/orders/messages?visibility=600")).id == held
    (later,) = await published(server, b"later", query="?delay=600")
    seen = await opened(server, chromium)
    await seen.choose_state("delayed")
    await expect(seen.message(held)).to_contain_text("in flight")
    await expect(seen.message(later)).to_contain_text("delayed")
    release = seen.message(held).get_by_role("button", name="Release")
    await release.click()
    await seen.answer("Cancel")
    assert (await state_of(server, held)).headers["X-Message-State"] == "delayed"
    for message_id in (held, later):
        await seen.message(message_id).get_by_role("button", name="Release").click()
        await seen.answer("Release")
        await expect(seen.message(message_id)).to_have_count(0)
    await expect(seen.figure_of_view("ready")).to_have_text("2")
    assert (await call(server, "GET", "/orders/messages")).body == b"held"
    assert seen.is_clean(server.url)


async def test_a_message_is_sidelined_and_shovelled_back(server: Server, chromium: Browser) -> None:
    (one,) = await published(server, b"one")
    seen = await opened(server, chromium)
    await seen.message(one).get_by_role("button", name="Sideline").click()
    await seen.answer("Cancel")
    assert (await state_of(server, one)).status == 200
    await seen.message(one).get_by_role("button", name="Sideline").click()
    await seen.answer("Sideline")
    await seen.said("The message is in the sideline.")
    await expect(seen.figure_of_view("sidelined")).to_have_text("1")
    assert (await state_of(server, one, "orders_SIDELINE")).status == 200
    # In the sideline it says why, and has no way to be sidelined again.
    await seen.page.get_by_role("link", name="All queues").click()
    await seen.look_into("orders_SIDELINE")
    await expect(seen.message(one)).to_contain_text("rejected")
    await expect(seen.message(one).get_by_role("button", name="Sideline")).to_have_count(0)
    await seen.page.get_by_role("link", name="orders", exact=True).click()
    shovel = seen.page.get_by_role("region", name="Shovel")
    await shovel.get_by_label("Only count").check()
    await shovel.get_by_role("button", name="Shovel", exact=True).click()
    await seen.answer("Shovel")
    await expect(seen.figure_of_view("shovel")).to_contain_text("1 would be moved")
    assert (await state_of(server, one, "orders_SIDELINE")).status == 200
    await shovel.get_by_label("Only count").uncheck()
    await shovel.get_by_role("button", name="Shovel", exact=True).click()
    await seen.answer("Shovel")
    await expect(seen.figure_of_view("shovel")).to_contain_text("1 moved")
    await expect(seen.figure_of_view("ready")).to_have_text("1")
    assert (await state_of(server, one)).headers["X-Message-State"] == "ready"
    assert seen.is_clean(server.url)


async def test_schedules_are_put_and_deleted(server: Server, chromium: Browser) -> None:
    await call(server, "PUT", "/orders")
    seen = await opened(server, chromium)
    part = seen.page.get_by_role("region", name="Schedules")
    await expect(part).to_contain_text("This queue has no schedule.")
    await part.get_by_text("Put a schedule").click()
    await part.get_by_label("Name").fill("nightly")
    await part.get_by_label("Cron expression", exact=True).fill("30 2 * * *")
    await part.get_by_label("Time zone").fill("Europe/Berlin")
    await part.get_by_label("Body").fill("go")
    await part.get_by_role("button", name="Put the schedule").click()
    await seen.answer("Put")
    row = seen.page.locator('[data-schedule="nightly"]')
    await expect(row).to_contain_text("30 2 * * * (Europe/Berlin)")
    said = (await call(server, "GET", "/orders/schedules/nightly")).json()
    assert (said["cron"], said["tz"], said["body"]) == ("30 2 * * *", "Europe/Berlin", "go")
    # Neither this nor that: what mq says of it.
    await part.get_by_label("Every so many seconds").fill("60")
    await part.get_by_role("button", name="Put the schedule").click()
    await seen.answer("Put")
    await seen.said("Not done.")
    await row.get_by_role("button", name="Delete").click()
    await seen.answer("Cancel")
    assert (await call(server, "GET", "/orders/schedules/nightly")).status == 200
    await row.get_by_role("button", name="Delete").click()
    await seen.answer("Delete")
    await expect(row).to_have_count(0)
    assert (await call(server, "GET", "/orders/schedules/nightly")).status == 404


async def test_a_queue_is_purged_and_deleted(server: Server, chromium: Browser) -> None:
    one, _ = await published(server, b"one", b"other")
    seen = await opened(server, chromium)
    for action in ("Purge", "Delete queue"):
        await seen.page.get_by_role("button", name=action).click()
        await seen.answer("Cancel")
        assert (await state_of(server, one)).headers["X-Message-State"] == "ready"
    await seen.page.get_by_role("button", name="Purge").click()
    await seen.answer("Purge")
    await expect(seen.messages()).to_have_count(0)
    await expect(seen.figure_of_view("ready")).to_have_text("0")
    await seen.page.get_by_role("button", name="Delete queue").click()
    await seen.answer("Delete queue")
    await expect(seen.page.get_by_role("heading", level=1)).to_have_text("Queues")
    await expect(seen.row("orders")).to_have_count(0)

    async def is_gone() -> bool:
        return (await call(server, "GET", "/orders")).status == 404

    await comes_true(is_gone, "the queue's end")
    assert seen.is_clean(server.url)


async def test_what_cannot_be_sent_is_not_blamed_on_mq(server: Server, chromium: Browser) -> None:
    await call(server, "PUT", "/orders")
    seen = await opened(server, chromium)
    form = seen.page.get_by_role("region", name="Publish")
    await form.get_by_label("Content type").fill("text/plain; x=☃")
    await form.get_by_role("button", name="Publish").click()
    await seen.answer("Publish")
    await seen.said("Not done. A token or content type has characters that cannot be sent")


async def test_who_goes_elsewhere_means_nothing_of_what_was_asked(
    server: Server, chromium: Browser
) -> None:
    (message_id,) = await published(server, b"x")
    seen = await shown(chromium, server.url)
    await seen.look_into("orders")
    await seen.page.get_by_role("button", name="Purge").click()
    await expect(seen.page.get_by_role("dialog")).to_be_visible()
    await seen.page.go_back()
    await expect(seen.page.get_by_role("dialog")).to_have_count(0)
    await expect(seen.page.get_by_role("heading", level=1)).to_have_text("Queues")
    assert (await state_of(server, message_id)).headers["X-Message-State"] == "ready"
