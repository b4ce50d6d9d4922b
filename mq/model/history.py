"""History: what of a message's life is written down, and the form of a line. Pure.

`mq/store/FORMAT.md`, "History", has the lines and which transition is which event.
"""

import json
from dataclasses import dataclass
from enum import Enum
from typing import Any

from mq.model.clock import rfc3339


class Event(Enum):
    """What a line tells of; the value is how it says so."""

    PUBLISHED = "published"
    FETCHED = "fetched"
    LEASED = "leased"
    EXTENDED = "extended"
    RELEASED = "released"
    REDELIVERED = "redelivered"
    REMOVED = "removed"
    SIDELINED = "sidelined"
    SHOVELLED = "shovelled"
    DROPPED = "dropped"
    """Lines that could not be written: it has their count, and no id."""


@dataclass(frozen=True, slots=True)
class Line:
    """One event: when it was, milliseconds since the epoch, and of which message, by its id's text.
    None, and "", where nothing is to be told.
    """

    time_ms: int
    event: Event
    id: str
    receives: int | None = None
    due_ms: int | None = None
    lease: str = ""
    reason: str = ""

    def written(self, process: str) -> bytes:
        """The line that the process writes."""
        # No part needs an escape in JSON: ids, reasons, names of leases and of processes have none.
        parts = [
            f'{{"time": "{rfc3339(self.time_ms)}", "event": "{self.event.value}", "id": "{self.id}"'
        ]
        if self.receives is not None:
            parts.append(f'"receives": {self.receives}')
        if self.due_ms is not None:
            parts.append(f'"due": "{rfc3339(self.due_ms)}"')
        if self.lease:
            parts.append(f'"lease": "{self.lease}"')
        if self.reason:
            parts.append(f'"reason": "{self.reason}"')
        parts.append(f'"process": "{process}"}}\n')
        return ", ".join(parts).encode("ascii")


def dropped(time_ms: int, count: int, process: str) -> bytes:
    """The line that says that so many could not be written."""
    event = Event.DROPPED.value
    return (
        f'{{"time": "{rfc3339(time_ms)}", "event": "{event}", "count": {count}, '
        f'"process": "{process}"}}\n'
    ).encode("ascii")


def mentions(message_id: str) -> bytes:
    """What the lines of a message have in them."""
    return f'"id": "{message_id}"'.encode("ascii")


def parse_line(line: bytes, message_id: str) -> dict[str, Any] | None:
    """What a line says of the message, without its id; None: it is torn, or another's."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or found.pop("id", None) != message_id:
        return None
    if not isinstance(found.get("time"), str) or not isinstance(found.get("event"), str):
        return None
    return found
