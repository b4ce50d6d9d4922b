"""A run beside consumers of both queues, over HTTP: no message is lost, and none comes twice."""

import asyncio
from pathlib import Path

from harness.api import call, delete, fetch, make_queue, publish_lines
from harness.server import Serve, Server

from mq.model.clock import SystemClock
from mq.model.lifecycle import State
from mq.model.message import Stamp
from mq.model.names import MessageId, QueueName, ReplayId
from mq.spark.jobs.shovel import Mover
from mq.spark.jobs.tasks import Unwatched
from mq.store.disk.files import Files
from mq.store.disk.flush import FsyncFlusher
from mq.store.disk.group import run_alone
from mq.store.format.crossings import Crossing
from mq.store.opening import attach_root
from mq.store.shovel.crossing_files import Chosen, candidate_of, finish, held, record_chosen

RUN = Crossing(ReplayId.parse("run"), QueueName.parse("q"), QueueName.parse("other"))
MESSAGES = 300


def moved(top: Path, ids: list[str]) -> int:
    """How many a run over all of them moves."""
    root = attach_root(str(top), Files(), SystemClock())
    flusher = FsyncFlusher(root.files, 2)
    chosen = []
    for each in map(MessageId.parse, ids):
        if (found := candidate_of(root, RUN, each)) is not None:
            path = root.layout.path(State.READY, RUN.source, each, found.bucket or "")
            if (status := root.files.status(path)) is not None:
                chosen.append(Chosen(each, Stamp.from_mtime_ns(status.st_mtime_ns)))
    with held(root, RUN.id):
        run_alone(record_chosen(root, RUN, {}, chosen), flusher)
        mover = Mover(root, flusher, RUN, 500, Unwatched())
        mover.run()
        run_alone(finish(root, RUN, {}), flusher)
    flusher.close()
    return mover.done.moved


async def consumed(server: Server, queue: str, got: list[str], moves: asyncio.Event) -> None:
    """Until all have been had, by either; those of the source once the run has moved some."""
    if queue == "q":
        await moves.wait()
    while len(got) < MESSAGES:
        reply = await fetch(server, queue)
        if reply.status == 204:
            await call(server, "GET", f"/{queue}")
            continue
        moves.set()
        got.append(reply.headers["X-Message-Id"])
        assert (await delete(server, got[-1], queue)).status == 202


async def test_each_is_had_once(serve: Serve, root: Path) -> None:
    server = await serve()
    for queue in ("q", "other"):
        await make_queue(server, queue)
    ids = []
    for start in range(0, MESSAGES, 100):
        ids += await publish_lines(server, [b"%d" % (start + n) for n in range(100)])
    got: list[str] = []
    moves = asyncio.Event()
    consumers = [
        asyncio.create_task(consumed(server, queue, got, moves)) for queue in ("q", "other")
    ]
    count = await asyncio.to_thread(moved, root, ids)
    await asyncio.gather(*consumers)
    assert sorted(got) == sorted(ids)
    assert count
