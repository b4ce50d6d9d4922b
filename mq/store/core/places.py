"""Where a message goes, and where one may be: flat, in its bucket, or below it.

Where to put one is a hint: how full a folder is is counted here, by a bounded listing now and then
and by what this process puts and takes between. Processes may judge differently. Where one may be
follows from its id and its queue's shape. Threads share it, without a lock: a count that is a
little wrong does no harm.
"""

import itertools
import stat
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from mq.model.clock import Clock
from mq.model.lifecycle import State
from mq.model.limits import (
    DEEP_DIGITS,
    FILLS_MAX,
    FOLDER_FILES_MAX,
    FOLDER_LOOKS,
    LOOK_SHARE,
    UUID_CHARS,
)
from mq.model.names import MessageId, QueueName
from mq.store.disk.files import Files
from mq.store.format.bucket_names import IN_COMMON, Shape
from mq.store.format.layout import Layout
from mq.store.format.lease_names import OpenLeases
from mq.store.format.settings import (
    DEFAULT_SHAPE,
    NO_FILE,
    Version,
    read_fields,
    settings_version,
    shape_in,
)
from mq.store.format.walk import is_bucket, is_deep_folder
from mq.store.shovel.crossings import Crossings

# What a path has behind its bucket: two slashes and the digits between.
_TO_BUCKET: Final = -DEEP_DIGITS - 2
# What the place below a bucket has behind it: a slash and the digits.
_TO_DEEP: Final = -DEEP_DIGITS - 1


@dataclass(slots=True)
class _Fill:
    """What a folder holds, as far as this process knows; `came` counts what it has put there
    since the folder was listed, which is not done again before `again_s` (steady).
    """

    files: int
    has_folders: bool
    again_s: float
    came: int = 0


class Places:
    """The places of one root, for one process. `folder_max` is how many files lie flat."""

    def __init__(
        self, layout: Layout, files: Files, clock: Clock, folder_max: int = FOLDER_FILES_MAX
    ) -> None:
        self._layout = layout
        self._files = files
        self._clock = clock
        self._folder_max = folder_max
        self._came_max = max(1, folder_max // FOLDER_LOOKS)
        self._fills: dict[str, _Fill] = {}
        self._shapes: dict[QueueName, tuple[Version, Shape]] = {}
        self.leases = OpenLeases(layout, files, clock)
        """What holds leased messages."""
        self.crossings = Crossings(layout, files, clock)
        """The queues between which messages are being moved."""

    def target(self, state: State, queue: QueueName, message_id: MessageId) -> str:
        """The bucket to put the message in; "" for none, also where something else has its name.
        It is counted as put there.

        Lists a folder at its first use, bounded. Raises SettingsUnreadable, OSError.
        """
        folder = self._layout.parent(state, queue)
        if not self._is_full(folder):
            return ""
        shape = self._shape(state, queue)
        bucket = shape.bucket(message_id)
        path = f"{folder}/{bucket[:-1]}"
        if self._is_foreign(path):
            return ""
        if not self._is_full(path):
            return bucket
        deep = shape.deep(message_id)
        return bucket if self._is_foreign(f"{folder}/{deep[:-1]}") else deep

    def targets(self, state: State, queue: QueueName, ids: Sequence[MessageId]) -> list[str]:
        """`target` for each of many that come at once. What goes to a folder is counted together:
        it may get so many more than its limit.
        """
        folder = self._layout.parent(state, queue)
        if not self._is_full(folder, len(ids)):
            return [""] * len(ids)
        shape = self._shape(state, queue)
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
        """What a look at all of the folder has found."""
        if (fill := self._fills.get(folder)) is not None:
            fill.files, fill.has_folders, fill.came = files, has_folders, 0

    def spots(self, state: State, queue: QueueName, message_id: MessageId) -> Iterator[str]:
        """Every bucket that the message may lie in while it is in the state, "" among them: the
        likeliest first. Raises SettingsUnreadable when it comes to those that the queue's shape
        decides.
        """
        if state is State.LEASED:
            yield from self.leases.spots()
            return
        is_flat = self.is_flat(state, queue)
        if is_flat:
            yield ""
        if state is not State.NEW:
            shape = self._shape(state, queue)
            bucket, deep = shape.bucket(message_id), shape.deep(message_id)
            if not self._files.is_link(self._layout.parent(state, queue, bucket)):
                yield bucket
                if not self._files.is_link(self._layout.parent(state, queue, deep)):
                    yield deep
        if not is_flat:
            yield ""

    def is_flat(self, state: State, queue: QueueName) -> bool:
        """Whether a message of the state is likely to lie in no bucket."""
        fill = self._fills.get(self._layout.parent(state, queue))
        return fill is None or not (fill.has_folders or fill.files >= self._folder_max)

    def buckets(self, queue: QueueName, message_id: MessageId) -> tuple[tuple[str, str], ...]:
        """The buckets of a message in delay/ and in its queue, each with the folder below it, to
        be flushed where they are there. Raises SettingsUnreadable, OSError.
        """
        known, settings = self._shapes.get(queue), self._layout.settings_of(queue)
        shape = DEFAULT_SHAPE
        if known is None or known[1] is not DEFAULT_SHAPE or self._files.is_there(settings):
            shape = self.shape(queue)
        common = deep = IN_COMMON.deep(message_id)
        if message_id.priority or shape is not DEFAULT_SHAPE:
            deep = shape.deep(message_id)
        delay, ready = (
            f"{self._layout.delay}/{common}",
            f"{self._layout.queues}/{queue.text}/{deep}",
        )
        return (delay[:_TO_BUCKET], delay[:-1]), (ready[:_TO_BUCKET], ready[:-1])

    def shape(self, queue: QueueName) -> Shape:
        """The queue's shape, as its settings are now. Raises SettingsUnreadable."""
        version = settings_version(self._layout, self._files, queue)
        known = self._shapes.get(queue)
        if known is not None and known[0] == version:
            return known[1]
        shape = DEFAULT_SHAPE
        if version != NO_FILE:
            shape = shape_in(read_fields(self._layout, self._files, queue))
        if len(self._shapes) >= FILLS_MAX:
            self._shapes.clear()
        self._shapes[queue] = version, shape
        return shape

    def forget(self, queue: QueueName) -> None:
        """The queue's folder is another one from here on, or none."""
        self._fills.pop(self._layout.queue(queue), None)
        self._shapes.pop(queue, None)

    def _shape(self, state: State, queue: QueueName) -> Shape:
        return self.shape(queue) if state is State.READY else IN_COMMON

    def _is_foreign(self, path: str) -> bool:
        """Whether something else has the bucket's name: no look would find what goes there."""
        status = self._files.status(path)
        return status is not None and not stat.S_ISDIR(status.st_mode)

    def _is_full(self, folder: str, count: int = 1) -> bool:
        """Whether what comes to the folder goes deeper; else it is counted as put there, so many.

        Once it does, it goes on doing so until a listing finds no bucket any more.
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
        """Counts the folder's files, no further than to the limit."""
        began_s = self._clock.steady_s()
        files, has_folders = 0, False
        try:
            entries = self._files.entries(folder)
            for entry in itertools.islice(entries, self._folder_max + 1):
                # Nearly all are messages, which is told by their names' lengths.
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
