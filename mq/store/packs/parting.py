"""Parts a pack: all its items become messages of their own, at one moment.

The items are written to a folder below new/ that only this try uses. Once they are on stable
media, **one rename of the pack into that folder** takes the pack out of service and commits them:
no consumer sees an item before, none gets the pack afterwards. The later steps move names only, and
any process may take them, after a crash anywhere (`rolling`). A process that gives up a try renames
its folder first, so a process that was stopped before its rename finds no folder, and commits
nothing.

PROTOCOL.md, "part a pack", has the steps and what a crash after each leaves.
"""

import contextlib
import json
from collections.abc import Sequence

from mq.model.errors import Busy, MessageUnreadable
from mq.model.history import Event
from mq.model.lifecycle import State
from mq.model.limits import GROUP_OPERATIONS_MAX, PACK_BYTES_MAX
from mq.model.message import Reason
from mq.model.names import MessageId
from mq.model.packs import bodies_in
from mq.store.core.failures import read_failures
from mq.store.core.message_file import is_readable
from mq.store.core.moves import Claim, claimed, message_status
from mq.store.core.root import Root, unlink_if_there
from mq.store.core.standing import refuse_gone
from mq.store.disk.files import is_gone
from mq.store.disk.steps import Flush, Steps
from mq.store.format.layout import Place
from mq.store.format.packs import Try, parts
from mq.store.operations.sideline import sideline_held
from mq.store.packs.rolling import roll_try_on


def part(root: Root, place: Place) -> Steps[list[MessageId] | None]:
    """Parts the pack at this place, READY or DELAYED. Returns its items, in order: from here on
    they are messages in the pack's state, with its mtime and its failures. None: the pack is not
    there any more.

    Raises Busy if another process has it locked; MessageUnreadable for a file that is no pack: it
    was moved to the queue's sideline, or stays in a sideline; NoSpace, NoInodes, Unavailable,
    OSError: the pack is where it was, or parted and not flushed. Durable on return: yes.
    """
    with claimed(root, place) as claim:
        if claim is None:
            if message_status(root, place.path(root.layout)) is None:
                return None
            raise Busy("another process has the pack locked")
        try:
            bodies = _bodies(root, place.id, claim)
        except MessageUnreadable:
            if not place.queue.is_sideline:
                yield from sideline_held(root, place, claim, Reason.UNREADABLE)
            raise
        tried = Try.begun(place.queue, place.id, place.state)
        staged = _Staged(root, tried, claim)
        try:
            yield from staged.write(bodies)
        except BaseException:
            staged.drop()
            raise
        # From here on nothing may be taken back, unless the rename is known not to have been done.
        flush = _commit(root, tried, place)
        if flush is None:
            # Over a network the pack may be there all the same, with its items: a mount can
            # remember for seconds that a name is absent. Otherwise the try is given up in an hour.
            if not root.over_network:
                staged.drop()
            return None
        receives = claim.stamp.receives
    with contextlib.suppress(FileNotFoundError):  # The queue was deleted; or another process is on.
        yield flush
    root.history.record(place.queue, Event.PARTED, place.id, receives)
    roll_try_on(root, tried, staged.items)
    return staged.items


def _bodies(root: Root, pack: MessageId, claim: Claim) -> "_Contents":
    """Raises MessageUnreadable, OSError."""
    size = claim.status.st_size
    if size > PACK_BYTES_MAX:
        raise MessageUnreadable(pack.text)
    content = root.files.read(claim.descriptor, size, 0)
    bodies, head = bodies_in(content, pack), content[: pack.header_bytes]
    if head and not is_readable(head):
        raise MessageUnreadable(pack.text)
    return _Contents(head, bodies)


class _Contents:
    """The header block of all items, and the body of each."""

    def __init__(self, head: bytes, bodies: Sequence[bytes]) -> None:
        self.head = head
        self.bodies = bodies

    @property
    def size(self) -> int:
        return sum(map(len, self.bodies)) + len(self.bodies) * len(self.head)


class _Staged:
    """The files of a try's items, and copies of the pack's failures for each."""

    def __init__(self, root: Root, tried: Try, claim: Claim) -> None:
        self.items = tried.pack.all_items()
        self._root = root
        self._try = tried
        self._mtime_ns = claim.status.st_mtime_ns
        self._failures = read_failures(root, tried.pack)

    def write(self, contents: _Contents) -> Steps[None]:
        """Durable on return: the files' contents."""
        root, layout, each_has = self._root, self._root.layout, 2 if self._failures else 1
        root.space.claim(contents.size, inodes=each_has * len(self.items) + 1)
        for folder in (parts(layout), self._try.folder(layout)):
            with contextlib.suppress(FileExistsError):
                root.files.mkdir(folder)
        named = list(zip(self.items, contents.bodies, strict=True))
        for start in range(0, len(named), GROUP_OPERATIONS_MAX):
            opened: list[int] = []
            try:
                for item, body in named[start : start + GROUP_OPERATIONS_MAX]:
                    self._write(item, contents.head + body, opened)
                yield Flush(files=tuple(opened))
            finally:
                for descriptor in opened:
                    root.files.close(descriptor)
        if self._failures:
            self._place_failures()

    def drop(self) -> None:
        """Removes its files; one that stays is never delivered, and is swept."""
        with contextlib.suppress(OSError):
            for item in self.items:
                unlink_if_there(self._root.files, self._try.item_path(self._root.layout, item))
            self._root.files.rmdir(self._try.folder(self._root.layout))

    def _write(self, item: MessageId, content: bytes, opened: list[int]) -> None:
        files, layout = self._root.files, self._root.layout
        descriptor = files.create(self._try.item_path(layout, item))
        opened.append(descriptor)
        files.write(descriptor, content)
        files.stamp(descriptor, self._mtime_ns)
        if self._failures:
            written = layout.failure(item)[2]
            unlink_if_there(files, written)  # An earlier try of this process, which failed.
            descriptor = files.create(written)
            opened.append(descriptor)
            lines = (
                json.dumps({**each, "id": item.text}, ensure_ascii=False) for each in self._failures
            )
            files.write(descriptor, "".join(f"{line}\n" for line in lines).encode())

    def _place_failures(self) -> None:
        for item in self.items:
            _, path, written = self._root.layout.failure(item)
            self._root.files.rename(written, path)


def _commit(root: Root, tried: Try, place: Place) -> Flush | None:
    """Renames the pack into the folder of its items. Returns the flush that makes this durable,
    also where the pack came from: a process that moved it there may have died before its flush.
    None: the pack is not there any more. Raises OSError, after which it is uncertain.
    """
    layout, (_, queue, _, bucket) = root.layout, place
    source, target = place.path(layout), tried.pack_path(layout)
    try:
        if place.state is State.READY:
            refuse_gone(root, queue)
        root.files.rename(source, target)
    except OSError as error:
        # NFS may have done it and lost the answer: the name is of this try alone.
        if not is_gone(error):
            raise
        if root.files.status(target) is None:
            return None
    root.places.went(layout.parent(place.state, queue, bucket))
    return Flush((), (tried.folder(layout), layout.delay, layout.queue(queue)), covered=2)
