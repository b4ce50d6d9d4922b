"""The content of a schedule's file: a line of JSON, then the header block and the body of its
messages.

Only this module knows the line. Unknown fields stay when the schedule goes on.
"""

import json
from typing import Any, Final, get_args

from mq.model.errors import BadName, BadParameter, ScheduleUnreadable
from mq.model.headers import GROUPED_BY, TAGS, parse_block, print_block, tags_in
from mq.model.limits import (
    HEADER_BLOCK_BYTES_MAX,
    KIB,
    MESSAGE_TTL_S_MAX,
    PRIORITY_MAX,
    PUBLISHED_MS_MAX,
    SCHEDULE_COUNT_MAX,
    TAGS_MAX,
    VISIBILITY_S_MAX,
)
from mq.model.names import EXTENSIONS, Group, Key, MessageId
from mq.model.recurrence import UTC_NAME, Cron, Every, Recurrence
from mq.model.schedule import After, Armed, Misfire, Overlap, Schedule

# The line before the message in a schedule's file.
SCHEDULE_LINE_BYTES_MAX: Final = 8 * KIB

_VERSION: Final = 1


def print_schedule(armed: Armed) -> bytes:
    """The content of a schedule's file; its next firing is the mtime."""
    schedule = armed.schedule
    head = print_block(schedule.message_headers())
    said: dict[str, object] = {"version": _VERSION, **_recurrence_fields(schedule.recurrence)}
    said["count"] = schedule.count
    said["until_ms"] = schedule.until_ms
    said["overlap"] = None if schedule.overlap == "allow" else schedule.overlap
    said["after"] = None if schedule.after == "due" else schedule.after
    said["misfire"] = None if schedule.misfire == "once" else schedule.misfire
    said["priority"] = schedule.priority
    said["key"] = None if schedule.key is None else schedule.key.text
    said["visibility_s"] = schedule.visibility_s
    said["ttl_s"] = schedule.ttl_s
    said["extension"] = schedule.extension or None
    said["head"] = len(head) or None
    said |= _progress(armed)
    return _line(said) + head + schedule.body


def parse_schedule_file(content: bytes, next_ms: int | None) -> Armed:
    """Parses a schedule's file with this next firing (its mtime). Raises ScheduleUnreadable."""
    fields, rest = _split(content)
    head = _whole(fields, "head", 0, HEADER_BLOCK_BYTES_MAX) or 0
    if len(rest) < head:
        raise ScheduleUnreadable("its header block is cut off")
    try:
        schedule = _schedule(fields, rest[:head], rest[head:])
        last = _text(fields, "last")
        return Armed(
            schedule,
            next_ms,
            _whole(fields, "fired", 0) or 0,
            _whole(fields, "skipped", 0) or 0,
            None if last is None else MessageId.parse(last),
            fields.get("waiting") is True,
        )
    except (BadName, BadParameter) as error:
        raise ScheduleUnreadable(f"{error.parameter} is not {error.expected}") from None


def print_progress(content: bytes, armed: Armed) -> bytes:
    """The file's content with the schedule's new progress; all other fields stay, also unknown
    ones. Raises ScheduleUnreadable.
    """
    fields, rest = _split(content)
    return _line(fields | _progress(armed)) + rest


def _progress(armed: Armed) -> dict[str, object]:
    return {
        "fired": armed.fired or None,
        "skipped": armed.skipped or None,
        "last": None if armed.last is None else armed.last.text,
        "waiting": armed.waiting or None,
    }


def _line(fields: dict[str, object]) -> bytes:
    """Leaves out fields with default values."""
    said = {name: value for name, value in fields.items() if value is not None}
    return json.dumps(said).encode() + b"\n"


def _split(content: bytes) -> tuple[dict[str, Any], bytes]:
    line, end, rest = content.partition(b"\n")
    if not end or len(line) >= SCHEDULE_LINE_BYTES_MAX:
        raise ScheduleUnreadable("no line")
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ScheduleUnreadable(f"no JSON: {error}") from None
    if not isinstance(fields, dict) or fields.get("version") != _VERSION:
        raise ScheduleUnreadable(f"no JSON object of version {_VERSION}")
    return fields, rest


def _schedule(fields: dict[str, Any], head: bytes, body: bytes) -> Schedule:
    key, extension = _text(fields, "key"), _text(fields, "extension") or ""
    if extension and extension not in EXTENSIONS:
        raise ScheduleUnreadable(f"extension is {extension!r}")
    headers = parse_block(head)
    group = next((value for name, value in headers if name == GROUPED_BY), None)
    tags = tags_in(headers)
    if len(tags) > TAGS_MAX:
        raise ScheduleUnreadable(f"{len(tags)} tags")
    return Schedule(
        recurrence=_recurrence(fields),
        count=_whole(fields, "count", 1, SCHEDULE_COUNT_MAX),
        until_ms=_whole(fields, "until_ms", 0, PUBLISHED_MS_MAX),
        overlap=_word(fields, "overlap", Overlap),
        after=_word(fields, "after", After),
        misfire=_word(fields, "misfire", Misfire),
        priority=_whole(fields, "priority", 0, PRIORITY_MAX),
        key=None if key is None else Key.parse(key),
        visibility_s=_whole(fields, "visibility_s", 1, VISIBILITY_S_MAX),
        extension=extension,
        headers=tuple(each for each in headers if each[0] not in (GROUPED_BY, TAGS)),
        body=body,
        ttl_s=_whole(fields, "ttl_s", 1, MESSAGE_TTL_S_MAX),
        group=None if group is None else Group.parse(group),
        tags=tags,
    )


def _recurrence_fields(recurrence: Recurrence) -> dict[str, object]:
    if isinstance(recurrence, Every):
        return {"every_s": recurrence.every_s, "delay_s": recurrence.delay_s}
    tz = None if recurrence.tz == UTC_NAME else recurrence.tz
    return {"cron": recurrence.expression, "tz": tz}


def _recurrence(fields: dict[str, Any]) -> Recurrence:
    """Raises BadParameter, too."""
    cron = _text(fields, "cron")
    if (cron is None) is ("every_s" not in fields):
        raise ScheduleUnreadable("neither every_s nor cron, or both")
    if cron is not None:
        return Cron.parse(cron, _text(fields, "tz") or UTC_NAME)
    return Every.parse(_number(fields, "every_s") or 0, _number(fields, "delay_s"))


def _word(fields: dict[str, Any], name: str, words: Any) -> Any:
    """A word of a literal type; the first one is the default."""
    value = fields.get(name, get_args(words)[0])
    if value not in get_args(words):
        raise ScheduleUnreadable(f"{name} is {value!r}")
    return value


def _number(fields: dict[str, Any], name: str) -> float | None:
    value = fields.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ScheduleUnreadable(f"{name} is {value!r}")
    try:
        return float(value)
    except OverflowError:
        raise ScheduleUnreadable(f"{name} is {value}") from None


def _whole(
    fields: dict[str, Any], name: str, at_least: int, at_most: int | None = None
) -> int | None:
    value = fields.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise ScheduleUnreadable(f"{name} is {value!r}")
    if value < at_least or (at_most is not None and value > at_most):
        raise ScheduleUnreadable(f"{name} is {value}")
    return value


def _text(fields: dict[str, Any], name: str) -> str | None:
    value = fields.get(name)
    if value is not None and not isinstance(value, str):
        raise ScheduleUnreadable(f"{name} is {value!r}")
    return value
