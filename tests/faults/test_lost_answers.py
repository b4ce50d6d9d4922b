"""Renames that were done but said to have failed, as over NFS."""

import errno
from pathlib import Path

import pytest
from harness.api import delete, fetch, make_queue, publish
from harness.faults import FaultyFiles
from harness.folders import message_files
from harness.server import Serve, body_sizes

pytestmark = pytest.mark.usefixtures("audited")


@pytest.mark.parametrize("code", [errno.ENOENT, errno.ESTALE])
@body_sizes
async def test_a_publish_whose_rename_was_done_after_all_succeeds(
    serve: Serve, code: int, size: int
) -> None:
    files = FaultyFiles()
    server = await serve(files=files)
    await make_queue(server)
    files.fail("rename", code, "/new/q:", times=1, performed=True)
    message_id = await publish(server, b"x" * size)
    assert message_files(server.root)["queues"] == [f"q:{message_id}"]
    assert len((await fetch(server)).body) == size


@pytest.mark.parametrize("code", [errno.ENOENT, errno.ESTALE])
@pytest.mark.parametrize("was_fetched", [False, True], ids=["ready", "delayed"])
@pytest.mark.parametrize("if_match", [False, True], ids=["", "if-match"])
async def test_a_delete_whose_rename_was_done_after_all_succeeds(
    serve: Serve, code: int, was_fetched: bool, if_match: bool
) -> None:
    files = FaultyFiles()
    server = await serve(files=files)
    await make_queue(server)
    message_id = await publish(server)
    if was_fetched:
        await fetch(server)
    files.fail("rename", code, "/remove/", performed=True)
    headers = {"If-Match": f'"{int(was_fetched)}"'} if if_match else {}
    assert (await delete(server, message_id, headers=headers)).status == 202
    assert message_files(server.root)["remove"] == [f"q:{message_id}"]


@pytest.mark.parametrize("code", [errno.ENOENT, errno.ESTALE])
async def test_a_fetch_does_not_claim_what_another_may_have_won(
    serve: Serve, root: Path, code: int
) -> None:
    files = FaultyFiles()
    server = await serve(files=files)
    await make_queue(server)
    ids = [await publish(server) for _ in range(2)]
    files.fail("rename", code, "/delay/", times=1, performed=True)
    reply = await fetch(server)
    assert (reply.id, reply.headers["X-Message-Receives"]) == (ids[1], "1")
    assert (await fetch(server)).status == 204
    assert message_files(root)["delay"] == [f"q:{message_id}" for message_id in ids]
