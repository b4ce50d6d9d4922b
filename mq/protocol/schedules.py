"""What a request says of a schedule, and how one is shown: pure."""

from typing import Final, cast, get_args

from mq.model.clock import rfc3339
from mq.model.errors import BadParameter, ScheduleUnreadable
from mq.model.headers import kept
from mq.model.limits import (
    CRON_CHARS_MAX,
    EVERY_S_MAX,
    EVERY_S_MIN,
    PEEK_BODY_BYTES,
    SCHEDULE_COUNT_MAX,
    SCHEDULE_DELAY_S_MAX,
)
from mq.model.looking import cut
from mq.model.names import ScheduleName, content_type_of, extension_for
from mq.model.recurrence import UTC_NAME, Cron, Every, Recurrence
from mq.model.schedule import Armed, Overlap, Schedule
from mq.protocol.carried import named_headers
from mq.protocol.envelopes import KEY, PRIORITY, VISIBILITY, media_type_of
from mq.protocol.parameters import Fields, Query
from mq.protocol.problems import PROBLEMS, problem_members
from mq.protocol.query import Choice, Seconds, Text, Time, Whole
from mq.protocol.rows import body_member

EVERY: Final = Seconds(
    "every", EVERY_S_MIN, EVERY_S_MAX,
    "A message every so many seconds. Either this or `cron`.",
)  # fmt: skip
DELAY: Final = Seconds(
    "delay", 0, SCHEDULE_DELAY_S_MAX,
    "In how many seconds the first one comes, with `every`; left out, after `every`.",
)  # fmt: skip
CRON: Final = Text(
    "cron", {"type": "string", "minLength": 1, "maxLength": CRON_CHARS_MAX},
    "A cron expression of five fields, or of six or seven as Quartz has them. Either this or "
    "`every`.",
    example="0 30 2 ? * MON-FRI",
)  # fmt: skip
ZONE: Final = Text(
    "tz", {"type": "string", "default": UTC_NAME},
    "The time zone of `cron`, by its name in the IANA database.",
    example="Europe/Berlin",
)  # fmt: skip
COUNT: Final = Whole("count", 1, SCHEDULE_COUNT_MAX, "So many messages in all, and no more.")
UNTIL: Final = Time("until", "The last moment at which a firing may be due.")
OVERLAP: Final = Choice(
    "overlap", get_args(Overlap),
    "Whether one is fired while the last one's message still lives.", "allow",
)  # fmt: skip
PUT_PARAMETERS: Final = (
    EVERY, CRON, ZONE, DELAY, COUNT, UNTIL, OVERLAP, PRIORITY, KEY, VISIBILITY,
)  # fmt: skip


def schedule_of(query: Query, headers: Fields) -> Schedule:
    """What a request's query and headers say of a schedule, whose body comes. Raises BadParameter,
    HeadersTooLarge.
    """
    return Schedule(
        _recurrence(query),
        count=COUNT.of(query),
        until_ms=UNTIL.of(query),
        overlap=cast(Overlap, OVERLAP.of(query) or OVERLAP.default),
        priority=PRIORITY.of(query),
        key=KEY.of(query),
        visibility_s=VISIBILITY.of(query),
        extension=extension_for(media_type_of(headers)),
        headers=kept(headers.items()),
    )


def _recurrence(query: Query) -> Recurrence:
    every_s, delay_s = EVERY.of(query), DELAY.of(query)
    expression, zone = CRON.of(query), ZONE.of(query)
    if expression is not None:
        for parameter, value in ((EVERY, every_s), (DELAY, delay_s)):
            if value is not None:
                raise BadParameter(parameter.name, f"left out where there is a {CRON.name}")
        return Cron.parse(expression, UTC_NAME if zone is None else zone)
    if every_s is None:
        raise BadParameter(EVERY.name, f"seconds, where there is no {CRON.name}")
    if zone is not None:
        raise BadParameter(ZONE.name, f"left out where there is no {CRON.name}")
    return Every.parse(every_s, delay_s)


def whole(name: ScheduleName, armed: Armed) -> dict[str, object]:
    """A schedule with the beginning of its body."""
    body = armed.schedule.body
    shown = body if len(body) <= PEEK_BODY_BYTES else cut(body[:PEEK_BODY_BYTES])
    return {**summary(name, armed, len(body)), **body_member(shown)}


def summary(name: ScheduleName, armed: Armed, size: int) -> dict[str, object]:
    """All but the body, of `size` bytes: what was left out is null, but for when it comes, which
    is said.
    """
    schedule = armed.schedule
    return {
        "name": name.text,
        **_when(schedule.recurrence),
        "next": None if armed.next_ms is None else rfc3339(armed.next_ms),
        "fired": armed.fired,
        "skipped": armed.skipped,
        "last": None if armed.last is None else armed.last.text,
        "count": schedule.count,
        "until": None if schedule.until_ms is None else rfc3339(schedule.until_ms),
        "overlap": schedule.overlap,
        "priority": schedule.priority,
        "key": None if schedule.key is None else schedule.key.text,
        "visibility": schedule.visibility_s,
        "size": size,
        "headers": named_headers(content_type_of(schedule.extension), schedule.headers),
    }


def _when(recurrence: Recurrence) -> dict[str, object]:
    if isinstance(recurrence, Cron):
        return {CRON.name: recurrence.expression, ZONE.name: recurrence.tz}
    return {EVERY.name: recurrence.every_s, DELAY.name: recurrence.delay_s}


def unreadable(name: ScheduleName) -> dict[str, object]:
    """One that cannot be understood, with its problem."""
    return {"name": name.text, "problem": problem_members(PROBLEMS[ScheduleUnreadable], {})}
