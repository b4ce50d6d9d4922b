"""The journal of bulk publishes: the commit point, the ledger of publish ids, and the start of a
publish.

PROTOCOL.md, "bulk publishes", has the steps and what a crash after each leaves.
"""

import contextlib
import errno
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, Self

from mq.model.errors import (
    BadName,
    KeyTaken,
    PublishPurged,
    QueueNotFound,
    StagedFileGone,
    StorageFailed,
)
from mq.model.limits import MIB
from mq.model.message import Stamp
from mq.model.names import Key, MessageId, QueueName
from mq.store.bulk.giving_up import give_up, is_given_up, set_aside
from mq.store.bulk.staged import remove_job, staged_entries, staged_names
from mq.store.bulk.staging import Staged
from mq.store.core.find import lives
from mq.store.core.room import Load
from mq.store.core.root import Root, unlink_if_there
from mq.store.core.standing import queue_exists
from mq.store.core.unserved import mark_of, refuse_publish
from mq.store.disk.files import is_gone
from mq.store.disk.replacing import replace_file
from mq.store.disk.steps import Flush, Steps
from mq.store.format.layout import Keys, parse_entry
from mq.store.format.pipeline import (
    Attempt,
    JournalFile,
    is_job,
    job_lock,
    journal_lock,
    journal_path,
    new_journal,
    parse_journal_file,
)
from mq.store.format.walk import entries_if_there, named
from mq.store.keys.links import linked_id, read_link

JOURNAL_BYTES_MAX: Final = 64 * MIB

OnKeyTaken = Literal["fail", "skip"]

_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Journal:
    """The content of a commit point: all messages of these attempts of the job are published.
    `queues`: their queues. `is_scheduled`: some have a later due time.
    """

    job: str
    attempts: tuple[Attempt, ...]
    counts: tuple[int, ...]
    queues: tuple[QueueName, ...] = ()
    is_scheduled: bool = False

    def print(self) -> bytes:
        fields = {
            "version": _VERSION,
            "job": self.job,
            "attempts": [attempt.text for attempt in self.attempts],
            "counts": list(self.counts),
            "to": [queue.text for queue in self.queues],
            "scheduled": self.is_scheduled,
        }
        return json.dumps(fields).encode() + b"\n"

    @classmethod
    def parse(cls, text: bytes) -> Self:
        """Parses a journal. Raises StorageFailed: it is unknown which messages were published."""
        try:
            fields = json.loads(text)
            attempts = tuple(map(Attempt.parse, fields["attempts"]))
            counts = tuple(int(count) for count in fields["counts"])
            queues = tuple(map(QueueName.parse, fields["to"]))
            journal = cls(fields["job"], attempts, counts, queues, bool(fields["scheduled"]))
        except (ValueError, TypeError, KeyError, RecursionError, BadName) as error:
            raise StorageFailed(f"a journal that says nothing: {error!r}") from None
        if fields.get("version") != _VERSION or not is_job(journal.job):
            raise StorageFailed("a journal of another version")
        return journal


class Committed(NamedTuple):
    """A committed publish: its name in the journal. `was_before`: an earlier job with the same
    publish id committed it, and this job's staged messages were deleted.
    """

    name: Key
    was_before: bool = False


def begin_publish(root: Root, publish_id: Key) -> Steps[int]:
    """The start of the publish with this id, in milliseconds since the epoch: now, unless it began
    before. Durable on return: yes.
    """
    path = journal_path(root.layout, publish_id, JournalFile.BEGUN)
    begun_ms = root.now_ms()
    with journal_locked(root):
        status = root.files.status(path)
        if status is not None:
            begun_ms = Stamp.from_mtime_ns(status.st_mtime_ns).due_ms
            yield Flush(folders=(root.layout.journal,))
            return begun_ms
        written = new_journal(root.layout, publish_id)
        yield from replace_file(root.files, written, path, mtime_ns=Stamp(begun_ms).mtime_ns())
    return begun_ms


def is_published(root: Root, name: Key) -> bool:
    """Whether a publish with this id is committed, rolled forward or not."""
    # In this order: a journal file becomes a ledger file.
    return _is_there(root, name, JournalFile.JOURNAL) or _is_there(root, name, JournalFile.DONE)


def _is_there(root: Root, name: Key, file: JournalFile) -> bool:
    return root.files.status(journal_path(root.layout, name, file)) is not None


def commit(
    root: Root,
    job: str,
    staged: Sequence[Staged],
    publish_id: Key | None = None,
    on_key_taken: OnKeyTaken = "fail",
) -> Steps[Committed]:
    """Publishes all messages that these attempts of a job have staged, or none. They are published
    once the journal is durable; `roll_forward` moves them to their places.

    Raises QueueNotFound, QueueExpired, QueuePaused, QueueFull, KeyTaken, PublishPurged,
    StagedFileGone: nothing is published then. Durable on return: yes.
    """
    name = publish_id or Key.parse(job)
    journal = Journal(
        job,
        tuple(each.name for each in staged),
        tuple(each.messages for each in staged),
        tuple(sorted({QueueName.parse(of.queue) for each in staged for of in each.queues})),
        any(each.is_scheduled for each in staged),
    )
    with job_locked(root, job):
        if is_given_up(root, job):
            raise StagedFileGone("the job was given up")
        if not is_published(root, name):
            _check(root, staged, name, on_key_taken)
        with journal_locked(root):
            if is_published(root, name):
                was_before = not is_of(root, name, job)
                yield Flush(folders=(root.layout.journal,))
            else:
                was_before = False
                written = new_journal(root.layout, name)
                path = journal_path(root.layout, name, JournalFile.JOURNAL)
                yield from replace_file(root.files, written, path, journal.print())
        if was_before:
            remove_job(root, job)
    return Committed(name, was_before)


def abort(root: Root, job: str, publish_id: Key | None = None) -> bool:
    """Deletes the staged, uncommitted messages of a job. False if the job was committed. For a day
    nothing can be staged or committed for it, since its tasks may still run. Blocking. Raises
    OSError, Busy. Durable on return: no; files that a crash brings back are never delivered, and
    are swept.
    """
    with job_locked(root, job):
        if is_of(root, publish_id or Key.parse(job), job):
            return False
        aside = set_aside(root, job)
    # Without the lock: NFS keeps an open file in the folder.
    give_up(root, job, aside)
    return True


def is_of(root: Root, name: Key, job: str) -> bool:
    """Whether the publish that is committed under the name is this job's."""
    found = read_journal(root, journal_path(root.layout, name, JournalFile.JOURNAL))
    if found is None:
        found = read_journal(root, journal_path(root.layout, name, JournalFile.DONE))
    return found is not None and found.job == job


def read_journal(root: Root, path: str) -> Journal | None:
    """Reads a journal; None: it is gone. Raises StorageFailed, OSError."""
    try:
        descriptor = root.files.open_read(path)
    except OSError as error:
        if is_gone(error):
            return None
        raise
    try:
        return Journal.parse(root.files.read(descriptor, JOURNAL_BYTES_MAX, 0))
    finally:
        root.files.close(descriptor)


def journals(root: Root) -> list[Key]:
    """The names of publishes that are committed and not rolled forward yet."""
    return [name for name, file in journal_files(root) if file is JournalFile.JOURNAL]


def journal_files(root: Root) -> list[tuple[Key, JournalFile]]:
    """The files of journal/ in the order of their names, without foreign ones."""
    entries = named(entries_if_there(root.files, root.layout.journal), parse_journal_file)
    found = (each for entry, each in entries if entry.is_file(follow_symlinks=False))
    return sorted(found, key=lambda each: (each[0].text, each[1].value))


@contextlib.contextmanager
def journal_locked(root: Root) -> Iterator[None]:
    """Lets one process at a time into the block; others wait for a flush or two."""
    descriptor = root.files.open_kept(journal_lock(root.layout))
    try:
        root.files.wait_for_lock(descriptor)
        yield
    finally:
        root.files.close(descriptor)


@contextlib.contextmanager
def job_locked(root: Root, job: str) -> Iterator[bool]:
    """Locks a job against processes that commit or abandon it; others wait. False: it has staged
    nothing, or was abandoned.
    """
    try:
        descriptor = root.files.open_kept(job_lock(root.layout, job))
    except OSError as error:
        if not is_gone(error) and error.errno != errno.ENOTDIR:
            raise
        yield False
        return
    try:
        root.files.wait_for_lock(descriptor)
        yield True
    finally:
        root.files.close(descriptor)


def _check(root: Root, staged: Sequence[Staged], name: Key, on_key_taken: OnKeyTaken) -> None:
    """Raises an error if something prevents the publish."""
    first: dict[QueueName, str] = {}
    for of in (of for each in staged for of in each.queues):
        queue = QueueName.parse(of.queue)
        first[queue] = min(of.first, first.get(queue, of.first))
    for queue, uuid in first.items():
        if not queue_exists(root, queue):
            raise QueueNotFound(queue.text)
        refuse_publish(root, queue, root.facts.settings(queue))
        root.room.refuse_full(queue, root.facts.settings(queue), _load(staged, queue))
        if (mark := mark_of(root, queue)) is not None and mark.covers(uuid):
            # The next try has later ids.
            unlink_if_there(root.files, journal_path(root.layout, name, JournalFile.BEGUN))
            raise PublishPurged(mark.ms)
    for each in staged:
        if not each.messages:
            continue
        there = staged_entries(root, each.job, each.name).count(root)
        if there != each.messages:
            raise StagedFileGone(f"attempt {each.name.text} has {there} files")
    if on_key_taken == "fail":
        _check_keys(root, staged)


def _load(staged: Sequence[Staged], queue: QueueName) -> Load:
    """The load that the queue gets; an attempt's bytes are shared out by messages."""
    load = Load()
    for each in staged:
        count = sum(of.messages for of in each.queues if of.queue == queue.text)
        if count:
            load += Load(count, each.size * count // each.messages)
    return load


def _check_keys(root: Root, staged: Sequence[Staged]) -> None:
    """Raises KeyTaken for a key of a living message, or of two of these messages."""
    seen: dict[tuple[QueueName, Key], MessageId] = {}
    for each in (each for each in staged if each.is_keyed):
        for entry in staged_names(root, each.job, each.name):
            queue, message_id = parse_entry(entry.name)
            if (key := message_id.key) is None:
                continue
            if (other := seen.setdefault((queue, key), message_id)) is not message_id:
                raise KeyTaken(key.text, other.text)
            target = read_link(root, root.layout.link(Keys.LOOKUP, queue, key))
            holder = None if target is None else linked_id(target)
            if holder is not None and lives(root, queue, holder):
                raise KeyTaken(key.text, holder.text)
