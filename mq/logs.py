"""Logs: one line an event, to stderr, for people or as JSON.

Floor 0. A record's `fields` (given as `extra={"fields": {...}}`) are the event's facts.
"""

import json
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Literal

LogFormat = Literal["human", "json"]


class _Formatter(logging.Formatter):
    def __init__(self, as_json: bool, facts: Mapping[str, object]) -> None:
        super().__init__()
        self._as_json = as_json
        self._facts = facts

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, object] = {**getattr(record, "fields", {}), **self._facts}
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        when = when.replace("+00:00", "Z")
        if self._as_json:
            head = {
                "time": when,
                "level": record.levelname.lower(),
                "logger": record.name,
                "event": record.getMessage(),
            }
            return json.dumps(head | fields, default=str)
        facts = "".join(f" {name}={_quoted(value)}" for name, value in fields.items())
        return f"{when} {record.levelname:<7} {record.name}: {_one_line(record)}{facts}"


def configure(
    log_format: LogFormat = "human", level: str = "info", facts: Mapping[str, object] | None = None
) -> None:
    """Sends the process's logs to stderr in this format, from this level up; every line has the
    `facts`.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter(log_format == "json", facts or {}))
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
