"""mq and mq-mover at one message in the same moment: its rename decides, and nobody loses it."""

import asyncio
from pathlib import Path

import pytest
from harness.api import call, fetch, make_queue, publish
from harness.clock import FakeClock
from harness.faults import FaultyFiles
from harness.internals import connections
from harness.messages import put_entry
from harness.processes import PATIENCE_S
from harness.server import Serve
from harness.waiting import comes_true

from mq.store.disk.files import Files
from mq.store.disk.flush import FsyncFlusher
from mq.store.opening import open_root
from mq.store.operations.redeliver import Timer
from mq_mover.mover import Mover


@pytest.mark.parametrize("folder", ["/queues/q", "/delay"])
async def test_a_redelivered_message_is_fetched_while_the_mover_still_flushes(
    serve: Serve, root: Path, folder: str
) -> None:
    server = await serve()
    await make_queue(server)
    clock, files = FakeClock(), FaultyFiles()
    opened = open_root(str(root), files, clock)
    flusher = FsyncFlusher(files, threads=2)
    mover = Mover(opened, flusher, Timer())
    due_ms = clock.now_ms() + 1000
    entry = put_entry(root / "delay", "q", b"again", due_ms, receives=1)
    mover.run_once()
    clock.advance(1)
    gate = files.hold("sync_folder", folder)
    moving = asyncio.create_task(asyncio.to_thread(mover.run_once))
    try:
        assert await asyncio.to_thread(gate.reached.wait, PATIENCE_S)
        # It is in its queue already: whoever wins it from there has it.
        reply = await fetch(server)
        assert (reply.status, reply.body) == (200, b"again")
        assert reply.headers["X-Message-Receives"] == "2"
        assert f"q:{reply.id}" == entry.name
    finally:
        gate.open()
        assert await moving == 1
        flusher.close()


async def test_a_released_message_is_fetched_while_its_release_is_still_flushed(
    serve: Serve, root: Path
) -> None:
    files = FaultyFiles()
    server, other = await serve(files=files, commit="fsync"), await serve()
    await make_queue(server)
    message_id = await publish(server)
    # A client that goes while its message is being claimed: the claim is given back.
    claim = files.hold("sync", "/queues/q/")
    gone = asyncio.create_task(call(server, "GET", "/q/messages"))
    assert await asyncio.to_thread(claim.reached.wait, PATIENCE_S)
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    await comes_true(lambda: connections(server) == 0)
    move = files.hold("rename", f"/delay/q:{message_id}")
    claim.open()
    assert await asyncio.to_thread(move.reached.wait, PATIENCE_S)
    release = files.hold("sync_folder", "/queues/q")
    move.open()
    try:
        assert await asyncio.to_thread(release.reached.wait, PATIENCE_S)
        assert (root / "queues" / "q" / message_id).exists()
        reply = await fetch(other)
        assert (reply.status, reply.body) == (200, b"hello")
        assert reply.headers["X-Message-Receives"] == "2"
    finally:
        release.open()


async def test_a_claim_that_is_held_up_is_not_given_to_another(serve: Serve, root: Path) -> None:
    """A process that is stopped between its rename and its stamp keeps what it has claimed."""
    files, mover_files = FaultyFiles(), Files()
    slow, other = await serve(files=files, commit="fsync"), await serve()
    await make_queue(slow)
    message_id = await publish(slow)
    gate = files.hold("stamp", "/queues/q/")
    fetching = asyncio.create_task(fetch(slow))
    assert await asyncio.to_thread(gate.reached.wait, PATIENCE_S)
    assert (root / "delay" / f"q:{message_id}").exists()
    clock = FakeClock()
    flusher = FsyncFlusher(mover_files, threads=2)
    mover = Mover(open_root(str(root), mover_files, clock), flusher, Timer())
    for _ in range(5):
        # Its mtime is that of the publish still: it looks long due.
        assert await asyncio.to_thread(mover.run_once) == 0
        clock.advance(2)
    assert (await fetch(other)).status == 204
    gate.open()
    reply = await fetching
    assert (reply.id, reply.headers["X-Message-Receives"]) == (message_id, "1")
    assert (await fetch(other)).status == 204
    flusher.close()
