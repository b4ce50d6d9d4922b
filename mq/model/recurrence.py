"""Recurrences: an interval, or a cron expression in a time zone. Pure.

Times are whole milliseconds since the epoch. `first_ms` is the first firing of a new schedule;
`after` is the first firing later than both a firing and a time.

Cron expressions have five fields as cron has them (minute, hour, day of month, month, day of week
with 0 and 7 = SUN), or six or seven as Quartz has them (seconds first, a year last, day of week
with 1 = SUN), or are one of cron's names, such as `@daily`. cronsim computes bare local times
without zones. This module adds what cronsim lacks: Quartz's `15W` and `L-3`, and the changes of a
zone's offset:

- An expression of some hours fires once at each local time that it names. A time that is skipped
  when clocks are put forward fires at that change; a time that comes twice fires the first time.
- An expression of all hours follows real time: `*/10 * * * *` fires every ten minutes also while
  clocks are put forward, and in the hour that comes twice.

croniter, an alternative, knows some of Quartz's days, and has known errors at clock changes.
"""

import re
from calendar import monthrange
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.resources import files
from typing import Final, Self, TypeAlias
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from mq.model.errors import BadParameter
from mq.model.limits import CRON_CHARS_MAX, EVERY_S_MAX, EVERY_S_MIN, SCHEDULE_DELAY_S_MAX

# Years as Quartz has them.
CRON_YEAR_MIN: Final = 1970
CRON_YEAR_MAX: Final = 2099

UTC_NAME: Final = "UTC"
_SECOND: Final = timedelta(seconds=1)
_LOOK: Final = timedelta(days=7)
_EPOCH: Final = datetime(1970, 1, 1)
_WRITTEN: Final = re.compile(r"[0-9A-Z*?/,#-]+(?: [0-9A-Z*?/,#-]+){4,6}")
_ALL_HOURS: Final = frozenset(range(24))
_YEARS: Final = range(CRON_YEAR_MIN, CRON_YEAR_MAX + 1)
_ANY: Final = frozenset({"*", "?"})
_DAY_NAMES: Final = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_DAYS: Final = {name: day for day, name in enumerate(_DAY_NAMES, 1)}
_FORMS: Final = (
    "a cron expression of five fields, of six or seven fields in Quartz's form, or a name such as "
    "@daily"
)
_NAMED: Final = {
    "@YEARLY": "0 0 1 1 *",
    "@ANNUALLY": "0 0 1 1 *",
    "@MONTHLY": "0 0 1 * *",
    "@WEEKLY": "0 0 * * 0",
    "@DAILY": "0 0 * * *",
    "@MIDNIGHT": "0 0 * * *",
    "@HOURLY": "0 * * * *",
}
_SATURDAY: Final = 5
_LEAP_GAP_YEARS: Final = 8
"""The longest time between two 29 Februaries: a day that has not come by then never comes."""


@dataclass(frozen=True, slots=True)
class Every:
    """An interval of seconds with at most three decimals. The first firing is after `delay_s`, or
    else after `every_s`; further firings stay on its grid.
    """

    every_s: float
    delay_s: float | None = None

    @classmethod
    def parse(cls, every_s: float, delay_s: float | None = None) -> Self:
        """Makes an interval. Raises BadParameter for an invalid number of seconds."""
        if not EVERY_S_MIN <= every_s <= EVERY_S_MAX or every_s != round(every_s, 3):
            raise BadParameter("every", f"seconds from {EVERY_S_MIN} to {EVERY_S_MAX}")
        if delay_s is not None and (
            not 0 <= delay_s <= SCHEDULE_DELAY_S_MAX or delay_s != round(delay_s, 3)
        ):
            raise BadParameter("delay", f"seconds from 0 to {SCHEDULE_DELAY_S_MAX}")
        return cls(float(every_s), None if delay_s is None else float(delay_s))

    def first_ms(self, now_ms: int) -> int | None:
        """The first firing of a new schedule."""
        return now_ms + _ms(self.every_s if self.delay_s is None else self.delay_s)

    def after(self, due_ms: int, now_ms: int) -> int | None:
        """The first firing on the grid of `due_ms` that is later than both times."""
        every_ms = _ms(self.every_s)
        return due_ms + every_ms * max(1, (now_ms - due_ms) // every_ms + 1)


@dataclass(frozen=True, slots=True)
class Cron:
    """A cron expression in a time zone, in normal form: one blank between fields, upper-case
    letters, names as five fields. Made only by `parse`.
    """

    expression: str
    tz: str = UTC_NAME

    @classmethod
    def parse(cls, expression: str, tz: str = UTC_NAME) -> Self:
        """Parses an expression. Raises BadParameter for an invalid expression, an expression that
        never fires, or an unknown zone.
        """
        written = " ".join(expression.split()).upper()
        written = _NAMED.get(written, written)
        if len(written) > CRON_CHARS_MAX or _WRITTEN.fullmatch(written) is None:
            raise BadParameter("cron", _FORMS)
        if tz not in _zone_names():
            raise BadParameter("tz", "the name of a time zone such as Europe/Berlin")
        fields = _Fields.parse(written)
        if fields.next_local(datetime(CRON_YEAR_MIN, 1, 1) - _SECOND) is None:
            raise BadParameter("cron", "an expression that matches some future time")
        return cls(written, tz)

    def first_ms(self, now_ms: int) -> int | None:
        """The first firing after now; None: there is none."""
        fields = _Fields.parse(self.expression)
        zone = ZoneInfo(self.tz)
        try:
            # Whole seconds, as UTC has them; also below.
            now = _EPOCH + now_ms // 1000 * _SECOND
            if fields.is_all_hours:
                found = _next_in_real_time(fields, zone, now)
            else:
                found = _next_of_local_times(fields, zone, now)
        except (OverflowError, ValueError):  # Behind the year 9999.
            return None
        return None if found is None else (found - _EPOCH) // _SECOND * 1000

    def after(self, due_ms: int, now_ms: int) -> int | None:
        """The first firing later than both times; None: there is none."""
        return self.first_ms(max(due_ms, now_ms))


Recurrence: TypeAlias = Every | Cron


@dataclass(frozen=True, slots=True)
class _DayOfMonth:
    """One of Quartz's days that cronsim does not know: day `number` of a month; with `is_from_end`,
    that many days before the last; with `is_weekday`, the weekday of the month nearest to it.
    """

    number: int
    is_from_end: bool
    is_weekday: bool

    @classmethod
    def parse(cls, field: str) -> "_DayOfMonth | None":
        """Parses a field. None: a field for cronsim. Raises BadParameter."""
        match = re.fullmatch(
            r"(?:(?P<day>[0-9]{1,2})(?=W)|L-(?P<before>[0-9]{1,2}))(?P<w>W?)", field
        )
        if match is None:
            return None
        number = int(match["day"] or match["before"])
        is_from_end = match["day"] is None
        if not (number <= 30 if is_from_end else 1 <= number <= 31):
            raise BadParameter("cron", f"{_FORMS}; its day-of-month is malformed")
        return cls(number, is_from_end, match["w"] == "W")

    def of(self, year: int, month: int) -> int | None:
        """The day in this month; None: the month has no such day."""
        first_weekday, last = monthrange(year, month)
        day = last - self.number if self.is_from_end else self.number
        if not 1 <= day <= last:
            return None
        beyond = (first_weekday + day - 1) % 7 - _SATURDAY
        if not self.is_weekday or beyond < 0:
            return day
        # Friday before a Saturday, Monday after a Sunday, and never in another month.
        if beyond == 0:
            return day - 1 if day > 1 else day + 2
        return day + 1 if day < last else day - 2


@dataclass(frozen=True, slots=True)
class _Fields:
    """An expression as six fields for cronsim; its day of the month, if cronsim does not know it;
    and its years (None: all).
    """

    text: str
    day: _DayOfMonth | None
    years: frozenset[int] | None
    is_all_hours: bool

    @classmethod
    def parse(cls, written: str) -> "_Fields":
        fields = written.split(" ")
        years = None
        if len(fields) == 5:
            fields = ["0", *fields]
            _check_question_marks(fields)
        else:
            years = _years(fields.pop()) if len(fields) == 7 else None
            _check_question_marks(fields)
            if not _ANY & {fields[3], fields[5]}:
                raise BadParameter(
                    "cron",
                    "an expression with * or ? for the day of the month or of the week, if it has "
                    "six or seven fields",
                )
            fields[5] = ",".join(_quartz_day(term) for term in fields[5].split(","))
        day = _DayOfMonth.parse(fields[3])
        if day is not None:
            if fields[5] not in _ANY:
                raise BadParameter(
                    "cron", "an expression with * or ? for the day of the week beside W or L-3"
                )
            fields[3] = "*"
        text = " ".join("*" if field == "?" else field for field in fields)
        try:
            walker = CronSim(text, _EPOCH)
        except CronSimError as error:
            what = str(error).removeprefix("Bad ")
            raise BadParameter("cron", f"{_FORMS}; its {what} is malformed") from None
        return cls(text, day, years, walker.hours == _ALL_HOURS)

    def next_local(self, after: datetime) -> datetime | None:
        """The first bare local time of the expression after `after`."""
        start = after
        while True:
            try:
                found = next(CronSim(self.text, after), None)
            except OverflowError:
                return None
            if found is None:
                return None
            if self.years is not None and found.year not in self.years:
                # Most years may not match: skip from one matching year to the next.
                year = min((year for year in self.years if year > found.year), default=None)
                if year is None:
                    return None
                after = datetime(year, 1, 1) - _SECOND
                continue
            if self.day is None:
                return found
            day = self.day.of(found.year, found.month)
            if day == found.day:
                return found
            if self.years is None and found.year - start.year > _LEAP_GAP_YEARS:
                return None
            first = found.replace(day=1, hour=0, minute=0, second=0)
            days = day - 1 if day is not None and day > found.day else _days_of(found)
            after = first + timedelta(days=days) - _SECOND


def _days_of(at: datetime) -> int:
    return monthrange(at.year, at.month)[1]


def _check_question_marks(fields: list[str]) -> None:
    """Checks the question marks: one stands for all days of one kind if the other kind names
    days.
    """
    for at, field in enumerate(fields):
        if "?" in field and (at not in (3, 5) or field != "?"):
            raise BadParameter("cron", "an expression with ? only as the whole field of a day")
    if fields[3] == fields[5] == "?":
        raise BadParameter(
            "cron", "an expression with ? for the day of the month or of the week, not for both"
        )


def _years(field: str) -> frozenset[int] | None:
    """Parses Quartz's last field, the years."""
    if field == "*":
        return None
    found: set[int] = set()
    for term in field.split(","):
        match = re.fullmatch(r"(?:(\*)|([0-9]{4})(?:-([0-9]{4}))?)(?:/([0-9]{1,3}))?", term)
        if match is None:
            raise BadParameter("cron", f"{_FORMS}; its year is malformed")
        star, first, last, step = match.groups()
        start = _YEARS[0] if star else int(first)
        # A step continues from its first year to the last possible year.
        end = int(last) if last else _YEARS[-1] if star or step else start
        if start not in _YEARS or end not in _YEARS or end < start or (step and not int(step)):
            raise BadParameter("cron", f"an expression with years from {_YEARS[0]} to {_YEARS[-1]}")
        found |= set(range(start, end + 1, int(step or 1)))
    return frozenset(found)


def _quartz_day(term: str) -> str:
    """A term of Quartz's day of the week as cron counts: SUN is 0."""
    if term in ("*", "?"):
        return "*"
    match = re.fullmatch(
        r"(?:(?P<star>\*)|(?P<first>[1-7]|[A-Z]{3})(?:-(?P<last>[1-7]|[A-Z]{3}))?)"
        r"(?:/(?P<step>[1-7]))?"
        r"|(?P<of>[1-7]|[A-Z]{3})?(?P<end>L)|(?P<nth_of>[1-7]|[A-Z]{3})#(?P<nth>[1-5])",
        term,
    )
    if match is None:
        raise BadParameter("cron", f"{_FORMS}; its day-of-week is malformed")
    if match["end"]:
        return f"{_day(match['of']) - 1}L" if match["of"] else "6"
    if match["nth"]:
        return f"{_day(match['nth_of']) - 1}#{match['nth']}"
    first = 1 if match["star"] else _day(match["first"])
    to_the_end = match["star"] or match["step"]
    last = _day(match["last"]) if match["last"] else 7 if to_the_end else first
    # FRI-MON spans the end of the week.
    days = range(first, last + 1 if last >= first else last + 8, int(match["step"] or 1))
    return ",".join(str((day - 1) % 7) for day in days)


def _day(text: str) -> int:
    """A day of the week as Quartz counts: SUN is 1."""
    day = int(text) if text.isdigit() else _DAYS.get(text)
    if day is None:
        raise BadParameter("cron", f"{_FORMS}; its day-of-week is malformed")
    return day


def _next_of_local_times(fields: _Fields, zone: ZoneInfo, now: datetime) -> datetime | None:
    """The first moment after now, with each local time once. Moments rise with local times, so the
    search starts at now's local time.
    """
    local = _local(zone, now)
    while (found := fields.next_local(local)) is not None:
        moment = _moment(zone, found)
        if moment > now:
            return moment
        local = found
    return None


def _next_in_real_time(fields: _Fields, zone: ZoneInfo, now: datetime) -> datetime | None:
    """The first moment after now whose local time matches the expression. Until the zone's offset
    changes, local time passes as real time does.
    """
    start = now + _SECOND
    while True:
        local = _local(zone, start)
        found = fields.next_local(local - _SECOND)
        if found is None:
            return None
        moment = start + (found - local)
        change = _first_change(zone, start, moment)
        if change is None:
            return moment
        start = change


def _moment(zone: ZoneInfo, local: datetime) -> datetime:
    """The moment of a local time: the first one, if the time comes twice; the clock change, if it
    is skipped.
    """
    late = _in_utc(local.replace(tzinfo=zone))
    if _local(zone, late) == local:
        return late
    # PEP 495: in a gap, fold 0 has the offset before it, and fold 1 the offset behind it.
    early = _in_utc(local.replace(tzinfo=zone, fold=1))
    return _first_change(zone, early, late) or late


def _first_change(zone: ZoneInfo, start: datetime, end: datetime) -> datetime | None:
    """The first moment (by the second) in (`start`, `end`] at which the zone's offset differs from
    that at `start`; None: there is none. Steps of `_LOOK` suffice: no offset is shorter-lived.
    """
    offset = _local(zone, start) - start
    before = start
    while before < end:
        behind = min(before + _LOOK, end)
        if _local(zone, behind) - behind != offset:
            while behind - before > _SECOND:
                middle = before + (behind - before) // _SECOND // 2 * _SECOND
                if _local(zone, middle) - middle == offset:
                    before = middle
                else:
                    behind = middle
            return behind
        before = behind
    return None


def _local(zone: ZoneInfo, moment: datetime) -> datetime:
    """The bare local time of a moment."""
    return moment.replace(tzinfo=UTC).astimezone(zone).replace(tzinfo=None, fold=0)


def _in_utc(at: datetime) -> datetime:
    """The moment of a zoned time, as bare UTC."""
    return at.astimezone(UTC).replace(tzinfo=None)


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


@cache
def _zone_names() -> frozenset[str]:
    """The zone names of the time zone database, without other files of its folder."""
    return frozenset(files("tzdata").joinpath("zones").read_text(encoding="ascii").split())
