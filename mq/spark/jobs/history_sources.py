"""The sources of a history in a root: the names and inodes of its messages, and its history files.
Opens no message.
"""

import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Self

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as Spark's pages have it

from mq.model.lifecycle import State
from mq.model.limits import RECEIVES_MAX, SIDELINE_SUFFIX
from mq.model.message import Stamp
from mq.model.names import UUID_V7, QueueName, messages_of
from mq.spark.listing import blocks_of, home_of
from mq.spark.options import Subscription
from mq.spark.partitions import Cut, Names, groups, lines, partitions
from mq.spark.reading import Entry, entries
from mq.spark.rows import Columns, arrow_schema
from mq.store.core.root import Root
from mq.store.disk.files import Files
from mq.store.format.history import date_of
from mq.store.format.layout import deleted_ms
from mq.store.format.pipeline import acknowledged_ms
from mq.store.history.read import HISTORY_CLOCKS_APART_S
from mq.store.history.sweep import history_files, recorded_queues

# In the order in which most messages move, so that a message that moves meanwhile is found at least
# once.
_LISTED: Final = (State.READY, State.LEASED, State.DELAYED, State.REMOVED)
RANKS: Final = {State.READY: 0, State.LEASED: 1, State.DELAYED: 2, State.REMOVED: 4}
"""Of two places of a message, the one with the larger number is right."""
SIDELINED_RANK: Final = 3
"""The rank of messages in a sideline, unless they are removed."""
_NS_PER_MS: Final = 1_000_000
_ROWS: Final = 20_000

_LISTINGS: Final = "state string, blob binary, spool string, offset long, size long"
ROWS: Final = (
    "home string, id string, priority int, published long, rank int, i_removed long, "
    "i_sidelined long, i_receives int, i_size long"
)
"""Rows of inodes. Times are milliseconds since the epoch; `home` is the queue, for a sideline the
queue that it belongs to.
"""
_ARROW: Final = arrow_schema(ROWS)


@dataclass(frozen=True, slots=True)
class Listed:
    """The names of a root's messages, in partitions for Spark's tasks."""

    partitions: Sequence[tuple[State, Names]]

    def rows(self, spark: SparkSession, top: str) -> DataFrame:
        """The inodes as rows of ROWS. Tasks read them, on machines that have the root (`top`) at
        the same path. A message that moved after it was listed counts in the state in which it was
        listed; one that was unlinked since is left out.
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


def _pattern(queues: Sequence[QueueName] | None) -> "re.Pattern[str]":
    if queues is None:
        return re.compile(".*")
    names = [name.text for queue in queues for name in (home_of(queue), home_of(queue).sideline())]
    return re.compile("|".join(map(re.escape, names)))


def _read(top: str, given: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    """A task: stats the files that the partitions name."""
    files = Files()
    rows = Columns(_ARROW)
    for batch in given:
        for listed in batch.to_pylist():
            state = State(listed.pop("state"))
            for group in groups(lines(files, Names(**listed))):
                came = _Came.of(group.folder) if state is State.REMOVED else _Came()
                for at in range(0, len(group.names), _ROWS):
                    for entry in entries(top, group, at, min(at + _ROWS, len(group.names))):
                        for row in _rows(entry, state, files.status(entry[-1]), came):
                            rows.add(*row)
                    if len(rows) >= _ROWS:
                        yield rows.batch()
                        rows = Columns(_ARROW)
    if len(rows):
        yield rows.batch()


@dataclass(frozen=True, slots=True)
class _Came:
    """When the contents of a folder were removed as a whole; None if each message was removed by
    itself. `deliveries`: those that the files of an acknowledged lease do not count.
    """

    ms: int | None = None
    deliveries: int = 0

    @classmethod
    def of(cls, folder: str) -> Self:
        """Parses a folder's path below the root, with a slash at the end."""
        name = folder.split("/")[1]
        acknowledged = acknowledged_ms(name)
        return cls(deleted_ms(name)) if acknowledged is None else cls(acknowledged, 1)


def _rows(entry: Entry, state: State, status: os.stat_result | None, came: _Came) -> Iterator[Any]:
    """The rows of a file: of a pack one for each item. The sizes of its items are not known
    without reading it, so each has its share.
    """
    row = _row(entry, state, status, came)
    if row is None:
        return
    home, text, *middle, size = row
    texts = messages_of(text)
    yield from ((home, each, *middle, size // len(texts)) for each in texts)


def _row(entry: Entry, state: State, status: os.stat_result | None, came: _Came) -> Any:
    """A message's row of ROWS; None if it is no message, or was unlinked since the listing."""
    _, queue, text, attributes, _ = entry
    if status is None and state is State.REMOVED:
        return None
    if status is not None and not stat.S_ISREG(status.st_mode):
        return None
    name = QueueName(queue)
    is_aside = name.is_sideline and state is not State.REMOVED
    rank = SIDELINED_RANK if is_aside else RANKS[state]
    published_ms = int(text[:8] + text[9:13], 16)
    known = (home_of(name).text, text, attributes.priority, published_ms, rank)
    if status is None:
        return (*known, None, None, None, 0)
    stamp = Stamp.from_mtime_ns(status.st_mtime_ns)
    changed_ms = status.st_ctime_ns // _NS_PER_MS
    removed_ms = changed_ms if came.ms is None else came.ms
    # When it entered the sideline; if it was fetched there, the latest possible time.
    came_aside_ms = stamp.due_ms if state is State.READY else changed_ms
    return (
        *known,
        removed_ms if state is State.REMOVED else None,
        came_aside_ms if is_aside else None,
        min(stamp.receives + came.deliveries, RECEIVES_MAX),
        max(0, status.st_size - attributes.header_bytes),
    )


_LINE: Final = "time string, event string, id string, receives int, count long"
_PATH: Final = r"/([^/]+)/[0-9]{4}-[0-9]{2}-[0-9]{2}/[^/]+$"
# The characters that have a meaning in a pattern of paths.
_MEANING: Final = frozenset("\\*?[]{},^")
_DROPPED: Final = "dropped"
# The id of a pack, and the characters before its place.
_PLACE: Final = 20
_PACK: Final = rf"^.{{{_PLACE}}}000[^,]*(?:,[pv]=[0-9]+)*,n=([0-9]+)"

EVENTS: Final = ("home", "id", "at", "event", "receives", "source")
"""Columns of events: `at` in milliseconds since the epoch; `source`: see history_lives."""


def history_paths(root: Root, since_ms: Mapping[str, int] | None) -> list[str]:
    """The files of history/ that may have lines about messages of these queues and their sidelines,
    published at this time (milliseconds since the epoch) or later; None: all files. Raises OSError.
    """
    layout, files = root.layout, root.files
    found = []
    for name in recorded_queues(layout, files):
        home, first = home_of(QueueName(name)).text, ""
        if since_ms is not None:
            if home not in since_ms:
                continue
            first = date_of(max(0, since_ms[home] - HISTORY_CLOCKS_APART_S * 1000))
        entries = history_files(layout, files, name)
        found += [entry.path for date, entry in entries if date >= first]
    return found


def lines_of(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """All complete lines of these files, with the columns of EVENTS but `source`, and `count` for
    lines that report how many were dropped. Skips files that were removed since.
    """
    reader = spark.read.schema(_LINE).option("ignoreMissingFiles", "true")
    read = reader.json([f"file://{_literal(path)}" for path in paths])
    queue = F.regexp_extract(F.col("_metadata.file_path"), _PATH, 1)
    is_whole = (F.col("event") == _DROPPED) | F.col("id").rlike(f"^{UUID_V7.pattern}")
    return (
        read.select(
            home_column(queue).alias("home"),
            "id",
            F.unix_millis(F.expr("try_cast(time AS timestamp)")).alias("at"),
            "event",
            "receives",
            "count",
        )
        .where(is_whole)
        .where("at IS NOT NULL")
    )


def drops_of(lines: DataFrame) -> DataFrame:
    """How many lines could not be written, and when that was reported: home, at, count."""
    return lines.where(F.col("event") == _DROPPED).select("home", "at", "count")


def events_of(lines: DataFrame, source: int) -> DataFrame:
    """The lines about messages, with the columns of EVENTS; a pack's lines for each item."""
    told = lines.where(F.col("event") != _DROPPED)
    told = told.withColumn("id", F.explode(_messages_of(F.col("id"))))
    return told.withColumn("source", F.lit(source)).select(*EVENTS)


def _messages_of(message_id: Column) -> Column:
    """The ids of the messages of a file with this id: of a pack its items'."""
    items = F.regexp_extract(message_id, _PACK, 1)
    ids = F.transform(
        F.sequence(F.lit(1), items.cast("int")),
        lambda place: F.concat(
            F.substring(message_id, 1, _PLACE),
            F.lower(F.lpad(F.hex(place), 3, "0")),
            F.expr(f"substring(id, {_PLACE + 4})"),
        ),
    )
    return F.when(items == "", F.array(message_id)).otherwise(ids)


def archived_events(archived: DataFrame, source: int) -> DataFrame:
    """An archive's lines about its messages (`archived.py`), with the columns of EVENTS."""
    each = archived.select("queue", "id", F.explode("events").alias("told"))
    return each.select(
        home_column(F.col("queue")).alias("home"),
        "id",
        F.unix_millis("told.time").alias("at"),
        F.col("told.event").alias("event"),
        F.col("told.receives").alias("receives"),
        F.lit(source).alias("source"),
    ).where("at IS NOT NULL AND event IS NOT NULL")


def home_column(queue: Column) -> Column:
    """The queue of a message: for a sideline, the queue that it belongs to."""
    return F.regexp_replace(queue, f"{SIDELINE_SUFFIX}$", "")


def _literal(path: str) -> str:
    """A pattern that matches only this path."""
    return "".join(f"\\{letter}" if letter in _MEANING else letter for letter in path)
