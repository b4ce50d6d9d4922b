"""What an audit's counts are of: in tasks, the lines of histories and the names of folders, as rows
of an id and what is known of it. Nothing changes.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from mq.model.history import Event
from mq.model.lifecycle import State
from mq.model.limits import CHUNK_BYTES
from mq.model.names import QueueName
from mq.spark.jobs.audit_tasks import FOLDERS, ROWS, Batched, Task, packed, unpacked
from mq.store.audit.folders import NameFolder
from mq.store.audit.screen import Screen
from mq.store.disk.files import Files, is_gone

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KNOWN: Final = "id STRING, queue STRING, flags INT"
_SCHEMA: Final = pa.schema([("id", pa.string()), ("queue", pa.string()), ("flags", pa.int32())])
_ROWS_PER_BATCH: Final = 10_000
_TASKS_MAX: Final = 64

PUBLISHED: Final = 1
REMOVED_LINE: Final = 2
ELSEWHERE: Final = 4
DROPPED: Final = 8
TORN: Final = 16
READY: Final = 32
DELAYED: Final = 64
LEASED: Final = 128
SIDELINED: Final = 256
REMOVED: Final = 512
ARCHIVED: Final = 1024
STAGED: Final = 2048
SOMEWHERE: Final = READY | DELAYED | LEASED | SIDELINED | REMOVED | ARCHIVED | STAGED

_OF_EVENT: Final = {
    Event.PUBLISHED.value: PUBLISHED,
    Event.REMOVED.value: REMOVED_LINE,
    # Whoever has it from here on may have no history.
    Event.SIDELINED.value: ELSEWHERE,
    Event.SHOVELLED.value: ELSEWHERE,
    Event.DROPPED.value: DROPPED,
}
_OTHER_EVENTS: Final = frozenset(event.value for event in Event) - _OF_EVENT.keys()
_OF_STATE: Final = {
    State.NEW: STAGED,
    State.READY: READY,
    State.DELAYED: DELAYED,
    State.LEASED: LEASED,
    State.REMOVED: REMOVED,
}
# As mq writes it; what another order of fields has takes longer.
_LINE: Final = re.compile(rb'\{"time": "[^"]+", "event": "([a-z]+)", "id": "([^"\\]+)"[,}]')


@dataclass(frozen=True, slots=True)
class Window:
    """Of a queue and its sideline, the messages that are counted: those whose ids' texts are from
    one on and before another.
    """

    since: str
    until: str

    def has(self, text: str) -> bool:
        """Whether an id's text is of these."""
        return self.since <= text < self.until


class HistoryFile(NamedTuple):
    """One file of the history of a queue, or of a sideline, by the queue's name."""

    queue: str
    path: str


Known = tuple[str, str | None, int]
"""An id, the queue that it counts for (None: for none), and what is known of it."""


def owner_of(queue: str) -> str:
    """Which queue's counts a queue's messages are in: a sideline's are in its queue's."""
    name = QueueName(queue)
    return name.counterpart().text if name.is_sideline else queue


def told_by(files: Files, file: HistoryFile, window: Window) -> Iterator[Known]:
    """What the lines of a history's file tell. One that is swept meanwhile tells nothing."""
    for line in _lines(files, file.path):
        match = _LINE.match(line)
        if match is not None:
            event, text = match[1].decode("ascii"), match[2].decode("ascii", "replace")
        else:
            parsed = _parsed(line)
            if parsed is None:
                yield file.queue, file.queue, TORN
                continue
            event, text = parsed
        flag = _OF_EVENT.get(event)
        if flag == DROPPED:
            yield file.queue, file.queue, DROPPED
        elif window.has(text):
            if flag is None and event not in _OTHER_EVENTS:
                flag = ELSEWHERE  # Of a kind that comes later.
            if flag is not None:
                yield text, file.queue if flag == PUBLISHED else None, flag


def _parsed(line: bytes) -> tuple[str, str] | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or not isinstance(found.get("event"), str):
        return None
    return found["event"], str(found.get("id", ""))


def _lines(files: Files, path: str) -> Iterator[bytes]:
    """Whole lines; what a process is just writing at the end is none."""
    try:
        descriptor = files.open_read(path)
    except OSError as error:
        if is_gone(error):
            return
        raise
    try:
        rest, offset = b"", 0
        while chunk := files.read(descriptor, CHUNK_BYTES, offset):
            offset += len(chunk)
            *lines, rest = (rest + chunk).split(b"\n")
            yield from lines
    finally:
        files.close(descriptor)


def lying_in(screen: Screen, folder: NameFolder, windows: Mapping[str, Window]) -> Iterator[Known]:
    """The messages of a folder, wherever they count."""
    if folder.state is None:
        return
    at_place = _OF_STATE[folder.state]
    for screened in screen.screened(folder):
        found = list(screened.messages)
        for ids in found:
            is_sidelined = at_place == READY and ids.queue.is_sideline
            flag = SIDELINED if is_sidelined else at_place
            queue = owner_of(ids.queue.text)
            window = windows.get(queue)
            for text in ids.texts:
                yield text, queue if window is not None and window.has(text) else None, flag


def telling(windows: Mapping[str, Window]) -> Batched:
    """Rows of histories' files, as Spark maps them."""

    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        files = Files()
        return _batched(
            known
            for _, _, said in unpacked(batches)
            for file in said
            for known in told_by(files, file, windows[file.queue])
        )

    return step


def lying(task: Task, windows: Mapping[str, Window]) -> Batched:
    """Rows of folders, as Spark maps them."""

    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        screen = Screen(task.opened(), task.overdue_s, is_by_name=True, has_deleted=True)
        return _batched(
            known
            for _, _, said in unpacked(batches)
            for folder in said
            for known in lying_in(screen, folder, windows)
        )

    return step


def mapped(
    spark: "SparkSession", items: Sequence[Any], per_row: int, step: Batched, rows: str
) -> "DataFrame":
    """What a step makes of these, so many in a row that it gets."""
    parts = [tuple(items[at : at + per_row]) for at in range(0, len(items), per_row)] or [()]
    made = [
        (what, at, blob)
        for batch in packed((FOLDERS, at, part) for at, part in enumerate(parts))
        for what, at, blob in zip(*(column.to_pylist() for column in batch.columns), strict=True)
    ]
    tasks = min(len(parts), _TASKS_MAX)
    return spark.createDataFrame(made, ROWS).repartition(tasks).mapInArrow(step, rows)


def _batched(rows: Iterable[Known]) -> Iterator[pa.RecordBatch]:
    rest = iter(rows)
    while some := list(islice(rest, _ROWS_PER_BATCH)):
        ids, queues, flags = zip(*some, strict=True)
        yield pa.RecordBatch.from_arrays(
            [pa.array(ids), pa.array(queues, pa.string()), pa.array(flags, pa.int32())],
            schema=_SCHEMA,
        )


def id_at(ms: int) -> str:
    """The text that no id of this time or later, milliseconds since the epoch, is before."""
    return f"{ms >> 16:08x}-{ms & 0xFFFF:04x}"
