"""What can be done by the page: each thing once it was said that it is meant."""

import asyncio
import re

from harness.api import Reply, call
from harness.browser import Browser
from harness.internals import consumers
from harness.page import Shown, shown
from harness.server import Server
from harness.waiting import comes_true
from playwright.async_api import expect


async def published(server: Server, *bodies: bytes, query: str = "") -> list[str]:
    await call(server, "PUT", "/orders")
    path = f"/orders/messages{query}"
    return [(await call(server, "POST", path, data=body)).id for body in bodies]


async def opened(server: Server, chromium: Browser, tab: str = "messages") -> Shown:
    return await shown(chromium, server.url, f"#/queue/orders/{tab}")


async def state_of(server: Server, message_id: str, queue: str = "orders") -> Reply:
    return await call(server, "HEAD", f"/{queue}/messages/{message_id}")


async def test_a_queue_is_made(server: Server, chromium: Browser) -> None:
    seen = await shown(chromium, server.url)
    await seen.page.get_by_label("New queue").fill("orders")
    await seen.page.get_by_role("button", name="Create").click()
    await seen.said("The queue orders exists.")
    await seen.has_figures("orders", ready=0)
    assert (await call(server, "GET", "/orders")).status == 200
    # What mq does not take is said as mq says it.
    await seen.page.get_by_label("New queue").fill("no queue")
    await seen.page.get_by_role("button", name="Create").click()
    refused = (await call(server, "PUT", "/no%20queue")).json()
    await seen.said(refused["detail"])


async def test_a_message_is_published(server: Server, chromium: Browser) -> None:
    await call(server, "PUT", "/orders")
    seen = await opened(server, chromium)
    await seen.unfold("Publish a message")
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


async def test_a_message_says_why_it_was_released(server: Server, chromium: Browser) -> None:
    (one,) = await published(server, b"one")
    assert (await call(server, "GET", "/orders/messages")).id == one
    body = {"due_in_s": 0, "release": True, "reason": "no <b>oven</b> is free"}
    assert (await call(server, "PATCH", f"/orders/messages/{one}", json=body)).status == 200
    seen = await opened(server, chromium)
    await expect(seen.message(one)).to_contain_text("no <b>oven</b> is free")
    assert seen.is_clean(server.url)


async def test_a_message_is_sidelined_and_shovelled_back(server: Server, chromium: Browser) -> None:
    (one,) = await published(server, b"one")
    seen = await opened(server, chromium)
    await seen.message(one).get_by_role("button", name="Sideline").click()
    await seen.answer("Cancel")
    assert (await state_of(server, one)).status == 200
    await seen.message(one).get_by_role("button", name="Sideline").click()
    await seen.answer("Sideline")
    await seen.said("The message is sidelined.")
    await expect(seen.figure_of_view("sidelined")).to_have_text("1")
    assert (await state_of(server, one, "orders_SIDELINE")).status == 200
    # It says why in the tab of the queue, and has no way to be sidelined again.
    await seen.page.get_by_role("link", name="All queues").click()
    await expect(seen.row("orders")).to_contain_text("1 dead letter")
    await seen.figure("orders", "sidelined").get_by_role("link").click()
    await expect(seen.page).to_have_url(re.compile("#/queue/orders/dead-letters$"))
    await expect(seen.message(one)).to_contain_text("rejected")
    await expect(seen.message(one).get_by_role("button", name="Sideline")).to_have_count(0)
    await seen.message(one).get_by_role("button", name="Retry").click()
    await seen.answer("Cancel")
    assert (await state_of(server, one, "orders_SIDELINE")).status == 200
    await seen.message(one).get_by_role("button", name="Retry").click()
    await seen.answer("Retry")
    await seen.said("The message is back in orders.")
    await expect(seen.messages()).to_have_count(0)
    await expect(seen.figure_of_view("ready")).to_have_text("1")
    assert (await state_of(server, one)).headers["X-Message-State"] == "ready"
    assert seen.is_clean(server.url)


async def sidelined(server: Server, *bodies: bytes) -> list[str]:
    ids = await published(server, *bodies)
    for each in ids:
        await call(server, "POST", f"/orders/messages/{each}/sideline")
    return ids


async def test_chosen_dead_letters_are_retried_or_deleted(
    server: Server, chromium: Browser
) -> None:
    one, two, three, four = await sidelined(server, b"1", b"2", b"3", b"4")
    seen = await shown(chromium, server.url, "#/queue/orders_SIDELINE")
    await expect(seen.messages()).to_have_count(4)
    bulk = seen.page.get_by_role("group", name="Selected messages")
    retry = bulk.get_by_role("button", name="Retry")
    await expect(retry).to_be_disabled()
    for each in (one, three):
        await seen.message(each).get_by_role("checkbox").check()
    # What another has taken meanwhile is not said to be moved.
    await call(server, "DELETE", f"/orders_SIDELINE/messages/{three}")
    await retry.click()
    await seen.answer("Retry")
    await seen.said("1 retried; 1 not: no longer there.")
    await expect(seen.messages()).to_have_count(2)
    await bulk.get_by_label("Select all on this page").check()
    assert (await call(server, "GET", "/orders_SIDELINE/messages?visibility=600")).id == two
    await bulk.get_by_role("button", name="Delete").click()
    await seen.answer("Delete")
    await seen.said("1 deleted; 1 not:")
    states = [await state_of(server, each, "orders_SIDELINE") for each in (two, four)]
    assert [each.headers["X-Message-State"] for each in states] == ["delayed", "removed"]
    assert (await state_of(server, one)).headers["X-Message-State"] == "ready"
    assert seen.is_clean(server.url)


async def test_dead_letters_are_retried_by_a_selection(server: Server, chromium: Browser) -> None:
    await call(server, "PUT", "/orders")
    for key in ("eu-1", "eu-2", "us-1"):
        reply = await call(server, "POST", f"/orders/messages?key={key}", data=b"x")
        await call(server, "POST", f"/orders/messages/{reply.id}/sideline")
    seen = await opened(server, chromium, "dead-letters")
    await expect(seen.messages()).to_have_count(3)
    await seen.unfold("Retry by selection")
    form = seen.page.get_by_role("region", name="Retry by selection")
    await form.get_by_label("Only with this key").fill("eu-*")
    await form.get_by_label("Messages a second").fill("100")
    await form.get_by_role("button", name="Dry run").click()
    await seen.answer("Count")
    run = seen.figure_of_view("shovel")
    await expect(run).to_contain_text("done. 3 checked, 2 would be moved; stayed: 1 not-selected")
    await expect(seen.messages()).to_have_count(3)
    await form.get_by_role("button", name="Retry all that match").click()
    await seen.answer("Retry")
    await expect(run).to_contain_text("done. 3 checked, 2 moved")
    await expect(seen.messages()).to_have_count(1)
    said = (await call(server, "GET", "/orders/shovel")).json()
    assert (said["rate"], said["criteria"]["key"]) == (100, "eu-*")
    assert seen.is_clean(server.url)


async def test_settings_are_edited_in_place(server: Server, chromium: Browser) -> None:
    await call(server, "PUT", "/orders")
    seen = await opened(server, chromium, "settings")
    row = seen.page.locator('[data-setting="visibility_s"]')
    # Meaning and range are what mq declares.
    await expect(row).to_contain_text("The visibility timeout.")
    await expect(row).to_contain_text("0.001 s to 7 d")
    save = seen.page.get_by_role("button", name="Save changes")
    await expect(save).to_be_disabled()
    await seen.page.get_by_label("visibility_s").fill("60")
    await seen.page.get_by_label("overflow").select_option("drop-oldest")
    await seen.page.get_by_label("history", exact=True).check()
    await seen.page.get_by_label("labels").fill('{"team": "pizza"}')
    await expect(
        seen.page.get_by_text("Not saved: visibility_s, history, overflow")
    ).to_be_visible()
    await expect(seen.page.get_by_label("bucket")).to_be_disabled()
    await save.click()
    await seen.answer("Save")
    await seen.said("The settings are saved.")
    wanted = {"visibility_s": 60, "overflow": "drop-oldest", "history": True}
    said = (await call(server, "GET", "/orders/settings")).json()
    assert wanted.items() <= said.items()
    assert said["labels"] == {"team": "pizza"}
    # What others have changed meanwhile is not overwritten.
    await seen.page.get_by_label("visibility_s").fill("90")
    await call(server, "PATCH", "/orders/settings", json={"max_receives": 5})
    await save.click()
    await seen.answer("Save")
    await seen.said("Not done.")
    await seen.page.reload()
    await row.get_by_role("button", name="Default").click()
    await seen.answer("Restore")
    await expect(seen.page.get_by_label("visibility_s")).to_have_value("30")
    assert (await call(server, "GET", "/orders/settings")).json()["max_receives"] == 5


async def test_a_queue_is_paused_and_resumed(server: Server, chromium: Browser) -> None:
    await call(server, "PUT", "/orders")
    seen = await opened(server, chromium)
    for what in ("Pause publishes", "Pause deliveries", "Resume publishes"):
        await seen.page.get_by_role("button", name=what).click()
        await seen.answer(what)
        await expect(seen.page.get_by_role("button", name=what)).to_have_count(0)
    assert (await call(server, "GET", "/orders/settings")).json()["paused"] == "deliveries"
    assert seen.is_clean(server.url)


async def test_schedules_are_put_and_deleted(server: Server, chromium: Browser) -> None:
    await call(server, "PUT", "/orders")
    seen = await opened(server, chromium, "schedules")
    part = seen.page.get_by_role("region", name="Schedules")
    await expect(part).to_contain_text("This queue has no schedule.")
    await part.get_by_text("Add a schedule").click()
    await part.get_by_label("Name").fill("nightly")
    await part.get_by_label("Cron expression", exact=True).fill("30 2 * * *")
    await part.get_by_label("Time zone").fill("Europe/Berlin")
    await part.get_by_label("Body").fill("go")
    await part.get_by_role("button", name="Save the schedule").click()
    await seen.answer("Save")
    row = seen.page.locator('[data-schedule="nightly"]')
    await expect(row).to_contain_text("30 2 * * * (Europe/Berlin)")
    said = (await call(server, "GET", "/orders/schedules/nightly")).json()
    assert (said["cron"], said["tz"], said["body"]) == ("30 2 * * *", "Europe/Berlin", "go")
    # Neither this nor that: what mq says of it.
    await part.get_by_label("Interval in seconds").fill("60")
    await part.get_by_role("button", name="Save the schedule").click()
    await seen.answer("Save")
    await seen.said("Not done.")
    await row.get_by_role("button", name="Delete").click()
    await seen.answer("Cancel")
    assert (await call(server, "GET", "/orders/schedules/nightly")).status == 200
    await row.get_by_role("button", name="Delete").click()
    await seen.answer("Delete")
    await expect(row).to_have_count(0)
    assert (await call(server, "GET", "/orders/schedules/nightly")).status == 404


async def test_a_consumer_is_listed_and_ended(server: Server, chromium: Browser) -> None:
    await call(server, "PUT", "/orders")
    poll = asyncio.create_task(call(server, "GET", "/orders/messages?wait=60&priority=7"))
    await comes_true(lambda: consumers(server, "orders") == 1, "the poll")
    seen = await opened(server, chromium, "consumers")
    row = seen.page.locator("[data-consumer]")
    await expect(row).to_have_count(1)
    for text in ("127.0.0.1", "poll"):
        await expect(row).to_contain_text(text)
    await expect(row.locator('[data-label="Priority"]')).to_have_text("7")
    await row.get_by_role("button", name="End").click()
    await seen.answer("Cancel")
    assert not poll.done()
    await row.get_by_role("button", name="End").click()
    await seen.answer("End")
    part = seen.page.get_by_role("region", name="Consumers")
    await expect(part).to_contain_text("This queue has no consumer.")
    await poll
    assert seen.is_clean(server.url)


async def test_a_queue_is_purged_and_deleted(server: Server, chromium: Browser) -> None:
    one, _ = await published(server, b"one", b"other")
    seen = await opened(server, chromium)
    await seen.go_to("Settings")
    for action in ("Purge", "Delete queue"):
        await seen.page.get_by_role("button", name=action).click()
        await seen.answer("Cancel")
        assert (await state_of(server, one)).headers["X-Message-State"] == "ready"
    await seen.page.get_by_role("button", name="Purge").click()
    await seen.answer("Purge", typed="orders")
    await expect(seen.figure_of_view("ready")).to_have_text("0")
    await seen.page.get_by_role("button", name="Delete queue").click()
    await seen.answer("Delete queue", typed="orders")
    await expect(seen.page.get_by_role("heading", level=1)).to_have_text("Queues")
    await expect(seen.row("orders")).to_have_count(0)

    async def is_gone() -> bool:
        return (await call(server, "GET", "/orders")).status == 404

    await comes_true(is_gone, "the queue's end")
    assert seen.is_clean(server.url)


async def test_what_cannot_be_sent_is_not_blamed_on_mq(server: Server, chromium: Browser) -> None:
    await call(server, "PUT", "/orders")
    seen = await opened(server, chromium)
    await seen.unfold("Publish a message")
    form = seen.page.get_by_role("region", name="Publish")
    await form.get_by_label("Content type").fill("text/plain; x=☃")
    await form.get_by_role("button", name="Publish").click()
    await seen.answer("Publish")
    await seen.said(
        "Not done. The token or the content type has characters that a header cannot have"
    )


async def test_who_goes_elsewhere_means_nothing_of_what_was_asked(
    server: Server, chromium: Browser
) -> None:
    (message_id,) = await published(server, b"x")
    seen = await shown(chromium, server.url)
    await seen.look_into("orders")
    await seen.go_to("Settings")
    await seen.page.get_by_role("button", name="Purge").click()
    await expect(seen.page.get_by_role("dialog")).to_be_visible()
    await seen.page.go_back()
    await expect(seen.page.get_by_role("dialog")).to_have_count(0)
    await expect(seen.messages()).to_have_count(1)
    assert (await state_of(server, message_id)).headers["X-Message-State"] == "ready"
