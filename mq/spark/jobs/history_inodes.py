"""What a root's files say of its messages, for a history: their names and their inodes; no file is
opened.
"""

import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Self

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from mq.model.lifecycle import State
from mq.model.limits import RECEIVES_MAX
from mq.model.message import Stamp
from mq.model.names import QueueName
from mq.spark.entries import Entry, Group, entries
from mq.spark.listing import blocks_of
from mq.spark.options import Subscription
from mq.spark.partitions import Cut, Names, groups, lines, partitions
from mq.store.core.root import Root
from mq.store.disk.files import Files
from mq.store.format.layout import deleted_ms
from mq.store.format.pipeline import acknowledged_ms

# In the order in which most messages go, so that one that moves meanwhile is met at least once.
_LISTED: Final = (State.READY, State.LEASED, State.DELAYED, State.REMOVED)
RANKS: Final = {State.READY: 0, State.LEASED: 1, State.DELAYED: 2, State.REMOVED: 4}
"""Of two places of a message the one with the larger number is its own."""
SIDELINED_RANK: Final = 3
"""That of whatever lies in a sideline and is not removed."""
_NS_PER_MS: Final = 1_000_000
_ROWS: Final = 20_000

_LISTINGS: Final = "state string, blob binary, spool string, offset long, size long"
ROWS: Final = (
    "home string, id string, priority int, published long, rank int, i_removed long, "
    "i_sidelined long, i_receives int, i_size long"
)
"""Rows of inodes. Times are milliseconds since the epoch; `home` is the queue, and of a sideline
the queue whose it is.
"""
_ARROW: Final = pa.schema(
    [
        ("home", pa.string()),
        ("id", pa.string()),
        ("priority", pa.int32()),
        ("published", pa.int64()),
        ("rank", pa.int32()),
        ("i_removed", pa.int64()),
        ("i_sidelined", pa.int64()),
        ("i_receives", pa.int32()),
        ("i_size", pa.int64()),
    ]
)


@dataclass(frozen=True, slots=True)
class Listed:
    """The names of a root's messages, in the partitions of Spark's tasks."""

    partitions: Sequence[tuple[State, Names]]

    def rows(self, spark: SparkSession, top: str) -> DataFrame:
        """What their inodes say, as ROWS has the columns; in tasks, on machines that have the root
        (`top`) under the same path. A message that has moved since it was listed is of the state
        in which it was listed; one that was reaped since is left out.
        """
        if not self.partitions:
            return spark.createDataFrame([], ROWS)
        listed = [
            (state.value, names.blob, names.spool, names.offset, names.size)
            for state, names in self.partitions
        ]
        frame = spark.createDataFrame(listed, _LISTINGS).repartition(len(listed))
        return frame.mapInArrow(partial(_read, top), ROWS)


def listed(root: Root, queues: Sequence[QueueName] | None) -> Listed:
    """Lists a root's messages: those of these queues and their sidelines, or all. Raises
    OSError.
    """
    subscription = Subscription(pattern=_pattern(queues))
    found = []
    for state in _LISTED:
        blocks = blocks_of(root, subscription, state)
        found += [(state, names) for names in partitions(root, blocks, Cut(names_max=100_000))]
    return Listed(found)


def home_of(queue: QueueName) -> QueueName:
    """The queue, and of a sideline the queue whose it is."""
    return queue.counterpart() if queue.is_sideline else queue


def _pattern(queues: Sequence[QueueName] | None) -> "re.Pattern[str]":
    if queues is None:
        return re.compile(".*")
    names = [name.text for queue in queues for name in (home_of(queue), home_of(queue).sideline())]
    return re.compile("|".join(map(re.escape, names)))


def _read(top: str, given: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    """A task: stats what partitions name."""
    files = Files()
    rows = _Rows()
    for batch in given:
        for listed in batch.to_pylist():
            state = State(listed.pop("state"))
            for queue, folder, names in groups(lines(files, Names(**listed))):
                group = Group(queue, folder, names)
                came = _Came.of(folder) if state is State.REMOVED else _Came()
                for at in range(0, len(names), _ROWS):
                    for entry in entries(top, group, at, min(at + _ROWS, len(names))):
                        rows.add(entry, state, files.status(entry[-1]), came)
                    if rows.is_full:
                        yield rows.batch()
                        rows = _Rows()
    if rows.id:
        yield rows.batch()


@dataclass(frozen=True, slots=True)
class _Came:
    """When what lies in a folder was removed as a whole; None where each was by itself.
    `deliveries`: those that the files of an acknowledged lease do not count.
    """

    ms: int | None = None
    deliveries: int = 0

    @classmethod
    def of(cls, folder: str) -> Self:
        """By its path below the root, with a slash at the end."""
        name = folder.split("/")[1]
        acknowledged = acknowledged_ms(name)
        return cls(deleted_ms(name)) if acknowledged is None else cls(acknowledged, 1)


@dataclass(slots=True)
class _Rows:
    """Columns that grow."""

    home: list[str] = field(default_factory=list)
    id: list[str] = field(default_factory=list)
    priority: list[int] = field(default_factory=list)
    published: list[int] = field(default_factory=list)
    rank: list[int] = field(default_factory=list)
    i_removed: list[int | None] = field(default_factory=list)
    i_sidelined: list[int | None] = field(default_factory=list)
    i_receives: list[int | None] = field(default_factory=list)
    i_size: list[int] = field(default_factory=list)

    @property
    def is_full(self) -> bool:
        return len(self.id) >= _ROWS

    def add(self, entry: Entry, state: State, status: os.stat_result | None, came: _Came) -> None:
        """A message, unless it is none, or was reaped since the listing."""
        _, queue, text, attributes, _ = entry
        if status is None and state is State.REMOVED:
            return
        if status is not None and not stat.S_ISREG(status.st_mode):
            return
        name = QueueName(queue)
        is_aside = name.is_sideline and state is not State.REMOVED
        self.home.append(home_of(name).text)
        self.id.append(text)
        self.priority.append(attributes.priority)
        self.published.append(int(text[:8] + text[9:13], 16))
        self.rank.append(SIDELINED_RANK if is_aside else RANKS[state])
        if status is None:
            self.i_removed.append(None)
            self.i_sidelined.append(None)
            self.i_receives.append(None)
            self.i_size.append(0)
            return
        stamp = Stamp.from_mtime_ns(status.st_mtime_ns)
        changed_ms = status.st_ctime_ns // _NS_PER_MS
        removed_ms = changed_ms if came.ms is None else came.ms
        self.i_removed.append(removed_ms if state is State.REMOVED else None)
        # When it came there; of one that was fetched from there, no later than that.
        came_aside_ms = stamp.due_ms if state is State.READY else changed_ms
        self.i_sidelined.append(came_aside_ms if is_aside else None)
        self.i_receives.append(min(stamp.receives + came.deliveries, RECEIVES_MAX))
        self.i_size.append(max(0, status.st_size - attributes.header_bytes))

    def batch(self) -> pa.RecordBatch:
        """All of them."""
        arrays = [pa.array(getattr(self, each.name), each.type) for each in _ARROW]
        return pa.RecordBatch.from_arrays(arrays, schema=_ARROW)
