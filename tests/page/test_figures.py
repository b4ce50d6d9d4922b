"""What the page shows is what mq says, and goes on being so."""

from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime
from typing import Any

import pytest
from harness.api import call
from harness.browser import Browser
from harness.page import FIGURES, shown
from harness.processes import Processes
from harness.server import Server
from harness.waiting import comes_true
from playwright.async_api import expect

from mq.client.values import Description
from mq.tools.mqctl.top.rates import Seen
from mq.tools.mqctl.top.rows import OLD_S, troubles_of


async def test_figures_follow_what_happens(server: Server, chromium: Browser) -> None:
    await call(server, "PUT", "/orders")
    await call(server, "PUT", "/events")
    ids = [(await call(server, "POST", "/orders/messages", data=b"pizza")).id for _ in range(4)]
    await call(server, "POST", "/orders/messages?delay=600", data=b"later")
    seen = await shown(chromium, server.url)
    await seen.has_figures("orders", ready=4, in_flight=0, delayed=1, sidelined=0)
    await seen.has_figures("events", ready=0, in_flight=0, delayed=0, sidelined=0)
    await call(server, "GET", "/orders/messages?visibility=600")
    await call(server, "POST", f"/orders/messages/{ids[-1]}/sideline")
    await call(server, "POST", "/events/messages", data=b"one")
    await seen.has_figures("orders", ready=2, in_flight=1, delayed=1, sidelined=1)
    await seen.has_figures("events", ready=1)
    # A sideline is a part of its queue.
    await expect(seen.row("orders_SIDELINE")).to_have_count(0)
    said = (await call(server, "GET", "/orders")).json()
    for name in FIGURES:
        assert await seen.figure("orders", name).text_content() == str(said[name])
    await expect(seen.figure("events", "oldest")).to_contain_text("s")
    # A queue that goes is gone here too.
    await call(server, "DELETE", "/events")
    await expect(seen.row("events")).to_have_count(0)
    assert seen.outside(server.url) == []


async def test_rates_are_drawn_and_written(server: Server, chromium: Browser) -> None:
    await call(server, "PUT", "/orders")
    seen = await shown(chromium, server.url)
    await expect(seen.figure("orders", "in")).to_have_text("0.0")

    published = 0

    async def rises() -> bool:
        nonlocal published
        published += 1
        await call(server, "POST", "/orders/messages", data=b"x")
        text = await seen.figure("orders", "in").text_content()
        return float(text or 0) > 0

    await comes_true(rises, "a rate of what comes in")
    assert await seen.row("orders").locator("svg path").count() == 2
    await seen.look_into("orders")
    charts = seen.page.locator("svg.chart")
    await expect(charts).to_have_count(2)
    await seen.page.get_by_text("As a table").first.click()
    rows = seen.page.locator("figure table tbody tr")
    await expect(rows.first).to_be_visible()
    await expect(rows.first.locator("td").first).to_have_text(str(published))
    assert seen.is_clean(server.url)


async def test_messages_are_looked_at_and_not_consumed(server: Server, chromium: Browser) -> None:
    await call(server, "PUT", "/orders")
    headers = {"Content-Type": "text/plain", "x-attribute-shop": "north"}
    await call(server, "POST", "/orders/messages", data=b"two pizzas", headers=headers)
    await call(server, "POST", "/orders/messages", data=b"\xff\xfe")
    await call(server, "POST", "/orders/messages", data=b"a" * 5000)
    await call(server, "POST", "/orders/messages?delay=600", data=b"later")
    seen = await shown(chromium, server.url, "#/queue/orders")
    await expect(seen.messages()).to_have_count(3)
    first = seen.messages().first
    await first.locator("summary").click()
    await expect(first.locator("pre")).to_have_text("two pizzas")
    await expect(first.locator(".headers")).to_contain_text("x-attribute-shop")
    await expect(first.locator(".facts")).to_contain_text("ready")
    await expect(seen.messages().nth(1)).to_contain_text("base64")
    await expect(seen.messages().nth(2)).to_contain_text("the first 4.0 KiB of 4.9 KiB")
    await seen.choose_state("delayed")
    await expect(seen.messages()).to_have_count(1)
    await expect(seen.messages().first).to_contain_text("delayed")
    said = (await call(server, "GET", "/orders")).json()
    assert (said["ready"], said["in_flight"]) == (3, 0)
    assert seen.is_clean(server.url)


async def test_a_long_queue_is_read_a_page_at_a_time(server: Server, chromium: Browser) -> None:
    await call(server, "PUT", "/orders")
    lines = "\n".join(f"line {number}" for number in range(30))
    await call(server, "POST", "/orders/messages?split=lines", data=lines.encode())
    seen = await shown(chromium, server.url, "#/queue/orders")
    await expect(seen.messages()).to_have_count(25)
    await seen.page.get_by_role("button", name="Next page").click()
    await expect(seen.messages()).to_have_count(5)
    await expect(seen.messages().last).to_contain_text("line 29")
    await expect(seen.page.get_by_role("button", name="Next page")).to_be_disabled()


@pytest.mark.certificate
async def test_members_are_shown(server: Server, daemons: Processes, chromium: Browser) -> None:
    await call(server, "PUT", "/orders")
    daemons.mover("--root", str(server.root))
    seen = await shown(chromium, server.url, "#/members")
    await expect(seen.page.locator("[data-member]")).to_have_count(1)
    await expect(seen.page.locator("[data-member]")).to_contain_text("active")
    said = (await call(server, "GET", "/-/members")).json()["members"]
    await expect(seen.page.locator(f'[data-member="{said[0]["member"]}"]')).to_have_count(1)
    assert seen.is_clean(server.url)


async def test_of_many_queues_some_are_shown_and_asked_about(
    server: Server, chromium: Browser
) -> None:
    for number in range(60):
        await call(server, "PUT", f"/q{number:02}")
    seen = await shown(chromium, server.url)
    rows = seen.page.locator("[data-queue]")
    await expect(rows).to_have_count(25)
    await seen.has_figures("q24", ready=0)
    await expect(seen.page.get_by_text("1 to 25 of 60")).to_be_visible()
    for expected in ("q25", "q50"):
        await seen.page.get_by_role("button", name="Next").click()
        await expect(rows.first).to_have_attribute("data-queue", expected)
    await expect(rows).to_have_count(10)
    await expect(seen.page.get_by_role("button", name="Next")).to_be_disabled()
    await seen.page.get_by_label("Filter by name").fill("Q3")
    await expect(rows).to_have_count(10)
    await expect(rows.first).to_have_attribute("data-queue", "q30")
    await seen.page.get_by_label("Filter by name").fill("none")
    await expect(rows).to_have_count(0)
    await expect(seen.page.get_by_text("No queue")).to_be_visible()
    # The others are asked in turn: trouble, sums and the order are of all.
    await seen.page.get_by_label("Filter by name").fill("")
    await call(server, "PATCH", "/q57/settings", json={"paused": "deliveries"})
    await call(server, "POST", "/q59/messages", data=b"x")
    await expect(rows.first).to_have_attribute("data-queue", "q57")
    await expect(rows.first).to_contain_text("paused")
    await expect(seen.figure_of_view("covers")).to_have_text(
        "The sums are of 60 of 60 queues; 1 with trouble."
    )
    await expect(seen.page.locator('[data-sum="ready"]')).to_have_text("1")
    await seen.page.get_by_role("button", name="Ready", exact=True).click()
    await expect(rows.first).to_have_attribute("data-queue", "q59")
    await expect(rows.nth(1)).to_have_attribute("data-queue", "q00")
    await seen.page.get_by_label("Only with trouble").check()
    await expect(rows).to_have_count(1)
    assert seen.is_clean(server.url)


async def test_no_rate_is_said_to_be_of_more_processes_than_it_is(
    server: Server, chromium: Browser
) -> None:
    seen = await shown(chromium, server.url)
    said = await seen.page.evaluate("""async () => {
        const { told } = await import(new URL("page/seeing.js", document.baseURI));
        const of = (counted) => ({ latest: { process: { index: 0, of: 2 } }, rates: { counted } });
        return [told([of(2), of(1)]), told([of(2), of(2)])];
    }""")
    assert "Rates cover at least 1 of the 2 processes" in said[0]
    assert "Rates cover at least 2 of the 2 processes" in said[1]


def described(said: Mapping[str, Any]) -> Description:
    times = {name: datetime.fromisoformat(text) for name, text in said["as_of"].items()}
    known = {each.name: said[each.name] for each in fields(Description) if each.name in said}
    return Description(**{**known, "as_of": times, "said": said})


async def test_mqctl_top_finds_the_same_trouble(server: Server, chromium: Browser) -> None:
    await call(server, "PUT", "/orders")
    said = (await call(server, "GET", "/orders")).json()
    paused = {"settings": {**said["settings"], "paused": "fetch"}}
    cases: list[tuple[int, dict[str, object]]] = [
        (0, {}),
        (0, {"overdue": 3, "sidelined": 1, "expired": True}),
        (2, {"sidelined": 9, "oldest_ready_age_s": OLD_S}),
        (9, {"sidelined": 9, "oldest_ready_age_s": OLD_S + 1}),
        (1, {"sidelined": 0, "oldest_ready_age_s": OLD_S + 1, **paused}),
    ]
    seen = await shown(chromium, server.url)
    ours = await seen.page.evaluate(
        """async (cases) => {
            const { troubles } = await import(new URL("page/board.js", document.baseURI));
            const found = ([sidelined, latest]) => troubles({ latest, samples: [{ sidelined }] });
            return cases.map((each) => found(each)
                .map(({ is, weight, text }) => [weight, is === "bad", text]));
        }""",
        [(before, {**said, **changes}) for before, changes in cases],
    )
    theirs = []
    for before, changes in cases:
        found = Seen.first(described({**said, "sidelined": before}), 0.0)
        found.take(described({**said, **changes}), 1.0)
        theirs.append([list(trouble) for trouble in troubles_of(found)])
    assert theirs == ours
    assert sum(map(len, ours)) >= 6


async def test_a_queue_that_goes_while_it_is_looked_at_has_no_figures(
    server: Server, chromium: Browser
) -> None:
    await call(server, "PUT", "/orders")
    await call(server, "POST", "/orders/messages", data=b"x")
    seen = await shown(chromium, server.url, "#/queue/orders")
    await expect(seen.figure_of_view("ready")).to_have_text("1")
    await call(server, "DELETE", "/orders")
    await expect(seen.figure_of_view("ready")).to_have_text("\N{EN DASH}")
    missing = (await call(server, "GET", "/orders")).json()
    await expect(seen.page.locator(".queue > .note")).to_contain_text(missing["detail"])
    # It may come again.
    await seen.page.get_by_role("button", name="Create the queue orders").click()
    await expect(seen.page.get_by_text("There is no queue of this name.")).to_be_hidden()
    await expect(seen.figure_of_view("ready")).to_have_text("0")
    await expect(seen.page.locator(".queue > .note")).to_have_text("")


async def test_a_table_says_what_its_picture_shows_when_mq_is_silent(
    server: Server, chromium: Browser
) -> None:
    await call(server, "PUT", "/orders")
    seen = await shown(chromium, server.url, "#/queue/orders")
    await expect(seen.figure_of_view("ready")).to_have_text("0")
    await call(server, "POST", "/orders/messages", data=b"x")
    await expect(seen.figure_of_view("ready")).to_have_text("1")
    await seen.page.context.set_offline(True)
    await expect(seen.page.get_by_role("alert")).to_contain_text("mq does not answer")
    await seen.page.get_by_text("As a table").first.click()
    newest = seen.page.get_by_role("table").first.get_by_role("row").nth(1)
    await expect(newest.get_by_role("cell").first).to_have_text("1")
