"""Reads the events of a message, or of the messages with a tag, from a queue's history."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from mq.model.errors import BadName, MessageNotFound
from mq.model.history import (
    ANY_ID,
    id_mentioned,
    is_publish_with,
    mentions,
    mentions_tag,
    parse_event,
    parse_line,
)
from mq.model.lifecycle import State
from mq.model.limits import CHUNK_BYTES, KIB
from mq.model.names import Key, MessageId, QueueName
from mq.store.core.find import whereabouts
from mq.store.core.packed import is_being_parted
from mq.store.core.root import Root
from mq.store.core.unserved import is_purged
from mq.store.disk.files import Files, is_gone
from mq.store.format.history import date_of
from mq.store.history.sweep import history_files

# No line is longer.
HISTORY_LINE_BYTES_MAX: Final = 64 * KIB
# The limit of events in an answer; the latest ones count.
HISTORY_EVENTS_MAX: Final = 1_000
# The limit of messages with a tag whose events an answer has; the newest ones count.
HISTORY_TAGGED_MAX: Final = 10_000
# The search for a message's lines begins this long before its id's time: clocks of machines differ.
HISTORY_CLOCKS_APART_S: Final = 3600

_NOWHERE: Final = (None, State.NEW)


@dataclass(frozen=True, slots=True)
class Past:
    """The latest events in the order of time, and the number of earlier ones left out."""

    events: tuple[dict[str, Any], ...]
    left_out: int = 0


def read_history(root: Root, queue: QueueName, message_id: MessageId) -> Past:
    """The events of a message, also those of the pack that it is or was an item of; none if it
    exists and has no line. Blocking: reads all lines since its publish, in little memory. Raises
    MessageNotFound, Unavailable, OSError.
    """
    if not message_id.is_possible:
        raise MessageNotFound(message_id.text)
    root.history.write_out()
    ids = (message_id.pack(), message_id) if message_id.pack_size else (message_id,)
    past = _latest(event for each in ids for event in _events(root, queue, each))
    if not past.events and (
        not any(_is_there(root, queue, each) for each in ids) or is_purged(root, queue, message_id)
    ):
        raise MessageNotFound(message_id.text)
    return past


def _is_there(root: Root, queue: QueueName, message_id: MessageId) -> bool:
    if whereabouts(root, queue, message_id) not in _NOWHERE:
        return True
    return message_id.pack_size > 0 and is_being_parted(root, queue, message_id)


def read_tag_history(root: Root, queue: QueueName, tag: Key) -> Past:
    """The events of messages that were published with a tag, each with its `id`; of the newest
    HISTORY_TAGGED_MAX messages. Blocking: reads all lines twice, in little memory. Raises OSError.
    """
    root.history.write_out()
    ids = _published_with(root, queue, tag.text)
    if not ids:
        return Past(())
    events = (
        event
        for line in _lines_since(root, queue, min(ids), ANY_ID)
        if id_mentioned(line) in ids and (event := parse_event(line)) is not None
    )
    return _latest(events)


def _published_with(root: Root, queue: QueueName, tag: str) -> set[str]:
    ids: set[str] = set()
    for _, entry in history_files(root.layout, root.files, queue.text):
        for line in _lines(root, entry.path, mentions_tag(tag)):
            event = parse_event(line)
            if event is not None and is_publish_with(event, tag):
                ids.add(event["id"])
                if len(ids) >= 2 * HISTORY_TAGGED_MAX:
                    ids = _newest(ids)
    return _newest(ids)


def _newest(ids: set[str]) -> set[str]:
    return set(sorted(ids)[-HISTORY_TAGGED_MAX:])


def _events(root: Root, queue: QueueName, message_id: MessageId) -> Iterator[dict[str, Any]]:
    for line in _lines_since(root, queue, message_id.text, mentions(message_id.text)):
        if (event := parse_line(line, message_id.text)) is not None:
            yield event


def _lines_since(root: Root, queue: QueueName, oldest: str, needle: bytes) -> Iterator[bytes]:
    """The queue's lines that contain `needle`, since the publish of the message with this id."""
    try:
        published_ms = MessageId.parse(oldest).published_ms
    except BadName:
        published_ms = 0  # Another program's line.
    since = date_of(max(0, published_ms - HISTORY_CLOCKS_APART_S * 1000))
    for date, entry in history_files(root.layout, root.files, queue.text):
        if date >= since:
            yield from _lines(root, entry.path, needle)


def _latest(found: Iterable[dict[str, Any]]) -> Past:
    events: list[dict[str, Any]] = []
    left_out = 0
    for event in found:
        events.append(event)
        if len(events) >= 2 * HISTORY_EVENTS_MAX:
            left_out += _cut(events)
    left_out += _cut(events)
    return Past(tuple(events), left_out)


def _cut(events: list[dict[str, Any]]) -> int:
    """Keeps the latest events in order. Returns the number of others."""
    events.sort(key=lambda event: str(event["time"]))
    went = max(0, len(events) - HISTORY_EVENTS_MAX)
    del events[:went]
    return went


def _lines(root: Root, path: str, needle: bytes) -> Iterator[bytes]:
    for lines in whole_lines(root.files, path):
        yield from _having(lines, needle)


def whole_lines(files: Files, path: str) -> Iterator[bytes]:
    """The lines of a history file, many at a time, in little memory; none if the file was swept.
    Leaves out the last one, which a process may be writing, until it has its end. Raises OSError.
    """
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
            lines, end, rest = (rest + chunk).rpartition(b"\n")
            if len(rest) > HISTORY_LINE_BYTES_MAX:
                rest = b""  # Too long for any process's line.
            if end:
                yield lines
    finally:
        files.close(descriptor)


def _having(lines: bytes, needle: bytes) -> Iterator[bytes]:
    at = 0
    while (found := lines.find(needle, at)) >= 0:
        end = lines.find(b"\n", found)
        end = len(lines) if end < 0 else end
        yield lines[lines.rfind(b"\n", 0, found) + 1 : end]
        at = end
