"""Who waits hears of what another process does in the queue's folder, without looking there."""

import asyncio
import contextlib
import os
import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from harness.api import Reply, StillClock, call, delete, fetch, make_queue, publish, totals
from harness.faults import FaultyFiles
from harness.processes import PATIENCE_S
from harness.server import Serve, Server
from harness.waiting import comes_true

from mq.broker.watching import WATCH_KEPT_S


def hears(server: Server) -> bool:
    """Whether this process is told what comes to the queue's folder, as the kernel says."""
    try:
        inode = (server.root / "queues" / "q").stat().st_ino
    except FileNotFoundError:
        return False
    watches = ""
    for each in Path("/proc/self/fdinfo").iterdir():
        with contextlib.suppress(FileNotFoundError):
            watches += each.read_text()
    return re.search(rf"^inotify .* ino:{inode:x} ", watches, re.MULTILINE) is not None


@contextlib.asynccontextmanager
async def heard(server: Server) -> AsyncIterator["asyncio.Task[Reply]"]:
    """A client that waits, at a server that hears of the queue."""

    async def poll() -> Reply:
        async with asyncio.timeout(PATIENCE_S):
            return await call(server, "GET", "/q/messages?wait=60")

    task = asyncio.create_task(poll())
    await comes_true(lambda: hears(server), "a watch")
    for _ in range(3):  # What is looked for as a watch begins has been looked for.
        assert (await fetch(server)).status == 204
    try:
        yield task
    finally:
        task.cancel()


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles()


@pytest.fixture
async def server(serve: Serve, files: FaultyFiles) -> Server:
    """An mq with an empty queue, whose clock stands: it looks nowhere by itself."""
    started = await serve(clock=StillClock(), files=files)
    await make_queue(started)
    return started


async def test_a_publish_of_another_process_is_had_without_a_look(
    serve: Serve, server: Server, files: FaultyFiles
) -> None:
    other = await serve()
    for _ in range(3):
        async with heard(server) as task:
            listed = files.count("entries", "queues/q")
            message_id = await publish(other)
            assert (await task).id == message_id
            assert files.count("entries", "queues/q") == listed
        assert (await delete(server, message_id)).status == 202


async def test_a_release_by_another_process_is_had_without_a_look(
    serve: Serve, server: Server, files: FaultyFiles
) -> None:
    other = await serve()
    message_id = await publish(other)
    assert (await fetch(other)).id == message_id
    async with heard(server) as task:
        listed = files.count("entries", "queues/q")
        reply = await call(other, "PATCH", f"/q/messages/{message_id}", json={"due_in_s": 0})
        assert reply.status == 200
        reply = await task
        assert (reply.id, reply.headers["X-Message-Receives"]) == (message_id, "2")
        assert files.count("entries", "queues/q") == listed


async def test_what_it_publishes_itself_is_offered_once(server: Server) -> None:
    for _ in range(20):
        async with heard(server) as task:
            message_id = await publish(server)
            assert (await task).id == message_id
        assert (await delete(server, message_id)).status == 202
    assert (await totals(server))["lost_races"] == 0


async def test_a_queue_that_another_process_deletes_is_404(serve: Serve, server: Server) -> None:
    other = await serve()
    async with heard(server) as task:
        assert (await call(other, "DELETE", "/q")).status == 200
        assert (await task).status == 404
    assert not hears(server)
    # And made again by it, the queue is another one.
    await make_queue(other)
    async with heard(server) as task:
        message_id = await publish(other)
        assert (await task).id == message_id


@pytest.mark.certificate
async def test_a_bucket_of_another_process_is_looked_into(serve: Serve, server: Server) -> None:
    other = await serve(folder_max=0)
    async with heard(server) as task:
        message_id = await publish(other)
        assert not (server.root / "queues" / "q" / message_id).exists()
        assert (await task).id == message_id


async def test_where_more_happened_than_the_kernel_keeps_it_looks(
    serve: Serve, server: Server, root: Path
) -> None:
    other = await serve()
    message_id = await publish(other)
    path, aside = root / "queues" / "q" / message_id, root / "aside"
    path.rename(aside)
    kept = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    async with heard(server) as task:
        folder = root / "queues" / "q"
        here, there = str(folder / ".one"), str(folder / ".two")
        shutil.copy(aside, here)
        # The server, of this event loop, reads nothing meanwhile.
        for _ in range(kept // 2 + 1):
            os.rename(here, there)
            os.rename(there, here)
        aside.rename(path)
        assert (await task).id == message_id


@pytest.mark.certificate
async def test_a_queue_is_heard_of_for_a_while_after_nobody_waits_there(
    serve: Serve, root: Path
) -> None:
    clock = StillClock()
    server = await serve(clock=clock)
    await make_queue(server)
    async with heard(server) as task:
        await publish(server)
        await task
    for _ in range(3):
        # Nobody waits; what others bring is no news to anybody.
        assert hears(server)
        clock.steady += WATCH_KEPT_S / 4
        await comes_true(lambda: True)
    clock.steady += WATCH_KEPT_S

    def is_unheard() -> bool:
        clock.steady += WATCH_KEPT_S
        return not hears(server)

    await comes_true(is_unheard, "an end of the watch")


@pytest.mark.certificate
async def test_without_inotify_it_looks(serve: Serve) -> None:
    server = await serve(inotify=False)
    other = await serve()
    await make_queue(server)
    task = asyncio.create_task(call(server, "GET", "/q/messages?wait=60"))
    for _ in range(3):
        assert (await fetch(server)).status == 204
    assert not hears(server)
    message_id = await publish(other)
    async with asyncio.timeout(PATIENCE_S):
        assert (await task).id == message_id
