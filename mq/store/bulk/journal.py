"""The journal of bulk publishes: the commit point, the ledger, and when a publish began.

FORMAT.md, "bulk publishes", has the steps and what a crash after each leaves.
"""

import contextlib
import errno
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, Self

from mq.model.bulk_limits import JOURNAL_BYTES_MAX
from mq.model.errors import (
    BadName,
    KeyTaken,
    PublishPurged,
    QueueNotFound,
    StagedFileGone,
    StorageFailed,
)
from mq.model.message import Stamp
from mq.model.names import Key, MessageId, QueueName
from mq.store.bulk.giving_up import give_up, is_given_up, set_aside
from mq.store.bulk.staged import remove_job, staged_entries, staged_names
from mq.store.bulk.staging import Staged
from mq.store.core.expired import refuse_expired
from mq.store.core.purged import mark_of
from mq.store.core.root import Root, unlink_if_there
from mq.store.core.standing import queue_exists
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
from mq.store.format.walk import entries_if_there
from mq.store.keys.holders import lives
from mq.store.keys.links import linked_id, read_link

OnKeyTaken = Literal["fail", "skip"]

_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Journal:
    """What a commit point says: these attempts of the job are published, all of them. `queues` are
    those that they are for; `is_scheduled`: some are for later.
    """

    job: str
    attempts: tuple[Attempt, ...]
    counts: tuple[int, ...]
    queues: tuple[QueueName, ...] = ()
    is_scheduled: bool = False

    def print(self) -> bytes:
        """The file that says so."""
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
        """Raises StorageFailed: nobody can tell what was published."""
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
    """A publish that is committed: its name in the journal; `was_before`: an earlier job's of the
    same publish id, and what this one had staged is gone.
    """

    name: Key
    was_before: bool = False


def begin_publish(root: Root, publish_id: Key) -> Steps[int]:
    """When the publish of this id began, milliseconds since the epoch: now, unless it was begun
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
    """Whether a publish of this id is committed, rolled forward or not."""
    # In this order: a journal becomes the ledger's.
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
    """Publishes what these attempts of a job have staged: all of it, or nothing. It is published
    once the journal is durable; `roll_forward` brings it to its places.

    Raises QueueNotFound, QueueExpired, KeyTaken, PublishPurged, StagedFileGone, and nothing is
    published then. Durable on return: yes.
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
            yield from _check(root, staged, name, on_key_taken)
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
    """Takes away what a job has staged that is not committed; whether it was not. Nothing is staged
    or committed for it any more, for a day: its tasks may still run. Blocking. Raises OSError,
    Busy. Durable on return: no; what comes back is never delivered, and is swept.
    """
    with job_locked(root, job):
        if is_of(root, publish_id or Key.parse(job), job):
            return False
        aside = set_aside(root, job)
    # Without the lock: while its file is open, NFS keeps it in the folder.
    give_up(root, job, aside)
    return True


def is_of(root: Root, name: Key, job: str) -> bool:
    """Whether the publish that is committed under the name is this job's."""
    found = read_journal(root, journal_path(root.layout, name, JournalFile.JOURNAL))
    if found is None:
        found = read_journal(root, journal_path(root.layout, name, JournalFile.DONE))
    return found is not None and found.job == job


def read_journal(root: Root, path: str) -> Journal | None:
    """What a journal says; None: it is gone. Raises StorageFailed, OSError."""
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
    """The names of publishes that are committed and not yet rolled forward."""
    return [name for name, file in journal_files(root) if file is JournalFile.JOURNAL]


def journal_files(root: Root) -> list[tuple[Key, JournalFile]]:
    """What lies in journal/, in the order of the names; what is foreign is left out."""
    found = []
    for entry in entries_if_there(root.files, root.layout.journal):
        with contextlib.suppress(BadName):
            if entry.is_file(follow_symlinks=False):
                found.append(parse_journal_file(entry.name))
    return sorted(found, key=lambda each: (each[0].text, each[1].value))


@contextlib.contextmanager
def journal_locked(root: Root) -> Iterator[None]:
    """Only one process at a time is in the block; others wait: it takes a flush or two."""
    descriptor = root.files.open_kept(journal_lock(root.layout))
    try:
        root.files.wait_for_lock(descriptor)
        yield
    finally:
        root.files.close(descriptor)


@contextlib.contextmanager
def job_locked(root: Root, job: str) -> Iterator[bool]:
    """Only who commits a job, or forgets it, is in the block; others wait. False: it has staged
    nothing, or was given up.
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


def _check(
    root: Root, staged: Sequence[Staged], name: Key, on_key_taken: OnKeyTaken
) -> Steps[None]:
    """Raises what stands in the way of the publish."""
    first: dict[QueueName, str] = {}
    for of in (of for each in staged for of in each.queues):
        queue = QueueName.parse(of.queue)
        first[queue] = min(of.first, first.get(queue, of.first))
    for queue, uuid in first.items():
        yield Flush(entries=(root.layout.queue(queue),))
        if not queue_exists(root, queue):
            raise QueueNotFound(queue.text)
        refuse_expired(root, queue)
        if (mark := mark_of(root, queue)) is not None and mark.covers(uuid):
            # Its next try has ids that are later.
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


def _check_keys(root: Root, staged: Sequence[Staged]) -> None:
    """Raises KeyTaken for a key that a living message has, or two of these."""
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
