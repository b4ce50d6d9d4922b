"""Requests for schedules, and their answers. Pure."""

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
from mq.model.message import cut
from mq.model.names import ScheduleName, content_type_of, extension_for
from mq.model.recurrence import UTC_NAME, Cron, Every, Recurrence
from mq.model.schedule import After, Armed, Misfire, Overlap, Schedule
from mq.protocol.envelopes import GROUP, KEY, PRIORITY, TAG, TTL, VISIBILITY, media_type_of
from mq.protocol.parameters import Fields, Query
from mq.protocol.problems import PROBLEMS, problem_members
from mq.protocol.query import Choice, Seconds, Text, Time, Whole
from mq.protocol.rows import body_member, named_headers

EVERY: Final = Seconds(
    "every", EVERY_S_MIN, EVERY_S_MAX,
    "The interval.",
)  # fmt: skip
DELAY: Final = Seconds(
    "delay", 0, SCHEDULE_DELAY_S_MAX,
    "The delay of the first message, with `every`. Default: `every`.",
)  # fmt: skip
CRON: Final = Text(
    "cron", {"type": "string", "minLength": 1, "maxLength": CRON_CHARS_MAX},
    "A cron expression of five fields, or Quartz's of six or seven.",
    example="0 30 2 ? * MON-FRI",
)  # fmt: skip
ZONE: Final = Text(
    "tz", {"type": "string", "default": UTC_NAME},
    "The time zone of `cron` (IANA).",
    example="Europe/Berlin",
)  # fmt: skip
COUNT: Final = Whole("count", 1, SCHEDULE_COUNT_MAX, "The schedule ends after this many messages.")
UNTIL: Final = Time("until", "The schedule ends once its next firing would be due after this time.")
OVERLAP: Final = Choice(
    "overlap", get_args(Overlap),
    "Whether to fire while the last message is ready, delayed or in flight.", "allow",
)  # fmt: skip
AFTER: Final = Choice(
    "after", get_args(After),
    "When the interval begins: at the last due time, or when its message is done.", "due",
)  # fmt: skip
MISFIRE: Final = Choice(
    "misfire", get_args(Misfire),
    "Which missed firings happen late: one for all, none that is over a minute late, or each.",
    "once",
)  # fmt: skip
PUT_PARAMETERS: Final = (
    EVERY, CRON, ZONE, DELAY, COUNT, UNTIL, OVERLAP, AFTER, MISFIRE, PRIORITY, KEY, VISIBILITY, TTL,
    GROUP, TAG,
)  # fmt: skip


def schedule_of(query: Query, headers: Fields) -> Schedule:
    """The schedule of a request's query and headers, without its body. Raises BadParameter,
    HeadersTooLarge.
    """
    schedule = Schedule(
        _recurrence(query),
        count=COUNT.of(query),
        until_ms=UNTIL.of(query),
        overlap=cast(Overlap, OVERLAP.of(query) or OVERLAP.default),
        after=cast(After, AFTER.of(query) or AFTER.default),
        misfire=cast(Misfire, MISFIRE.of(query) or MISFIRE.default),
        priority=PRIORITY.of(query),
        key=KEY.of(query),
        visibility_s=VISIBILITY.of(query),
        extension=extension_for(media_type_of(headers)),
        headers=kept(headers.items()),
        ttl_s=TTL.of(query),
        group=GROUP.of(query),
        tags=TAG.of(query),
    )
    schedule.message_headers()
    return schedule


def _recurrence(query: Query) -> Recurrence:
    every_s, delay_s = EVERY.of(query), DELAY.of(query)
    expression, zone = CRON.of(query), ZONE.of(query)
    if expression is not None:
        for parameter, value in ((EVERY, every_s), (DELAY, delay_s)):
            if value is not None:
                raise BadParameter(parameter.name, f"left out with {CRON.name}")
        return Cron.parse(expression, UTC_NAME if zone is None else zone)
    if every_s is None:
        raise BadParameter(EVERY.name, f"given, or {CRON.name} instead")
    if zone is not None:
        raise BadParameter(ZONE.name, f"left out without {CRON.name}")
    return Every.parse(every_s, delay_s)


def whole(name: ScheduleName, armed: Armed) -> dict[str, object]:
    """A schedule with the beginning of its body."""
    body = armed.schedule.body
    shown = body if len(body) <= PEEK_BODY_BYTES else cut(body[:PEEK_BODY_BYTES])
    return {**summary(name, armed, len(body)), **body_member(shown)}


def summary(name: ScheduleName, armed: Armed, size: int) -> dict[str, object]:
    """A schedule without its body, of `size` bytes. Options that were left out are null, except its
    times.
    """
    schedule = armed.schedule
    return {
        "name": name.text,
        **_when(schedule.recurrence),
        "next": None if armed.next_ms is None or armed.waiting else rfc3339(armed.next_ms),
        "fired": armed.fired,
        "skipped": armed.skipped,
        "last": None if armed.last is None else armed.last.text,
        "waiting": armed.waiting,
        "count": schedule.count,
        "until": None if schedule.until_ms is None else rfc3339(schedule.until_ms),
        "overlap": schedule.overlap,
        "after": schedule.after,
        "misfire": schedule.misfire,
        "priority": schedule.priority,
        "key": None if schedule.key is None else schedule.key.text,
        "visibility": schedule.visibility_s,
        "ttl": schedule.ttl_s,
        "group": None if schedule.group is None else schedule.group.text,
        "tags": [tag.text for tag in schedule.tags],
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
