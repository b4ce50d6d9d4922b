"""What storage does to a queue: nothing acknowledged is lost, nothing refused is delivered."""

import asyncio
import errno
import os
import shutil
import stat
from pathlib import Path

import pytest
from harness.api import (
    Reply,
    assert_problem,
    call,
    delete,
    fetch,
    id_at,
    make_queue,
    publish,
)
from harness.faults import FaultyFiles
from harness.folders import message_files, nothing_anywhere
from harness.internals import operations_waiting
from harness.mounts import remount, tmpfs
from harness.server import Serve, Server
from harness.waiting import comes_true

from mq.clock import SystemClock
from mq.errors import AcrossFileSystems, StartupError
from mq.store.files import Files
from mq.store.reap import reap

MIB = 1024 * 1024
KIB = 1024

commit_modes = pytest.mark.parametrize("commit", ["fsync", "syncfs"])
body_sizes = pytest.mark.parametrize("size", [5, 3 * MIB // 2], ids=["held", "streamed"])


async def post(server: Server, body: bytes = b"hello", queue: str = "q") -> Reply:
    return await call(server, "POST", f"/{queue}/messages", data=body)


async def assert_works(server: Server, queue: str = "q") -> None:
    """That a message passes through the whole of its life."""
    message_id = await publish(server, b"works", queue)
    reply = await fetch(server, queue)
    assert (reply.id, reply.body) == (message_id, b"works")
    assert (await delete(server, message_id, queue)).status == 202


def make_old(folder: Path) -> None:
    """So that the daemon believes the folder's mtime, and does not list it needlessly."""
    os.utime(folder, ns=(0, folder.stat().st_mtime_ns - 60 * 10**9))


# The steps


def steps_of(files: FaultyFiles, after: int) -> list[tuple[str, str]]:
    kinds = ("create", "stamp", "sync", "rename", "sync_folder")
    return [
        (call_name, Path(path).parent.name if call_name != "sync_folder" else Path(path).name)
        for call_name, path in files.calls[after:]
        if call_name in kinds
    ]


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
        ("sync_folder", "q"),
        ("sync_folder", "new"),
        ("sync_folder", "queues"),  # At the first use of the queue's folder.
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
        ("sync_folder", "q"),  # The fetch may not have been flushed, for all a delete knows.
    ]
    before = len(files.calls)
    await delete(server, message_id)
    assert ("sync_folder", "remove") in steps_of(files, before)


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


async def test_a_queue_that_another_made_is_flushed_at_its_first_use(
    serve: Serve, root: Path
) -> None:
    files = FaultyFiles()
    server = await serve(files=files, commit="fsync")
    (root / "queues" / "q").mkdir()
    before = len(files.calls)
    await publish(server)
    assert ("sync_folder", "queues") in steps_of(files, before)
    before = len(files.calls)
    await publish(server)
    assert ("sync_folder", "queues") not in steps_of(files, before)


# A file's fsync


@body_sizes
@commit_modes
async def test_a_publish_whose_fsync_fails_leaves_nothing_and_is_not_fsynced_again(
    serve: Serve, commit: str, size: int
) -> None:
    files = FaultyFiles()
    server = await serve(files=files, commit=commit)
    await make_queue(server)
    files.fail("sync_file_system", errno.EIO)
    files.fail("sync", errno.EIO, "/new/q:")
    assert_problem(await post(server, b"x" * size), 503, "storage-failed")
    assert files.count("sync", "/new/q:") == 1
    assert files.open_paths("/new/q:") == []
    assert message_files(server.root) == nothing_anywhere()
    files.heal()
    assert (await fetch(server)).status == 204
    await assert_works(server)


@commit_modes
async def test_a_fetch_whose_fsync_fails_serves_nothing(
    serve: Serve, root: Path, commit: str
) -> None:
    files = FaultyFiles()
    server = await serve(files=files, commit=commit)
    await make_queue(server)
    message_id = await publish(server)
    files.fail("sync_file_system", errno.EIO)
    files.fail("sync", errno.EIO, "/queues/q/")
    assert_problem(await fetch(server), 503, "storage-failed")
    assert files.count("sync", "/queues/q/") == 1
    assert files.open_paths("/queues/q/") == []
    assert message_files(root)["delay"] == [f"q:{message_id}"]
    files.heal()
    assert (await fetch(server)).status == 204


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
    files.fail("sync", errno.EIO, "bad")
    good, bad = await asyncio.gather(post(server, b"good"), post(server, b"bad"))
    assert good.status == 201
    assert_problem(bad, 503, "storage-failed")
    assert message_files(server.root)["queues"] == [f"q:{good.id}"]


async def test_syncfs_is_what_persists_a_batch(serve: Serve) -> None:
    files = FaultyFiles()
    server = await serve(files=files, commit="syncfs")
    await make_queue(server)
    await asyncio.gather(*(publish(server) for _ in range(20)))
    assert files.count("sync_file_system") > 0
    assert files.count("sync", "/new/q:") == 0


# A folder's fsync


@pytest.mark.parametrize("folder", ["/queues/q", "/new"])
@commit_modes
async def test_a_publish_whose_folder_is_not_fsynced_is_503(
    serve: Serve, commit: str, folder: str
) -> None:
    files = FaultyFiles()
    server = await serve(files=files, commit=commit)
    await make_queue(server)
    fault = files.fail("sync_folder", errno.EIO, folder)
    assert_problem(await post(server), 503, "storage-failed")
    assert fault.hits == 1
    files.heal()
    await publish(server)


@pytest.mark.parametrize("folder", ["/delay", "/queues/q"])
async def test_a_fetch_whose_folder_is_not_fsynced_is_503(serve: Serve, folder: str) -> None:
    files = FaultyFiles()
    server = await serve(files=files)
    await make_queue(server)
    await publish(server)
    files.fail("sync_folder", errno.EIO, folder)
    assert_problem(await fetch(server), 503, "storage-failed")


@pytest.mark.parametrize("folder", ["/remove", "/queues/q"])
async def test_a_delete_whose_folder_is_not_fsynced_is_503_and_can_be_said_again(
    serve: Serve, folder: str
) -> None:
    files = FaultyFiles()
    server = await serve(files=files)
    await make_queue(server)
    message_id = await publish(server)
    files.fail("sync_folder", errno.EIO, folder)
    assert_problem(await delete(server, message_id), 503, "storage-failed")
    files.heal()
    assert (await delete(server, message_id)).status == 202


async def test_making_a_queue_whose_folder_is_not_fsynced_is_503(serve: Serve) -> None:
    files = FaultyFiles()
    server = await serve(files=files)
    files.fail("sync_folder", errno.EIO, "/queues")
    assert_problem(await call(server, "PUT", "/q"), 503, "storage-failed")
    # It is there, but was not acknowledged: nor is it when asked again.
    assert_problem(await call(server, "PUT", "/q"), 503, "storage-failed")
    files.heal()
    assert (await call(server, "PUT", "/q")).status == 200


@commit_modes
async def test_a_folders_failed_fsync_ends_readiness_until_a_probe_succeeds(
    serve: Serve, commit: str
) -> None:
    files = FaultyFiles()
    server = await serve(files=files, commit=commit)
    await make_queue(server)
    assert (await call(server, "GET", "/-/readyz")).status == 200
    files.fail("sync_folder", errno.EIO)
    assert (await post(server)).status == 503
    assert_problem(await call(server, "GET", "/-/readyz"), 503, "storage-failed")
    assert_problem(await call(server, "GET", "/-/readyz"), 503, "storage-failed")
    files.heal()
    assert (await call(server, "GET", "/-/readyz")).status == 200


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


# Refused while writing


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
    # Both groups that may be in flight wait, so that what comes next is one batch.
    gate = files.hold("create", "/new/q:")
    plugs = [asyncio.create_task(post(server, b"plug"))]
    await comes_true(lambda: gate.arrivals == 1)
    plugs.append(asyncio.create_task(post(server, b"plug")))
    await comes_true(lambda: gate.arrivals == 2)
    batch = [asyncio.create_task(post(server, b"bad" if n == 3 else b"good")) for n in range(8)]
    await comes_true(lambda: operations_waiting(server) == 8, "a batch of eight")
    files.fail("sync", errno.EIO, "bad")
    gate.open()
    replies = await asyncio.gather(*batch)
    assert [reply.status for reply in replies] == [201, 201, 201, 503, 201, 201, 201, 201]
    published = {reply.id for reply in replies if reply.status == 201}
    published |= {(await plug).id for plug in plugs}
    assert set(message_files(server.root)["queues"]) == {f"q:{each}" for each in published}
    assert message_files(server.root)["new"] == []


# A fetch that fails before its claim


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EROFS, errno.EACCES])
async def test_a_message_that_could_not_be_claimed_is_there_for_the_next_fetch(
    serve: Serve, root: Path, code: int
) -> None:
    files = FaultyFiles()
    await make_queue(await serve())
    (root / "queues" / "q" / id_at()).write_bytes(b"patient")
    make_old(root / "queues" / "q")
    server = await serve(files=files)
    files.fail("rename", code, "/delay/")
    assert (await fetch(server)).status == 503
    files.heal()
    reply = await fetch(server)
    assert (reply.status, reply.body) == (200, b"patient")


# Deleting without space


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
    before = len(files.calls)
    assert (await delete(server, message_id, headers=headers)).status == 202
    assert message_files(server.root) == nothing_anywhere()
    folder = "delay" if was_fetched else "q"
    assert ("sync_folder", folder) in steps_of(files, before)
    assert (await fetch(server)).status == 204


# Renames that were done but said to have failed, as over NFS


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


# Folders that go away


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


# Starting


@pytest.mark.parametrize("line", ["mq 2\n", "mq 1 ", "mq 10\n", "something else\n", "mq 1\nmore\n"])
async def test_a_root_of_another_format_is_refused(serve: Serve, root: Path, line: str) -> None:
    await serve()
    (root / "format").write_text(line)
    with pytest.raises(StartupError, match="format"):
        await serve()
    assert (root / "format").read_text() == line


async def test_the_format_is_one_line(server: Server, root: Path) -> None:
    assert (root / "format").read_text() == "mq 1\n"


@pytest.mark.parametrize("folder", ["new", "queues", "delay", "remove"])
async def test_a_folder_that_is_a_symbolic_link_is_refused(
    serve: Serve, root: Path, tmp_path: Path, folder: str
) -> None:
    root.mkdir()
    (tmp_path / "elsewhere").mkdir()
    (root / folder).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StartupError, match=folder):
        await serve()


@pytest.mark.needs_root
@pytest.mark.parametrize(
    ("mounted", "named"),
    [
        ("new", ("new", "queues")),
        ("queues", ("new", "queues")),
        ("delay", ("queues", "delay")),
        ("remove", ("delay", "remove")),
    ],
)
async def test_a_folder_on_another_file_system_is_refused_by_name(
    needs_root: None, serve: Serve, root: Path, mounted: str, named: tuple[str, str]
) -> None:
    with tmpfs(root / mounted, "size=1m"):
        with pytest.raises(AcrossFileSystems) as refused:
            await serve()
        for folder in named:
            assert str(root / folder) in str(refused.value)
        assert list(root.rglob(".probe")) == []


# Real file systems that are read-only, or full


@pytest.mark.needs_root
@body_sizes
async def test_a_read_only_root_refuses_changes_and_can_still_be_looked_at(
    needs_root: None, serve: Serve, root: Path, size: int
) -> None:
    with tmpfs(root, "size=8m"):
        await make_queue(await serve())
        (root / "queues" / "q" / id_at()).write_bytes(b"patient")
        make_old(root / "queues" / "q")
        server = await serve()
        remount(root, "ro")
        assert_problem(await post(server, b"x" * size), 503, "read-only")
        assert_problem(await fetch(server), 503, "read-only")
        assert_problem(await delete(server, id_at()), 503, "read-only")
        assert_problem(await call(server, "PUT", "/another"), 503, "read-only")
        assert_problem(await call(server, "DELETE", "/q"), 503, "read-only")
        assert (await call(server, "GET", "/q")).json()["ready"] == 1
        assert (await call(server, "GET", "/-/livez")).status == 200
        remount(root, "rw")
        assert (await fetch(server)).body == b"patient"
        await assert_works(server)


async def fill(server: Server, size: int) -> tuple[list[str], Reply]:
    """Publishes until that is refused; the ids, and the refusal."""
    ids = []
    while (reply := await post(server, b"x" * size)).status == 201:
        ids.append(reply.id)
        assert len(ids) < 1000
    return ids, reply


async def reap_all(root: Path) -> int:
    later_ms = SystemClock().now_ms() + 1000
    return (await asyncio.to_thread(reap, Files(), str(root / "remove"), later_ms, 0.0)).files


@pytest.mark.needs_root
@pytest.mark.parametrize("size", [100 * KIB, 1100 * KIB], ids=["held", "streamed"])
@pytest.mark.parametrize("reserve", [None, 0], ids=["with a reserve", "without"])
async def test_a_full_disk_refuses_publishers_only_and_recovers(
    needs_root: None, serve: Serve, root: Path, size: int, reserve: int | None
) -> None:
    with tmpfs(root, "size=4m"):
        server = await serve(reserve_bytes=reserve)
        await make_queue(server)
        ids, refusal = await fill(server, size)
        assert len(ids) >= 2
        assert_problem(refusal, 503, "no-space")
        assert message_files(root)["new"] == []
        for message_id in ids:
            reply = await fetch(server)
            assert (reply.id, len(reply.body)) == (message_id, size)
            assert (await delete(server, message_id)).status == 202
        assert (await fetch(server)).status == 204
        assert await reap_all(root) == len(ids)
        await comes_true(lambda: is_published(server, size), "publishing works again")


async def is_published(server: Server, size: int) -> bool:
    return (await post(server, b"x" * size)).status == 201


@pytest.mark.needs_root
async def test_a_disk_without_inodes_refuses_publishers_only_and_recovers(
    needs_root: None, serve: Serve, root: Path
) -> None:
    with tmpfs(root, "size=4m,nr_inodes=50"):
        server = await serve()
        await make_queue(server)
        ids, refusal = await fill(server, 10)
        assert len(ids) > 10
        assert_problem(refusal, 503, "no-inodes")
        assert message_files(root)["new"] == []
        for message_id in ids:
            assert (await fetch(server)).id == message_id
            assert (await delete(server, message_id)).status == 202
        assert await reap_all(root) == len(ids)
        await comes_true(lambda: is_published(server, 10), "publishing works again")


@pytest.mark.needs_root
async def test_a_queue_can_be_deleted_on_a_full_disk(
    needs_root: None, serve: Serve, root: Path
) -> None:
    with tmpfs(root, "size=4m,nr_inodes=50"):
        server = await serve()
        await make_queue(server)
        await fill(server, 10)
        assert (await call(server, "DELETE", "/q")).status == 200
        await reap_all(root)
        await make_queue(server)
        await comes_true(lambda: is_published(server, 10), "publishing works again")


# Both ways to commit


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
