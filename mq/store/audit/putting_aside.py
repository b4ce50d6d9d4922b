"""Taking out of the way what nobody can use: to lost/, by one rename, so that nothing is deleted
that anybody may want; and empty folders that have another's name.

FORMAT.md, "fsck", has the steps and what a crash after each leaves.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator

from mq.model.errors import StaysAsItIs
from mq.model.lifecycle import State
from mq.model.names import MessageId, QueueName, UuidSource
from mq.store.core.moves import claimed
from mq.store.core.root import Root
from mq.store.core.turns import in_turn
from mq.store.core.whose import owner_of
from mq.store.disk.files import FOLDER_MODE, is_gone
from mq.store.disk.steps import Flush, Steps
from mq.store.keys.holders import free_key

IsWrong = Callable[[os.stat_result], bool]
"""Asked once more, right before a file is moved, whether it is what was judged."""


def set_aside(root: Root, path: str, name: str, is_wrong: IsWrong) -> Steps[str | None]:
    """Moves a file, or what is no folder, to lost/, where its name begins with a new uuid; where
    it is then. None: it went meanwhile, or is right by now. A file is moved under its lock.

    Raises StaysAsItIs for a folder, and for what another process is at; OSError. Durable on return:
    yes.
    """
    target = root.layout.lost_file(name, UuidSource(root.clock).next())
    yield from _make_lost(root)
    with _held(root, path) as status:
        if status is None or not is_wrong(status):
            return None
        if stat.S_ISDIR(status.st_mode):
            raise StaysAsItIs("a folder is not moved with what lies in it")
        try:
            root.files.rename(path, target)
        except OSError as error:
            # NFS may have done it and lost the answer.
            if not is_gone(error) or root.files.status(target) is None:
                if is_gone(error):
                    return None
                raise
        yield Flush(folders=(root.layout.lost, os.path.dirname(path)))
    return target


def set_message_aside(
    root: Root, path: str, queue: QueueName, message_id: MessageId, is_wrong: IsWrong
) -> Steps[str | None]:
    """The same of a message's file; its key is free, where the message lives nowhere else. Durable
    on return: yes.
    """
    entry = os.path.basename(root.layout.path(State.NEW, queue, message_id))
    target = yield from set_aside(root, path, entry, is_wrong)
    if target is not None:
        # Of two files of one message the other has the key still.
        free_key(root, queue, message_id, was_staged=True)
    return target


def set_aside_locked(root: Root, lock: str, path: str, is_wrong: IsWrong) -> Steps[str | None]:
    """The same of what is changed under another file's lock, as schedules are. Raises Busy.
    Durable on return: yes.
    """
    target = root.layout.lost_file(os.path.basename(path), UuidSource(root.clock).next())
    yield from _make_lost(root)

    def move() -> bool:
        status = root.files.status(path)
        if status is None or not is_wrong(status):
            return False
        root.files.rename(path, target)
        return True

    if not (yield from in_turn(root, lock, move)):
        return None
    yield Flush(folders=(root.layout.lost, os.path.dirname(path)))
    return target


def take_empty_folder(root: Root, path: str) -> Steps[bool]:
    """Takes a folder away that has a name of something else; False: it went meanwhile. By the rmdir
    alone, so that nothing is ever taken away with it. Raises StaysAsItIs when something lies in
    it; OSError. Durable on return: yes.
    """
    try:
        root.files.rmdir(path)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            raise StaysAsItIs("something lies in it") from error
        if error.errno == errno.EBUSY:
            raise StaysAsItIs("another file system is mounted there") from error
        if is_gone(error):
            return False
        raise
    yield Flush(folders=(os.path.dirname(path),))
    return True


def remake_folder(root: Root, path: str) -> Steps[bool]:
    """Makes a folder of the root that is away, for whom the others are, handing its group on
    where the root does; False: it is there by now. Raises StaysAsItIs where something has its name;
    OSError. Durable on return: yes.
    """
    top = root.files.status(root.layout.root)
    if top is None:
        raise StaysAsItIs("the root itself is away")
    try:
        root.files.mkdir(path)
    except FileExistsError:
        status = root.files.status(path)
        if status is None or not stat.S_ISDIR(status.st_mode):
            raise StaysAsItIs("something else has its name") from None
        return False
    made, owner = root.files.status(path), owner_of(root)
    if made is not None and made.st_uid != owner:
        root.files.set_owner(path, owner)
    wanted = FOLDER_MODE | (top.st_mode & stat.S_ISGID)
    if made is not None and stat.S_IMODE(made.st_mode) != wanted:
        root.files.set_mode(path, wanted)
    # Itself too: whose it is has to outlive the power as it does.
    yield Flush(folders=(path, root.layout.root))
    return True


def _make_lost(root: Root) -> Steps[None]:
    if root.files.status(root.layout.lost) is None:
        yield from remake_folder(root, root.layout.lost)
    else:
        # Whoever made it may have died before its own flush.
        yield Flush(folders=(root.layout.root,))


@contextlib.contextmanager
def _held(root: Root, path: str) -> Iterator[os.stat_result | None]:
    """What has the name; of a file while its inode is locked. None: nothing has."""
    status = root.files.status(path)
    if status is None or not stat.S_ISREG(status.st_mode):
        yield status
        return
    with claimed(root, path) as claim:
        if claim is None and root.files.status(path) is not None:
            raise StaysAsItIs("another process is at it")
        yield None if claim is None else claim.status
