"""Logs: one line an event, to stderr, for people, as JSON, or for the journal.

A record's `fields` (`extra={"fields": {...}}`) are the event's facts: JSON has each as a member,
the other formats have them in the message. An exception's trace follows on lines of its own, except
in JSON. Repeated lines are left out for a minute (`Repeats`).
"""

import json
import logging
import sys
from collections import OrderedDict
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final, Literal

from mq.model.clock import SystemClock
from mq.model.log import Message, shown

LogFormat = Literal["human", "json", "journal"]

# As syslog numbers them: journald takes the number off the line, and has times of its own.
_PRIORITIES: Final = {"DEBUG": 7, "INFO": 6, "WARNING": 4, "ERROR": 3, "CRITICAL": 2}


class _Formatter(logging.Formatter):
    def __init__(self, log_format: LogFormat, facts: Mapping[str, object]) -> None:
        super().__init__()
        self._format = log_format
        self._facts = facts

    def format(self, record: logging.LogRecord) -> str:
        trace = self.formatException(record.exc_info) if record.exc_info else ""
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        when = when.replace("+00:00", "Z")
        if self._format == "json":
            message = record.msg
            head = {
                "time": when,
                "level": record.levelname.lower(),
                "logger": record.name,
                "event": message.event if isinstance(message, Message) else record.getMessage(),
            }
            fields = {**getattr(record, "fields", {}), **self._facts}
            return json.dumps(head | fields | ({"exception": trace} if trace else {}), default=str)
        said = f"{record.name}: {_one_line(record)}{shown(self._facts)}"
        if self._format == "journal":
            priority = f"<{_PRIORITIES.get(record.levelname, 6)}>"
            # The journal has an entry for each line.
            return "\n".join(priority + line for line in (said, *_indented(trace)))
        return "\n".join((f"{when} {record.levelname:<7} {said}", *_indented(trace)))


# How often a repeated warning or error is logged, and how many lines of one event at most: they may
# differ in their fields.
REPEATED_EVERY_S: Final = 60.0
REPEATED_LINES: Final = 5
_EVENTS_MAX: Final = 1_000


class Repeats(logging.Filter):
    """The one rule for failures that are repeated: the first lines of an event at once, then one a
    minute, which says how many were left out. A line that is the same as one before counts as
    repeated at once; requests' problems are an event each.
    """

    def __init__(self, now_s: Callable[[], float] | None = None) -> None:
        super().__init__()
        self._now_s = now_s or SystemClock().steady_s
        self._events: OrderedDict[tuple[str, int, str, object], _Event] = OrderedDict()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is logged."""
        if record.levelno < logging.WARNING:
            return True
        message = record.msg
        said = message.event if isinstance(message, Message) else str(message)
        fields = getattr(record, "fields", {})
        key = (record.name, record.levelno, said, fields.get("problem"))
        event, line = self._events.pop(key, None), record.getMessage()
        now_s = self._now_s()
        if event is None or now_s - event.began_s >= REPEATED_EVERY_S:
            left_out = 0 if event is None else event.left_out
            event = _Event(now_s)
            if left_out and isinstance(record.args, tuple) and record.args:
                record.msg, record.args = f"{said} left_out=%d", (*record.args, left_out)
            elif left_out:
                fields = {**fields, "left_out": left_out}
                record.__dict__["fields"] = fields
                record.msg = Message(said, fields)
        self._events[key] = event
        while len(self._events) > _EVENTS_MAX:
            self._events.popitem(last=False)
        return event.admits(line)


class _Event:
    """An event's lines since the first one, `began_s`."""

    __slots__ = ("began_s", "left_out", "lines")

    def __init__(self, began_s: float) -> None:
        self.began_s = began_s
        self.left_out = 0
        self.lines: set[str] = set()

    def admits(self, line: str) -> bool:
        if line in self.lines or len(self.lines) >= REPEATED_LINES:
            self.left_out += 1
            return False
        self.lines.add(line)
        return True


def configure(
    log_format: LogFormat = "human", level: str = "info", facts: Mapping[str, object] | None = None
) -> None:
    """Sends the process's logs to stderr in this format, from this level up; every line has the
    `facts`.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter(log_format, facts or {}))
    handler.addFilter(Repeats())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for chatty in ("asyncio", "aiohttp", "websockets"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


def _indented(trace: str) -> list[str]:
    """A trace's lines, none of which can be taken for an event's."""
    return [f"  {line}" for line in trace.splitlines()]


def _one_line(record: logging.LogRecord) -> str:
    return record.getMessage().replace("\n", "\\n")
