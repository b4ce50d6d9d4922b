"""What the disk refuses is 503 with its reason, and nothing of it is left."""

import asyncio
import errno
from pathlib import Path

import pytest
from harness.api import (
    STILL_MS,
    assert_problem,
    assert_works,
    delete,
    fetch,
    id_at,
    make_queue,
    post,
    publish,
)
from harness.faults import FaultyFiles
from harness.folders import make_old, message_files, nothing_anywhere
from harness.internals import publishes_under_way
from harness.messages import put_file
from harness.server import Serve, body_sizes
from harness.waiting import comes_true

pytestmark = pytest.mark.usefixtures("audited")


@pytest.mark.parametrize(
    ("call_name", "code", "slug"),
    [
        ("write", errno.ENOSPC, "no-space"),
        ("write", errno.EDQUOT, "quota-exceeded"),
        ("write", errno.EIO, "storage-failed"),
        ("create", errno.EMFILE, "no-descriptors"),
        ("create", errno.ENFILE, "no-descriptors"),
        ("create", errno.ENOSPC, "no-space"),
        ("stamp", errno.EIO, "storage-failed"),
        ("rename", errno.ENOSPC, "no-space"),
        ("rename", errno.EIO, "storage-failed"),
    ],
)
@body_sizes
async def test_a_publish_that_fails_leaves_nothing(
    serve: Serve, call_name: str, code: int, slug: str, size: int
) -> None:
    files = FaultyFiles()
    server = await serve(files=files)
    await make_queue(server)
    files.fail(call_name, code, "/new/q:")
    assert_problem(await post(server, b"x" * size), 503, slug)
    assert message_files(server.root) == nothing_anywhere()
    assert files.open_paths("/new/q:") == []
    files.heal()
    assert (await fetch(server)).status == 204
    await assert_works(server)


@body_sizes
async def test_a_group_without_a_descriptor_for_syncfs_fsyncs_each_file(
    serve: Serve, size: int
) -> None:
    files = FaultyFiles()
    server = await serve(files=files, commit="syncfs")
    await make_queue(server)
    fault = files.fail("open_folder", errno.EMFILE)
    message_id = await publish(server, b"x" * size)
    assert fault.hits > 0
    assert files.count("sync", f"/new/q:{message_id}") == 1
    assert files.count("sync_file_system") == 0
    assert (await fetch(server)).id == message_id
    assert files.count("sync", f"/queues/q/{message_id}") == 1


async def test_one_messages_failure_does_not_fail_its_batch(serve: Serve) -> None:
    files = FaultyFiles()
    server = await serve(files=files)
    await make_queue(server)
    # The group that is in flight waits, so that what comes next is one batch.
    gate = files.hold("create", "/new/q:")
    plug = asyncio.create_task(post(server, b"plug"))
    await comes_true(gate.reached.is_set)
    batch = [asyncio.create_task(post(server, b"poison" if n == 3 else b"good")) for n in range(8)]
    await comes_true(lambda: publishes_under_way(server, "q") == 9, "a batch of eight")
    files.fail("sync", errno.EIO, "poison")
    gate.open()
    replies = await asyncio.gather(*batch)
    assert [reply.status for reply in replies] == [201, 201, 201, 503, 201, 201, 201, 201]
    published = {reply.id for reply in replies if reply.status == 201}
    published.add((await plug).id)
    assert set(message_files(server.root)["queues"]) == {f"q:{each}" for each in published}
    assert message_files(server.root)["new"] == []


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EROFS, errno.EACCES])
async def test_a_message_that_could_not_be_claimed_is_there_for_the_next_fetch(
    serve: Serve, root: Path, code: int
) -> None:
    files = FaultyFiles()
    await make_queue(await serve())
    put_file(root / "queues" / "q" / id_at(), b"patient", STILL_MS)
    make_old(root / "queues" / "q")
    server = await serve(files=files)
    files.fail("rename", code, "/delay/")
    assert (await fetch(server)).status == 503
    files.heal()
    reply = await fetch(server)
    assert (reply.status, reply.body) == (200, b"patient")


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("was_fetched", [False, True], ids=["ready", "delayed"])
@pytest.mark.parametrize("if_match", [False, True], ids=["", "if-match"])
async def test_a_delete_that_finds_no_room_in_remove_unlinks(
    serve: Serve, code: int, was_fetched: bool, if_match: bool
) -> None:
    files = FaultyFiles()
    server = await serve(files=files)
    await make_queue(server)
    message_id = await publish(server)
    if was_fetched:
        await fetch(server)
    files.fail("rename", code, "/remove/")
    headers = {"If-Match": f'"{int(was_fetched)}"'} if if_match else {}
    folder = "/delay" if was_fetched else "/queues/q"
    before = files.count("sync_folder", folder)
    assert (await delete(server, message_id, headers=headers)).status == 202
    assert message_files(server.root) == nothing_anywhere()
    assert files.count("sync_folder", folder) > before
    assert (await fetch(server)).status == 204
