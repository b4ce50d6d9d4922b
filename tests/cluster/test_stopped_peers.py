"""A process that is stopped holds up none of the others."""

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from harness.api import fetch, make_queue, publish
from harness.clock import FakeClock
from harness.messages import put_entry
from harness.server import Serve
from harness.waiting import comes_true

from mq.store.disk.files import Files
from mq.store.disk.flush import FsyncFlusher
from mq.store.format.walk import LOOK_PAUSE_S_MAX
from mq.store.opening import open_root
from mq.store.operations.redeliver import Timer
from mq_mover.mover import Mover


async def test_a_fetch_is_answered_though_a_stopped_process_holds_the_message(
    serve: Serve, root: Path
) -> None:
    """It is stopped between the lock and the rename of its claim, or a mover is between its
    rename and the lock's end.
    """
    server = await serve()
    await make_queue(server)
    held_id = await publish(server)
    held = os.open(root / "queues" / "q" / held_id, os.O_RDWR)
    fcntl.flock(held, fcntl.LOCK_EX)
    assert (await fetch(server)).status == 204
    other_id = await publish(server)
    assert (await fetch(server)).id == other_id
    os.close(held)

    async def is_fetched() -> bool:
        reply = await fetch(server)
        return reply.status == 200 and reply.id == held_id

    await comes_true(is_fetched, "its delivery once it is held no more")


def test_a_mover_that_was_stopped_in_a_look_soon_looks_again(root: Path) -> None:
    clock = FakeClock()

    class StoppedFiles(Files):
        stop_s = 0.0

        def entries(self, folder: str) -> "Iterator[os.DirEntry[str]]":
            yield from super().entries(folder)
            if folder.endswith("/delay"):
                clock.advance(self.stop_s)
                self.stop_s = 0.0

    files = StoppedFiles()
    opened = open_root(str(root), files, clock)
    (root / "queues" / "orders").mkdir()
    flusher = FsyncFlusher(files, threads=2)
    mover = Mover(opened, flusher, Timer())
    mover.run_once()
    clock.advance(1)
    put_entry(root / "delay", due_ms=clock.now_ms(), receives=1)
    files.stop_s = 600
    mover.run_once()
    put_entry(root / "delay", due_ms=clock.now_ms(), receives=1)
    clock.advance(LOOK_PAUSE_S_MAX)
    mover.run_once()
    clock.advance(LOOK_PAUSE_S_MAX)
    mover.run_once()
    assert not list((root / "delay").iterdir())
    flusher.close()
