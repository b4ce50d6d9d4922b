"""Which messages a read is of: their names, folder by folder, as it lists them before it begins.

No Spark here. A name is looked at by its length alone: whoever reads the message parses it, and
passes over what is none's, as it does what has gone or moved by then.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from mq.model.errors import BadName, QueueNotFound
from mq.model.lifecycle import State
from mq.model.limits import UUID_CHARS
from mq.model.names import QueueName
from mq.spark.options import Subscription
from mq.store.core.purged import PurgeMark, mark_of
from mq.store.core.root import Root
from mq.store.core.standing import queue_exists
from mq.store.format.layout import is_deleted_folder, split_entry
from mq.store.format.pipeline import (
    LeaseFile,
    LeaseName,
    is_acknowledged,
    lease_path,
    parse_lease_file,
)
from mq.store.format.walk import entries_if_there, is_bucket, is_deep_folder

BLOCK_NAMES: Final = 1000


@dataclass(frozen=True, slots=True)
class Block:
    """Some names of one folder. `folder` is its path below the root, with a slash at the end;
    `queue` is whose ids they are, "" where each name begins with its queue.
    """

    queue: str
    folder: str
    names: list[str]


class Wanted:
    """The queues that a subscription takes, of those that exist."""

    def __init__(self, root: Root, subscription: Subscription, state: State) -> None:
        """Raises QueueNotFound for a queue that is named and not there. Removed messages outlive
        their queue: for these any name will do.
        """
        self._root = root
        self._pattern = subscription.pattern
        self._gone_too = state is State.REMOVED
        self._known: dict[str, bool] = {}
        self._marks: dict[str, PurgeMark | None] = {}
        self.named = subscription.queues
        for queue in subscription.queues:
            if not self._gone_too and not queue_exists(root, queue):
                raise QueueNotFound(queue.text)
            self._known[queue.text] = True

    def takes(self, queue: str) -> bool:
        """Whether messages of this name's queue are wanted."""
        known = self._known.get(queue)
        if known is None:
            known = self._known[queue] = self._is_taken(queue)
        return known

    def _is_taken(self, queue: str) -> bool:
        if self._pattern is None or self._pattern.fullmatch(queue) is None:
            return False
        try:
            name = QueueName.parse(queue)
            return self._gone_too or queue_exists(self._root, name)
        except BadName:
            return False

    def serves(self, entry: str) -> bool:
        """Whether an entry's queue is wanted, and was not purged since the message came."""
        queue, message_id = split_entry(entry)
        if not self.takes(queue):
            return False
        if queue not in self._marks:
            self._marks[queue] = mark_of(self._root, QueueName.parse(queue))
        mark = self._marks[queue]
        return mark is None or not mark.covers(message_id)

    def queues(self) -> list[QueueName]:
        """All of them."""
        if self._pattern is None:
            return list(self.named)
        found = []
        for entry in self._root.files.entries(self._root.layout.queues):
            if self.takes(entry.name) and entry.is_dir(follow_symlinks=False):
                found.append(QueueName.parse(entry.name))  # noqa: PERF401
        return sorted(found)


def blocks_of(root: Root, subscription: Subscription, state: State) -> Iterator[Block]:
    """The names of all messages of a state, in no order; purged ones are left out. What moves
    meanwhile may come twice or not at all. Raises QueueNotFound before the first one; OSError.
    """
    wanted = Wanted(root, subscription, state)
    if state is State.READY:
        return _ready(root, wanted)
    if state is State.DELAYED:
        return _delayed(root, wanted)
    if state is State.LEASED:
        return _leased(root, wanted)
    if state is State.REMOVED:
        return _removed(root, wanted)
    raise ValueError(f"{state.value} messages are not to be read")


def lease_blocks(root: Root, lease: LeaseName) -> Iterator[Block]:
    """The names in a lease, always in the same order. None when its folder is not there: see
    `is_leased`.
    """
    path = lease_path(root.layout, lease, LeaseFile.FOLDER)
    names = sorted(name for block in _flat(root, path) for name in block.names)
    folder = _below(root, path)
    for at in range(0, len(names), BLOCK_NAMES):
        yield Block("", folder, names[at : at + BLOCK_NAMES])


def is_leased(root: Root, lease: LeaseName) -> bool:
    """Whether the lease's folder is there."""
    return root.files.status(lease_path(root.layout, lease, LeaseFile.FOLDER)) is not None


def _ready(root: Root, wanted: Wanted) -> Iterator[Block]:
    for queue in wanted.queues():
        mark = mark_of(root, queue)
        for block in _Folder(root, root.layout.queue(queue), queue.text).blocks():
            if mark is None:
                yield block
            else:
                names = [name for name in block.names if not mark.covers(name)]
                yield Block(block.queue, block.folder, names)


def _delayed(root: Root, wanted: Wanted) -> Iterator[Block]:
    for block in _Folder(root, root.layout.delay).blocks():
        yield Block("", block.folder, list(filter(wanted.serves, block.names)))


def _leased(root: Root, wanted: Wanted) -> Iterator[Block]:
    for entry in entries_if_there(root.files, root.layout.leases):
        try:
            _, file = parse_lease_file(entry.name)
        except BadName:
            continue
        is_folder = file in (LeaseFile.FOLDER, LeaseFile.RELEASED)
        if is_folder and entry.is_dir(follow_symlinks=False):
            for block in _flat(root, entry.path):
                yield Block("", block.folder, list(filter(wanted.serves, block.names)))


def _removed(root: Root, wanted: Wanted) -> Iterator[Block]:
    top = _Folder(root, root.layout.remove, is_other=_is_removed_folder)
    yield from (_of_wanted(wanted, block) for block in top.blocks())
    for entry in top.others:
        if is_acknowledged(entry.name):
            yield from (_of_wanted(wanted, block) for block in _flat(root, entry.path))
            continue
        queue, _ = split_entry(entry.name)
        if wanted.takes(queue):
            yield from _Folder(root, entry.path, queue).blocks()


def _is_removed_folder(entry: "os.DirEntry[str]") -> bool:
    """Whether it is a deleted queue's folder, one of purged buckets, or an acknowledged lease."""
    is_one = is_deleted_folder(entry.name) or is_acknowledged(entry.name)
    return is_one and entry.is_dir(follow_symlinks=False)


def _of_wanted(wanted: Wanted, block: Block) -> Block:
    takes = wanted.takes
    return Block(
        block.queue, block.folder, [name for name in block.names if takes(split_entry(name)[0])]
    )


def _flat(root: Root, path: str) -> Iterator[Block]:
    return _Folder(root, path, sub=lambda _: False).blocks()


def _is_no_other(entry: "os.DirEntry[str]") -> bool:
    return False


@dataclass(slots=True)
class _Folder:
    """A folder whose names come in blocks, then those of its buckets, and of what lies below
    these. `others` are the folders beside the buckets that `is_other` is true of.
    """

    root: Root
    path: str
    queue: str = ""
    sub: "Callable[[os.DirEntry[str]], bool]" = is_bucket
    is_other: "Callable[[os.DirEntry[str]], bool]" = _is_no_other
    others: "list[os.DirEntry[str]]" = field(default_factory=list)

    def blocks(self) -> Iterator[Block]:
        """None of a folder that is gone. Memory does not grow with what lies in it."""
        entries = entries_if_there(self.root.files, self.path)
        folder = _below(self.root, self.path)
        inner = []
        while chunk := list(islice(entries, BLOCK_NAMES)):
            names = []
            for entry in chunk:
                name = entry.name
                # No bucket's name is as long as an id, and no id ends like what is in `others`.
                if len(name) >= UUID_CHARS and name[-2] != ".":
                    names.append(name)
                elif self.sub(entry):
                    inner.append(entry.path)
                elif self.is_other(entry):
                    self.others.append(entry)
            yield Block(self.queue, folder, _one_a_line(names))
        deeper = is_deep_folder if self.sub is is_bucket else _is_no_other
        for path in inner:
            yield from _Folder(self.root, path, self.queue, deeper).blocks()


def _one_a_line(names: list[str]) -> list[str]:
    """Without what could not stand in a line of ASCII, which no message is called."""
    text = "".join(names)
    if text.isascii() and "\n" not in text:
        return names
    return [name for name in names if name.isascii() and "\n" not in name]


def _below(root: Root, path: str) -> str:
    return f"{os.path.relpath(path, root.layout.root)}/"
