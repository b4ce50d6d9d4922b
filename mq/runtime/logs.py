"""Logs: one line an event, to stderr, for people, as JSON, or for the journal.

A record's `fields` (`extra={"fields": {...}}`) are the event's facts: JSON has each as a member,
the other formats have them in the message. An exception's trace follows on lines of its own, except
in JSON.
"""

import json
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, Literal

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


def configure(
    log_format: LogFormat = "human", level: str = "info", facts: Mapping[str, object] | None = None
) -> None:
    """Sends the process's logs to stderr in this format, from this level up; every line has the
    `facts`.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter(log_format, facts or {}))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for chatty in ("asyncio", "aiohttp", "websockets"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


def _indented(trace: str) -> list[str]:
    """A trace's lines, none of which can be taken for an event's."""
    return [f"  {line}" for line in trace.splitlines()]


def _one_line(record: logging.LogRecord) -> str:
    return record.getMessage().replace("\n", "\\n")
