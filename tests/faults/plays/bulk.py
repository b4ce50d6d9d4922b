"""Bulk publishes: what a task stages, what its driver commits, and what is rolled forward."""

import errno
from pathlib import Path
from typing import Any

from faults.playing import At, plays
from harness.staging import JOB, QUEUE, committed, rolled, stage, stage_fold

from mq.model.lifecycle import State
from mq.model.names import Key, MessageId, UuidSource
from mq.store.bulk.journal import begin_publish
from mq.store.bulk.sweep import sweep_bulk
from mq.store.core.root import Root
from mq.store.format.bucket_names import Shape, leading
from mq.store.format.pipeline import Attempt, Fold, staged_spot
from mq.store.opening import attach_root
from mq.store.operations.queues import create_queue, delete_queue

NAME = "nightly"
BODIES = [b"a", b"b", b"c"]


def begun(at: At, folder_max: int = 10_000) -> Root:
    """A root with the queue, for a process that has used it never."""
    at.run(create_queue(at.opened(), QUEUE))
    return attach_root(str(at.top), at.files, at.clock) if folder_max > 1 else at.opened(1)


def commit(root: Root, *bodies: bytes, **more: Any) -> tuple[Key, list[MessageId]]:
    staged, ids = stage(root, bodies, **more)
    return committed(root, staged, publish_id=NAME).name, ids


@plays("bulk publishes: stage two messages")
async def staged(at: At) -> None:
    root = begun(at)
    at.watch()
    stage(root, [b"a", b"b"])


@plays("bulk publishes: stage two messages by syncfs")
async def staged_by_syncfs(at: At) -> None:
    at.kind = "btrfs"
    root = begun(at)
    at.watch()
    stage(root, [b"a", b"b"], sync="syncfs")


@plays("bulk publishes: stage a fold")
async def staged_fold(at: At) -> None:
    root = begun(at)
    at.watch()
    stage_fold(root, BODIES)


@plays("bulk publishes: commit")
async def commit_made(at: At) -> None:
    root = begun(at)
    made, _ = stage(root, [b"a"])
    at.watch()
    committed(root, made, publish_id=NAME)


@plays("bulk publishes: commit what is committed")
async def commit_found(at: At) -> None:
    root = begun(at)
    commit(root, b"a")
    again, _ = stage(root, [b"a"], job="f" * 32)
    at.watch()
    committed(root, again, job="f" * 32, publish_id=NAME)


@plays("bulk publishes: begin", times=1)
@plays("bulk publishes: begin again", times=2)
async def begin(at: At, times: int) -> None:
    root = begun(at)
    for _ in range(times):
        at.watch()
        at.run(begin_publish(root, Key(NAME)))


@plays("bulk publishes: roll two forward")
@plays("bulk publishes: roll two forward that are due later", due_in_ms=60_000)
@plays("bulk publishes: roll two forward with keys", key="k")
@plays("bulk publishes: roll two forward with entries", ttl_s=60)
async def rolled_forward(
    at: At, due_in_ms: int = 0, key: str | None = None, ttl_s: int | None = None
) -> None:
    root = begun(at)
    due_ms = root.now_ms() + due_in_ms if due_in_ms else None
    name, _ = commit(root, b"a", b"b", due_ms=due_ms, key=key, ttl_s=ttl_s)
    at.watch()
    rolled(root, name)


@plays("bulk publishes: roll one forward to a bucket")
@plays("bulk publishes: roll one forward with a key to a bucket", key="k")
async def rolled_to_a_bucket(at: At, key: str | None = None) -> None:
    root = begun(at, 1)
    at.crowd(f"queues/{QUEUE.text}")
    name, _ = commit(root, b"a", key=key)
    at.watch()
    rolled(root, name)


@plays("bulk publishes: roll one forward at a second try")
async def rolled_again(at: At) -> None:
    """Its bucket went between a look and its rename."""
    root = begun(at)
    name, _ = commit(root, b"a")
    at.files.fail("rename", errno.ENOENT, "/0-0/", times=1)
    at.watch()
    rolled(root, name)


@plays("bulk publishes: roll one forward that another has moved", bodies=[b"a"])
@plays("bulk publishes: roll two forward of which another has moved one", bodies=[b"a", b"b"])
async def rolled_by_another(at: At, bodies: list[bytes]) -> None:
    """To any of its places, before it died."""
    root = begun(at)
    name, [message_id, *_] = commit(root, *bodies)
    layout = root.layout
    deep = leading(layout.queue(QUEUE), Shape().deep(message_id))
    for folder in deep:
        Path(folder).mkdir()
    source = layout.path(State.NEW, QUEUE, message_id, staged_spot(JOB, Attempt(0, 0)))
    Path(source).rename(Path(deep[-1], message_id.text))
    at.watch()
    rolled(root, name)


@plays("bulk publishes: roll one forward of a deleted queue")
async def rolled_with_its_queue(at: At) -> None:
    root = begun(at)
    name, _ = commit(root, b"a")
    at.run(delete_queue(root, QUEUE, UuidSource(root.clock).next()))
    at.watch()
    rolled(root, name)


@plays("bulk publishes: create a queue anew for which one is committed")
async def made_anew(at: At) -> None:
    root = begun(at)
    commit(root, b"a")
    at.run(delete_queue(root, QUEUE, UuidSource(root.clock).next()))
    at.watch()
    at.run(create_queue(root, QUEUE))


@plays("bulk publishes: forget what began")
async def forgotten(at: At) -> None:
    root = begun(at)
    at.run(begin_publish(root, Key("other")))
    at.clock.advance(8 * 24 * 3600)
    at.watch()
    sweep_bulk(root)


@plays("bulk publishes: roll a fold forward")
@plays("bulk publishes: roll a fold forward, of a priority", priority=7)
async def rolled_whole(at: At, priority: int = 0) -> None:
    at.kind = "xfs"
    root = begun(at)
    made, _ = stage_fold(root, BODIES, priority=priority)
    name = committed(root, made).name
    at.watch()
    rolled(root, name)


@plays("bulk publishes: roll a fold forward to a place that is taken")
async def rolled_one_by_one(at: At) -> None:
    at.kind = "xfs"
    root = begun(at)
    first, _ = stage_fold(root, BODIES[:1])
    rolled(root, committed(root, first).name)
    second, _ = stage_fold(root, BODIES[:1], Attempt(1, 0))
    name = committed(root, second).name
    at.watch()
    rolled(root, name)


@plays("bulk publishes: roll a fold forward that another has moved")
async def rolled_whole_by_another(at: At) -> None:
    at.kind = "xfs"
    root = begun(at)
    made, ids = stage_fold(root, BODIES)
    name = committed(root, made).name
    queue = Path(root.layout.queue(QUEUE))
    (queue / Shape().bucket(ids[0])).mkdir()
    fold = Path(root.layout.new, ".spark", JOB, "0-0", Fold.of(QUEUE, ids[0]).text)
    fold.rename(queue / Shape().deep(ids[0]))
    at.watch()
    rolled(root, name)
