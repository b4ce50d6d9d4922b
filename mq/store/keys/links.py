"""The links of keys: symbolic links whose target is a message's id, and is never followed.

A link is replaced or removed only under its folder's lock, after it was read again. PROTOCOL.md,
"publish with a key", has when and by which process.
"""

import contextlib
import os
import stat
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from mq.model.errors import BadName, Busy, MqError, StorageFailed
from mq.model.names import Key, MessageId, QueueName
from mq.store.core.locks import all_in_turn, at_once
from mq.store.core.root import Root, rmdir_if_empty, unlink_if_there
from mq.store.core.standing import is_marked, look
from mq.store.disk.files import Files, is_gone
from mq.store.disk.steps import Steps, T
from mq.store.format.layout import Keys, LinkPlace, is_beside_links, is_of_keys
from mq.store.format.walk import entries_if_there

# Retries when others change a key's link concurrently.
LINK_TRIES_MAX: Final = 16


def make_link(root: Root, place: LinkPlace, target: str) -> bool:
    """Makes a key's link, and missing folders. False: the key has a link. Raises OSError; Busy if
    others remove the folder again and again. Durable on return: no.
    """
    _refuse_strangers(root, place)
    for _ in range(LINK_TRIES_MAX):
        try:
            root.files.link(place.path, target)
        except FileExistsError:
            return False
        except OSError as error:
            if not is_gone(error):
                raise
        else:
            return True
        _make_folders(root, place)
    raise Busy("the key's folder is taken away again and again")


def _make_folders(root: Root, place: LinkPlace) -> None:
    for folder in place.made:
        with contextlib.suppress(FileExistsError):
            root.files.mkdir(folder)


def read_link(root: Root, place: LinkPlace) -> str | None:
    """The target of a key's link; None: there is none. Raises StorageFailed if something else has
    its name.
    """
    _refuse_strangers(root, place)
    target = root.files.linked(place.path)
    if target is None and root.files.status(place.path) is not None:
        # Or it came just now.
        target = root.files.linked(place.path)
        if target is None and root.files.status(place.path) is not None:
            raise StorageFailed(f"{place.path} is no symbolic link")
    return target


def linked_id(target: str) -> MessageId | None:
    """The message that a link names; None for a target that a crash left, or that is foreign."""
    try:
        return MessageId.parse(target)
    except BadName:
        return None


def is_link(entry: "os.DirEntry[str]") -> bool:
    """Whether the entry of a folder of keys is a link."""
    try:
        Key.parse_written(entry.name)
    except BadName:
        return False
    return entry.is_symlink()


def locked(root: Root, places: Sequence[LinkPlace], act: Callable[[], T]) -> Steps[T]:
    """Calls `act` under the locks of the links' folders, after waiting for them; makes missing
    folders. `act` must not take long. Raises Busy; FileNotFoundError if a folder above them is
    gone.
    """
    locks = [place.lock for place in places]
    for _ in range(LINK_TRIES_MAX):
        for place in places:
            _refuse_strangers(root, place)
        try:
            return (yield from all_in_turn(root, locks, act))
        except FileNotFoundError as error:
            if error.filename not in locks:
                raise
        # A network mount may show folders that went with a deleted queue, until it makes them.
        for place in places:
            _make_folders(root, place)
    raise Busy("the key's folder is taken away again and again")


def locked_now(root: Root, place: LinkPlace, act: Callable[[], object]) -> bool:
    """Calls `act` under the lock of the link's folder; False if it is not free now."""
    _refuse_strangers(root, place)
    return at_once(root, place.lock, act)


def _refuse_strangers(root: Root, place: LinkPlace) -> None:
    """Refuses symbolic links among the folders and, on a network mount, the folder of a deleted
    queue's keys. Raises OSError; Busy while the queue is being deleted or made.
    """
    if root.over_network and is_marked(look(root, place.of_queue, root.layout.queues)):
        raise Busy("the keys are a deleted queue's")
    root.files.refuse_links(place.of_queue, *place.made)


def point_link(root: Root, place: LinkPlace, target: str) -> None:
    """Makes a link, or changes its target. The caller holds the lock. Durable on return: no."""
    old = read_link(root, place)
    if old == target:
        return
    if old is None:
        with contextlib.suppress(FileExistsError):
            root.files.link(place.path, target)
            return
        old = root.files.linked(place.path)  # Made without a lock; or NFS lost the answer.
        if old == target:
            return
    unlink_if_there(root.files, place.new)  # Left by a process that died here.
    try:
        root.files.link(place.new, target)
    except FileExistsError:
        # NFS may have made it and lost the answer.
        if root.files.linked(place.new) != target:
            raise
    try:
        root.files.rename(place.new, place.path)
    except OSError as error:
        # NFS may have done it and lost the answer.
        if not is_gone(error) or root.files.linked(place.path) != target:
            raise


def unlink_link(root: Root, place: LinkPlace, target: str) -> bool:
    """Removes a link; False if its target is another. The caller holds the lock. Durable on return:
    no.
    """
    if root.files.linked(place.path) != target:
        return False
    unlink_if_there(root.files, place.path)
    return True


def free_key(root: Root, queue: QueueName, message_id: MessageId) -> None:
    """Removes the links of the key and the group of a message that does not live any more, whose
    removal is on stable media. Does nothing if a lock is not free or an error comes: the next
    message with the key replaces the link. Durable on return: no.
    """
    if message_id.key is not None:
        _free_link(root, Keys.LOOKUP, queue, message_id, message_id.key)
    if message_id.group:
        _free_link(root, Keys.GROUP, queue, message_id, Key(message_id.group))


def _free_link(root: Root, kind: Keys, queue: QueueName, message_id: MessageId, key: Key) -> None:
    try:
        place = root.layout.link(kind, queue, key)
        if root.files.linked(place.path) == message_id.text:
            locked_now(root, place, partial(unlink_link, root, place, message_id.text))
    except (OSError, MqError):
        return


def unlink_links(files: Files, folder: str, limit: int = sys.maxsize) -> int:
    """Unlinks a deleted queue's links of a kind, at most `limit` files, and removes the folders
    that are empty then. Returns how many files. Foreign ones stay. Raises OSError. Durable on
    return: no.
    """
    status, unlinked = files.status(folder), 0
    if status is None or not stat.S_ISDIR(status.st_mode):
        return 0
    for of_hash in entries_if_there(files, folder):
        if not is_of_keys(of_hash.name) or not of_hash.is_dir(follow_symlinks=False):
            continue
        for entry in entries_if_there(files, of_hash.path):
            if unlinked >= limit:
                return unlinked
            if is_beside_links(entry.name) or is_link(entry):
                unlink_if_there(files, entry.path)
                unlinked += 1
        rmdir_if_empty(files, of_hash.path)
    rmdir_if_empty(files, folder)
    return unlinked
