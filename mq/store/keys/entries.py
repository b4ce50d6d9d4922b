"""Index entries of messages. They are made before their message shows, and mean nothing once it
does not live any more. PROTOCOL.md, "publish with entries", has the steps and what a crash after
each leaves.
"""

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from mq.model.errors import BadName, Busy, SettingsUnreadable
from mq.model.limits import FORGOTTEN_AFTER_S
from mq.model.names import MessageId, QueueName, UuidSource
from mq.store.core.find import ALIVE, whereabouts
from mq.store.core.root import Root, rename_folder, rmdir_if_empty, unlink_if_there
from mq.store.core.standing import queue_exists
from mq.store.disk.files import is_gone
from mq.store.format.entries import (
    DEPTHS,
    SUFFIXES,
    TARGET,
    Entry,
    Group,
    Index,
    entries_in,
    groups_of,
    index_folder,
)
from mq.store.format.layout import deleted_entries
from mq.store.format.walk import entries_if_there, queue_folders
from mq.store.keys.links import LINK_TRIES_MAX

# Entries that one sweep checks, beside the rest of the current folder.
SWEPT_ENTRIES_MAX: Final = 10_000
# The components that every entry's path has: index, queue, and message.
ENTRY_NAMES: Final = 3


def enter(root: Root, queue: QueueName, messages: Iterable[tuple[MessageId, bytes]]) -> None:
    """Makes the index entries of messages, each given with its header block, and missing folders,
    before the messages show. Raises OSError; Busy if others remove the folders again and again.
    Durable on return: no; the flush of the messages' move covers them.
    """
    checked = set[str]()
    for message_id, block in messages:
        for group in groups_of(root.layout, queue, message_id, block):
            if new := {*group.above, group.path} - checked:
                root.files.refuse_links(*new)
                checked |= new
            _enter(root, group, message_id)


def _enter(root: Root, group: Group, message_id: MessageId) -> None:
    """Makes an entry, and the missing folders above it."""
    for _ in range(LINK_TRIES_MAX):
        try:
            root.files.link(group.entry(message_id), TARGET)
        except FileExistsError:
            return
        except OSError as error:
            if not is_gone(error):
                raise
        else:
            return
        for folder in (*group.above, group.path):
            with contextlib.suppress(FileExistsError):
                root.files.mkdir(folder)
    raise Busy("the folder of the message's entry is taken away again and again")


def drop_entries(root: Root, queue: QueueName, message_id: MessageId, block: bytes) -> None:
    """Removes the index entries of a message that does not live any more, whose removal is on
    stable media. Errors are ignored: a stale entry means nothing. Durable on return: no.
    """
    for group in groups_of(root.layout, queue, message_id, block):
        with contextlib.suppress(OSError):
            drop_entry(root, group.path, group.entry(message_id))


def block_at(root: Root, path: str, message_id: MessageId) -> bytes:
    """A message's header block, if its index entries depend on it; empty if the message is gone.
    Blocking.
    """
    if not message_id.tags:
        return b""
    try:
        return root.files.read_file(path, message_id.header_bytes)
    except OSError:
        return b""


def drop_if_stale(root: Root, queue: QueueName, message_id: MessageId, block: bytes) -> None:
    """Likewise after a failed publish, unless its message shows after all."""
    if message_id.is_entered:
        with contextlib.suppress(OSError, SettingsUnreadable):
            if whereabouts(root, queue, message_id) not in ALIVE:
                drop_entries(root, queue, message_id, block)


def drop_entry(root: Root, folder: str, path: str) -> None:
    """Removes an entry, and its folder after the last one. Raises OSError. Durable on return:
    no.
    """
    unlink_if_there(root.files, path)
    rmdir_if_empty(root.files, folder)


def is_entered(root: Root, queue: QueueName, message_id: MessageId, path: str) -> bool:
    """Whether the message, whose file has this path, has all its index entries."""
    groups = groups_of(root.layout, queue, message_id, block_at(root, path, message_id))
    return all(root.files.linked(group.entry(message_id)) is not None for group in groups)


def is_stale(root: Root, entry: Entry) -> bool:
    """Whether the entry's message does not live in the queue (for tags: or its sideline). Raises
    SettingsUnreadable, OSError.
    """
    if whereabouts(root, entry.queue, entry.id) in ALIVE:
        return False
    return entry.kind is Index.EXPIRY or (
        whereabouts(root, entry.queue.sideline(), entry.id) not in ALIVE
    )


def drop_stale(root: Root, stale: Sequence[Entry]) -> int:
    """Removes stale entries. Returns their number. Raises SettingsUnreadable, OSError. Durable on
    return: no.
    """
    dropped = 0
    for each in stale:
        if is_stale(root, each):
            drop_entry(root, each.folder, each.path)
            dropped += 1
    return dropped


def group_folders(root: Root) -> Iterator[tuple[Index, QueueName, str]]:
    """All folders of entries with their index and queue, in no order; perhaps without new ones."""
    for index in Index:
        # Read at once, so that no folder stays open until the next pass.
        for queue, _ in list(queue_folders(root.files, index_folder(root.layout, index))):
            yield from ((index, queue, folder) for folder in _groups_below(root, index, queue))


def _groups_below(root: Root, index: Index, queue: QueueName) -> list[str]:
    found = [f"{index_folder(root.layout, index)}/{queue.text}"]
    for _ in range(DEPTHS[index]):
        found = [
            entry.path
            for folder in found
            for entry in entries_if_there(root.files, folder)
            if entry.is_dir(follow_symlinks=False)
        ]
    return found


def sweep_entries_of_deleted(root: Root) -> None:
    """Moves the entries of a queue to remove/ if neither the queue nor its sideline exists; under
    the queues' lock. On a network mount it removes them one by one: a process that has made the
    queue again may still know their folder. Durable on return: no; what comes back is swept again.
    """
    if root.over_network:
        return
    for index in Index:
        for queue, entry in list(queue_folders(root.files, index_folder(root.layout, index))):
            if not queue_exists(root, queue) and not queue_exists(root, queue.sideline()):
                uuid = UuidSource(root.clock).next()
                target = deleted_entries(root.layout, queue, uuid, SUFFIXES[index])
                with contextlib.suppress(FileNotFoundError):
                    rename_folder(root.files, entry.path, target)


def entry_at(root: Root, path: str) -> Entry | None:
    """Parses the path of an entry; None: it is not one."""
    names = os.path.relpath(path, root.layout.root).split("/")
    for index in Index:
        if names[0] == index.value and len(names) == DEPTHS[index] + ENTRY_NAMES:
            try:
                of = QueueName.parse(names[1]), MessageId.parse(names[-1])
                return Entry(index, *of, os.path.dirname(path), path)
            except BadName:
                return None
    return None


class EntrySweep:
    """Sweeps all index entries in passes of SWEPT_ENTRIES_MAX: removes those whose messages
    do not live.
    """

    def __init__(self, root: Root) -> None:
        self._root = root
        self._waiting: Iterator[tuple[Index, QueueName, str]] | None = None

    def sweep(self) -> int:
        """One pass. Returns the number of removed entries. Starts over after the last folder.
        Raises OSError. Durable on return: no; what comes back is swept again.
        """
        looked = swept = 0
        self._waiting = self._waiting or group_folders(self._root)
        for index, queue, folder in self._waiting:
            with contextlib.suppress(SettingsUnreadable):
                seen, stale = self._stale_in(index, queue, folder)
                looked += seen
                swept += drop_stale(self._root, stale)
            rmdir_if_empty(self._root.files, folder)
            if looked >= SWEPT_ENTRIES_MAX:
                return swept
        self._waiting = None
        return swept

    def _stale_in(self, index: Index, queue: QueueName, folder: str) -> tuple[int, list[Entry]]:
        """The number of entries in the folder, and the stale ones that are old enough."""
        root, seen, stale = self._root, 0, list[Entry]()
        for found, message_id in entries_in(root.files, folder):
            seen += 1
            entry = Entry(index, queue, message_id, folder, found.path)
            # Their publish may be in progress.
            if not is_young(root, entry.path) and is_stale(root, entry):
                stale.append(entry)
        return seen, stale


def is_young(root: Root, path: str) -> bool:
    """Whether the entry is so new that its message may still come."""
    status = root.files.status(path)
    if status is None:
        return True
    return not root.has_aged(status.st_mtime_ns // 1_000_000, FORGOTTEN_AFTER_S)
