"""A call that failed is over when it failed: what was there before is there after."""

import errno
import os
from pathlib import Path

import pytest
from harness.api import assert_problem, fetch, make_queue, publish
from harness.clock import FakeClock
from harness.faults import FaultyFiles
from harness.server import Serve

from mq.store.files import Files
from mq.store.root import open_root


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EACCES])
async def test_a_message_whose_claim_failed_is_fetched_when_the_disk_is_well_again(
    serve: Serve, root: Path, code: int
) -> None:
    files = FaultyFiles()
    server = await serve(files=files)
    await make_queue(server)
    message_id = await publish(server)
    # The folder has been as it is for long, and the failure does not change it.
    os.utime(root / "queues" / "q", ns=(10**18, 10**18))
    fault = files.fail("rename", code, where="/delay/q:", times=1)
    assert (await fetch(server)).status == 503
    assert fault.hits == 1
    reply = await fetch(server)
    assert reply.status == 200
    assert reply.id == message_id


async def test_a_failed_listing_is_answered_and_the_next_one_finds_all(serve: Serve) -> None:
    class UnreadableFiles(Files):
        failures = 1

        def entries(self, folder: str):  # type: ignore[no-untyped-def]
            if folder.endswith("/queues/q") and self.failures:
                self.failures -= 1
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return super().entries(folder)

    server = await serve(files=UnreadableFiles())
    await make_queue(server)
    message_id = await publish(server)
    assert_problem(await fetch(server), 503, "storage-failed")
    assert (await fetch(server)).id == message_id


def test_daemons_that_start_at_once_on_a_missing_root_all_open_it(root: Path) -> None:
    class OvertakenFiles(Files):
        """Another daemon makes each folder in the moment before this one does."""

        def mkdir(self, path: str) -> None:
            os.mkdir(path)
            super().mkdir(path)

    opened = open_root(str(root / "below"), OvertakenFiles(), FakeClock())
    assert all(Path(folder).is_dir() for folder in opened.layout.folders())
