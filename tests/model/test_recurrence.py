"""Firings: grids that are kept, cron expressions of both kinds, and clocks that are changed."""

from calendar import monthrange
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mq.model.errors import BadParameter
from mq.model.limits import EVERY_S_MAX, PUBLISHED_MS_MAX
from mq.model.recurrence import Cron, Every

MINUTE = timedelta(minutes=1)


def ms(at: str, tz: str = "UTC", fold: int = 0) -> int:
    """Milliseconds since the epoch of a local time."""
    local = datetime.fromisoformat(at).replace(tzinfo=ZoneInfo(tz), fold=fold)
    return round(local.timestamp() * 1000)


def firings(expression: str, tz: str, start: str, count: int) -> list[str | None]:
    """The first ones after a local time, as local times with their offsets."""
    cron, found = Cron.parse(expression, tz), list[str | None]()
    at_ms: int | None = ms(start, tz)
    for _ in range(count):
        assert at_ms is not None
        at_ms = cron.after(at_ms, at_ms)
        if at_ms is None:
            return [*found, None]
        found.append(datetime.fromtimestamp(at_ms / 1000, ZoneInfo(tz)).isoformat(" ", "minutes"))
    return found


# Every


def test_the_first_of_every_comes_after_its_delay_or_else_after_its_time() -> None:
    assert Every.parse(60).first_ms(1_000) == 61_000
    assert Every.parse(60, 5).first_ms(1_000) == 6_000
    assert Every.parse(60, 0).first_ms(1_000) == 1_000


def test_what_was_missed_of_every_is_one_firing_and_the_grid_is_kept() -> None:
    every = Every.parse(3600)
    due_ms = ms("2019-03-01T00:10:00")
    assert every.after(due_ms, due_ms + 5) == due_ms + 3_600_000
    assert every.after(due_ms, ms("2026-11-22T06:42:14")) == ms("2026-11-22T07:10:00")
    assert every.after(due_ms, ms("2026-11-22T07:10:00")) == ms("2026-11-22T08:10:00")


times_ms = st.integers(0, PUBLISHED_MS_MAX)


@given(st.integers(1_000, EVERY_S_MAX * 1000), times_ms, times_ms)
@example(1_001, 0, 1_001)
def test_after_is_the_next_point_of_the_grid(every_ms: int, due_ms: int, now_ms: int) -> None:
    found = Every.parse(every_ms / 1000).after(due_ms, now_ms)
    assert found is not None
    assert found > max(due_ms, now_ms)
    assert (found - due_ms) % every_ms == 0
    assert found == due_ms + every_ms or found - every_ms <= now_ms


@pytest.mark.parametrize("every_s", [0.999, 0, -1, EVERY_S_MAX + 1, 1.0001, float("nan")])
def test_seconds_that_no_schedule_has_are_refused(every_s: float) -> None:
    with pytest.raises(BadParameter) as raised:
        Every.parse(every_s)
    assert raised.value.parameter == "every"


@pytest.mark.parametrize("delay_s", [-1, 1e12, 0.0005])
def test_a_delay_that_no_schedule_has_is_refused(delay_s: float) -> None:
    with pytest.raises(BadParameter) as raised:
        Every.parse(5, delay_s)
    assert raised.value.parameter == "delay"


# Clocks that are changed


@pytest.mark.parametrize(
    ("expression", "tz", "start", "expected"),
    [
        # Put forward: what is skipped comes once, at the moment after the gap.
        ("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00", "29 03:00+02:00, 30 02:30+02:00"),
        ("0 30 2 * * ?", "Europe/Berlin", "2026-03-28T12:00", "29 03:00+02:00, 30 02:30+02:00"),
        ("*/20 2 * * *", "Europe/Berlin", "2026-03-28T12:00", "29 03:00+02:00, 30 02:00+02:00"),
        ("15,45 2,3 * * *", "America/New_York", "2026-03-07T12:00",
         "08 03:00-04:00, 08 03:15-04:00, 08 03:45-04:00, 09 02:15-04:00"),
        ("15 0 * * *", "America/Santiago", "2026-09-05T12:00", "06 01:00-03:00, 07 00:15-03:00"),
        ("10 2 * * *", "Australia/Lord_Howe", "2026-10-03T12:00", "04 02:30+11:00, 05 02:10+11:00"),
        # Put back: the first time alone.
        ("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00", "25 02:30+02:00, 26 02:30+01:00"),
        ("0,30 1,2 * * *", "America/New_York", "2026-10-31T12:00",
         "01 01:00-04:00, 01 01:30-04:00, 01 02:00-05:00, 01 02:30-05:00"),
        ("45 1 * * *", "Australia/Lord_Howe", "2026-04-04T12:00", "05 01:45+11:00, 06 01:45+10:30"),
        ("30 23 * * SAT", "America/Nuuk", "2026-10-24T12:00", "24 23:30-01:00, 31 23:30-02:00"),
        # By the hour, and within it, time goes on.
        ("*/30 * * * *", "Europe/Berlin", "2026-03-29T01:00",
         "29 01:30+01:00, 29 03:00+02:00, 29 03:30+02:00"),
        ("5 * * * *", "Europe/Berlin", "2026-03-29T01:00", "29 01:05+01:00, 29 03:05+02:00"),
        ("*/30 * * * *", "Europe/Berlin", "2026-10-25T01:45",
         "25 02:00+02:00, 25 02:30+02:00, 25 02:00+01:00, 25 02:30+01:00, 25 03:00+01:00"),
        ("0 0/30 0-23 * * ?", "America/New_York", "2026-11-01T00:45",
         "01 01:00-04:00, 01 01:30-04:00, 01 01:00-05:00, 01 01:30-05:00, 01 02:00-05:00"),
        ("50 * * * *", "Australia/Lord_Howe", "2026-04-05T01:30",
         "05 01:50+11:00, 05 01:50+10:30, 05 02:50+10:30"),
        ("0 * * * *", "Africa/Casablanca", "2026-02-15T01:30",
         "15 02:00+01:00, 15 02:00+00:00, 15 03:00+00:00"),
        # A day that never was.
        ("0 9 * * *", "Pacific/Apia", "2011-12-29T08:00",
         "29 09:00-10:00, 31 00:00+14:00, 31 09:00+14:00"),
    ],
)  # fmt: skip
def test_clocks_that_are_changed(expression: str, tz: str, start: str, expected: str) -> None:
    found = firings(expression, tz, start, expected.count(",") + 1)
    assert ", ".join(each[8:] for each in found if each) == expected


def test_the_second_time_of_an_hour_fires_nothing_that_the_first_has_fired() -> None:
    cron = Cron.parse("30 2 * * *", "Europe/Berlin")
    second_ms = ms("2026-10-25T02:10", "Europe/Berlin", fold=1)
    assert cron.first_ms(second_ms) == ms("2026-10-26T02:30", "Europe/Berlin")


ZONES = [
    ("Europe/Berlin", "2026-03-29T01:00"),
    ("Europe/Berlin", "2026-10-25T01:00"),
    ("America/New_York", "2026-03-08T07:00"),
    ("America/New_York", "2026-11-01T06:00"),
    ("Australia/Lord_Howe", "2026-10-03T15:30"),
    ("Australia/Lord_Howe", "2026-04-04T15:00"),
    ("America/Santiago", "2026-09-06T04:00"),
    ("America/Santiago", "2026-04-05T03:00"),
    ("America/Nuuk", "2026-10-25T01:00"),
    ("Africa/Casablanca", "2026-02-15T02:00"),
    ("Pacific/Chatham", "2026-09-26T14:00"),
    ("America/Havana", "2026-11-01T05:00"),
    ("UTC", "2026-06-01T00:00"),
]
"""Zones and moments, in UTC, at which their clocks are changed."""


@cache
def clock(tz: str, change: str) -> list[tuple[datetime, datetime]]:
    """The minutes around a change: the moment in UTC, and what the zone's clock says then."""
    zone, at = ZoneInfo(tz), datetime.fromisoformat(change).replace(tzinfo=UTC)
    minutes = (at + number * MINUTE for number in range(-40 * 60, 64 * 60))
    return [(each, each.astimezone(zone).replace(tzinfo=None)) for each in minutes]


def walked(tz: str, change: str, minutes: set[int], hours: set[int]) -> Iterator[datetime]:
    """All firings around a change, in their order, by looking at every minute."""
    seen = clock(tz, change)
    if len(hours) == 24:
        yield from (moment for moment, local in seen if local.minute in minutes)
        return
    local, last = seen[0][1], max(local for _, local in seen)
    fired: list[datetime] = []
    while local <= last:
        if local.minute in minutes and local.hour in hours:
            shown = [moment for moment, now in seen if now == local]
            # Where the clock never shows it: when it first shows what is later.
            moment = min(shown) if shown else min(m for m, now in seen if now > local)
            if moment not in fired:
                fired.append(moment)
        local += MINUTE
    yield from fired


some_minutes = st.sets(st.integers(0, 59), min_size=1, max_size=3)
some_hours = st.one_of(st.just(set(range(24))), st.sets(st.integers(0, 4), min_size=1, max_size=3))


@given(
    st.sampled_from(ZONES),
    some_minutes,
    some_hours,
    st.integers(-6 * 3600, 6 * 3600),
    st.booleans(),
)
def test_a_firing_is_what_a_walk_through_every_minute_finds(
    zone: tuple[str, str], minutes: set[int], hours: set[int], seconds: int, is_quartz: bool
) -> None:
    tz, change = zone
    now = datetime.fromisoformat(change).replace(tzinfo=UTC) + timedelta(seconds=seconds)
    said = f"{','.join(map(str, minutes))} {','.join(map(str, hours))} * *"
    cron = Cron.parse(f"0 {said} ?" if is_quartz else f"{said} *", tz)
    expected = next(each for each in walked(tz, change, minutes, hours) if each > now)
    assert cron.first_ms(round(now.timestamp() * 1000)) == round(expected.timestamp() * 1000)


# Days, leap days, years


@pytest.mark.parametrize(
    ("expression", "start", "expected"),
    [
        ("0 0 29 2 *", "1896-01-01", ["1896-02-29", "1904-02-29"]),
        ("0 0 29 2 *", "1996-03-01", ["2000-02-29", "2004-02-29"]),
        ("0 0 29 2 *", "2096-03-01", ["2104-02-29"]),
        ("0 0 0 L 2 ?", "2027-01-01", ["2027-02-28", "2028-02-29"]),
        ("0 0 L * *", "2100-02-01", ["2100-02-28", "2100-03-31"]),
        ("0 0 31 * *", "2026-01-31", ["2026-03-31", "2026-05-31"]),
        ("0 0 LW * *", "2026-01-01", ["2026-01-30", "2026-02-27", "2026-03-31"]),
        # W: the weekday that is nearest, in the same month.
        ("0 0 15W * *", "2026-01-01", ["2026-01-15", "2026-02-16", "2026-03-16", "2026-04-15"]),
        ("0 0 0 15W 8 ?", "2026-01-01", ["2026-08-14", "2027-08-16", "2028-08-15"]),
        ("0 0 0 1W * ?", "2026-01-31", ["2026-02-02", "2026-03-02", "2026-04-01", "2026-05-01"]),
        ("0 0 0 31W * ?", "2026-01-01", ["2026-01-30", "2026-03-31", "2026-05-29", "2026-07-31"]),
        ("0 0 0 29W 2 ?", "2026-01-01", ["2028-02-29", "2032-02-27", "2036-02-29"]),
        ("0 0 0 29W 2 ? 2029-2032", "2026-01-01", ["2032-02-27", None]),
        ("0 0 29W 2 *", "2096-03-01", ["2104-02-29"]),
        ("0 0 0 15W 8 ? 2027,2028", "2026-01-01", ["2027-08-16", "2028-08-15", None]),
        # L-3: three days before the last one.
        ("0 0 0 L-3 * ?", "2026-01-29", ["2026-02-25", "2026-03-28", "2026-04-27"]),
        ("0 0 L-0 2 *", "2027-01-01", ["2027-02-28", "2028-02-29"]),
        ("0 0 0 L-30 * ?", "2026-01-02", ["2026-03-01", "2026-05-01"]),
        ("0 0 0 L-3W * ?", "2026-01-01", ["2026-01-28", "2026-02-25", "2026-03-27"]),
        ("0 0 0 l-0w * ?", "2026-01-01", ["2026-01-30", "2026-02-27", "2026-03-31"]),
        # A month has no fifth Monday each time, and February all but never.
        ("0 0 0 ? * 2#5", "2026-01-01", ["2026-03-30", "2026-06-29"]),
        ("0 0 0 ? 2 2#5", "2026-01-01", ["2044-02-29", "2072-02-29"]),
        ("0 0 0 ? * 6L", "2026-01-01", ["2026-01-30", "2026-02-27"]),
        ("0 0 0 ? * FRIL", "2026-01-01", ["2026-01-30", "2026-02-27"]),
        ("0 0 0 ? * L", "2026-01-01", ["2026-01-03", "2026-01-10"]),
        ("0 0 0 ? * FRI-MON/2", "2026-01-01", ["2026-01-02", "2026-01-04", "2026-01-09"]),
        ("0 0 0 ? * */3", "2026-01-01", ["2026-01-03", "2026-01-04", "2026-01-07"]),
        ("0 0 0 ? * 2/2", "2026-01-01", ["2026-01-02", "2026-01-05", "2026-01-07"]),
        # In five fields both kinds of day count, as cron has it: either, unless one is a star.
        ("0 0 13 * FRI", "2026-02-01", ["2026-02-06", "2026-02-13", "2026-02-20"]),
        ("0 0 ? * 0", "2026-01-01", ["2026-01-04"]),
        ("0 0 * * 7", "2026-01-01", ["2026-01-04"]),
        ("0 0 0 1 1 ? 2030", "2026-01-01", ["2030-01-01", None]),
        ("0 0 0 1 1 ? 2027/30", "2026-01-01", ["2027-01-01", "2057-01-01", "2087-01-01", None]),
        ("0 0 0 29 2 ? 2027-2033,2040", "2026-01-01", ["2028-02-29", "2032-02-29", "2040-02-29"]),
        ("0 0 0 1 1 ? */50", "2026-01-01", ["2070-01-01", None]),
        ("0 0 0 1 1 ? *", "2097-01-01", ["2098-01-01", "2099-01-01", "2100-01-01"]),
    ],
)  # fmt: skip
def test_days_and_years(expression: str, start: str, expected: list[str | None]) -> None:
    found = firings(expression, "UTC", start, len(expected))
    assert [each and each.removesuffix(" 00:00+00:00") for each in found] == expected


@given(st.integers(0, 6), st.integers(ms("2020-01-01"), ms("2030-01-01")))
def test_quartz_counts_days_from_one_and_cron_from_zero(day: int, now_ms: int) -> None:
    name = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"][day]
    same = [f"0 0 12 ? * {day + 1}", f"0 0 12 ? * {name.lower()}", f"0 12 * * {day}"]
    found = {Cron.parse(each).first_ms(now_ms) for each in same}
    assert len(found) == 1
    assert datetime.fromtimestamp(found.pop() / 1000, UTC).isoweekday() % 7 == day


def test_seconds_are_quartz_s_first_field() -> None:
    cron = Cron.parse("*/20 * * * * *")
    start_ms = ms("2026-01-01T00:00:00") + 1
    assert [cron.first_ms(start_ms + 1000 * after_s) for after_s in (0, 20, 40)] == [
        ms("2026-01-01T00:00:20"),
        ms("2026-01-01T00:00:40"),
        ms("2026-01-01T00:01:00"),
    ]


def test_missed_years_are_one_firing() -> None:
    cron = Cron.parse("30 2 * * *", "Europe/Berlin")
    due_ms = ms("2019-03-30T02:30", "Europe/Berlin")
    now_ms = ms("2026-03-29T01:59", "Europe/Berlin")
    assert cron.after(due_ms, now_ms) == ms("2026-03-29T03:00", "Europe/Berlin")
    assert cron.after(now_ms, due_ms) == ms("2026-03-29T03:00", "Europe/Berlin")


def test_behind_the_year_9999_there_is_none() -> None:
    assert Cron.parse("0 0 29 2 *").first_ms(ms("9996-03-01")) is None
    assert Cron.parse("0 * * * *", "Asia/Tokyo").first_ms(PUBLISHED_MS_MAX) is None


# The parser


@pytest.mark.parametrize(
    "expression",
    [
        "", "*", "* * * *", "* * * * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *",
        "* * 32 * *", "* * * 13 *", "* * * * 8", "x * * * *", "5-1 * * * *", "*/0 * * * *",
        ", * * * *", "1,, * * * *", "? * * * *", "* ? * * *", "* * ? * ?", "* * 1,? * *",
        "* * ?/2 * *", "* * * ? *", "0 0 30 2 *", "0 0 31 4,6,9,11 *", "0 0 0 29 2 ? 2027",
        "0 0 0 30 2 ?", "0 0 0 ? 2 MON#6", "0 0 0 1 * MON", "0 0 0 ? * ?", "0 0 0 */2 * MON",
        "0 0 0 ? * 0", "0 0 0 ? * 8", "0 0 0 ? * FOO", "0 0 0 ? * MON,", "0 0 0 ? * 2/0",
        "0 0 0 ? * L3", "0 0 0 * * ? 1969", "0 0 0 * * ? 2100", "0 0 0 * * ? 2030-2029",
        "0 0 0 * * ? 2030/0", "0 0 0 * * ? ?", "0 0 0 * * ? 30", "0 0 0W * *",
        "0 0 32W * *", "0 0 0 1,15W * ?", "0 0 0 15W-16W * ?", "0 0 0 L-31 * ?", "0 0 0 W * ?",
        "0 0 0 L-W * ?", "0 0 15W * MON", "0 0 0 31W 2,4,6,9,11 ?", "0 0 0 L-30 2 ?",
        "0 0 0 29W 2 ? 2029-2031", "0 0 0 15W * ? 2030/0", "0 0 0 015W * ?", "H * * * *", "@reboot",
        "@ daily", "@daily *", "R * * * *", "\u0661 * * * *",
        "* * * * *" + " " * 300 + "x", "1," * 200 + "1 * * * *", "*\t*\n*\x00*\x00*",
    ],
)  # fmt: skip
def test_what_is_no_expression_is_refused(expression: str) -> None:
    with pytest.raises(BadParameter) as raised:
        Cron.parse(expression)
    assert raised.value.parameter == "cron"


def test_the_field_that_is_refused_is_named() -> None:
    with pytest.raises(BadParameter) as raised:
        Cron.parse("0 0 0 32W * ?")
    assert "day-of-month" in raised.value.expected


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("@yearly", "0 0 1 1 *"), ("@annually", "0 0 1 1 *"), ("@monthly", "0 0 1 * *"),
        ("@weekly", "0 0 * * 0"), ("@daily", "0 0 * * *"), ("@Midnight", "0 0 * * *"),
        (" @hourly ", "0 * * * *"),
    ],
)  # fmt: skip
def test_a_name_stands_for_its_fields(name: str, fields: str) -> None:
    assert Cron.parse(name, "Europe/Berlin") == Cron(fields, "Europe/Berlin")


@given(st.integers(1, 31), st.integers(1970, 2099), st.integers(1, 12))
def test_w_is_the_weekday_of_the_month_that_is_nearest(day: int, year: int, month: int) -> None:
    days = [date(year, month, each) for each in range(1, monthrange(year, month)[1] + 1)]
    start_ms = ms(f"{year}-{month:02}-01T00:00:00") - 1
    found_ms = Cron.parse(f"0 0 0 {day}W * ?").first_ms(start_ms)
    assert found_ms is not None
    found = datetime.fromtimestamp(found_ms / 1000, UTC).date()
    if day > len(days):
        assert (found.year, found.month) > (year, month)
    else:
        weekdays = [each for each in days if each.weekday() < 5]
        # Quartz takes the Friday of a Saturday's two neighbours, and of a Sunday's the Monday.
        assert found == min(weekdays, key=lambda each: (abs(each.day - day), each.day))


@pytest.mark.parametrize(
    "tz", ["", "Europe", "europe/berlin", "../../etc/passwd", "/etc/localtime", "localtime",
           "posixrules", "tzdata.zi", "zone.tab", "Europe/Berlin\0", "CEST", "UTC+1", "é"],
)  # fmt: skip
def test_what_is_no_zone_is_refused(tz: str) -> None:
    with pytest.raises(BadParameter) as raised:
        Cron.parse("* * * * *", tz)
    assert raised.value.parameter == "tz"


@pytest.mark.parametrize("tz", ["UTC", "Etc/GMT+12", "America/Argentina/Buenos_Aires", "CET"])
def test_a_zone_has_a_name_of_the_database(tz: str) -> None:
    assert Cron.parse("* * * * *", tz).tz == tz


def test_blanks_and_case_make_no_other_expression() -> None:
    assert Cron.parse("  0 0\t12 ? jan  mon-fri ") == Cron("0 0 12 ? JAN MON-FRI", "UTC")


parts = st.sampled_from(
    ["*", "?", "0", "1", "5", "12", "31", "59", "L", "LW", "W", "15W", "L-3", "@", "#", "-",
     ",", "/", "MON", "FRI", "FEB", "2#5", "6L", "2027", "*/7", "1-5", "0/0"]
)  # fmt: skip
fields = st.lists(parts, min_size=1, max_size=4).map("".join)
expressions = st.lists(fields, min_size=4, max_size=8).map(" ".join)


@given(
    st.one_of(st.text(max_size=60), expressions),
    st.sampled_from(["UTC", "Europe/Berlin", "Australia/Lord_Howe"]),
    st.integers(ms("1970-01-01"), ms("2099-01-01")),
)
def test_any_text_is_an_expression_that_fires_later_or_is_refused(
    text: str, tz: str, now_ms: int
) -> None:
    try:
        cron = Cron.parse(text, tz)
    except BadParameter:
        return
    assert Cron.parse(cron.expression, cron.tz) == cron
    found = cron.first_ms(now_ms)
    assert found is None or (found > now_ms and found % 1000 == 0)
    assert cron.after(now_ms, 0) == cron.after(0, now_ms) == found
