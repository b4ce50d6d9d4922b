"""The load over time, as mq has recorded it: charts, values at the pointer, tables, sums."""

from pathlib import Path

from harness.api import call
from harness.browser import Browser
from harness.page import shown
from harness.server import Server
from playwright.async_api import expect

from mq.model.clock import SystemClock
from mq.model.trends import ALL_QUEUES, Point, Range, Trends
from mq.store.format.trends import print_trends


def record(root: Path) -> None:
    """Three points an hour of a day, and the last sample."""
    now_ms = SystemClock().now_ms()
    now_s = now_ms // 1000
    (root / "trends").mkdir(0o700)
    for range_ in Range:
        times = range(now_s - 3 * range_.step_s, now_s, range_.step_s)
        points = [
            Point(
                at_s, range_.step_s, 120 * range_.step_s, 60 * range_.step_s, 0, number, 0, 2, 7, 1
            )
            for number, at_s in enumerate(times)
        ]
        found = Trends(now_ms, 5000, 0, points[-1], {ALL_QUEUES: points, "orders": points[1:]})
        (root / "trends" / range_).write_bytes(print_trends(found))


async def test_the_load_of_all_queues_and_of_one_is_drawn(
    server: Server, chromium: Browser
) -> None:
    await call(server, "PUT", "/orders")
    record(server.root)
    seen = await shown(chromium, server.url)
    over_time = seen.page.get_by_role("region", name="Over time")
    await expect(over_time).to_contain_text("as mq has recorded them")
    await over_time.get_by_text("As a table").first.click()
    rows = over_time.locator("figure").first.locator("tbody tr")
    await expect(rows).to_have_count(3)
    await expect(rows.first).to_contain_text(
        "2207"
    )  # 2 ready, 2 in flight, 0 delayed, 7 dead letters
    await seen.look_into("orders")
    await expect(over_time.get_by_label("Last minutes")).to_be_checked()
    await over_time.get_by_label("Week").check()
    await expect(over_time).to_contain_text("as mq has recorded them")
    rates = over_time.locator("figure").last
    await rates.get_by_text("As a table").click()
    await expect(rates.locator("tbody tr").first.locator("td").first).to_have_text("120")
    await rates.locator("svg.chart").hover()
    await expect(rates.locator(".reading")).to_contain_text("In 120 · Out 60.0")
    await expect(rates.locator("path.cursor")).to_have_count(1)
    await over_time.get_by_label("Last minutes").check()
    await expect(over_time).to_contain_text("sampled while this page is open")
    assert seen.is_clean(server.url)


async def test_the_sums_are_of_all_queues_while_the_page_reads_them(
    server: Server, chromium: Browser
) -> None:
    for number in range(60):
        (server.root / "queues" / f"q{number:02}").mkdir(0o700)
    record(server.root)
    seen = await shown(chromium, server.url)
    covers = seen.figure_of_view("covers")
    await expect(covers).to_contain_text("of all 5000 queues and sidelines at")
    await expect(seen.page.locator('[data-sum="sidelined"]')).to_have_text("7")
    await expect(seen.page.locator('[data-sum="in"]')).to_have_text("120")
    # A tab that has read each queue knows more.
    await expect(covers).to_contain_text("of 60 of 60 queues")
    await expect(seen.page.locator('[data-sum="sidelined"]')).to_have_text("0")
