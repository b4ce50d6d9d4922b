"""The names in crossings/: the messages that Spark's shovels chose, their locks, ended runs, and
which queues share which sidelines. FORMAT.md, "Crossings".
"""

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

from mq.model.clock import Clock
from mq.model.errors import BadName
from mq.model.names import QueueName, ReplayId
from mq.store.disk.files import Files
from mq.store.format.layout import Layout, new_name
from mq.store.format.walk import Remembered, entries_if_there, named

_SEPARATOR: Final = ":"
_OVER: Final = ".json"
_LOCK: Final = ".lock"


@dataclass(frozen=True, slots=True, order=True)
class Crossing:
    """A run by its replay id, and the queues that it moves messages from and to."""

    id: ReplayId
    source: QueueName
    target: QueueName

    @property
    def text(self) -> str:
        """The name of the file with its chosen messages."""
        return _SEPARATOR.join((self.id.text, self.source.text, self.target.text))

    @classmethod
    def parse(cls, entry: str) -> Self:
        """Parses such a name. Raises BadName."""
        parts = entry.split(_SEPARATOR)
        if len(parts) != 3:
            raise BadName("crossing", "{replay id}:{queue}:{queue}")
        return cls(ReplayId.parse(parts[0]), QueueName.parse(parts[1]), QueueName.parse(parts[2]))


@dataclass(frozen=True, slots=True, order=True)
class Joint:
    """A queue, and a sideline of another queue that its messages may have gone to."""

    queue: QueueName
    sideline: QueueName

    @property
    def text(self) -> str:
        """The name of its empty file."""
        return f"{self.queue.text}{_SEPARATOR}{self.sideline.text}"

    @classmethod
    def parse(cls, entry: str) -> Self:
        """Parses such a name. Raises BadName."""
        queue, _, sideline = entry.partition(_SEPARATOR)
        found = cls(QueueName.parse(queue), QueueName.parse(sideline))
        if found.queue.is_sideline or not found.sideline.is_sideline:
            raise BadName("joint", "{queue}:{sideline}")
        return found

    def path(self, layout: Layout) -> str:
        return f"{layout.crossings}/{self.text}"


def chosen_path(layout: Layout, crossing: Crossing) -> str:
    """The file with the run's chosen messages; it exists until the run has ended."""
    return f"{layout.crossings}/{crossing.text}"


def new_chosen_path(layout: Layout, crossing: Crossing) -> str:
    """Where this process writes that file. A dotfile: it means nothing until it is renamed."""
    return f"{layout.crossings}/{new_name(crossing.id.text)}"


def over_path(layout: Layout, replay: ReplayId) -> str:
    """The file with the result of an ended run."""
    return f"{layout.crossings}/{replay.text}{_OVER}"


def new_over_path(layout: Layout, replay: ReplayId) -> str:
    """Where this process writes that file. A dotfile, as above."""
    return f"{layout.crossings}/{new_name(replay.text + _OVER)}"


def lock_path(layout: Layout, replay: ReplayId) -> str:
    """The file that the run keeps locked."""
    return f"{layout.crossings}/{replay.text}{_LOCK}"


def parse_over(entry: str) -> ReplayId:
    """The ended run of a result file. Raises BadName."""
    if not entry.endswith(_OVER):
        raise BadName("crossing", "{replay id}.json")
    return ReplayId.parse(entry.removesuffix(_OVER))


def parse_lock(entry: str) -> ReplayId:
    """The run of a lock file. Raises BadName."""
    if not entry.endswith(_LOCK):
        raise BadName("crossing", "{replay id}.lock")
    return ReplayId.parse(entry.removesuffix(_LOCK))


def parse_unfinished(entry: str) -> ReplayId:
    """The run of an unfinished file, a dotfile. Raises BadName."""
    return ReplayId.parse(entry[1:].partition(".")[0])


def crossings_in(layout: Layout, files: Files) -> list[Crossing]:
    """The unfinished runs, without foreign names. A missing crossings/ is empty. Raises OSError."""
    entries = entries_if_there(files, layout.crossings)
    return sorted(crossing for _, crossing in named(entries, Crossing.parse))


class _Shared(NamedTuple):
    """The sidelines of others that each queue uses, and the queues that use each sideline."""

    asides: Mapping[QueueName, tuple[QueueName, ...]] = {}
    users: Mapping[QueueName, tuple[QueueName, ...]] = {}


class SharedSidelines(Remembered[_Shared]):
    """The joints of a root, cached for one process."""

    def __init__(self, layout: Layout, files: Files, clock: Clock) -> None:
        def read(status: os.stat_result) -> _Shared:
            # A sideline refuses a symbolic link, so nothing behind one counts.
            if not stat.S_ISDIR(status.st_mode):
                return _Shared()
            asides, users = dict[QueueName, list[QueueName]](), dict[QueueName, list[QueueName]]()
            entries = list(entries_if_there(files, layout.crossings))
            for joint in sorted(each for _, each in named(entries, Joint.parse)):
                asides.setdefault(joint.queue, []).append(joint.sideline)
                users.setdefault(joint.sideline, []).append(joint.queue)
            return _Shared(
                {queue: tuple(found) for queue, found in asides.items()},
                {queue: tuple(found) for queue, found in users.items()},
            )

        super().__init__(files, clock, layout.crossings, read, _Shared())
        self.folder = layout.crossings

    def asides(self, queue: QueueName) -> tuple[QueueName, ...]:
        """The sidelines of other queues that the queue's messages may have gone to. Raises
        OSError.
        """
        return self.now().asides.get(queue, ())

    def users(self, sideline: QueueName) -> tuple[QueueName, ...]:
        """The queues, but for its own, whose messages the sideline may have. Raises OSError."""
        return self.now().users.get(sideline, ())
