"""Bulk publishes without Spark: what a task, a driver and a daemon do, each a call."""

from collections.abc import Iterable
from pathlib import Path

from mq.model.names import Key, MessageId, QueueName, UuidSource
from mq.store.bulk.journal import Committed, OnKeyTaken, commit
from mq.store.bulk.roll_forward import roll_forward
from mq.store.bulk.staging import Staged, StagingWriter, Sync
from mq.store.core.root import Root
from mq.store.disk.flush import FsyncFlusher
from mq.store.disk.group import run_alone
from mq.store.format.pipeline import Attempt

JOB = "0123456789abcdef0123456789abcdef"
QUEUE = QueueName.parse("orders")


def stage(
    root: Root,
    bodies: Iterable[bytes],
    *,
    job: str = JOB,
    attempt: Attempt | None = None,
    queue: QueueName = QUEUE,
    key: str | None = None,
    due_ms: int | None = None,
    ttl_s: int | None = None,
    sync: Sync = "fsync",
) -> tuple[Staged, list[MessageId]]:
    """One attempt's messages, staged."""
    ids = []
    uuids = UuidSource(root.clock)
    with StagingWriter(root, job, attempt or Attempt(0, 0), sync) as writer:
        for number, body in enumerate(bodies):
            with_key = None if key is None else Key.parse(key + (str(number) if number else ""))
            ids.append(MessageId(uuids.next(), key=with_key, ttl_s=ttl_s))
            writer.put(queue, ids[-1], body, due_ms=due_ms)
        return writer.finish(), ids


def stage_fold(
    root: Root, bodies: Iterable[bytes], attempt: Attempt | None = None, priority: int = 0
) -> tuple[Staged, list[MessageId]]:
    """One attempt's messages, staged in a fold."""
    given = list(bodies)
    uuids = UuidSource(root.clock).many(len(given))
    with StagingWriter(root, JOB, attempt or Attempt(0, 0), "fsync") as writer:
        like = MessageId(uuids[0], priority)
        writer.put_alike(QUEUE, like, uuids, given, goes_whole=True)
        return writer.finish(), [like.with_uuid(uuid) for uuid in uuids]


def committed(
    root: Root,
    *staged: Staged,
    job: str = JOB,
    publish_id: str | None = None,
    on_key_taken: OnKeyTaken = "fail",
) -> Committed:
    """The commit point of the job."""
    flusher = FsyncFlusher(root.files, 1)
    name = None if publish_id is None else Key.parse(publish_id)
    try:
        return run_alone(commit(root, job, staged, name, on_key_taken), flusher)
    finally:
        flusher.close()


def rolled(root: Root, name: Key) -> object:
    """The publish rolled forward."""
    flusher = FsyncFlusher(root.files, 1)
    try:
        return roll_forward(root, name)
    finally:
        flusher.close()


def staged_files(path: Path) -> list[str]:
    """What lies below new/.spark, of all jobs."""
    below = path / "new" / ".spark"
    return sorted(str(each.relative_to(below)) for each in below.rglob("*") if each.is_file())
