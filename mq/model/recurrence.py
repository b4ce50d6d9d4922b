"""When something comes again: every so many seconds, or by a cron expression in a time zone. Pure.

Times are whole milliseconds since the epoch. `first_ms` is the first firing of what is
made now; `after` the first one that is later than both a firing and now: of those that were
missed nothing is left but the one that was due.

Cron expressions have five fields as cron has them (minute, hour, day of month, month, day of week
with 0 and 7 = SUN), or six or seven as Quartz has them (seconds first, a year last, day of week
with 1 = SUN). cronsim walks them, since it does that on bare local times, without a thought of
zones; what its clock says where a zone's offset changes is decided here:

- An expression of some hours fires once at each local time that it names. One that does not come,
  since clocks are put forward over it, fires at the moment when they are; one that comes twice
  fires the first time.
- An expression of all hours goes on in real time: `*/10 * * * *` fires every ten minutes while
  clocks are put forward, and also in the hour that comes twice.

What would change our mind about the library: W other than LW, and L-3, which Quartz has and it
has not; croniter has some of it, and walks clocks' changes with errors that have been known for
years.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.resources import files
from typing import Final, Self, TypeAlias
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from mq.model.errors import BadParameter
from mq.model.limits import (
    CRON_CHARS_MAX,
    CRON_YEAR_MAX,
    CRON_YEAR_MIN,
    EVERY_S_MAX,
    EVERY_S_MIN,
    SCHEDULE_DELAY_S_MAX,
)

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
    "five fields as cron has them, or six or seven as Quartz has them "
    "(of W only LW, and no L with a number behind it)"
)


@dataclass(frozen=True, slots=True)
class Every:
    """Every so many seconds, which have at most three decimals; first after `delay_s`, else after
    `every_s`. The grid that the first firing makes is kept.
    """

    every_s: float
    delay_s: float | None = None

    @classmethod
    def parse(cls, every_s: float, delay_s: float | None = None) -> Self:
        """Raises BadParameter for seconds that no schedule has."""
        if not EVERY_S_MIN <= every_s <= EVERY_S_MAX or every_s != round(every_s, 3):
            raise BadParameter("every", f"seconds from {EVERY_S_MIN} to {EVERY_S_MAX}")
        if delay_s is not None and (
            not 0 <= delay_s <= SCHEDULE_DELAY_S_MAX or delay_s != round(delay_s, 3)
        ):
            raise BadParameter("delay", f"seconds from 0 to {SCHEDULE_DELAY_S_MAX}")
        return cls(float(every_s), None if delay_s is None else float(delay_s))

    def first_ms(self, now_ms: int) -> int | None:
        """The first firing of what is made now."""
        return now_ms + _ms(self.every_s if self.delay_s is None else self.delay_s)

    def after(self, due_ms: int, now_ms: int) -> int | None:
        """The first firing on the grid of `due_ms` that is later than it and than now."""
        every_ms = _ms(self.every_s)
        return due_ms + every_ms * max(1, (now_ms - due_ms) // every_ms + 1)


@dataclass(frozen=True, slots=True)
class Cron:
    """By a cron expression in a time zone, which exist only by `parse`: one blank between fields,
    letters in upper case.
    """

    expression: str
    tz: str = UTC_NAME

    @classmethod
    def parse(cls, expression: str, tz: str = UTC_NAME) -> Self:
        """Raises BadParameter for what is no expression, or one that never comes, or no zone."""
        written = " ".join(expression.split()).upper()
        if len(written) > CRON_CHARS_MAX or _WRITTEN.fullmatch(written) is None:
            raise BadParameter("cron", _FORMS)
        if tz not in _zone_names():
            raise BadParameter("tz", "a time zone's name such as Europe/Berlin")
        fields = _Fields.parse(written)
        if fields.next_local(datetime(CRON_YEAR_MIN, 1, 1) - _SECOND) is None:
            raise BadParameter("cron", "a time that comes at all")
        return cls(written, tz)

    def first_ms(self, now_ms: int) -> int | None:
        """The first firing after now; None: there is none any more."""
        fields = _Fields.parse(self.expression)
        zone = ZoneInfo(self.tz)
        try:
            # In whole seconds, as UTC has them, and so below.
            now = _EPOCH + now_ms // 1000 * _SECOND
            if fields.is_all_hours:
                found = _next_in_real_time(fields, zone, now)
            else:
                found = _next_of_local_times(fields, zone, now)
        except (OverflowError, ValueError):  # Behind the year 9999.
            return None
        return None if found is None else (found - _EPOCH) // _SECOND * 1000

    def after(self, due_ms: int, now_ms: int) -> int | None:
        """The first firing that is later than both; None: there is none any more."""
        return self.first_ms(max(due_ms, now_ms))


Recurrence: TypeAlias = Every | Cron


@dataclass(frozen=True, slots=True)
class _Fields:
    """An expression in six fields as cronsim reads them, and its years; None: all."""

    text: str
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
                raise BadParameter("cron", "in six or seven fields, * or ? for one kind of day")
            fields[5] = ",".join(_quartz_day(term) for term in fields[5].split(","))
        text = " ".join("*" if field == "?" else field for field in fields)
        try:
            walker = CronSim(text, _EPOCH)
        except CronSimError as error:
            what = str(error).removeprefix("Bad ")
            raise BadParameter("cron", f"{_FORMS}; look at the {what}") from None
        return cls(text, years, walker.hours == _ALL_HOURS)

    def next_local(self, after: datetime) -> datetime | None:
        """The first bare local time after that one which the expression names."""
        while True:
            try:
                found = next(CronSim(self.text, after), None)
            except OverflowError:
                return None
            if found is None or self.years is None or found.year in self.years:
                return found
            # Most years of an expression may be none of its own: from one to the next.
            year = min((year for year in self.years if year > found.year), default=None)
            if year is None:
                return None
            after = datetime(year, 1, 1) - _SECOND


def _check_question_marks(fields: list[str]) -> None:
    """A question mark stands for all days of one kind, where the other kind says which."""
    for at, field in enumerate(fields):
        if "?" in field and (at not in (3, 5) or field != "?"):
            raise BadParameter("cron", "? alone, and for days only")
    if fields[3] == fields[5] == "?":
        raise BadParameter("cron", "? for one kind of day only")


def _years(field: str) -> frozenset[int] | None:
    """The years of Quartz's last field."""
    if field == "*":
        return None
    found: set[int] = set()
    for term in field.split(","):
        match = re.fullmatch(r"(?:(\*)|([0-9]{4})(?:-([0-9]{4}))?)(?:/([0-9]{1,3}))?", term)
        if match is None:
            raise BadParameter("cron", f"{_FORMS}; look at the year")
        star, first, last, step = match.groups()
        start = _YEARS[0] if star else int(first)
        # A step goes on from its beginning to the last year that there is.
        end = int(last) if last else _YEARS[-1] if star or step else start
        if start not in _YEARS or end not in _YEARS or end < start or (step and not int(step)):
            raise BadParameter("cron", f"years from {_YEARS[0]} to {_YEARS[-1]}")
        found |= set(range(start, end + 1, int(step or 1)))
    return frozenset(found)


def _quartz_day(term: str) -> str:
    """A term of Quartz's day of the week, as cron counts: SUN is 0."""
    if term in ("*", "?"):
        return "*"
    match = re.fullmatch(
        r"(?:(?P<star>\*)|(?P<first>[1-7]|[A-Z]{3})(?:-(?P<last>[1-7]|[A-Z]{3}))?)"
        r"(?:/(?P<step>[1-7]))?"
        r"|(?P<of>[1-7]|[A-Z]{3})?(?P<end>L)|(?P<nth_of>[1-7]|[A-Z]{3})#(?P<nth>[1-5])",
        term,
    )
    if match is None:
        raise BadParameter("cron", f"{_FORMS}; look at the day-of-week")
    if match["end"]:
        return f"{_day(match['of']) - 1}L" if match["of"] else "6"
    if match["nth"]:
        return f"{_day(match['nth_of']) - 1}#{match['nth']}"
    first = 1 if match["star"] else _day(match["first"])
    to_the_end = match["star"] or match["step"]
    last = _day(match["last"]) if match["last"] else 7 if to_the_end else first
    # FRI-MON goes over the end of the week.
    days = range(first, last + 1 if last >= first else last + 8, int(match["step"] or 1))
    return ",".join(str((day - 1) % 7) for day in days)


def _day(text: str) -> int:
    """A day of the week as Quartz counts: 1 is SUN."""
    day = int(text) if text.isdigit() else _DAYS.get(text)
    if day is None:
        raise BadParameter("cron", f"{_FORMS}; look at the day-of-week")
    return day


def _next_of_local_times(fields: _Fields, zone: ZoneInfo, now: datetime) -> datetime | None:
    """Each local time once: moments rise with local times, so the first one after now is found
    by going on from now's own.
    """
    local = _local(zone, now)
    while (found := fields.next_local(local)) is not None:
        moment = _moment(zone, found)
        if moment > now:
            return moment
        local = found
    return None


def _next_in_real_time(fields: _Fields, zone: ZoneInfo, now: datetime) -> datetime | None:
    """The first moment after now whose local time the expression names. Until the zone's offset
    changes, a local time is as far away as the clock says.
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
    """When a local time comes: the first time, if it comes twice; if clocks are put forward over
    it, the moment when they are.
    """
    late = _in_utc(local.replace(tzinfo=zone))
    if _local(zone, late) == local:
        return late
    # PEP 495: in such a gap, fold 0 is told by the offset before it, and fold 1 by the one behind.
    early = _in_utc(local.replace(tzinfo=zone, fold=1))
    return _first_change(zone, early, late) or late


def _first_change(zone: ZoneInfo, start: datetime, end: datetime) -> datetime | None:
    """The first moment, to the second, after `start` and not after `end` at which the zone has
    another offset than at `start`; None: there is none. Offsets stay for longer than a look.
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
    """The moment that a time in a zone is, without its zone."""
    return at.astimezone(UTC).replace(tzinfo=None)


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


@cache
def _zone_names() -> frozenset[str]:
    """The names that the time zone database has. Names of files beside it are none."""
    return frozenset(files("tzdata").joinpath("zones").read_text(encoding="ascii").split())
