"""The names in crossings/: the chosen messages of shovels between any two queues, their locks,
ended runs, shared sidelines, and the queues that these join. FORMAT.md, "Crossings".
"""

import os
import stat
from collections.abc import Iterable, Mapping
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
    """The file with the run's chosen messages; it exists until none of them is on its way."""
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


class _Joined(NamedTuple):
    """The queues that are joined to each queue, and the sidelines of others that it uses."""

    others: Mapping[QueueName, tuple[QueueName, ...]] = {}
    asides: Mapping[QueueName, tuple[QueueName, ...]] = {}


class JoinedQueues(Remembered[_Joined]):
    """The queues of a root that runs and shared sidelines join, cached for one process. A message
    that moved between queues may be in both after a crash, or return to its former queue, until
    both folders are flushed.
    """

    def __init__(self, layout: Layout, files: Files, clock: Clock) -> None:
        def read(status: os.stat_result) -> _Joined:
            # A run refuses a symbolic link, so nothing behind one counts.
            if not stat.S_ISDIR(status.st_mode):
                return _Joined()
            entries = list(entries_if_there(files, layout.crossings))
            crossings = sorted(each for _, each in named(entries, Crossing.parse))
            return _joined(crossings, sorted(each for _, each in named(entries, Joint.parse)))

        super().__init__(files, clock, layout.crossings, read, _Joined())
        self.folder = layout.crossings

    def of(self, queue: QueueName) -> tuple[QueueName, ...]:
        """The queues that messages of this queue may have come from or gone to, by runs, over
        several runs, or by a shared sideline; each with its counterpart. Empty if nothing joins the
        queue. Raises OSError.
        """
        return self.now().others.get(queue, ())

    def asides(self, queue: QueueName) -> tuple[QueueName, ...]:
        """The sidelines of other queues that the queue's messages may have gone to. Raises
        OSError.
        """
        return self.now().asides.get(queue, ())


def _joined(crossings: Iterable[Crossing], joints: Iterable[Joint]) -> _Joined:
    asides: dict[QueueName, list[QueueName]] = {}
    for joint in joints:
        asides.setdefault(joint.queue, []).append(joint.sideline)
    # A sideline that two queues share joins neither to the other: messages only return to their own
    # queue.
    near = [{queue, queue.sideline(), *of_it} for queue, of_it in asides.items()]
    runs = [{each.source, each.target} for each in crossings]
    joined: dict[QueueName, set[QueueName]] = {}
    if runs:
        joined = _over_all([*runs, *near])
    for group in near:
        for queue in group:
            joined.setdefault(queue, {queue.counterpart()}).update(group)
    others = {queue: tuple(sorted(all_of - {queue})) for queue, all_of in joined.items()}
    return _Joined(others, {queue: tuple(of_it) for queue, of_it in asides.items()})


def _over_all(groups: Iterable[set[QueueName]]) -> dict[QueueName, set[QueueName]]:
    """The queues that are joined to each queue, over any number of runs and sidelines."""
    joined: dict[QueueName, set[QueueName]] = {}
    for group in groups:
        together = {*group, *(each.counterpart() for each in group)}
        for queue in tuple(together):
            together |= joined.get(queue, set())
        for queue in together:
            joined[queue] = together
    return joined
