"""What a schedule's file says: a line of JSON, the header block of its messages, their body.

The one module that knows the line. What it does not know of it stays when the schedule goes on.
"""

import json
from typing import Any, Final

from mq.model.errors import BadName, BadParameter, ScheduleUnreadable
from mq.model.headers import parse_block, print_block
from mq.model.limits import (
    HEADER_BLOCK_BYTES_MAX,
    PRIORITY_MAX,
    PUBLISHED_MS_MAX,
    SCHEDULE_COUNT_MAX,
    SCHEDULE_LINE_BYTES_MAX,
    VISIBILITY_S_MAX,
)
from mq.model.names import EXTENSIONS, Key, MessageId
from mq.model.recurrence import UTC_NAME, Cron, Every, Recurrence
from mq.model.schedule import Armed, Overlap, Schedule

_VERSION: Final = 1


def print_schedule(armed: Armed) -> bytes:
    """The file that says so, but for when it fires next, which its mtime says."""
    schedule = armed.schedule
    head = print_block(schedule.headers)
    said: dict[str, object] = {"version": _VERSION, **_recurrence_fields(schedule.recurrence)}
    said["count"] = schedule.count
    said["until_ms"] = schedule.until_ms
    said["overlap"] = None if schedule.overlap == "allow" else schedule.overlap
    said["priority"] = schedule.priority
    said["key"] = None if schedule.key is None else schedule.key.text
    said["visibility_s"] = schedule.visibility_s
    said["extension"] = schedule.extension or None
    said["head"] = len(head) or None
    said |= _progress(armed)
    return _line(said) + head + schedule.body


def parse_schedule_file(content: bytes, next_ms: int | None) -> Armed:
    """What a file says whose mtime says that. Raises ScheduleUnreadable."""
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
        )
    except (BadName, BadParameter) as error:
        raise ScheduleUnreadable(f"{error.parameter} is not {error.expected}") from None


def print_progress(content: bytes, armed: Armed) -> bytes:
    """A file's content with what is different once the schedule has gone on; all else of it stays,
    also what is not known here. Raises ScheduleUnreadable.
    """
    fields, rest = _split(content)
    return _line(fields | _progress(armed)) + rest


def _progress(armed: Armed) -> dict[str, object]:
    return {
        "fired": armed.fired or None,
        "skipped": armed.skipped or None,
        "last": None if armed.last is None else armed.last.text,
    }


def _line(fields: dict[str, object]) -> bytes:
    """What is by default is left out."""
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
    return Schedule(
        recurrence=_recurrence(fields),
        count=_whole(fields, "count", 1, SCHEDULE_COUNT_MAX),
        until_ms=_whole(fields, "until_ms", 0, PUBLISHED_MS_MAX),
        overlap=_overlap(fields),
        priority=_whole(fields, "priority", 0, PRIORITY_MAX),
        key=None if key is None else Key.parse(key),
        visibility_s=_whole(fields, "visibility_s", 1, VISIBILITY_S_MAX),
        extension=extension,
        headers=parse_block(head),
        body=body,
    )


def _recurrence_fields(recurrence: Recurrence) -> dict[str, object]:
    if isinstance(recurrence, Every):
        return {"every_s": recurrence.every_s, "delay_s": recurrence.delay_s}
    tz = None if recurrence.tz == UTC_NAME else recurrence.tz
    return {"cron": recurrence.expression, "tz": tz}


def _recurrence(fields: dict[str, Any]) -> Recurrence:
    """Raises BadParameter too."""
    cron = _text(fields, "cron")
    if (cron is None) is ("every_s" not in fields):
        raise ScheduleUnreadable("neither every_s nor cron, or both")
    if cron is not None:
        return Cron.parse(cron, _text(fields, "tz") or UTC_NAME)
    return Every.parse(_number(fields, "every_s") or 0, _number(fields, "delay_s"))


def _overlap(fields: dict[str, Any]) -> Overlap:
    match fields.get("overlap"):
        case None | "allow":
            return "allow"
        case "skip":
            return "skip"
        case other:
            raise ScheduleUnreadable(f"overlap is {other!r}")


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
