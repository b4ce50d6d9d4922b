"""Sweeps links that mean nothing any more: keys of removed messages, expired idempotency keys, past
firings of schedules, and links of abandoned publishes.

A pass checks some links and continues where the last one ended. It holds the links of one folder in
memory at a time. PROTOCOL.md, "publish with a key", has the steps.
"""

import contextlib
import itertools
import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from mq.model.errors import BadName, Busy, SettingsUnreadable
from mq.model.limits import FORGOTTEN_AFTER_S
from mq.model.names import Key, MessageId, QueueName
from mq.store.core.find import ALIVE, is_staged, whereabouts
from mq.store.core.root import Root
from mq.store.core.unserved import is_purged
from mq.store.disk.steps import Steps
from mq.store.format.layout import KEYS_FOLDERS, Keys, LinkPlace, is_of_keys
from mq.store.format.walk import entries_if_there, queue_folders
from mq.store.keys.keyed import is_young
from mq.store.keys.links import is_link, linked_id, locked, unlink_link

# Links that one sweep checks, beside the rest of the current folder.
SWEPT_LINKS_MAX: Final = 10_000
# How many links a queue counts as in a sweep, beside its own.
_LOOKS_OF_QUEUE: Final = 5
# The links of a folder without folders in it, on a file system that counts them.
_LINKS_WITHOUT_FOLDERS: Final = 2
# The minimum age in seconds of a removed firing's link.
FIRING_KEPT_S: Final = 3600

# The links that a message has as long as it lives.
_OF_MESSAGES: Final = (Keys.LOOKUP, Keys.GROUP)
# The links that record a publish, also after the message is gone.
_ONCE: Final = (Keys.IDEMPOTENCY, Keys.FIRING)


@dataclass(frozen=True, slots=True)
class KeyFolder:
    """A folder of one queue's keys with one hash."""

    kind: Keys
    queue: QueueName
    path: str


def key_folders(root: Root) -> Iterator[KeyFolder | None]:
    """All folders of keys, in no order; perhaps without new ones. None after each queue: it took a
    look, also one without keys.
    """
    # Read at once, here and below, so that no folder stays open until the next pass.
    for queue, entry in list(queue_folders(root.files, root.layout.queues)):
        status = root.files.status(entry.path)
        if status is not None and status.st_nlink != _LINKS_WITHOUT_FOLDERS:
            for kind in Keys:
                yield from key_folders_of(root, kind, queue)
        yield None


def key_folders_of(root: Root, kind: Keys, queue: QueueName) -> Iterator[KeyFolder]:
    for entry in list(entries_if_there(root.files, root.layout.keys_of(kind, queue))):
        if is_of_keys(entry.name) and entry.is_dir(follow_symlinks=False):
            yield KeyFolder(kind, queue, entry.path)


class OrphanSweep:
    """Sweeps all links in passes of `limit`."""

    def __init__(self, root: Root, limit: int = SWEPT_LINKS_MAX) -> None:
        self._root = root
        self._limit = limit
        self._waiting: Iterator[KeyFolder | None] | None = None

    def sweep(self) -> Steps[int]:
        """One pass. Returns the number of removed links. Starts over after the last folder. Raises
        OSError. Durable on return: no; what comes back is swept again.
        """
        looked = swept = 0
        self._waiting = self._waiting or key_folders(self._root)
        for folder in self._waiting:
            if folder is None:
                looked += _LOOKS_OF_QUEUE
            else:
                seen, went = yield from _sweep_folder(self._root, folder)
                looked, swept = looked + seen, swept + went
            if looked >= self._limit:
                return swept
        self._waiting = None
        return swept


def _sweep_folder(root: Root, folder: KeyFolder) -> Steps[tuple[int, int]]:
    """The number of links in the folder, and of removed ones."""
    seen = swept = 0
    old = []
    for place, target in links(root, folder):
        seen += 1
        with contextlib.suppress(SettingsUnreadable):
            if not is_young(root, place, kept_s(root, folder)) and is_orphan(
                root, folder, place, target
            ):
                old.append((place, target))
    for place, target in old:
        with contextlib.suppress(Busy, SettingsUnreadable, FileNotFoundError):
            swept += yield from sweep_link(root, folder, place, target)
    return seen, swept


def links(root: Root, folder: KeyFolder) -> Iterator[tuple[LinkPlace, str]]:
    """The links of a folder with their targets."""
    for entry in entries_if_there(root.files, folder.path):
        if is_link(entry) and (target := root.files.linked(entry.path)) is not None:
            key = Key.parse_written(entry.name)
            yield root.layout.link(folder.kind, folder.queue, key), target


def kept_s(root: Root, folder: KeyFolder) -> float:
    """The minimum age in seconds of a removed link. A key's link stays while its publish may be in
    progress; a firing's, while a mover may be working on it. Raises SettingsUnreadable.
    """
    if folder.kind in _OF_MESSAGES:
        return FORGOTTEN_AFTER_S
    if folder.kind is Keys.FIRING:
        return FIRING_KEPT_S
    return root.facts.configured(folder.queue).settings.idempotency_s


def is_orphan(root: Root, folder: KeyFolder, place: LinkPlace, target: str) -> bool:
    """Whether a link that is old enough may be removed."""
    if folder.kind is Keys.IDEMPOTENCY:
        return True
    if folder.kind is Keys.FIRING:
        return root.hooks.is_firing_over(root, folder.queue, place)
    holder = linked_id(target)
    if holder is None or is_purged(root, folder.queue, holder):
        return True
    return whereabouts(root, folder.queue, holder) not in ALIVE


def sweep_link(root: Root, folder: KeyFolder, place: LinkPlace, target: str) -> Steps[bool]:
    """Removes a link that is old enough and means nothing any more, after checking again under its
    lock. Returns whether it did. Raises Busy, SettingsUnreadable, OSError. Durable on return: no.
    """

    def unlink() -> bool:
        if is_young(root, place, kept_s(root, folder)) or not is_orphan(
            root, folder, place, target
        ):
            return False
        return unlink_link(root, place, target)

    return (yield from locked(root, (place,), unlink))


def give_up_publishes(
    root: Root, staged: Collection[tuple[QueueName, MessageId]]
) -> Steps[frozenset[tuple[QueueName, MessageId]]]:
    """Removes the idempotency keys and firings' links of abandoned publishes, before their files
    leave new/: otherwise these links would claim publishes. Returns the messages that must stay:
    those whose links could not be removed. Durable on return: no; the files go after the links.
    """
    kept = set()
    for kind, queue in itertools.product(_ONCE, {queue for queue, _ in staged}):
        for folder in key_folders_of(root, kind, queue):
            for place, target in links(root, folder):
                holder = linked_id(target)
                if holder is None or (queue, holder) not in staged:
                    continue
                try:
                    give_up = partial(_give_up, root, place, queue, holder)
                    yield from locked(root, (place,), give_up)
                except (OSError, Busy):
                    kept.add((queue, holder))
    return frozenset(kept)


def _give_up(root: Root, place: LinkPlace, queue: QueueName, message_id: MessageId) -> bool:
    return is_staged(root, queue, message_id) and unlink_link(root, place, message_id.text)


def key_place(root: Root, path: str) -> tuple[KeyFolder, LinkPlace] | None:
    """Parses the path of a link: its folder and its place; None: it is not one."""
    folder = os.path.dirname(path)
    of_queue, kind_name = os.path.split(os.path.dirname(folder))
    if kind_name in KEYS_FOLDERS and os.path.dirname(of_queue) == root.layout.queues:
        kind = Keys(kind_name)
        try:
            queue = QueueName.parse(os.path.basename(of_queue))
            key = Key.parse_written(os.path.basename(path))
        except BadName:
            return None
        return KeyFolder(kind, queue, folder), root.layout.link(kind, queue, key)
    return None
