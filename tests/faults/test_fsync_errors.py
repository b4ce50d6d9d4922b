"""A failed fsync is final: 503, nothing is served or answered that is not on stable media."""

import asyncio
import errno
import os
import stat
from collections.abc import Awaitable, Callable

import pytest
from harness.api import (
    Reply,
    assert_problem,
    assert_works,
    call,
    delete,
    fetch,
    make_queue,
    post,
    publish,
)
from harness.faults import FaultyFiles
from harness.folders import message_files, nothing_anywhere
from harness.internals import publishes_under_way
from harness.server import STREAMED_BYTES, Serve, Server, commit_modes
from harness.waiting import comes_true

from mq.model.errors import StartupError

pytestmark = pytest.mark.usefixtures("audited")

Operation = Callable[[Server, str], Awaitable[Reply]]


async def _publish(server: Server, message_id: str) -> Reply:
    return await post(server)


async def _publish_much(server: Server, message_id: str) -> Reply:
    return await post(server, b"x" * STREAMED_BYTES)


async def _fetch(server: Server, message_id: str) -> Reply:
    return await fetch(server)


async def _delete(server: Server, message_id: str) -> Reply:
    return await delete(server, message_id)


async def _make(server: Server, message_id: str) -> Reply:
    return await call(server, "PUT", "/new")


@pytest.mark.parametrize(
    ("operation", "where"),
    [(_publish, "/new/q:"), (_publish_much, "/new/q:"), (_fetch, "/queues/q/")],
    ids=["publish", "publish-streamed", "fetch"],
)
@commit_modes
async def test_what_is_not_fsynced_is_503_serves_nothing_and_is_not_fsynced_again(
    serve: Serve, commit: str, operation: Operation, where: str
) -> None:
    files = FaultyFiles()
    server = await serve(files=files, commit=commit)
    await make_queue(server)
    message_id = await publish(server) if operation is _fetch else ""
    before = files.count("sync", where)
    files.fail("sync_file_system", errno.EIO)
    files.fail("sync", errno.EIO, where)
    assert_problem(await operation(server, message_id), 503, "storage-failed")
    assert files.count("sync", where) == before + 1
    assert files.open_paths(where) == []
    left = {"delay": [f"q:{message_id}"]} if message_id else {}
    assert message_files(server.root) == nothing_anywhere() | left
    files.heal()
    assert (await fetch(server)).status == 204
    await assert_works(server)


async def test_a_failed_syncfs_is_made_good_by_one_fsync_a_file(serve: Serve) -> None:
    files = FaultyFiles()
    server = await serve(files=files, commit="syncfs")
    await make_queue(server)
    files.fail("sync_file_system", errno.EIO)
    ids = await asyncio.gather(*(publish(server, f"{n}".encode()) for n in range(10)))
    assert [files.count("sync", f"/new/q:{message_id}") for message_id in ids] == [1] * 10
    assert files.count("sync_folder", "/queues/q") > 0
    assert {(await fetch(server)).id for _ in ids} == set(ids)


async def test_after_a_failed_syncfs_only_the_bad_file_is_refused(serve: Serve) -> None:
    files = FaultyFiles()
    server = await serve(files=files, commit="syncfs")
    await make_queue(server)
    files.fail("sync_file_system", errno.EIO)
    files.fail("sync", errno.EIO, "poison")
    good, bad = await asyncio.gather(post(server, b"good"), post(server, b"poison"))
    assert good.status == 201
    assert_problem(bad, 503, "storage-failed")
    assert message_files(server.root)["queues"] == [f"q:{good.id}"]


async def test_syncfs_is_what_persists_a_batch(serve: Serve) -> None:
    files = FaultyFiles()
    server = await serve(files=files, commit="syncfs")
    await make_queue(server)
    gate = files.hold("sync", "/new/q:")
    first = asyncio.create_task(publish(server))
    await comes_true(gate.reached.is_set)
    others = [asyncio.create_task(publish(server)) for _ in range(20)]
    await comes_true(lambda: publishes_under_way(server, "q") == 21, "the others wait for a flush")
    gate.open()
    await asyncio.gather(first, *others)
    assert files.count("sync_file_system") > 0
    assert files.count("sync", "/new/q:") == 1  # The first, which came alone.


@pytest.mark.parametrize(
    ("operation", "folder", "statuses"),
    [
        (_publish, "/queues/q", (503, 201)),
        (_publish, "/new", (503, 201)),
        (_fetch, "/delay", (503, 204)),
        (_fetch, "/queues/q", (503, 204)),
        (_delete, "/remove", (503, 202)),
        (_delete, "/queues/q", (503, 202)),
        # It is there, but was not acknowledged: nor is it when asked again.
        (_make, "/queues", (503, 503, 200)),
    ],
    ids=lambda each: each.__name__ if callable(each) else str(each).replace("/", "-"),
)
@commit_modes
async def test_what_a_folder_does_not_keep_is_503_and_can_be_asked_for_again(
    serve: Serve, commit: str, operation: Operation, folder: str, statuses: tuple[int, ...]
) -> None:
    files = FaultyFiles()
    server = await serve(files=files, commit=commit)
    await make_queue(server)
    message_id = "" if operation is _publish else await publish(server)
    fault = files.fail("sync_folder", errno.EIO, folder)
    for asked, status in enumerate(statuses[:-1], 1):
        assert_problem(await operation(server, message_id), status, "storage-failed")
        assert fault.hits == asked
    files.heal()
    assert (await operation(server, message_id)).status == statuses[-1]


@commit_modes
@pytest.mark.parametrize(
    "request_line", ["POST /q/messages", "GET /q/messages", "PUT /new", "DELETE /q"]
)
async def test_a_folders_failed_fsync_ends_readiness_until_a_probe_succeeds(
    serve: Serve, commit: str, request_line: str
) -> None:
    files = FaultyFiles()
    server = await serve(files=files, commit=commit)
    await make_queue(server)
    await publish(server)
    assert (await call(server, "GET", "/-/readyz")).status == 200
    files.fail("sync_folder", errno.EIO)
    if commit == "syncfs":
        files.fail("sync_file_system", errno.EIO)
    method, path = request_line.split()
    assert (await call(server, method, path)).status == 503
    for _ in range(2):
        assert_problem(await call(server, "GET", "/-/readyz"), 503, "storage-failed")
    files.heal()
    files.fail("sync", errno.EIO, "/.probe")
    assert_problem(await call(server, "GET", "/-/readyz"), 503, "storage-failed")
    files.heal()
    assert (await call(server, "GET", "/-/readyz")).status == 200


async def test_a_start_whose_probe_is_not_fsynced_is_refused(serve: Serve) -> None:
    files = FaultyFiles()
    files.fail("sync", errno.EIO, "/.probe")
    with pytest.raises(StartupError):
        await serve(files=files)


@pytest.fixture
def no_folder_fsync(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A file system that answers so to the fsync of a folder; set the code to choose."""
    real = os.fsync
    code = [errno.EINVAL]

    def fsync(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(code[0], os.strerror(code[0]))
        real(descriptor)

    # Below the seam, since what is tried is how the seam takes it.
    monkeypatch.setattr(os, "fsync", fsync)
    return code


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOTSUP])
async def test_a_file_system_without_folder_fsync_is_tolerated_and_told_of(
    no_folder_fsync: list[int], serve: Serve, code: int
) -> None:
    no_folder_fsync[0] = code
    server = await serve()
    await make_queue(server)
    await assert_works(server)
    facts = (await call(server, "GET", "/-/readyz")).json()
    assert facts["ready"] is True
    assert "but for folders" in facts["durability"]


async def test_a_folders_eio_is_never_tolerated(no_folder_fsync: list[int], serve: Serve) -> None:
    server = await serve()
    await make_queue(server)
    no_folder_fsync[0] = errno.EIO
    assert_problem(await post(server), 503, "storage-failed")
    assert_problem(await call(server, "GET", "/-/readyz"), 503, "storage-failed")


async def test_a_start_on_failing_folders_is_refused(
    no_folder_fsync: list[int], serve: Serve
) -> None:
    no_folder_fsync[0] = errno.EIO
    with pytest.raises(StartupError):
        await serve()
