"""The history's report in a real browser, as people look at it: bright, dark, on a phone."""

from datetime import timedelta
from pathlib import Path

import pytest
from harness.browser import Browser, browser
from harness.report_rows import BEGIN, Life, lived, sample, together
from playwright.async_api import expect

from mq.spark.jobs.report.page import render

MADE_AT = BEGIN + timedelta(days=1, hours=1)
UNFOLD = "document.querySelectorAll('details').forEach((each) => { each.open = true; })"
TABLES = together(
    sample(step_s=3600), *(lived(Life(f"tenant-{number}", 0.1, steps=6)) for number in range(4))
)
QUEUES = {found["queue"]: found for found in TABLES["queues"]}

BAD = """<!doctype html><html lang="en"><head><title>Bad</title></head>
<body style="background: white"><main><h1>Bad</h1>
<p style="color: #999">faint</p><svg><text y="20" fill="#ccc">pale</text></svg>
<p style="width: 3000px">wide</p><svg role="img"></svg><img src="missing.png">
<script>console.error("broken")</script></main></body></html>"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A report of a bad day, and of many queues beside, so that it has all its parts."""
    path: Path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(render(TABLES, title="History of /srv/mq", made_at=MADE_AT), encoding="utf-8")
    return path.as_uri()


async def looks_well(chromium: Browser, page: str, *, dark: bool, width: int) -> bytes:
    """Nothing in it is wrong, faint or too wide, folded up or not; a screenshot of it."""
    tab = await chromium.open(page, dark=dark, width=width)
    seen = await tab.page.screenshot()
    for step in (None, UNFOLD):
        if step:
            await tab.page.evaluate(step)
        assert await tab.overflow() <= 0
        assert await tab.faint() == []
    reader = tab.page.locator("#queue-orders .reader").nth(2)
    tip = tab.page.locator("#queue-orders .tip").nth(2)
    for part in (0.02, 0.48, 0.98):
        box = await reader.bounding_box()
        assert box is not None
        await reader.hover(position={"x": part * box["width"], "y": 40})
        shown = await tip.bounding_box()
        assert shown is not None
        assert 0 <= shown["x"] <= width - shown["width"]
        assert await tab.overflow() <= 0
    assert tab.console == []
    assert tab.requests == [page]
    return seen


@pytest.mark.certificate
async def test_it_is_legible_and_fits_bright_and_dark_wide_and_narrow(page: str) -> None:
    async with browser() as chromium:
        bright = await looks_well(chromium, page, dark=False, width=1280)
        dark = await looks_well(chromium, page, dark=True, width=1280)
        await looks_well(chromium, page, dark=False, width=375)
        await looks_well(chromium, page, dark=True, width=375)
    assert bright != dark


@pytest.mark.certificate
async def test_those_who_cannot_see_it_are_told_what_there_is(page: str) -> None:
    async with browser() as chromium:
        tab = await chromium.open(page)
        assert await tab.barriers() == []
        images = [node for node in await tab.tree() if node["role"] in ("image", "img")]
        assert len(images) > 30
        assert [node for node in images if not node["name"]] == []
        assert any("Published and removed" in node["name"] for node in images)
        published = f"{QUEUES['orders']['published']:,} messages were published"
        assert any(published in node["description"] for node in images)


@pytest.mark.certificate
async def test_a_keyboard_reads_the_pictures_and_sorts_and_filters_the_queues(page: str) -> None:
    async with browser() as chromium:
        tab = await chromium.open(page)
        stops = await tab.tabbed(60)
        kinds = [(stop.element, stop.role) for stop in stops]
        for kind in (("a", ""), ("input", ""), ("button", ""), ("summary", ""), ("div", "slider")):
            assert kind in kinds
        assert (
            kinds.index(("input", ""))
            < kinds.index(("button", ""))
            < kinds.index(("div", "slider"))
        )

        chart = tab.page.locator("#queue-orders figure.chart").first
        slider = chart.get_by_role("slider")
        await slider.focus()
        await tab.page.keyboard.press("End")
        await tab.page.keyboard.press("ArrowLeft")
        figures = chart.locator("table tr[data-x]").nth(22)
        told = await slider.get_attribute("aria-valuetext")
        for cell in await figures.locator("th, td").all_text_contents():
            assert cell in str(told)
        assert await chart.locator(".tip").is_visible()
        # The same time is marked in the queue's other pictures.
        assert await tab.page.locator("#queue-orders .cursor:visible").count() == 6

        rows = tab.page.locator("table.overview tbody tr")
        waiting = tab.page.get_by_role("button", name="Waiting")
        await waiting.press("Enter")
        deepest = max(QUEUES, key=lambda name: QUEUES[name]["ready"] + QUEUES[name]["leased"])
        assert await rows.first.locator("th").inner_text() == deepest
        await waiting.press("Enter")
        assert await rows.first.locator("th").inner_text() != deepest
        await tab.page.get_by_role("searchbox").fill("tenant-3")
        assert await rows.locator("visible=true").count() == 1
        await tab.page.get_by_role("searchbox").fill("")

        link = tab.page.get_by_role("link", name="e-mail").first
        await link.press("Enter")
        await expect(tab.page.locator("#queue-e-mail")).to_have_attribute("open", "")


@pytest.mark.certificate
async def test_it_is_whole_without_scripts_and_on_paper(page: str) -> None:
    async with browser() as chromium:
        tab = await chromium.open(page, script=False)
        chart = tab.page.locator("#queue-orders figure.chart").first
        assert await chart.locator(".plot").is_visible()
        await chart.locator("summary").click()
        assert await chart.locator("table tr[data-x]").first.is_visible()
        assert await tab.page.locator("button, input").count() == 0
        await tab.page.emulate_media(media="print")
        assert await tab.page.locator("#queue-e-mail figure.chart").first.is_visible()
        assert await tab.page.locator("#queue-orders figure.chart summary").first.is_hidden()


async def test_a_bad_page_is_seen_to_be_bad(tmp_path: Path) -> None:
    path = tmp_path / "bad.html"
    path.write_text(BAD, encoding="utf-8")
    async with browser() as chromium:
        tab = await chromium.open(path.as_uri())
        assert await tab.overflow() > 1000
        assert [text.split(":")[0] for text in await tab.faint()] == ["faint", "pale"]
        assert any("broken" in said for said in tab.console)
        assert tab.requests == [path.as_uri(), (tmp_path / "missing.png").as_uri()]
        barriers = " ".join(await tab.barriers())
        assert "image-alt" in barriers
        assert "svg-img-alt" in barriers
