"""Reading what became of a message, from its queue's history."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from mq.model.errors import MessageNotFound
from mq.model.history import mentions, parse_line
from mq.model.lifecycle import State
from mq.model.limits import (
    CHUNK_BYTES,
    HISTORY_CLOCKS_APART_S,
    HISTORY_EVENTS_MAX,
    HISTORY_LINE_BYTES_MAX,
)
from mq.model.names import MessageId, QueueName
from mq.store.core.purged import is_purged
from mq.store.core.root import Root
from mq.store.disk.files import is_gone
from mq.store.format.history import date_of
from mq.store.history.sweep import history_files
from mq.store.keys.holders import whereabouts

_NOWHERE: Final = (None, State.NEW)


@dataclass(frozen=True, slots=True)
class Past:
    """What lines say of a message, by their times: the latest, and how many earlier ones were
    left out.
    """

    events: tuple[dict[str, Any], ...]
    left_out: int = 0


def read_history(root: Root, queue: QueueName, message_id: MessageId) -> Past:
    """What became of a message; nothing of one that is there and has no line. Blocking, for as long
    as reading all lines takes since it was published, but with little memory. Raises
    MessageNotFound, Unavailable, OSError.
    """
    root.history.write_out()
    past = _read(root, queue, message_id)
    if not past.events and (
        whereabouts(root, queue, message_id) in _NOWHERE or is_purged(root, queue, message_id)
    ):
        raise MessageNotFound(message_id.text)
    return past


def _read(root: Root, queue: QueueName, message_id: MessageId) -> Past:
    since = date_of(max(0, message_id.published_ms - HISTORY_CLOCKS_APART_S * 1000))
    events: list[dict[str, Any]] = []
    left_out = 0
    for date, entry in history_files(root.layout, root.files, queue.text):
        if date < since:
            continue
        for line in _lines(root, entry.path, mentions(message_id.text)):
            if (event := parse_line(line, message_id.text)) is None:
                continue
            events.append(event)
            if len(events) >= 2 * HISTORY_EVENTS_MAX:
                left_out += _cut(events)
    left_out += _cut(events)
    return Past(tuple(events), left_out)


def _cut(events: list[dict[str, Any]]) -> int:
    """Keeps the latest, in their order; how many went."""
    events.sort(key=lambda event: str(event["time"]))
    went = max(0, len(events) - HISTORY_EVENTS_MAX)
    del events[:went]
    return went


def _lines(root: Root, path: str, needle: bytes) -> Iterator[bytes]:
    """The whole lines of a file that have this in them; none when it was swept."""
    files = root.files
    try:
        descriptor = files.open_read(path)
    except OSError as error:
        if is_gone(error):
            return
        raise
    try:
        rest, offset = b"", 0
        while chunk := files.read(descriptor, CHUNK_BYTES, offset):
            offset += len(chunk)
            lines, _, rest = (rest + chunk).rpartition(b"\n")
            if len(rest) > HISTORY_LINE_BYTES_MAX:
                rest = b""  # No line that any process wrote.
            yield from _having(lines, needle)
    finally:
        files.close(descriptor)


def _having(lines: bytes, needle: bytes) -> Iterator[bytes]:
    at = 0
    while (found := lines.find(needle, at)) >= 0:
        end = lines.find(b"\n", found)
        end = len(lines) if end < 0 else end
        yield lines[lines.rfind(b"\n", 0, found) + 1 : end]
        at = end
