"""Lists the names of the messages of a read, folder by folder, before the read begins.

No Spark here. Only a name's length is checked: the reader parses it, and skips names that belong to
no message, and messages that have moved meanwhile.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple

from mq.model.errors import BadName, QueueNotFound
from mq.model.lifecycle import State
from mq.model.limits import UUID_CHARS
from mq.model.names import QueueName
from mq.spark.options import Subscription
from mq.store.core.root import Root
from mq.store.core.standing import queue_exists
from mq.store.core.unserved import PurgeMark, mark_of
from mq.store.format.bucket_names import Bucket, parse_bucket
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


class Block(NamedTuple):
    """Some names of one folder. `folder` is its path below the root, with a slash at the end;
    `queue` is the queue of the ids, "" if each name begins with its queue.
    """

    queue: str
    folder: str
    names: list[str]


def home_of(queue: QueueName) -> QueueName:
    """The queue itself, or the queue of a sideline."""
    return queue.counterpart() if queue.is_sideline else queue


def queues_there(root: Root) -> Iterator[QueueName]:
    """The queues that exist, sidelines too, in no order. Raises OSError."""
    for entry in root.files.entries(root.layout.queues):
        if entry.is_dir(follow_symlinks=False):
            with contextlib.suppress(BadName):
                yield QueueName.parse(entry.name)


def _any(found: object) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Only:
    """What of a root is listed: `queue`, whether of a queue of this name; `bucket`, whether of a
    bucket.
    """

    queue: Callable[[str], bool] = _any
    bucket: Callable[[Bucket], bool] = _any

    def entry(self, entry: "os.DirEntry[str]") -> bool:
        """Whether the entry is the folder of such a bucket."""
        if self.bucket is _any:
            return is_bucket(entry)
        bucket = parse_bucket(entry.name)
        return bucket is not None and self.bucket(bucket) and is_bucket(entry)


EVERYTHING: Final = Only()


class Wanted:
    """The queues of a subscription that exist."""

    def __init__(
        self,
        root: Root,
        subscription: Subscription,
        state: State,
        only: Callable[[str], bool] = _any,
    ) -> None:
        """`only`: whether messages of a queue are wanted. Raises QueueNotFound for a named queue
        that does not exist. Removed messages outlive their queue, so for these any name is
        accepted.
        """
        self._root = root
        self._only = only
        self._pattern = subscription.pattern
        self._gone_too = state is State.REMOVED
        self._known: dict[str, bool] = {}
        self._marks: dict[str, PurgeMark | None] = {}
        self.named = tuple(queue for queue in subscription.queues if only(queue.text))
        for queue in self.named:
            if not self._gone_too and not queue_exists(root, queue):
                raise QueueNotFound(queue.text)
            self._known[queue.text] = True

    def takes(self, queue: str) -> bool:
        """Whether messages of the queue of this name are wanted."""
        known = self._known.get(queue)
        if known is None:
            known = self._known[queue] = self._is_taken(queue)
        return known

    def _is_taken(self, queue: str) -> bool:
        if self._pattern is None or self._pattern.fullmatch(queue) is None:
            return False
        if not self._only(queue):
            return False
        try:
            name = QueueName.parse(queue)
            return self._gone_too or queue_exists(self._root, name)
        except BadName:
            return False

    def serves(self, entry: str) -> bool:
        """Whether the entry's queue is wanted, and was not purged after the message was
        published.
        """
        queue, message_id = split_entry(entry)
        if not self.takes(queue):
            return False
        if queue not in self._marks:
            self._marks[queue] = mark_of(self._root, QueueName.parse(queue))
        mark = self._marks[queue]
        return mark is None or not mark.covers(message_id)

    def queues(self) -> list[QueueName]:
        if self._pattern is None:
            return list(self.named)
        return sorted(queue for queue in queues_there(self._root) if self.takes(queue.text))


def blocks_of(
    root: Root, subscription: Subscription, state: State, only: Only = EVERYTHING
) -> Iterator[Block]:
    """The names of all messages of a state, in no order, without purged ones; of `only` these
    queues and, where they are in buckets, these buckets. A message that moves meanwhile may come
    twice or not at all. Raises QueueNotFound before the first name; OSError.
    """
    wanted = Wanted(root, subscription, state, only.queue)
    if state is State.READY:
        return _ready(root, wanted, only)
    if state is State.DELAYED:
        return _delayed(root, wanted, only)
    if state is State.LEASED:
        return _leased(root, wanted)
    if state is State.REMOVED:
        return _removed(root, wanted, only)
    raise ValueError(f"{state.value} messages are not to be read")


def lease_blocks(root: Root, lease: LeaseName) -> Iterator[Block]:
    """The names in a lease, always in the same order; none if its folder is missing: see
    `is_leased`.
    """
    path = lease_path(root.layout, lease, LeaseFile.FOLDER)
    names = sorted(name for block in _flat(root, path) for name in block.names)
    folder = _below(root, path)
    for at in range(0, len(names), BLOCK_NAMES):
        yield Block("", folder, names[at : at + BLOCK_NAMES])


def is_leased(root: Root, lease: LeaseName) -> bool:
    """Whether the lease's folder exists."""
    return root.files.status(lease_path(root.layout, lease, LeaseFile.FOLDER)) is not None


def _ready(root: Root, wanted: Wanted, only: Only) -> Iterator[Block]:
    for queue in wanted.queues():
        mark = mark_of(root, queue)
        for block in _Folder(root, root.layout.queue(queue), queue.text, only.entry).blocks():
            if mark is None:
                yield block
            else:
                names = [name for name in block.names if not mark.covers(name)]
                yield Block(block.queue, block.folder, names)


def _delayed(root: Root, wanted: Wanted, only: Only) -> Iterator[Block]:
    for block in _Folder(root, root.layout.delay, "", only.entry).blocks():
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


def _removed(root: Root, wanted: Wanted, only: Only) -> Iterator[Block]:
    top = _Folder(root, root.layout.remove, "", only.entry, _is_removed_folder)
    yield from (_of_wanted(wanted, block) for block in top.blocks())
    for entry in top.others:
        if is_acknowledged(entry.name):
            yield from (_of_wanted(wanted, block) for block in _flat(root, entry.path))
            continue
        queue, _ = split_entry(entry.name)
        if wanted.takes(queue):
            yield from _Folder(root, entry.path, queue, only.entry).blocks()


def _is_removed_folder(entry: "os.DirEntry[str]") -> bool:
    """Whether it is the folder of a deleted queue, of purged buckets, or of an acknowledged
    lease.
    """
    is_one = is_deleted_folder(entry.name) or is_acknowledged(entry.name)
    return is_one and entry.is_dir(follow_symlinks=False)


def _of_wanted(wanted: Wanted, block: Block) -> Block:
    takes = wanted.takes
    return Block(
        block.queue, block.folder, [name for name in block.names if takes(split_entry(name)[0])]
    )


def _flat(root: Root, path: str) -> Iterator[Block]:
    return _Folder(root, path, sub=_is_no_other).blocks()


def _is_no_other(entry: "os.DirEntry[str]") -> bool:
    return False


@dataclass(slots=True)
class _Folder:
    """A folder whose names come in blocks, then those of its buckets and of the folders in these.
    `others`: the folders beside the buckets for which `is_other` is true. The store's walk takes
    twice the time, since it parses every name.
    """

    root: Root
    path: str
    queue: str = ""
    sub: "Callable[[os.DirEntry[str]], bool]" = is_bucket
    is_other: "Callable[[os.DirEntry[str]], bool]" = _is_no_other
    others: "list[os.DirEntry[str]]" = field(default_factory=list)

    def blocks(self) -> Iterator[Block]:
        """The blocks, in memory that does not grow with the folder; none if it is gone."""
        entries = entries_if_there(self.root.files, self.path)
        folder = _below(self.root, self.path)
        inner = []
        while chunk := list(islice(entries, BLOCK_NAMES)):
            names = []
            for entry in chunk:
                name = entry.name
                # No bucket's name is as long as an id, and no id ends like the names in `others`.
                if len(name) >= UUID_CHARS and name[-2] != ".":
                    names.append(name)
                elif self.sub(entry):
                    inner.append(entry.path)
                elif self.is_other(entry):
                    self.others.append(entry)
            yield Block(self.queue, folder, _one_a_line(names))
        deeper = _is_no_other if self.sub in (_is_no_other, is_deep_folder) else is_deep_folder
        for path in inner:
            yield from _Folder(self.root, path, self.queue, deeper).blocks()


def _one_a_line(names: list[str]) -> list[str]:
    """The names as lines of ASCII; drops names that cannot be such a line, which no message has."""
    text = "".join(names)
    if text.isascii() and "\n" not in text:
        return names
    return [name for name in names if name.isascii() and "\n" not in name]


def _below(root: Root, path: str) -> str:
    return f"{os.path.relpath(path, root.layout.root)}/"
