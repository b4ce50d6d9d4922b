"""Reconciles counts: each message that a queue's history says was published must exist or have been
removed.

Ids are compared, for the time that the history covers: since the queue's settings were last
written, as far as lines are kept. Where lines were dropped, are torn or are missing, counts are
unknown, never a finding. Beside daemons, messages move: a message counts as lost only if two looks
miss it.
"""

import json
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from mq.model.clock import rfc3339
from mq.model.errors import BadName, SettingsUnreadable
from mq.model.history import Event
from mq.model.lifecycle import State
from mq.model.names import MessageId, QueueName, messages_of
from mq.spark.jobs.audit_findings import COUNTS, COUNTS_SAYS, Balance, Finding
from mq.spark.jobs.audit_tasks import Batched, Task, mapped, unpacked
from mq.spark.jobs.history_sources import home_column
from mq.spark.listing import home_of
from mq.spark.rows import arrow_schema
from mq.store.audit.folders import NameFolder
from mq.store.audit.screen import Screen
from mq.store.core.find import whereabouts
from mq.store.core.root import Root
from mq.store.disk.files import Files
from mq.store.history.read import whole_lines
from mq.store.history.sweep import history_files

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

KNOWN: Final = "id string, queue string, flags int"
_SCHEMA: Final = arrow_schema(KNOWN)
_ROWS_PER_BATCH: Final = 10_000

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
    # The queue that it moves to may have no history.
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
# The form that mq writes; lines with another order of fields take longer.
_LINE: Final = re.compile(rb'\{"time": "[^"]+", "event": "([a-z]+)", "id": "([^"\\]+)"[,}]')


@dataclass(frozen=True, slots=True)
class Window:
    """The messages of a queue and its sideline that are counted: those whose ids, as text, are at
    least `since` and less than `until`.
    """

    since: str
    until: str

    def has(self, text: str) -> bool:
        """Whether an id's text is in the window."""
        return self.since <= text < self.until


class HistoryFile(NamedTuple):
    """One file of the history of a queue or of its sideline; `queue`: the queue's name."""

    queue: str
    path: str


Known = tuple[str, str | None, int]
"""An id, the queue that it counts for (None: none), and flags of where it is known."""


def told_by(files: Files, file: HistoryFile, window: Window) -> Iterator[Known]:
    """The messages that the lines of a history file mention; none if the file is removed
    meanwhile.
    """
    lines = (line for some in whole_lines(files, file.path) for line in some.split(b"\n"))
    for line in lines:
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
                flag = ELSEWHERE  # An event of a later version.
            if flag is not None:
                queue = file.queue if flag == PUBLISHED else None
                yield from ((each, queue, flag) for each in messages_of(text))


def _parsed(line: bytes) -> tuple[str, str] | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or not isinstance(found.get("event"), str):
        return None
    return found["event"], str(found.get("id", ""))


def lying_in(screen: Screen, folder: NameFolder, windows: Mapping[str, Window]) -> Iterator[Known]:
    """The messages of a folder, whether or not they are counted."""
    if folder.state is None:
        return
    at_place = _OF_STATE[folder.state]
    for screened in screen.screened(folder):
        found = list(screened.messages)
        for ids in found:
            is_sidelined = at_place == READY and ids.queue.is_sideline
            flag = SIDELINED if is_sidelined else at_place
            queue = home_of(ids.queue).text
            window = windows.get(queue)
            for text in ids.texts:
                counts_for = queue if window is not None and window.has(text) else None
                yield from ((each, counts_for, flag) for each in messages_of(text))


def telling(windows: Mapping[str, Window]) -> Batched:
    """Maps rows of history files, in Spark."""

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
    """Maps rows of folders, in Spark."""

    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        screen = Screen(task.opened(), task.overdue_s, is_by_name=True, has_deleted=True)
        return _batched(
            known
            for _, _, said in unpacked(batches)
            for folder in said
            for known in lying_in(screen, folder, windows)
        )

    return step


def _batched(rows: Iterable[Known]) -> Iterator[pa.RecordBatch]:
    rest = iter(rows)
    while some := list(islice(rest, _ROWS_PER_BATCH)):
        columns = dict(zip(_SCHEMA.names, zip(*some, strict=True), strict=True))
        yield pa.RecordBatch.from_pydict(columns, _SCHEMA)


def id_at(ms: int) -> str:
    """The smallest text of an id of this time or later, milliseconds since the epoch."""
    return f"{ms >> 16:08x}-{ms & 0xFFFF:04x}"


# Processes read settings every half second, and write lines ten times a second.
_SETTLED_MS: Final = 5_000
# Sweeps run every minute; a file's last line may be later than its first.
_SWEPT_MS: Final = 3_600_000
_NOWHERE_MAX: Final = 100_000
# A sweep keeps all files within the bound; one file is at most an eighth of it.
_FULL: Final = 3 / 4
_FILES_PER_ROW: Final = 4
_FOLDERS_PER_ROW: Final = 64
_WAITS: Final = threading.Event()


@dataclass(frozen=True, slots=True)
class Counting:
    """The counted queues, since when, and why other queues' counts are unknown."""

    windows: Mapping[str, Window]
    since_ms: Mapping[str, int]
    unknown: Mapping[str, str]
    files: tuple[HistoryFile, ...]


def counting_of(root: Root, names: Sequence[str]) -> Counting:
    """The queues whose counts can be reconciled, sidelines with theirs. Raises OSError."""
    now_ms = root.now_ms()
    since_ms: dict[str, int] = {}
    unknown: dict[str, str] = {}
    files: list[HistoryFile] = []
    for name in sorted({home_of(QueueName(each)).text for each in names}):
        queue = QueueName(name)
        try:
            settings = root.facts.configured(queue).settings
        except SettingsUnreadable:
            unknown[name] = "its settings cannot be read"
            continue
        if not settings.history:
            unknown[name] = "its history is off: nothing says how many were published"
            continue
        of_queue = _files_of(root, queue)
        size = sum(entry_size for _, entry_size in of_queue if entry_size > 0)
        if size > settings.history_bytes_max * _FULL:
            unknown[name] = "its history is about as large as it may be: what it began with is gone"
            continue
        written = root.files.status(root.layout.settings_of(queue))
        written_ms = now_ms if written is None else written.st_mtime_ns // 1_000_000
        kept_ms = now_ms - round(settings.history_kept_s * 1000) + _SWEPT_MS
        since_ms[name] = max(written_ms + _SETTLED_MS // 2, kept_ms)
        files += [HistoryFile(name, path) for path, _ in of_queue]
    until = id_at(now_ms - _SETTLED_MS)
    windows = {name: Window(id_at(ms), until) for name, ms in since_ms.items()}
    return Counting(windows, since_ms, unknown, tuple(files))


def _files_of(root: Root, queue: QueueName) -> list[tuple[str, int]]:
    """The paths and sizes of a queue's and its sideline's history; a sideline's sizes are 0, since
    it has a bound of its own.
    """
    found = []
    for name in (queue.text, queue.sideline().text):
        for _, entry in history_files(root.layout, root.files, name):
            status = root.files.status(entry.path)
            if status is not None:
                found.append((entry.path, status.st_size if name == queue.text else 0))
    return found


@dataclass(frozen=True, slots=True)
class Reconciled:
    """The queues' balances, and their findings."""

    balances: tuple[Balance, ...]
    findings: tuple[Finding, ...]


def reconciled(
    spark: "SparkSession",
    root: Root,
    task: Task,
    counting: Counting,
    folders: Sequence[NameFolder],
    kept: "DataFrame | None",
) -> Reconciled:
    """Compares published messages with those that exist, queue by queue; `kept`: the archived ones.
    Raises what Spark raises.
    """
    unknown = [Balance(name, "unknown", why) for name, why in counting.unknown.items()]
    if not counting.windows:
        return Reconciled(tuple(unknown), ())
    known = _known(spark, task, counting, folders, kept)
    figures = _figures(known)
    nowhere: set[tuple[str, str]] = set()
    if any(each["nowhere"] for each in figures.values()):
        nowhere = _nowhere(known)
        _WAITS.wait(task.again_after_s)
        nowhere = _still_nowhere(spark, root, counting, nowhere)
    balances, findings = [], []
    for name, ms in counting.since_ms.items():
        lost = sorted(text for queue, text in nowhere if queue == name)
        of = {**_NONE, **figures.get(name, {})}
        of |= {"moving": of["nowhere"] - len(lost), "nowhere": len(lost)}
        balance = _balance(name, ms, of)
        balances.append(balance)
        if balance.outcome == "differs":
            detail = ", ".join(f"{number} {what}" for what, number in balance.figures.items())
            findings += [Finding(COUNTS, COUNTS_SAYS, text, detail, name, _REPAIR) for text in lost]
    return Reconciled((*balances, *sorted(unknown, key=lambda each: each.queue)), tuple(findings))


_REPAIR: Final = "by hand: see its history; a process that was killed may have lost its last lines"
_PLACES: Final = {
    "ready": READY,
    "delayed": DELAYED,
    "leased": LEASED,
    "sidelined": SIDELINED,
    "removed": REMOVED,
    "archived": ARCHIVED,
}
_COUNTED: Final = ("published", *_PLACES, "reaped", "elsewhere", "moving", "nowhere")
_NONE: Final = dict.fromkeys((*_COUNTED, "unsaid", "dropped", "torn"), 0)


def _balance(name: str, since_ms: int, of: Mapping[str, int]) -> Balance:
    shown = {what: of[what] for what in _COUNTED if of[what] or what == "published"}
    why = ""
    if of["dropped"] or of["torn"]:
        why = "its history has lines that were dropped or are torn"
    elif of["unsaid"]:
        why = f"{of['unsaid']} messages have no line that says that they were published"
    elif of["elsewhere"]:
        why = f"{of['elsewhere']} went to a queue whose history does not say what became of them"
    outcome = "unknown" if why else "differs" if of["nowhere"] else "reconciled"
    return Balance(name, outcome, why, rfc3339(since_ms), shown)


def _known(
    spark: "SparkSession",
    task: Task,
    counting: Counting,
    folders: Sequence[NameFolder],
    kept: "DataFrame | None",
) -> "DataFrame":
    """A row per id: the queue that it counts for, and all that is known of it."""
    from pyspark.sql import functions as sql  # noqa: PLC0415

    told = mapped(spark, counting.files, _FILES_PER_ROW, telling(counting.windows), KNOWN)
    there = mapped(spark, folders, _FOLDERS_PER_ROW, lying(task, counting.windows), KNOWN)
    rows = told.union(there)
    if kept is not None:
        windows = [(name, each.since, each.until) for name, each in counting.windows.items()]
        of = spark.createDataFrame(windows, "owner STRING, since STRING, until STRING")
        told_by_it = kept.select("id", home_column(sql.col("queue")).alias("owner"))
        rows = rows.union(
            told_by_it.join(sql.broadcast(of), "owner", "left").select(
                "id",
                sql.expr("CASE WHEN id >= since AND id < until THEN owner END").alias("queue"),
                sql.lit(ARCHIVED).cast("int").alias("flags"),
            )
        )
    grouped = rows.groupBy("id").agg(
        sql.max("queue").alias("queue"), sql.bit_or("flags").alias("flags")
    )
    return grouped.where("queue IS NOT NULL")


def _is(flags: int) -> str:
    return f"(flags & {flags}) != 0"


_IS_NOWHERE: Final = f"{_is(PUBLISHED)} AND NOT {_is(SOMEWHERE | REMOVED_LINE | ELSEWHERE)}"


def _figures(known: "DataFrame") -> dict[str, dict[str, int]]:
    from pyspark.sql import functions as sql  # noqa: PLC0415

    # Each published message counts once: where it is alive, else where it is archived, else by its
    # line.
    conditions = {"published": _is(PUBLISHED)}
    before = "FALSE"
    for what, flag in (*_PLACES.items(), ("reaped", REMOVED_LINE), ("elsewhere", ELSEWHERE)):
        conditions[what] = f"{_is(PUBLISHED)} AND {_is(flag)} AND NOT ({before})"
        before = f"{before} OR {_is(flag)}"
    conditions["nowhere"] = _IS_NOWHERE
    conditions["unsaid"] = f"{_is(SOMEWHERE & ~STAGED)} AND NOT {_is(PUBLISHED)}"
    conditions["dropped"], conditions["torn"] = _is(DROPPED), _is(TORN)
    counts: list[Column] = [
        sql.expr(f"count_if({condition})").alias(what) for what, condition in conditions.items()
    ]
    rows = known.groupBy("queue").agg(*counts).collect()
    return {row["queue"]: {what: row[what] for what in conditions} for row in rows}


def _nowhere(known: "DataFrame") -> set[tuple[str, str]]:
    """The first messages that no source has: (queue, id)."""
    rows = known.where(_IS_NOWHERE).select("queue", "id").limit(_NOWHERE_MAX).collect()
    return {(row["queue"], row["id"]) for row in rows}


def _still_nowhere(
    spark: "SparkSession", root: Root, counting: Counting, seen: set[tuple[str, str]]
) -> set[tuple[str, str]]:
    """Those of them that are still missing when looked up by id, and that no line written meanwhile
    reports as removed or moved elsewhere.
    """
    lost = {(queue, text) for queue, text in seen if not _is_there(root, queue, text)}
    if not lost:
        return lost
    files = [
        HistoryFile(name, path)
        for name in sorted({queue for queue, _ in lost})
        for path, _ in _files_of(root, QueueName(name))
    ]
    told = mapped(spark, files, _FILES_PER_ROW, telling(counting.windows), KNOWN)
    ids = spark.createDataFrame([(text,) for _, text in sorted(lost)], "id STRING")
    ended = told.where(_is(REMOVED_LINE | ELSEWHERE)).join(ids, "id", "left_semi")
    over = {row["id"] for row in ended.select("id").distinct().collect()}
    return {(queue, text) for queue, text in lost if text not in over}


def _is_there(root: Root, queue: str, text: str) -> bool:
    try:
        message_id = MessageId.parse(text)
    except BadName:
        return False  # The line was not written by mq.
    name = QueueName(queue)
    ids = (message_id.pack(), message_id) if message_id.pack_size else (message_id,)
    try:
        return any(
            whereabouts(root, each, of) is not None
            for each in (name, name.sideline())
            for of in ids
        )
    except SettingsUnreadable:
        return True  # Without settings its place is unknown.
