"""Whether counts reconcile: what a queue's history says was published is somewhere, or was removed.

Held against each other by ids, of the time that the history covers: since the queue's settings were
written last, as far as lines are kept. It proves nothing where lines were dropped, are torn or are
missing; that is told as unknown, never as a finding. Beside daemons what is nowhere is believed
when it is so twice: between two looks messages move.
"""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mq.model.clock import rfc3339
from mq.model.errors import BadName, SettingsUnreadable
from mq.model.limits import SIDELINE_SUFFIX
from mq.model.names import MessageId, QueueName
from mq.spark.jobs.audit_findings import COUNTS, COUNTS_SAYS, Finding
from mq.spark.jobs.audit_report import Balance
from mq.spark.jobs.audit_sources import (
    ARCHIVED,
    DELAYED,
    DROPPED,
    ELSEWHERE,
    KNOWN,
    LEASED,
    PUBLISHED,
    READY,
    REMOVED,
    REMOVED_LINE,
    SIDELINED,
    SOMEWHERE,
    STAGED,
    TORN,
    HistoryFile,
    Window,
    id_at,
    lying,
    mapped,
    owner_of,
    telling,
)
from mq.spark.jobs.audit_tasks import Task
from mq.store.audit.folders import NameFolder
from mq.store.core.root import Root
from mq.store.history.sweep import history_files
from mq.store.keys.holders import whereabouts
from mq.store.settings.configure import Configured

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# A process looks at settings every half second, and writes lines ten times a second.
_SETTLED_MS: Final = 5_000
# Sweeps come each minute; a file's last line may be later than its first.
_SWEPT_MS: Final = 3_600_000
_NOWHERE_MAX: Final = 100_000
# A sweep keeps the whole within its bound; a file is an eighth at most.
_FULL: Final = 3 / 4
_FILES_PER_ROW: Final = 4
_FOLDERS_PER_ROW: Final = 64
_WAITS: Final = threading.Event()


@dataclass(frozen=True, slots=True)
class Counting:
    """What is counted: of which queues since when, and why the others' counts are not known."""

    windows: Mapping[str, Window]
    since_ms: Mapping[str, int]
    unknown: Mapping[str, str]
    files: tuple[HistoryFile, ...]


def counting_of(root: Root, names: Sequence[str]) -> Counting:
    """What can be counted of these queues; sidelines count with theirs. Raises OSError."""
    now_ms = root.now_ms()
    since_ms: dict[str, int] = {}
    unknown: dict[str, str] = {}
    files: list[HistoryFile] = []
    for name in sorted({owner_of(each) for each in names}):
        queue = QueueName(name)
        try:
            settings = Configured.read(root, queue).settings
        except SettingsUnreadable:
            unknown[name] = "its settings cannot be read"
            continue
        if not settings.history:
            unknown[name] = "its history is off: nothing says what was published"
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
    """The paths and sizes of a queue's and its sideline's history; a sideline's has no size here,
    since it has a bound of its own.
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
    """The queues' balances, and what is a finding of them."""

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
    """Holds what was published against what is there, queue by queue; `kept`: what is archived.
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
    """A row an id: the queue that it counts for, and all that is known of it."""
    from pyspark.sql import functions as sql  # noqa: PLC0415

    told = mapped(spark, counting.files, _FILES_PER_ROW, telling(counting.windows), KNOWN)
    there = mapped(spark, folders, _FOLDERS_PER_ROW, lying(task, counting.windows), KNOWN)
    rows = told.union(there)
    if kept is not None:
        windows = [(name, each.since, each.until) for name, each in counting.windows.items()]
        of = spark.createDataFrame(windows, "owner STRING, since STRING, until STRING")
        owner = sql.regexp_replace("queue", f"{SIDELINE_SUFFIX}$", "")
        told_by_it = kept.select("id", owner.alias("owner"))
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

    # Each published one is counted once: where it is alive, else where it is kept, else as told.
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
    """The first of those that nobody can tell of: (queue, id)."""
    rows = known.where(_IS_NOWHERE).select("queue", "id").limit(_NOWHERE_MAX).collect()
    return {(row["queue"], row["id"]) for row in rows}


def _still_nowhere(
    spark: "SparkSession", root: Root, counting: Counting, seen: set[tuple[str, str]]
) -> set[tuple[str, str]]:
    """Those of them that lie nowhere, looked for by their ids; and of which no line says meanwhile
    that they were removed, or went elsewhere.
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
        return False  # A line says so that mq has not written.
    name = QueueName(queue)
    try:
        return any(
            whereabouts(root, each, message_id) is not None for each in (name, name.sideline())
        )
    except SettingsUnreadable:
        return True  # Nobody can tell where it would be.
