"""Folders that go away under a daemon."""

import errno
import shutil
from pathlib import Path

import pytest
from harness.api import assert_problem, assert_works, call, delete, fetch, make_queue, post, publish
from harness.faults import FaultyFiles
from harness.folders import message_files
from harness.server import Serve, Server, body_sizes, commit_modes
from harness.waiting import comes_true

pytestmark = pytest.mark.usefixtures("audited")


@body_sizes
async def test_a_queue_whose_folder_goes_away_is_404_until_it_is_made_again(
    server: Server, root: Path, size: int
) -> None:
    await make_queue(server)
    ids = [await publish(server) for _ in range(3)]
    await fetch(server)
    shutil.rmtree(root / "queues" / "q")
    assert_problem(await post(server, b"x" * size), 404, "queue-not-found")
    assert message_files(root)["new"] == []
    assert_problem(await fetch(server), 404, "queue-not-found")
    assert_problem(await delete(server, ids[0]), 404, "queue-not-found")
    assert_problem(await call(server, "GET", "/q"), 404, "queue-not-found")
    assert_problem(await call(server, "DELETE", "/q"), 404, "queue-not-found")
    assert (await call(server, "PUT", "/q")).status == 201
    await assert_works(server)


@pytest.mark.parametrize("first", ["POST", "GET", "DELETE"])
async def test_any_operation_notices_that_the_folder_is_gone(
    server: Server, root: Path, first: str
) -> None:
    await make_queue(server)
    message_id = await publish(server)
    shutil.rmtree(root / "queues" / "q")
    path = f"/q/messages/{message_id}" if first == "DELETE" else "/q/messages"
    assert_problem(await call(server, first, path), 404, "queue-not-found")


async def test_a_root_that_goes_away_is_503_and_works_when_it_is_back(
    server: Server, root: Path
) -> None:
    await make_queue(server)
    message_id = await publish(server, b"kept")
    aside = root.rename(root.with_name("aside"))
    assert (await post(server)).status in (404, 503)
    aside.rename(root)
    await comes_true(lambda: server_has(server, message_id), "the message is served")


async def server_has(server: Server, message_id: str) -> bool:
    return (await fetch(server)).headers.get("X-Message-Id") == message_id


@commit_modes
async def test_a_publish_whose_new_goes_away_before_the_flush_is_503(
    serve: Serve, commit: str
) -> None:
    """The queue is there: nobody is told that it is not."""
    files = FaultyFiles()
    server = await serve(files=files, commit=commit)
    await make_queue(server)
    files.fail("sync_folder", errno.ENOENT, "/new")
    assert_problem(await post(server), 503, "storage-failed")
