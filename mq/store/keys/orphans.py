"""Taking links away that mean nothing any more: keys of messages that are gone, idempotency keys
that are too old, firings that their schedules have left behind, and those of publishes that were
never ended.

A pass looks at some links and goes on where the last one ended; it lists keys alone, and of those
the folders of one hash at a time. FORMAT.md, "sweeping keys", has the steps.
"""

import contextlib
import itertools
import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from mq.model.errors import BadName, Busy, SettingsUnreadable
from mq.model.lifecycle import State
from mq.model.limits import FIRING_KEPT_S, FORGOTTEN_AFTER_S, SWEPT_LINKS_MAX
from mq.model.names import Key, MessageId, QueueName
from mq.store.core.purged import is_purged
from mq.store.core.root import Root
from mq.store.disk.steps import Flush, Steps
from mq.store.format.layout import Keys, LinkPlace, is_of_keys
from mq.store.format.walk import entries_if_there
from mq.store.keys.holders import DELIVERED, is_staged, kept_flush, whereabouts
from mq.store.keys.keyed import is_young
from mq.store.keys.links import is_link, linked_id, locked, unlink_link
from mq.store.schedules.file import has_gone_on
from mq.store.settings.configure import Configured

_ALIVE: Final = (State.NEW, *DELIVERED)
# What says of a message that it was published, also once it is gone.
_ONCE: Final = (Keys.IDEMPOTENCY, Keys.FIRING)


@dataclass(frozen=True, slots=True)
class KeyFolder:
    """A folder of one queue's keys of one hash."""

    kind: Keys
    queue: QueueName
    path: str


def key_folders(root: Root) -> Iterator[KeyFolder]:
    """All of them, in no order; those that are made meanwhile perhaps not."""
    for kind in Keys:
        for name in _names(root, root.layout.keys(kind)):
            with contextlib.suppress(BadName):  # Foreign.
                yield from key_folders_of(root, kind, QueueName.parse(name))


def key_folders_of(root: Root, kind: Keys, queue: QueueName) -> Iterator[KeyFolder]:
    """Those of a queue."""
    of_queue = root.layout.keys_of(kind, queue)
    for name in _names(root, of_queue):
        if is_of_keys(name):
            yield KeyFolder(kind, queue, f"{of_queue}/{name}")


def _names(root: Root, folder: str) -> list[str]:
    """Of the folders in one; all at once, so that none is open until the next pass."""
    entries = entries_if_there(root.files, folder)
    return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]


class OrphanSweep:
    """Passes over all keys, each so many links long."""

    def __init__(self, root: Root, limit: int = SWEPT_LINKS_MAX) -> None:
        self._root = root
        self._limit = limit
        self._waiting: Iterator[KeyFolder] | None = None

    def sweep(self) -> Steps[int]:
        """One pass; how many links it took away. Begins again where all were looked at. Raises
        OSError. Durable on return: no; what comes back is swept again.
        """
        looked = swept = 0
        self._waiting = self._waiting or key_folders(self._root)
        for folder in self._waiting:
            seen, went = yield from _sweep_folder(self._root, folder)
            looked, swept = looked + seen, swept + went
            if looked >= self._limit:
                return swept
        self._waiting = None
        return swept


def _sweep_folder(root: Root, folder: KeyFolder) -> Steps[tuple[int, int]]:
    """How many links it has, and how many of them went."""
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
    """The links of a folder, and what they say."""
    for entry in entries_if_there(root.files, folder.path):
        if is_link(entry) and (target := root.files.linked(entry.path)) is not None:
            key = Key.parse_written(entry.name)
            yield root.layout.link(folder.kind, folder.queue, key), target


def kept_s(root: Root, folder: KeyFolder) -> float:
    """How long a link stays whatever it says. Of a key: while a publish may be in hand; of a
    firing: while a mover may be at it. Raises SettingsUnreadable.
    """
    if folder.kind is Keys.LOOKUP:
        return FORGOTTEN_AFTER_S
    if folder.kind is Keys.FIRING:
        return FIRING_KEPT_S
    return Configured.read(root, folder.queue).settings.idempotency_s


def is_orphan(root: Root, folder: KeyFolder, place: LinkPlace, target: str) -> bool:
    """Whether a link that is old enough may go."""
    if folder.kind is Keys.IDEMPOTENCY:
        return True
    if folder.kind is Keys.FIRING:
        return has_gone_on(root, folder.queue, place)
    holder = linked_id(target)
    if holder is None or is_purged(root, folder.queue, holder):
        return True
    return whereabouts(root, folder.queue, holder) not in _ALIVE


def sweep_link(root: Root, folder: KeyFolder, place: LinkPlace, target: str) -> Steps[bool]:
    """Takes a link away that is old enough and means nothing any more, looked at again under its
    lock; whether it went. Raises Busy, SettingsUnreadable, OSError. Durable on return: no.
    """
    holder = linked_id(target)
    if folder.kind is Keys.FIRING:
        # If the schedule came back as it was, it would fire again.
        yield Flush(folders=(root.layout.schedules,))
    elif folder.kind is Keys.LOOKUP and holder is not None:
        # If it came back when another has its key, two would.
        yield kept_flush(root, folder.queue, holder)

    def unlink() -> bool:
        if is_young(root, place, kept_s(root, folder)) or not is_orphan(
            root, folder, place, target
        ):
            return False
        return unlink_link(root, place, target)

    return (yield from locked(root, place, unlink))


def give_up_publishes(
    root: Root, staged: Collection[tuple[QueueName, MessageId]]
) -> Steps[frozenset[tuple[QueueName, MessageId]]]:
    """Takes the idempotency keys, and the links of firings, away of publishes that nobody is at any
    more, before their files go from new/: else they would say of them that they were published.
    Those whose keys could not be taken away, or that were delivered meanwhile. Durable on return:
    yes.
    """
    kept = set()
    changed: dict[str, None] = {}
    for kind, queue in itertools.product(_ONCE, {queue for queue, _ in staged}):
        for folder in key_folders_of(root, kind, queue):
            for place, target in links(root, folder):
                holder = linked_id(target)
                if holder is None or (queue, holder) not in staged:
                    continue
                try:
                    give_up = partial(_give_up, root, place, queue, holder)
                    if (yield from locked(root, place, give_up)):
                        changed[place.folder] = None
                except (OSError, Busy):
                    kept.add((queue, holder))
    yield Flush(folders=tuple(changed))
    return frozenset(kept)


def _give_up(root: Root, place: LinkPlace, queue: QueueName, message_id: MessageId) -> bool:
    return is_staged(root, queue, message_id) and unlink_link(root, place, message_id.text)


def key_place(root: Root, path: str) -> tuple[KeyFolder, LinkPlace] | None:
    """What a path says of a link: its folder and its place; None: it is none's."""
    folder = os.path.dirname(path)
    of_queue = os.path.dirname(folder)
    for kind in Keys:
        if os.path.dirname(of_queue) == root.layout.keys(kind):
            try:
                queue = QueueName.parse(os.path.basename(of_queue))
                key = Key.parse_written(os.path.basename(path))
            except BadName:
                return None
            return KeyFolder(kind, queue, folder), root.layout.link(kind, queue, key)
    return None
