"""The steps of each operation, in their order, and both ways to commit them."""

import asyncio
from pathlib import Path

import pytest
from harness.api import (
    UNKNOWN_ID,
    call,
    delete,
    fetch,
    make_queue,
    publish,
)
from harness.faults import FaultyFiles, steps_of
from harness.folders import message_files
from harness.internals import background_work
from harness.server import Serve, Server, body_sizes, commit_modes
from harness.waiting import comes_true

pytestmark = pytest.mark.usefixtures("audited")


@body_sizes
async def test_the_steps_of_a_publish(serve: Serve, size: int) -> None:
    files = FaultyFiles()
    server = await serve(files=files, commit="fsync")
    await make_queue(server)
    before = len(files.calls)
    await publish(server, b"x" * size)
    assert steps_of(files, before) == [
        ("create", "new"),
        ("stamp", "new"),
        ("sync", "new"),
        ("rename", "new"),
        ("sync_folder", "queues"),  # At the first use of the queue's folder.
        ("sync_folder", "q"),
        ("sync_folder", "new"),
    ]


async def test_the_steps_of_a_batch(serve: Serve) -> None:
    files = FaultyFiles()
    server = await serve(files=files, commit="fsync")
    await make_queue(server)
    before = len(files.calls)
    reply = await call(server, "POST", "/q/messages?split=lines", data=b"1\n2\n")
    assert len(reply.body.splitlines()) == 2
    assert steps_of(files, before) == [
        *[("create", "new"), ("stamp", "new")] * 2,
        *[("sync", "new")] * 2,
        *[("rename", "new")] * 2,
        ("sync_folder", "queues"),  # At the first use of the queue's folder.
        ("sync_folder", "q"),
        ("sync_folder", "new"),
    ]


async def test_the_steps_of_a_fetch_and_a_delete(serve: Serve) -> None:
    files = FaultyFiles()
    server = await serve(files=files, commit="fsync")
    await make_queue(server)
    message_id = await publish(server)
    before = len(files.calls)
    await fetch(server)
    # The rename is the claim: nobody stamps a file that another may have won. (A descriptor's
    # path is the one that it was opened by.)
    assert steps_of(files, before) == [
        ("rename", "q"),
        ("stamp", "q"),
        ("sync", "q"),
        ("sync_folder", "delay"),
        ("sync_folder", "q"),
    ]
    before = len(files.calls)
    await delete(server, message_id)
    assert steps_of(files, before) == [
        ("rename", "delay"),
        ("sync_folder", "remove"),
        ("sync_folder", "delay"),
        ("sync_folder", "q"),
    ]
    before = len(files.calls)
    await delete(server, message_id)
    assert ("sync_folder", "remove") in steps_of(files, before)


@body_sizes
async def test_the_steps_of_a_publish_for_later(serve: Serve, size: int) -> None:
    files = FaultyFiles()
    server = await serve(files=files, commit="fsync")
    await make_queue(server)
    for first in (True, False):
        before = len(files.calls)
        reply = await call(server, "POST", "/q/messages?delay=60", data=b"x" * size)
        assert reply.status == 201
        assert steps_of(files, before) == [
            ("create", "new"),
            ("stamp", "new"),
            ("sync", "new"),
            # The queue that it is to come to, at its first use.
            *([("sync_folder", "queues")] if first else []),
            ("rename", "new"),
            ("sync_folder", "delay"),
            ("sync_folder", "new"),
        ]


async def patch(server: Server, message_id: str, due_in_s: float) -> int:
    path = f"/q/messages/{message_id}"
    return (await call(server, "PATCH", path, json={"due_in_s": due_in_s})).status


async def test_the_steps_of_another_due_time(serve: Serve) -> None:
    files = FaultyFiles()
    server = await serve(files=files, commit="fsync")
    await make_queue(server)
    message_id = await publish(server)
    folders = [("sync_folder", "delay"), ("sync_folder", "q")]
    before = len(files.calls)
    assert await patch(server, message_id, 60) == 200
    # To postpone: the rename first, since what is in the queue is served whatever its time.
    assert steps_of(files, before) == [("rename", "q"), ("stamp", "q"), ("sync", "q"), *folders]
    before = len(files.calls)
    assert await patch(server, message_id, 90) == 200
    # To extend: who brought it there may have died before its own flush.
    assert steps_of(files, before) == [("stamp", "delay"), ("sync", "delay"), *folders]
    before = len(files.calls)
    assert await patch(server, message_id, 0) == 200
    # To release: the stamp first, so that it comes back by itself where the rename fails.
    assert steps_of(files, before) == [
        ("stamp", "delay"),
        ("rename", "delay"),
        ("sync", "delay"),
        *reversed(folders),
    ]
    before = len(files.calls)
    assert await patch(server, message_id, 0) == 200
    assert steps_of(files, before) == [*reversed(folders)]


@pytest.mark.parametrize("state", ["queues", "delay"])
@pytest.mark.parametrize("due_in_s", [0, 60])
async def test_a_queue_that_another_made_is_flushed_with_another_due_time(
    serve: Serve, root: Path, due_in_s: float, state: str
) -> None:
    """Else a power cut would leave the message without it."""
    files = FaultyFiles()
    server, other = await serve(files=files, commit="fsync"), await serve()
    await make_queue(other)
    message_id = await publish(other)
    if state == "delay":
        await fetch(other)
    before = len(files.calls)
    assert await patch(server, message_id, due_in_s) == 200
    assert steps_of(files, before).count(("sync_folder", "queues")) == 1
    before = len(files.calls)
    assert await patch(server, message_id, due_in_s) == 200
    assert ("sync_folder", "queues") not in steps_of(files, before)


async def test_a_patch_that_finds_nothing_is_for_good(serve: Serve) -> None:
    files = FaultyFiles()
    server = await serve(files=files, commit="fsync")
    before = len(files.calls)
    assert await patch(server, UNKNOWN_ID, 60) == 404
    await make_queue(server)
    before = len(files.calls)
    assert await patch(server, UNKNOWN_ID, 60) == 404
    assert steps_of(files, before) == [
        ("sync_folder", "remove"),
        ("sync_folder", "delay"),
        ("sync_folder", "q"),
    ]


async def test_the_steps_of_making_and_deleting_a_queue(serve: Serve) -> None:
    files = FaultyFiles()
    server = await serve(files=files, commit="fsync")
    before = len(files.calls)
    await make_queue(server)
    assert steps_of(files, before)[-1] == ("sync_folder", "queues")
    before = len(files.calls)
    assert (await call(server, "DELETE", "/q")).status == 200
    steps = steps_of(files, before)
    assert steps[: steps.index(("rename", "queues"))] == [
        ("stamp", "deleted"),
        ("sync", "deleted"),
        ("sync_folder", "deleted"),
    ]
    assert steps[steps.index(("rename", "queues")) + 1 :][:2] == [
        ("sync_folder", "remove"),
        ("sync_folder", "queues"),
    ]


async def test_what_is_not_found_is_gone_for_good(serve: Serve) -> None:
    """Whoever removed it may have died before its own flush."""
    files = FaultyFiles()
    server = await serve(files=files, commit="fsync")
    before = len(files.calls)
    assert (await delete(server, UNKNOWN_ID)).status == 404
    assert (await call(server, "DELETE", "/q")).status == 404
    assert steps_of(files, before) == [("sync_folder", "remove"), ("sync_folder", "queues")] * 2
    await make_queue(server)
    before = len(files.calls)
    assert (await delete(server, UNKNOWN_ID)).status == 404
    assert steps_of(files, before) == [
        ("sync_folder", "remove"),
        ("sync_folder", "delay"),
        ("sync_folder", "q"),
    ]


async def test_the_steps_of_retiring_what_a_deleted_queue_has_in_delay(serve: Serve) -> None:
    files = FaultyFiles()
    server = await serve(files=files, commit="fsync")
    await make_queue(server)
    await publish(server)
    await fetch(server)
    before = len(files.calls)
    assert (await call(server, "DELETE", "/q")).status == 200
    await comes_true(lambda: not background_work(server))
    steps = steps_of(files, before)
    assert steps[steps.index(("rename", "delay")) :] == [
        ("rename", "delay"),
        ("sync_folder", "remove"),
        ("sync_folder", "delay"),
    ]


async def test_a_queue_that_another_made_is_flushed_at_its_first_use(
    serve: Serve, root: Path
) -> None:
    files = FaultyFiles()
    server = await serve(files=files, commit="fsync")
    (root / "queues" / "q").mkdir(mode=0o700)
    before = len(files.calls)
    await publish(server)
    assert ("sync_folder", "queues") in steps_of(files, before)
    before = len(files.calls)
    await publish(server)
    assert ("sync_folder", "queues") not in steps_of(files, before)


@commit_modes
@body_sizes
async def test_a_message_lives_in_every_commit_mode(
    serve: Serve, root: Path, commit: str, size: int
) -> None:
    server = await serve(commit=commit)
    await make_queue(server)
    ids = await asyncio.gather(*(publish(server, b"x" * size) for _ in range(10)))
    replies = await asyncio.gather(*(fetch(server) for _ in ids))
    assert {len(reply.body) for reply in replies} == {size}
    deletes = await asyncio.gather(*(delete(server, reply.id) for reply in replies))
    assert {reply.status for reply in deletes} == {202}
    assert message_files(root)["remove"] == sorted(f"q:{message_id}" for message_id in ids)
