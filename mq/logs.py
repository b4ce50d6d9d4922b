"""Logs: one line an event, to stderr, for people, as JSON, or for the journal.

Floor 0. A record's `fields` (given as `extra={"fields": {...}}`) are the event's facts.
"""

import json
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, Literal

LogFormat = Literal["human", "json", "journal"]

# As syslog numbers them: journald takes the number off the line, and has times of its own.
_PRIORITIES: Final = {"DEBUG": 7, "INFO": 6, "WARNING": 4, "ERROR": 3, "CRITICAL": 2}


class _Formatter(logging.Formatter):
    def __init__(self, log_format: LogFormat, facts: Mapping[str, object]) -> None:
        super().__init__()
        self._format = log_format
        self._facts = facts

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, object] = {**getattr(record, "fields", {}), **self._facts}
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        when = when.replace("+00:00", "Z")
        if self._format == "json":
            head = {
                "time": when,
                "level": record.levelname.lower(),
                "logger": record.name,
                "event": record.getMessage(),
            }
            return json.dumps(head | fields, default=str)
        facts = "".join(f" {name}={_quoted(value)}" for name, value in fields.items())
        said = f"{record.name}: {_one_line(record)}{facts}"
        if self._format == "journal":
            return f"<{_PRIORITIES.get(record.levelname, 6)}>{said}"
        return f"{when} {record.levelname:<7} {said}"


def configure(
    log_format: LogFormat = "human", level: str = "info", facts: Mapping[str, object] | None = None
) -> None:
    """Sends the process's logs to stderr in this format, from this level up; every line has the
    `facts`.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter(log_format, facts or {}))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for chatty in ("asyncio", "aiohttp"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


def _one_line(record: logging.LogRecord) -> str:
    return record.getMessage().replace("\n", "\\n")


def _quoted(value: object) -> str:
    text = str(value)
    if text and not any(char.isspace() or char in "\"='" for char in text):
        return text
    return json.dumps(text)
