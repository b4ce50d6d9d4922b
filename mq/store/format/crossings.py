"""Names in crossings/: what a shovel between any two queues has chosen, who runs, and what is over.

FORMAT.md, "Crossings", has them.
"""

from dataclasses import dataclass
from typing import Final, Self

from mq.model.errors import BadName
from mq.model.names import QueueName
from mq.model.replay_id import ReplayId
from mq.store.format.layout import Layout, new_name

_SEPARATOR: Final = ":"
_OVER: Final = ".json"
_LOCK: Final = ".lock"


@dataclass(frozen=True, slots=True, order=True)
class Crossing:
    """A run, by its replay id, and the queues that it takes messages from and to."""

    id: ReplayId
    source: QueueName
    target: QueueName

    @property
    def text(self) -> str:
        """As the name of what it has chosen."""
        return _SEPARATOR.join((self.id.text, self.source.text, self.target.text))

    @classmethod
    def parse(cls, entry: str) -> Self:
        """Raises BadName: the file is another."""
        parts = entry.split(_SEPARATOR)
        if len(parts) != 3:
            raise BadName("crossing", "{replay id}:{queue}:{queue}")
        return cls(ReplayId.parse(parts[0]), QueueName.parse(parts[1]), QueueName.parse(parts[2]))


def chosen_path(layout: Layout, crossing: Crossing) -> str:
    """The file that says what the run has chosen; there until nothing of it is on its way."""
    return f"{layout.crossings}/{crossing.text}"


def new_chosen_path(layout: Layout, crossing: Crossing) -> str:
    """Where that is written. A dotfile: it means nothing until it is renamed."""
    return f"{layout.crossings}/{new_name(crossing.id.text)}"


def over_path(layout: Layout, replay: ReplayId) -> str:
    """The file that says what came of a run that is over."""
    return f"{layout.crossings}/{replay.text}{_OVER}"


def new_over_path(layout: Layout, replay: ReplayId) -> str:
    """Where this process writes it. A dotfile, as above."""
    return f"{layout.crossings}/{new_name(replay.text + _OVER)}"


def lock_path(layout: Layout, replay: ReplayId) -> str:
    """The file that whoever runs has locked."""
    return f"{layout.crossings}/{replay.text}{_LOCK}"


def parse_over(entry: str) -> ReplayId:
    """The run that is over of which the file tells. Raises BadName: the file is another."""
    if not entry.endswith(_OVER):
        raise BadName("crossing", "{replay id}.json")
    return ReplayId.parse(entry.removesuffix(_OVER))


def parse_lock(entry: str) -> ReplayId:
    """The run whose lock it is. Raises BadName: the file is another."""
    if not entry.endswith(_LOCK):
        raise BadName("crossing", "{replay id}.lock")
    return ReplayId.parse(entry.removesuffix(_LOCK))


def parse_unfinished(entry: str) -> ReplayId:
    """The run for which it was being written, of a dotfile. Raises BadName: the file is another."""
    return ReplayId.parse(entry[1:].partition(".")[0])
