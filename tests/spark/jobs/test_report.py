"""The report of a history as text: whole, well-formed, its own host, whatever the tables hold."""

import base64
import hashlib
import re
from datetime import UTC, datetime, timedelta
from typing import Any
from xml.etree import ElementTree

import pytest
from harness.report_rows import (
    BEGIN,
    Life,
    Tables,
    empty,
    forgotten,
    lived,
    row,
    sample,
    together,
    unheard,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from mq.spark.jobs.history_folder import TABLES
from mq.spark.jobs.report.drawing import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH
from mq.spark.jobs.report.page import render

MADE_AT = BEGIN + timedelta(days=1)
AWFUL = "a<b>&\"c'</script><script>alert(1)</script>\x00\ud800"


def made(tables: Tables, title: str = "A history") -> str:
    return render(tables, title=title, made_at=MADE_AT)


def parsed(html: str) -> ElementTree.Element:
    """The page as XML, without its own style and script, which are none."""
    body = html.removeprefix("<!doctype html>\n")
    style, script = "(?s)<style>.*?</style>", "(?s)<script>.*?</script>"
    assert len(re.findall(style, body)) == len(re.findall(script, body)) == 1
    # Their own are the first style, and the last script.
    return ElementTree.fromstring(re.sub(script, "", re.sub(style, "", body)))


def text_of(element: ElementTree.Element) -> str:
    return " ".join("".join(element.itertext()).split())


def well_formed(html: str) -> ElementTree.Element:
    """It is XML, no number in it is none, and what it refers to is there, once."""
    page = parsed(html)
    ids = [found.get("id") for found in page.iter() if found.get("id")]
    assert len(ids) == len(set(ids))
    for found in page.iter():
        for key, value in found.attrib.items():
            if key in ("aria-labelledby", "aria-describedby"):
                assert value in ids
            if key == "href" and value.startswith("#"):
                assert value[1:] in ids
            if key in ("d", "x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "width", "height"):
                assert not re.search("nan|inf|none|e", value.lower()), (key, value)
                numbers = [float(part) for part in re.findall(r"-?[\d.]+", value)]
                assert all(-8 <= number <= WIDTH for number in numbers), (key, value)
    for picture in page.iter("svg"):
        if picture.get("role") == "img":
            assert picture.get("aria-label") or picture.findtext("title")
    return page


def figure(page: ElementTree.Element, title: str) -> ElementTree.Element:
    return next(
        found
        for found in page.iter("figure")
        if text_of(found.find("figcaption/h3") or found).startswith(title)
    )


def marks(picture: ElementTree.Element, style: str) -> list[list[tuple[float, float]]]:
    """The points of what is drawn so, each from 0 to 1 in the plot."""
    paths = [
        path.get("d", "")
        for group in picture.iter("g")
        if group.get("class") == style
        for path in group.iter("path")
    ]
    return [
        [
            (
                (float(x) - LEFT) / (WIDTH - LEFT - RIGHT),
                1 - (float(y) - TOP) / (HEIGHT - TOP - BOTTOM),
            )
            for x, y in re.findall(r"([\d.]+) ([\d.]+)", path)
        ]
        for path in paths
    ]


def veils(picture: ElementTree.Element) -> list[tuple[float, float]]:
    """Where the hatching begins and ends, from 0 to 1."""
    return [
        (round(min(x for x, _ in points), 2), round(max(x for x, _ in points), 2))
        for points in marks(picture, "unknown")
    ]


def styles(element: ElementTree.Element) -> set[str]:
    return {name for found in element.iter() for name in found.get("class", "").split()}


def test_it_is_one_file_that_asks_no_other_host() -> None:
    html = made(sample())
    assert html == made(sample())
    page = well_formed(html)
    assert "http://" not in html
    assert "https://" not in html
    assert not {found.tag for found in page.iter()} & {"img", "iframe", "object", "embed"}
    (script,) = re.findall("(?s)<script>(.*?)</script>", html)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = [found.get("content", "") for found in page.iter("meta") if found.get("http-equiv")]
    assert f"script-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none';")


def test_every_picture_of_a_queue_is_there() -> None:
    page = well_formed(made(lived(Life("orders", 40, outage=(60, 70), priorities=(9, 0)))))
    titles = [text_of(found) for found in page.iter("h3")]
    assert [title.split(" messages")[0].split(" log")[0] for title in titles] == [
        "Published and removed",
        "Waiting",
        "Publish to first fetch",
        "Publish to removal",
        "Oldest message age",
        "Delivered again, sidelined",
        "Receives share of the",
        "Sizes",
        "By priority",
    ]
    assert [text_of(found) for found in page.iter("h4")] == ["Priority 9", "Priority 0"]
    assert "nothing removed for 1 h 40 min" in text_of(figure(page, "Published and removed"))
    assert "nothing was removed for 1 h 40 min" in text_of(page)
    # A row a step, with its figures, for those who do not look at pictures.
    assert len(figure(page, "Waiting").findall(".//tbody/tr")) == 144


@pytest.mark.parametrize(
    "tables",
    [
        lived(Life("two-steps", 40, outage=(60, 62))),
        lived(Life("nothing-waits", 0)),
        lived(Life("never-any", 1, capacity=0)),
        forgotten(Life("not-known", 40, outage=(60, 70))),
    ],
    ids=lambda tables: str(tables["queues"][0]["queue"]),
)
def test_a_stall_is_of_three_steps_in_which_messages_waited(tables: Tables) -> None:
    assert "nothing was removed" not in text_of(well_formed(made(tables)))


def test_a_queue_that_nobody_reads_stands_out() -> None:
    page = well_formed(made(together(lived(Life("audit-log", 1, capacity=0)), unheard("empty"))))
    (found,) = [text_of(found) for found in page.iter("section") if found.get("class")]
    assert re.search(r"audit-log: nothing was ever removed; [\d.]+k waiting, the oldest for", found)
    assert "empty" not in found


def test_names_and_titles_are_text_whoever_chose_them() -> None:
    html = made(lived(Life(AWFUL, steps=4)), title=AWFUL)
    page = well_formed(html)
    shown = AWFUL.replace("\x00", "\ufffd").replace("\ud800", "\ufffd")
    assert page.findtext("head/title") == shown
    assert [found.text for found in page.iter("h2")][-1] == shown
    assert "alert(1)" in html
    assert "<script>alert" not in html
    assert html.encode()


def test_zero_is_drawn_and_what_is_not_known_is_hatched() -> None:
    nothing = lived(Life("idle", 0, steps=5))
    page = well_formed(made(nothing))
    rates, fetch = figure(page, "Published and removed"), figure(page, "Publish to first fetch")
    assert "unknown" not in styles(rates) | styles(fetch)
    (line,) = marks(rates, "line published")
    assert len(line) == 5
    assert all(height == pytest.approx(0, abs=0.01) for _, height in line)
    assert "0/s" in text_of(rates)
    assert "No message was fetched in the time." in text_of(fetch)

    page = well_formed(made(forgotten(Life("imports", 5, steps=10))))
    rates, fetch = figure(page, "Published and removed"), figure(page, "Publish to first fetch")
    assert veils(rates) == veils(figure(page, "Waiting")) == [(0, 0.5)]
    assert "removed not known" in text_of(rates)
    assert re.search(r"published mean [^ ]+ where known", text_of(rates))
    assert "an archive or history files of that time would tell; this is from inodes" in text_of(
        rates
    )
    assert "unknown" in styles(fetch)
    assert "Not known: history files" in text_of(fetch)


def test_steps_without_latencies_are_gaps_and_those_that_nobody_knows_are_hatched() -> None:
    tables = lived(Life("orders", 40, outage=(4, 8), steps=20))
    for found in tables["rates"][14:]:
        found["removed"] = None
    unknown = [found["start"] for found in tables["rates"][14:]]
    tables["latencies"] = [
        found
        for found in tables["latencies"]
        if found["what"] != "publish-to-removal" or found["start"] not in unknown
    ]
    fetch, removal = (
        figure(well_formed(made(tables)), f"Publish to {what}") for what in ("first", "removal")
    )
    for of, name in ((fetch, "fetch"), (removal, "removal")):
        assert len(marks(of, f"line {name}")) == 2
        assert "Gaps: no message got so far then." in text_of(of)
    assert veils(fetch) == []
    assert veils(removal) == [(0.7, 1)]


def test_nothing_at_all_is_said() -> None:
    assert "There is nothing to show" in text_of(well_formed(made(empty())))
    page = well_formed(made(unheard("not-used-yet")))
    assert "Nothing happened here that any source tells of." in text_of(page)
    # Nobody knows how many were published; none waits, and none is the oldest.
    cells = [text_of(found) for found in page.findall(".//table/tbody/tr/td")]
    assert cells[:3] == ["–", "0", "none"]  # noqa: RUF001


@pytest.mark.parametrize("table", list(TABLES))
def test_one_row_is_drawn(table: str) -> None:
    values: dict[str, dict[str, Any]] = {
        "queues": {"published": 1},
        "rates": {"start": BEGIN, "step_s": 60, "published": 7},
        "latencies": {
            "what": "publish-to-removal", "start": BEGIN, "step_s": 60, "messages": 1, "p50_s": 0.0,
        },
        "receives": {"receives": 999, "messages": 1},
        "sizes": {"bytes_from": 0, "bytes_to": 1, "messages": 3, "bytes": 0},
        "backlog": {"at": BEGIN, "messages": 3},
    }  # fmt: skip
    tables = empty()
    tables[table].append(row(table, queue="single", **values[table]))
    page = well_formed(made(tables))
    drawn = {"queues": "1", "rates": "published", "latencies": "p50", "receives": "100 or more",
             "sizes": "0 B", "backlog": "peak 3"}[table]  # fmt: skip
    assert drawn in text_of(page)


def test_times_are_utc_with_and_without_a_zone() -> None:
    def shifted(change: Any) -> Tables:
        tables = lived(Life("orders", steps=30))
        return {
            table: [
                {k: change(v) if isinstance(v, datetime) else v for k, v in found.items()}
                for found in rows
            ]
            for table, rows in tables.items()
        }

    html = made(lived(Life("orders", steps=30)))
    assert made(shifted(lambda when: when.replace(tzinfo=None))) == html
    assert "14 Mar 2026 06:00 to 11:00 UTC, made 15 Mar 2026 06:00 UTC" in html


def test_many_steps_are_joined_and_their_peaks_are_kept() -> None:
    tables = lived(Life("orders", 5, steps=2000, step_s=60))
    peak = max(found["messages"] for found in tables["backlog"])
    page = well_formed(made(tables))
    waiting = figure(page, "Waiting")
    assert len(waiting.findall(".//tbody/tr")) == 200
    assert "Each point is 10 steps of the tables." in text_of(waiting)
    assert f"{peak:,}" in text_of(waiting)


def test_hundreds_of_queues_are_in_the_overview_and_the_busiest_in_full() -> None:
    parts = [lived(Life(f"queue-{number}", 1 + number, steps=72)) for number in range(200)]
    tables = together(*parts, lived(Life("of-many", 1e9, steps=72, priorities=tuple(range(10)))))
    html = made(tables)
    assert len(html) < 4_500_000
    page = well_formed(html)
    names = [text_of(found) for found in page.findall(".//table/tbody/tr[@role='row']/th")]
    assert len(names) == 201
    full = [text_of(found) for found in page.findall(".//details[@class='queue']/summary/h2")]
    counted = ("published", "removed", "ready", "leased")
    busy = {found["queue"]: sum(found[name] for name in counted) for found in tables["queues"]}
    assert full == sorted(busy, key=lambda name: -busy[name])[: len(full)]
    assert 20 <= len(full) <= 40
    assert f"The {len(full)} busiest of 201 queues are shown in full." in text_of(page)


def any_of(column: str) -> st.SearchStrategy[Any]:
    name, kind = column.split()
    if name == "queue":
        return st.sampled_from(["orders", "a&b", AWFUL])
    if name == "what":
        return st.sampled_from(["publish-to-first-fetch", "publish-to-removal", "else"])
    if name == "priority":
        return st.sampled_from([None, 0, 9])
    kinds: dict[str, st.SearchStrategy[Any]] = {
        "string": st.text(max_size=5),
        "array<string>": st.lists(st.sampled_from(["archive", "inodes", "else"]), max_size=2),
        "timestamp": st.datetimes(timezones=st.sampled_from([None, UTC])),
        "long": st.integers(-5, 2**63 - 1) | st.integers(0, 9),
        "int": st.integers(0, 999),
        "double": st.floats() | st.floats(0, 100),
    }
    return st.none() | kinds[kind]


def rows_of(table: str) -> st.SearchStrategy[list[dict[str, Any]]]:
    columns = {column.split()[0]: any_of(column) for column in TABLES[table].split(", ")}
    return st.lists(st.fixed_dictionaries(columns), max_size=6)


@settings(max_examples=25)
@given(st.fixed_dictionaries({table: rows_of(table) for table in TABLES}))
def test_whatever_the_rows_are_it_is_a_page(tables: Tables) -> None:
    well_formed(made(tables))
