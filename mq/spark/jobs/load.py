"""Publishing what was drained, or files of one's own: Parquet, JSON lines or CSV, all or nothing.

Tasks read a file each; the sink of `format("mq")` publishes. The publish's id is made of the files,
so that a load that was killed is run again and publishes once: DRAIN.md has what is promised.
"""

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from mq.model.errors import BadName, MqError
from mq.model.names import Key, QueueName
from mq.spark.jobs.drained_folder import About, Commit, DrainedFolder, FolderRefused
from mq.spark.jobs.job_errors import NoSuchQueue, TaskFailed, queue_named, said_by_task
from mq.spark.jobs.row_files import Format
from mq.spark.jobs.row_reading import PUBLISHED_SQL, BadFile, Reading, format_of, read_rows
from mq.spark.jobs.watching import Unwatched, Watcher
from mq.spark.opening import open_for_leases
from mq.spark.options import OnKeyTaken
from mq.store.bulk.journal import is_published, read_journal
from mq.store.core.root import Root
from mq.store.core.standing import queue_exists
from mq.store.disk.files import Files, is_gone
from mq.store.disk.flush import Flusher
from mq.store.disk.group import run_alone
from mq.store.format.pipeline import JournalFile, journal_path
from mq.store.operations.queues import create_queue

_PREFIX: Final = "load-"
_ID_DIGITS: Final = 40
_OF_ROW: Final = re.compile(r"row (\d+) of partition (\d+), (column \w+: .*)", re.DOTALL)


@dataclass(eq=False)
class NothingToLoad(MqError):
    """Files that are none, or that nobody can name a queue for."""

    where: str
    why: str

    def __str__(self) -> str:
        return f"{self.where} {self.why}"


@dataclass(eq=False)
class PartlyLoaded(MqError):
    """A drain's folder of which a part was loaded before."""

    folder: str
    batches: int
    publish_id: str

    def __str__(self) -> str:
        said = f"the first {self.batches} batches of {self.folder} were loaded as {self.publish_id}"
        return f"{said}, and it has more since; to publish all of it (again), say so"


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a load did. `messages`: that were published, and those that were passed by for their
    keys; `publish_id`: as which; `was_before`: that had been done before under this id, and nothing
    was published now; `damaged`: rows that were passed by, since a damaged file is all that was
    drained of them.
    """

    publish_id: str
    messages: int
    files: int
    was_before: bool = False
    created: tuple[str, ...] = ()
    damaged: int = 0

    def facts(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "publish_id": self.publish_id, "messages": self.messages, "files": self.files,
            "was_before": self.was_before, "created": list(self.created), "damaged": self.damaged,
        }  # fmt: skip


def load(
    spark: SparkSession,
    root: Path,
    source: Path,
    *,
    queue: str | None = None,
    format: Format | None = None,  # noqa: A002 - the option's name.
    key_taken: OnKeyTaken = "fail",
    create: bool = False,
    keep_due: bool = False,
    publish_id: str | None = None,
    again: bool = False,
    watcher: Watcher | None = None,
) -> Loaded:
    """Publishes the messages of a folder of files, or of one file, to `queue`, or each to the queue
    that its row names: all of them, or nothing. They are new messages, with ids of their own.

    Without `publish_id` or `again` a load of the same files to the same queue is one publish,
    however often it is tried, for 7 days. `create` makes queues that are missing; `keep_due` has a
    copied message's due time be the new one's.

    Raises FolderRefused, NothingToLoad, PartlyLoaded, BadFile, NoSuchQueue, BadName, StartupError,
    TaskFailed, Unavailable, OSError, ValueError. Durable on return: yes.
    """
    if publish_id is not None and again:
        raise ValueError("a publish id of one's own, or again under another one: not both")
    watcher = watcher or Unwatched()
    opened, flusher = open_for_leases(root)
    try:
        to = None if queue is None else queue_named(queue)
        found = _found(Path(os.path.realpath(source)), format)
        name = _name(opened, found, to, publish_id, again=again)
        if is_published(opened, name):
            return Loaded(name.text, 0, len(found.files), was_before=True)
        watcher.began("looks at the files")
        created = _queues(spark, opened, flusher, found, to, create=create, keep_due=keep_due)
        watcher.began(f"publishes {len(found.files)} files", found.messages)
        _publish(spark, opened, found, name, to, key_taken, keep_due=keep_due)
        messages = _count(opened, name)
        watcher.advanced(messages)
        damaged = sum(commit.damaged for commit in found.commits)
        return Loaded(name.text, messages, len(found.files), False, created, damaged)
    finally:
        flusher.close()


@dataclass(frozen=True, slots=True)
class _Found:
    """The files of a load. `about` and `commits`: of a drain's folder."""

    files: tuple[Path, ...]
    format: Format | None
    about: About | None = None
    commits: tuple[Commit, ...] = ()

    @property
    def messages(self) -> int | None:
        """How many they have, where that is known."""
        return sum(each.messages for each in self.commits) if self.about else None

    def reading(self, *, keeps_due: bool) -> Reading:
        """How they are read."""
        return Reading(self.format, keeps_due, is_drained=self.about is not None)


def _found(source: Path, said: Format | None) -> _Found:
    """What is to be loaded. Raises FolderRefused, NothingToLoad."""
    if source.is_file():
        return _Found((source,), _format(source, said))
    if not source.is_dir():
        raise NothingToLoad(str(source), "is not there")
    folder = DrainedFolder(source, Files())
    try:
        about = folder.about()
        if about is not None:
            return _drained(source, about, folder.commits())
    finally:
        folder.close()
    files = []
    for path in sorted(source.iterdir()):
        if path.name.startswith(("_", ".")):
            continue
        if not path.is_file():
            raise NothingToLoad(str(path), "is no file: a folder of files alone can be loaded")
        _format(path, said)
        files.append(path)
    if not files:
        raise NothingToLoad(str(source), "has no files")
    return _Found(tuple(files), said)


def _format(path: Path, said: Format | None) -> Format:
    found = said or format_of(path)
    if found is None:
        raise NothingToLoad(str(path), "has a name that tells no format: say which it is")
    return found


def _drained(source: Path, about: About, commits: Sequence[Commit]) -> _Found:
    """What a drain has committed; a file that is not as it was then is an error."""
    parts = [part for commit in commits for part in commit.parts]
    if not parts:
        raise NothingToLoad(str(source), "has nothing that a drain has committed")
    for part in parts:
        path = source / part.name
        if not path.is_file() or path.stat().st_size != part.size_bytes:
            why = f"has not the file {part.name} as it was drained: finish the drain first"
            raise FolderRefused(str(source), why)
    files = tuple(source / part.name for part in parts)
    return _Found(files, about.format, about, tuple(commits))


def _name(root: Root, found: _Found, to: QueueName | None, said: str | None, *, again: bool) -> Key:
    """The publish's id. Raises BadName, PartlyLoaded."""
    if said is not None:
        try:
            return Key.parse(said)
        except BadName as error:
            raise ValueError(f"the publish id {said!r} is none: {error.expected}") from None
    if again:
        return Key.parse(f"{_PREFIX}{uuid4().hex}")
    text = "" if to is None else to.text
    if found.about is None:
        facts = [
            f"{path}\n{status.st_size}\n{status.st_mtime_ns}"
            for path in found.files
            if (status := path.stat())
        ]
        return _digest([text, *facts])
    names = [_of_batches(found.about, found.commits[:end], text) for end in _ends(found)]
    for batches, name in zip(_ends(found), names[:-1], strict=False):
        if is_published(root, name) and not is_published(root, names[-1]):
            raise PartlyLoaded(str(found.files[0].parent), batches, name.text)
    return names[-1]


def _ends(found: _Found) -> range:
    return range(1, len(found.commits) + 1)


def _of_batches(about: About, commits: Sequence[Commit], queue: str) -> Key:
    parts = [f"{part.name} {part.sha256}" for commit in commits for part in commit.parts]
    return _digest([queue, about.id, *parts])


def _digest(facts: Sequence[str]) -> Key:
    digest = hashlib.sha256("\n\n".join(facts).encode("utf-8", "surrogateescape"))
    return Key.parse(f"{_PREFIX}{digest.hexdigest()[:_ID_DIGITS]}")


def _queues(
    spark: SparkSession,
    root: Root,
    flusher: Flusher,
    found: _Found,
    to: QueueName | None,
    *,
    create: bool,
    keep_due: bool,
) -> tuple[str, ...]:
    """The queues that were made, being missing. Of files that nobody knows the queues of, all are
    read for that, if queues are to be made. Raises NoSuchQueue, BadName, BadFile.
    """
    if to is not None:
        wanted = {to.text}
    elif found.about is not None:
        wanted = {queue for commit in found.commits for queue in commit.by_queue}
    elif create:
        rows = _rows(spark, found, found.reading(keeps_due=keep_due)).select("queue").distinct()
        wanted = {row["queue"] for row in _told(found, rows.collect) if row["queue"]}
    else:
        wanted = set()
    missing = [each for each in map(queue_named, sorted(wanted)) if not queue_exists(root, each)]
    if missing and not create:
        raise NoSuchQueue(missing[0].text)
    for each in missing:
        run_alone(create_queue(root, each), flusher)
    return tuple(each.text for each in missing)


def _publish(
    spark: SparkSession,
    root: Root,
    found: _Found,
    name: Key,
    to: QueueName | None,
    key_taken: OnKeyTaken,
    *,
    keep_due: bool,
) -> None:
    rows = _rows(spark, found, found.reading(keeps_due=keep_due))
    if to is not None:
        rows = rows.drop("queue")
    writing = rows.write.format("mq").mode("append").option("path", root.layout.root)
    writing = writing.option("publishId", name.text).option("onKeyTaken", key_taken)
    if to is not None:
        writing = writing.option("queue", to.text)
    _told(found, writing.save)


def _rows(spark: SparkSession, found: _Found, reading: Reading) -> DataFrame:
    """A partition a file, always the same one: ids are made of partitions and rows."""
    files = [os.fspath(path) for path in found.files]

    def read(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from read_rows(Path(files[number]), reading)

    return spark.range(0, len(files), 1, len(files)).mapInArrow(read, PUBLISHED_SQL)


def _told(found: _Found, act: Callable[[], Any]) -> Any:
    """What Spark does. Raises BadFile for a row that cannot be published, else TaskFailed."""
    try:
        return act()
    except Exception as error:
        said = said_by_task(error)
        match = _OF_ROW.search(said)
        if match is None or int(match[2]) >= len(found.files):
            raise TaskFailed(said.removeprefix("mq: ")) from error
        raise BadFile(str(found.files[int(match[2])]), int(match[1]) + 1, match[3]) from error


def _count(root: Root, name: Key) -> int:
    """How many messages the publish had; those that were skipped are among them."""
    for file in (JournalFile.JOURNAL, JournalFile.DONE):
        try:
            journal = read_journal(root, journal_path(root.layout, name, file))
        except OSError as error:
            if not is_gone(error):
                raise
            continue
        if journal is not None:
            return sum(journal.counts)
    return 0
