"""The links of keys: symbolic links whose target, never followed, is a message's id.

A link is made once. It is replaced or taken away only under its folder's lock, after reading it
again. FORMAT.md, "keys", has who does that, and when.
"""

import contextlib
import os
from collections.abc import Callable

from mq.model.errors import BadName, Busy, StorageFailed
from mq.model.limits import LINK_TRIES_MAX
from mq.model.names import Key, MessageId, QueueName
from mq.store.core.root import Root, unlink_if_there
from mq.store.core.standing import is_marked, look, mark
from mq.store.core.turns import at_once, in_turn
from mq.store.disk.files import is_gone
from mq.store.disk.steps import Flush, Steps, T
from mq.store.format.layout import Keys, LinkPlace


def make_link(root: Root, place: LinkPlace, target: str) -> Flush | None:
    """Makes a key's link, and its folders where they are missing; what makes it durable. None:
    the key has one. Raises OSError; Busy when others take the folder away again and again.
    """
    made = False
    _refuse_strangers(root, place)
    for _ in range(LINK_TRIES_MAX):
        try:
            root.files.link(place.path, target)
        except FileExistsError:
            return None
        except OSError as error:
            if not is_gone(error):
                raise
        else:
            return _made(place) if made else link_flush(place)
        for folder in place.made:
            with contextlib.suppress(FileExistsError):
                root.files.mkdir(folder)
                made = True
    raise Busy("the key's folder is taken away again and again")


def _made(place: LinkPlace) -> Flush:
    """By name, and not as entries: of a folder that was made anew with the inode of one that is
    gone it is not known that its entry is flushed.
    """
    return Flush(folders=(place.top, *place.made))


def link_flush(place: LinkPlace) -> Flush:
    """What makes durable what a link says."""
    return Flush(entries=place.made, folders=(place.folder,))


def read_link(root: Root, place: LinkPlace) -> str | None:
    """What a key's link says; None: there is none. Raises StorageFailed when something else has
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
    """The message that a link is of; None for a target that a crash, or nobody of us, has left."""
    try:
        return MessageId.parse(target)
    except BadName:
        return None


def is_link(entry: "os.DirEntry[str]") -> bool:
    """Whether what lies in a folder of keys is one's link."""
    try:
        Key.parse_written(entry.name)
    except BadName:
        return False
    return entry.is_symlink()


def locked(root: Root, place: LinkPlace, act: Callable[[], T]) -> Steps[T]:
    """Does it under the lock of the link's folder, once that is free; `act` must not take long.
    Raises Busy; FileNotFoundError when the folder is gone.
    """
    _refuse_strangers(root, place)
    return (yield from in_turn(root, place.lock, act))


def locked_now(root: Root, place: LinkPlace, act: Callable[[], None]) -> bool:
    """Does it under the lock of the link's folder; False when that is not free now."""
    _refuse_strangers(root, place)
    return at_once(root, place.lock, act)


def _refuse_strangers(root: Root, place: LinkPlace) -> None:
    """Nothing is looked for, or made, by way of symbolic links; nor, on a network mount, in what a
    deleted queue's keys lie in. Raises OSError; Busy while the queue is deleted, or made.
    """
    if root.over_network and is_marked(look(root, place.of_queue, place.top)):
        raise Busy("the keys are a deleted queue's")
    root.files.refuse_links(*place.made)


def replace_link(root: Root, place: LinkPlace, old: str, new: str) -> bool:
    """Lets the link say something else; False when it says no more what it did. For whoever has
    the lock. Durable on return: no.
    """
    if root.files.linked(place.path) != old:
        return False
    unlink_if_there(root.files, place.new)  # Of one that died here.
    try:
        root.files.link(place.new, new)
    except FileExistsError:
        # NFS may have made it and lost the answer.
        if root.files.linked(place.new) != new:
            raise
    try:
        root.files.rename(place.new, place.path)
    except OSError as error:
        # NFS may have done it and lost the answer.
        if not is_gone(error) or root.files.linked(place.path) != new:
            raise
    return True


def unlink_link(root: Root, place: LinkPlace, target: str) -> bool:
    """Takes the link away; False when it says something else. For whoever has the lock.
    Durable on return: no.
    """
    if root.files.linked(place.path) != target:
        return False
    unlink_if_there(root.files, place.path)
    return True


def move_keys(root: Root, queue: QueueName, uuid: str) -> Steps[None]:
    """Moves the keys of a queue that is not there to remove/; `uuid` is in their folders' names. On
    a network mount they are marked before: their folder means nothing while there is no queue.
    Durable on return: yes, that they are gone, also when another moved them.
    """
    for kind in Keys:
        folder = root.layout.keys_of(kind, queue)
        target = root.layout.deleted_keys(kind, queue, uuid)
        try:
            if root.over_network:
                status = look(root, folder, root.layout.keys(kind))
                if status is not None and not is_marked(status):
                    mark(root, folder, status)
            root.files.rename(folder, target)
        except OSError as error:
            if not is_gone(error):
                raise
    yield Flush(folders=tuple(map(root.layout.keys, Keys)))
