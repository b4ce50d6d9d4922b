"""History: the recorded events of a message's life, and the form of a line. Pure.

`mq/store/FORMAT.md`, "History", has the lines and maps transitions to events.
"""

import json
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple

from mq.model.clock import rfc3339


class Event(Enum):
    """An event; the value is its word in a line."""

    PUBLISHED = "published"
    FETCHED = "fetched"
    LEASED = "leased"
    EXTENDED = "extended"
    RELEASED = "released"
    REDELIVERED = "redelivered"
    REMOVED = "removed"
    SIDELINED = "sidelined"
    SHOVELLED = "shovelled"
    PARTED = "parted"
    """A pack's items became messages of their own."""
    DROPPED = "dropped"
    """A line with the number of lines that could not be written, and no id."""

    # As for State.
    __hash__ = object.__hash__


class Told(NamedTuple):
    """A message of an event: the text of its id, its receives, its due time, and the tags of a
    publish.
    """

    id: str
    receives: int | None = None
    due_ms: int | None = None
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Line:
    """One event: its time (milliseconds since the epoch) and its message, by the text of its id.
    None and "" mean that a field is left out.
    """

    time_ms: int
    event: Event
    id: str
    receives: int | None = None
    due_ms: int | None = None
    lease: str = ""
    reason: str = ""
    tags: tuple[str, ...] = ()
    """The tags of a publish."""

    def written(self, process: str) -> bytes:
        """The line as the process writes it."""
        # No part needs a JSON escape: ids, reasons, lease names and process names contain no such
        # character.
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
        if self.tags:
            parts.append(f'"tags": {json.dumps(self.tags)}')
        parts.append(f'"process": "{process}"}}\n')
        return ", ".join(parts).encode("ascii")


def dropped(time_ms: int, count: int, process: str) -> bytes:
    """The line that counts events that could not be written."""
    event = Event.DROPPED.value
    return (
        f'{{"time": "{rfc3339(time_ms)}", "event": "{event}", "count": {count}, '
        f'"process": "{process}"}}\n'
    ).encode("ascii")


ANY_ID: Final = b'"id": "'
"""The text that every line of a message contains."""


def mentions(message_id: str) -> bytes:
    """The text that the lines of this message contain."""
    return f'"id": "{message_id}"'.encode("ascii")


def mentions_tag(tag: str) -> bytes:
    """The text that the line of a publish with the tag contains."""
    return json.dumps(tag).encode("ascii")


def id_mentioned(line: bytes) -> str:
    """The id in a line, found without parsing the line."""
    return line.partition(ANY_ID)[2].partition(b'"')[0].decode("ascii", "replace")


def parse_event(line: bytes) -> dict[str, Any] | None:
    """A line's event, with the message's id; None: the line is torn, or has no message."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    if not all(isinstance(found.get(name), str) for name in ("id", "time", "event")):
        return None
    return found


def parse_line(line: bytes, message_id: str) -> dict[str, Any] | None:
    """A line's event of the message, without the id; None: the line is torn, or of another
    message.
    """
    found = parse_event(line)
    return found if found is not None and found.pop("id") == message_id else None


def is_publish_with(event: dict[str, Any], tag: str) -> bool:
    """Whether the event is the publish of a message with the tag."""
    tags = event.get("tags")
    return isinstance(tags, list) and tag in tags
