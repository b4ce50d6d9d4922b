"""The names of index entries, by which messages are found beside their ids and keys: by tag, and by
the time at which they expire. An entry is a symbolic link that leads nowhere; its name is a
message's id.

A queue and its sideline share entries: a message that moves between them keeps its own.
"""

import hashlib
import os
from collections.abc import Iterator
from enum import Enum
from typing import Final, NamedTuple

from mq.model.errors import BadName
from mq.model.headers import parse_block, tags_in
from mq.model.names import Key, MessageId, QueueName
from mq.store.disk.files import Files
from mq.store.format.layout import EXPIRY_SUFFIX, TAGS_SUFFIX, Layout
from mq.store.format.walk import entries_if_there

TARGET: Final = "-"
"""The target of each entry."""
_HASH_DIGITS: Final = 2
_WINDOW_BITS: Final = 16
_WINDOW_DIGITS: Final = 8
_HEX: Final = frozenset("0123456789abcdef")


class Index(Enum):
    """The indexes. The value is the folder."""

    EXPIRY = "expiring"
    TAGS = "tags"


SUFFIXES: Final = {Index.EXPIRY: EXPIRY_SUFFIX, Index.TAGS: TAGS_SUFFIX}
"""The suffixes of a deleted queue's entry folders in remove/."""
DEPTHS: Final = {Index.EXPIRY: 1, Index.TAGS: 2}
"""The number of folder levels between a queue's folder and its entries."""


class Group(NamedTuple):
    """A folder of entries: its path, and the folders above it up to the root's, the outer ones
    first.
    """

    above: tuple[str, ...]
    path: str

    def entry(self, message_id: MessageId) -> str:
        """The path of a message's entry."""
        return f"{self.path}/{message_id.text}"


def owner_of_entries(queue: QueueName) -> QueueName:
    """The queue under whose name the entries of a queue's messages are."""
    return queue.counterpart() if queue.is_sideline else queue


def index_folder(layout: Layout, index: Index) -> str:
    """The folder of all queues' entries; made on first use."""
    return f"{layout.root}/{index.value}"


def index_folders(layout: Layout) -> tuple[str, ...]:
    return tuple(index_folder(layout, index) for index in Index)


def entries_of(layout: Layout, index: Index, queue: QueueName) -> str:
    """The folder of the entries of a queue and its sideline."""
    return f"{layout.root}/{index.value}/{owner_of_entries(queue).text}"


def expiry_group(layout: Layout, queue: QueueName, message_id: MessageId) -> Group:
    """The folder of messages that expire by their own time to live within the same 65.5 seconds."""
    top = index_folder(layout, Index.EXPIRY)
    of_queue = entries_of(layout, Index.EXPIRY, queue)
    window = f"{(message_id.expires_ms or 0) >> _WINDOW_BITS:0{_WINDOW_DIGITS}x}"
    return Group((top, of_queue), f"{of_queue}/{window}")


class Entry(NamedTuple):
    """A found entry: its index, its queue and message, its folder and its path."""

    kind: Index
    queue: QueueName
    id: MessageId
    folder: str
    path: str


def tag_group(layout: Layout, queue: QueueName, tag: Key) -> Group:
    """The folder of the messages with a tag, of a queue and its sideline."""
    written = tag.written()
    of_queue = entries_of(layout, Index.TAGS, queue)
    hashed = hashlib.sha256(written.encode("ascii")).hexdigest()[:_HASH_DIGITS]
    above = (index_folder(layout, Index.TAGS), of_queue, f"{of_queue}/{hashed}")
    return Group(above, f"{above[-1]}/{written}")


def groups_of(layout: Layout, queue: QueueName, message_id: MessageId, block: bytes) -> list[Group]:
    """The folders for a message's entries, by its header block. In a sideline messages do not
    expire by their own time.
    """
    found = []
    if message_id.ttl_s is not None and not queue.is_sideline:
        found.append(expiry_group(layout, queue, message_id))
    if message_id.tags:
        found += [tag_group(layout, queue, tag) for tag in tags_in(parse_block(block))]
    return found


def window_ms(name: str) -> int | None:
    """The time from which entries in a folder of this name may expire, in milliseconds since the
    epoch; None for other names.
    """
    if len(name) < _WINDOW_DIGITS or not _HEX.issuperset(name):
        return None
    return int(name, 16) << _WINDOW_BITS


def entries_in(files: Files, folder: str) -> "Iterator[tuple[os.DirEntry[str], MessageId]]":
    """The entries of a folder, in no order, without foreign names."""
    for entry in entries_if_there(files, folder):
        if not entry.is_symlink():
            continue
        try:
            yield entry, MessageId.parse(entry.name)
        except BadName:
            continue
