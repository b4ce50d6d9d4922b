"""Publishes drained messages, or other files of messages: Parquet, JSON lines or CSV, all or
nothing.

Each task reads a file; the sink of `format("mq")` publishes. The publish's id is made from the
files, so that a killed load can be run again and publishes once: see PIPELINE.md.
"""

import hashlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession

from mq.model.errors import BadName, MqError, QueueNotFound
from mq.model.names import Key, QueueName
from mq.spark.jobs.drained_folder import About, Commit, DrainedFolder, FolderRefused
from mq.spark.jobs.row_files import Format
from mq.spark.jobs.row_reading import PUBLISHED_SQL, BadFile, Reading, format_of, read_rows
from mq.spark.jobs.tasks import (
    TaskFailed,
    Unwatched,
    Watcher,
    by_numbers,
    queue_named,
    said_by_task,
)
from mq.spark.opening import attached, opened_root
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
    """Files are missing, have no messages, or are of an unknown format."""

    where: str
    why: str

    def __str__(self) -> str:
        return f"{self.where} {self.why}"


@dataclass(eq=False)
class PartlyLoaded(MqError):
    """A part of a drain's folder was loaded before."""

    folder: str
    batches: int
    publish_id: str

    def __str__(self) -> str:
        said = f"the first {self.batches} batches of {self.folder} were loaded as {self.publish_id}"
        return f"{said}, and it has more since; to publish all of it (again), say so"


@dataclass(frozen=True, slots=True)
class Loaded:
    """The result of a load. `messages`: those published, and those skipped for their keys;
    `publish_id`: the publish's id; `was_before`: it had been published before under this id, and
    nothing was published now; `damaged`: skipped rows, for which only a damaged file was drained.
    """

    publish_id: str
    messages: int
    files: int
    was_before: bool = False
    created: tuple[str, ...] = ()
    damaged: int = 0

    def facts(self) -> dict[str, Any]:
        return {**asdict(self), "created": list(self.created)}


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
    dry_run: bool = False,
    watcher: Watcher | None = None,
) -> Loaded:
    """Publishes the messages of a folder of files, or of one file, to `queue`, or each to the queue
    that its row names: all of them, or nothing. They are new messages with new ids.

    Without `publish_id` or `again`, loading the same files to the same queue is one publish for 7
    days, however often it runs. `create` creates missing queues; `keep_due` keeps a copied
    message's due time. A dry run counts the messages, reads the files that no drain wrote, and
    changes nothing: `created` are the queues that a run would create.

    Raises FolderRefused, NothingToLoad, PartlyLoaded, BadFile, QueueNotFound, BadName,
    StartupError, TaskFailed, Unavailable, OSError, ValueError. Durable on return: yes.
    """
    if publish_id is not None and again:
        raise ValueError("a publish id of one's own, or again under another one: not both")
    watcher = watcher or Unwatched()
    to = None if queue is None else queue_named(queue)
    found = _found(Path(os.path.realpath(source)), format)
    with nullcontext((attached(root), None)) if dry_run else opened_root(root) as (opened, flusher):
        name = _name(opened, found, to, publish_id, again=again)
        if is_published(opened, name):
            return Loaded(name.text, 0, len(found.files), was_before=True)
        watcher.began("looks at the files")
        run = _Load(spark, opened, found, to, keep_due)
        if flusher is None:
            return run.counted(name, create=create)
        created = run.make_queues(flusher, create=create)
        watcher.began(f"publishes {len(found.files)} files", found.messages)
        run.publish(name, key_taken)
        messages = _count(opened, name)
        watcher.advanced(messages)
        return Loaded(name.text, messages, len(found.files), False, created, found.damaged)


@dataclass(frozen=True, slots=True)
class _Found:
    """The files of a load. `about` and `commits`: those of a drain's folder."""

    files: tuple[Path, ...]
    format: Format | None
    about: About | None = None
    commits: tuple[Commit, ...] = ()

    @property
    def messages(self) -> int | None:
        """The number of messages, if known."""
        return sum(each.messages for each in self.commits) if self.about else None

    @property
    def damaged(self) -> int:
        return sum(commit.damaged for commit in self.commits)


def _found(source: Path, said: Format | None) -> _Found:
    """The files to load. Raises FolderRefused, NothingToLoad."""
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
            raise NothingToLoad(str(path), "is not a file; use a folder that has only files")
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
    """The committed files of a drain; raises for a file that has changed since."""
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


@dataclass(frozen=True, slots=True)
class _Load:
    spark: SparkSession
    root: Root
    found: _Found
    to: QueueName | None
    keeps_due: bool

    def make_queues(self, flusher: Flusher, *, create: bool) -> tuple[str, ...]:
        """Creates missing queues; returns their names. If queues are to be created, reads files
        that no drain wrote for the queues that they name. Raises QueueNotFound, BadName, BadFile.
        """
        missing = self._missing(self._by_queue() if create else {}, create=create)
        for each in missing:
            run_alone(create_queue(self.root, each), flusher)
        return tuple(each.text for each in missing)

    def counted(self, name: Key, *, create: bool) -> Loaded:
        """What a run would do. Raises QueueNotFound, BadName, BadFile."""
        rows = self._by_queue()
        missing = self._missing(rows, create=create)
        messages = self.found.messages
        return Loaded(
            name.text,
            sum(rows.values()) if messages is None else messages - self.found.damaged,
            len(self.found.files),
            created=tuple(each.text for each in missing),
            damaged=self.found.damaged,
        )

    def _by_queue(self) -> Mapping[str, int]:
        """The rows of files that no drain wrote, by the queue that they name; else nothing."""
        if self.found.about is not None:
            return {}
        rows = self._rows().groupBy("queue").count()
        return {row["queue"] or "": row["count"] for row in self._done(rows.collect)}

    def _missing(self, rows: Mapping[str, int], *, create: bool) -> list[QueueName]:
        """The queues of these rows, or of the drain, that do not exist. Raises QueueNotFound,
        unless they are to be created.
        """
        if self.to is not None:
            wanted = {self.to.text}
        elif self.found.about is not None:
            wanted = {queue for commit in self.found.commits for queue in commit.by_queue}
        else:
            wanted = set(filter(None, rows))
        queues = map(queue_named, sorted(wanted))
        missing = [each for each in queues if not queue_exists(self.root, each)]
        if missing and not create:
            raise QueueNotFound(missing[0].text)
        return missing

    def publish(self, name: Key, key_taken: OnKeyTaken) -> None:
        """Publishes all rows. Raises BadFile, TaskFailed. Durable on return: yes."""
        rows = self._rows()
        options = {"publishId": name.text, "onKeyTaken": key_taken}
        if self.to is not None:
            rows, options = rows.drop("queue"), {**options, "queue": self.to.text}
        writing = rows.write.format("mq").mode("append")
        self._done(writing.options(path=self.root.layout.root, **options).save)

    def _rows(self) -> DataFrame:
        """A partition per file, always the same one: ids are made from partitions and rows."""
        files = self.found.files
        reading = Reading(self.found.format, self.keeps_due, self.found.about is not None)
        return by_numbers(
            self.spark, len(files), lambda number: read_rows(files[number], reading), PUBLISHED_SQL
        )

    def _done(self, act: Callable[[], Any]) -> Any:
        """Runs a Spark action. Raises BadFile for a row that cannot be published, else
        TaskFailed.
        """
        try:
            return act()
        except Exception as error:
            said, files = said_by_task(error), self.found.files
            match = _OF_ROW.search(said)
            if match is None or int(match[2]) >= len(files):
                raise TaskFailed(said.removeprefix("mq: ")) from error
            raise BadFile(str(files[int(match[2])]), int(match[1]) + 1, match[3]) from error


def _count(root: Root, name: Key) -> int:
    """The number of messages of the publish, including skipped ones."""
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
