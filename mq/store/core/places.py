"""The places of a message: in its state's folder, in a bucket there, or one level deeper.

The place of a new message is a choice by a hint: how full a folder is, from a bounded listing now
and then and from what this process added and took since. Processes may choose differently. The
places where a message may be follow from its id and its queue's shape. Threads share this without a
lock: a slightly wrong count does no harm.
"""

import itertools
import stat
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from mq.model.clock import Clock
from mq.model.lifecycle import State
from mq.model.limits import FOLDER_FILES_MAX, UUID_CHARS
from mq.model.names import MessageId, QueueName
from mq.store.core.facts import Facts
from mq.store.disk.files import Files
from mq.store.format.bucket_names import DEEP_DIGITS, IN_COMMON, Shape
from mq.store.format.layout import Layout
from mq.store.format.packs import tries_of
from mq.store.format.walk import LOOK_SHARE, is_bucket, is_deep_folder

# A folder is counted again each time this process has added this fraction of the limit.
FOLDER_LOOKS: Final = 4
# Folders whose fill is remembered. Forgetting one costs a bounded listing.
FILLS_MAX: Final = 20_000


# What the place below a bucket has behind it: a slash and the digits.
_TO_DEEP: Final = -DEEP_DIGITS - 1


@dataclass(slots=True)
class _Fill:
    """The fill of a folder, as far as this process knows. `came`: the files that it added since the
    last listing. The next listing is not before `again_s` (steady).
    """

    files: int
    has_folders: bool
    again_s: float
    came: int = 0


class Leases(Protocol):
    """Tells which folders hold leased messages. A feature does: see `opening`."""

    def spots(self) -> tuple[str, ...]:
        """The `bucket` of each folder that may hold some. Raises OSError."""


class Places:
    """The places of one root, for one process. `folder_max`: how many files lie flat in
    a folder.
    """

    def __init__(
        self,
        layout: Layout,
        files: Files,
        clock: Clock,
        facts: Facts,
        leases: Leases,
        folder_max: int = FOLDER_FILES_MAX,
    ) -> None:
        self._layout = layout
        self._files = files
        self._clock = clock
        self._facts = facts
        self._folder_max = folder_max
        self._came_max = max(1, folder_max // FOLDER_LOOKS)
        self._fills: dict[str, _Fill] = {}
        self.leases = leases
        """Asked each time, of a message that was found nowhere else."""

    def target(self, state: State, queue: QueueName, message_id: MessageId) -> str:
        """The bucket for a new message; "": none, also where a foreign file has the bucket's name.
        Counts the message as added.

        Lists a folder at its first use, bounded. Raises SettingsUnreadable, OSError.
        """
        folder = self._layout.parent(state, queue)
        if not self._is_full(folder):
            return ""
        shape = self._shape_now(state, queue)
        bucket = shape.bucket(message_id)
        path = f"{folder}/{bucket[:-1]}"
        if self._is_foreign(path):
            return ""
        if not self._is_full(path):
            return bucket
        deep = shape.deep(message_id)
        return bucket if self._is_foreign(f"{folder}/{deep[:-1]}") else deep

    def targets(self, state: State, queue: QueueName, ids: Sequence[MessageId]) -> list[str]:
        """`target` for many messages that are added together. They are counted together, so a
        folder may exceed its limit by that many.
        """
        folder = self._layout.parent(state, queue)
        if not self._is_full(folder, len(ids)):
            return [""] * len(ids)
        shape = self._shape_now(state, queue)
        deeps: dict[str, str] = {}
        of_each = [
            deeps.get(key) or deeps.setdefault(key, shape.deep(message_id))
            for message_id in ids
            for key in (shape.decides(message_id),)
        ]
        found: dict[str, str] = {}
        for bucket, count in Counter(deep[:_TO_DEEP] for deep in of_each).items():
            path = f"{folder}/{bucket[:-1]}"
            if self._is_foreign(path):
                found[bucket] = ""
            elif not self._is_full(path, count):
                found[bucket] = bucket
        for deep in dict.fromkeys(of_each):
            if (bucket := deep[:_TO_DEEP]) not in found:
                found[deep] = bucket if self._is_foreign(f"{folder}/{deep[:-1]}") else deep
        return [found.get(deep[:_TO_DEEP]) or found.get(deep, "") for deep in of_each]

    def went(self, folder: str) -> None:
        """A message was taken from the folder."""
        fill = self._fills.get(folder)
        if fill is not None and fill.files > 0:
            fill.files -= 1

    def saw(self, folder: str, files: int, has_folders: bool) -> None:
        """A complete listing of the folder found this."""
        if (fill := self._fills.get(folder)) is not None:
            fill.files, fill.has_folders, fill.came = files, has_folders, 0

    def spots(self, state: State, queue: QueueName, message_id: MessageId) -> Iterator[str]:
        """All buckets in which the message may lie in this state, the likeliest first; "" is one of
        them. Those of a pack in NEW are also those where it was parted. Raises SettingsUnreadable
        when it reaches those that depend on the queue's shape.
        """
        if state is State.LEASED:
            yield from self.leases.spots()
            return
        if state is State.NEW:
            yield ""
            if message_id.items:
                tried = tries_of(self._layout, self._files, queue, message_id)
                yield from (each.spot for each in tried)
            return
        is_flat = self.is_flat(state, queue)
        if is_flat:
            yield ""
        shape = self._shape(state, queue)
        bucket, deep = shape.bucket(message_id), shape.deep(message_id)
        if not self._files.is_link(self._layout.parent(state, queue, bucket)):
            yield bucket
            if not self._files.is_link(self._layout.parent(state, queue, deep)):
                yield deep
        if not is_flat:
            yield ""

    def is_flat(self, state: State, queue: QueueName) -> bool:
        """Whether messages of the state probably lie in no bucket."""
        fill = self._fills.get(self._layout.parent(state, queue))
        return fill is None or not (fill.has_folders or fill.files >= self._folder_max)

    def forget(self, queue: QueueName) -> None:
        """The queue was deleted or made again: forgets its folders."""
        self._fills.pop(self._layout.queue(queue), None)
        self._facts.forget(queue)

    def _shape(self, state: State, queue: QueueName) -> Shape:
        return self._facts.shape(queue) if state is State.READY else IN_COMMON

    def _shape_now(self, state: State, queue: QueueName) -> Shape:
        """The shape for a new message. By the old shape of a queue that was deleted and made again,
        the message would not be found by its id.
        """
        return self._facts.shape_now(queue) if state is State.READY else IN_COMMON

    def _is_foreign(self, path: str) -> bool:
        """Whether a foreign file has the bucket's name, so that no look would find
        messages there.
        """
        status = self._files.status(path)
        return status is not None and not stat.S_ISDIR(status.st_mode)

    def _is_full(self, folder: str, count: int = 1) -> bool:
        """Whether new messages of the folder go into buckets. If not, `count` are counted as added.
        A folder that was full stays so until a listing finds no bucket.
        """
        fill = self._fills.get(folder)
        if fill is None or (fill.came >= self._came_max and self._clock.steady_s() >= fill.again_s):
            fill = self._list(folder)
        fill.came += count
        if fill.has_folders or fill.files >= self._folder_max:
            fill.has_folders = True
            return True
        fill.files += count
        return False

    def _list(self, folder: str) -> _Fill:
        """Counts the folder's files, up to the limit."""
        began_s = self._clock.steady_s()
        files, has_folders = 0, False
        try:
            entries = self._files.entries(folder)
            for entry in itertools.islice(entries, self._folder_max + 1):
                # Nearly all are messages, which their names' lengths tell.
                if len(entry.name) < UUID_CHARS and (is_bucket(entry) or is_deep_folder(entry)):
                    has_folders = True
                else:
                    files += 1
        except FileNotFoundError:
            return _Fill(0, False, 0.0)  # A bucket that is not made yet; or a queue that is gone.
        ended_s = self._clock.steady_s()
        if len(self._fills) >= FILLS_MAX:
            self._fills.clear()
        fill = _Fill(files, has_folders, ended_s + (ended_s - began_s) / LOOK_SHARE)
        self._fills[folder] = fill
        return fill
