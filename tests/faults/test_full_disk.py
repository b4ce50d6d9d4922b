"""Real file systems that are full, or read-only."""

import asyncio
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import pytest
from harness.api import (
    Reply,
    assert_problem,
    assert_works,
    call,
    delete,
    fetch,
    id_at,
    make_queue,
    post,
)
from harness.audits import assert_audits_clean
from harness.folders import make_old, message_files
from harness.mounts import new_disk, remount, tmpfs
from harness.server import KIB, Serve, Server, body_sizes, commit_modes
from harness.waiting import comes_true

from mq.model.clock import SystemClock
from mq.store.disk.files import Files
from mq.store.operations.reap import reap


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


@pytest.mark.needs_root
async def test_a_disk_that_is_full_to_its_end_is_what_readyz_says(
    needs_root: None, serve: Serve, root: Path
) -> None:
    with tmpfs(root, "size=8m"):
        server = await serve()
        with pytest.raises(OSError, match="No space"):
            (root / "junk").write_bytes(bytes(9 * KIB * KIB))
        assert_problem(await call(server, "GET", "/-/readyz"), 503, "no-space")
        (root / "junk").unlink()
        assert (await call(server, "GET", "/-/readyz")).status == 200


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
@commit_modes
async def test_a_full_disk_refuses_publishers_only_and_recovers(
    needs_root: None, serve: Serve, root: Path, commit: str, size: int, reserve: int | None
) -> None:
    with tmpfs(root, "size=4m"):
        server = await serve(reserve_bytes=reserve, commit=commit)
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
        assert_audits_clean(root)


def few_inodes(root: Path, kind: str) -> AbstractContextManager[Path]:
    if kind == "tmpfs":
        return tmpfs(root, "size=4m,nr_inodes=50")
    return new_disk(root, "ext4", "16M", "-N", "64", "-m", "0")


@contextmanager
def without_inodes(junk: Path) -> Iterator[None]:
    """Uses up the reserve, too."""
    junk.mkdir()
    numbers = iter(range(1000))
    with suppress(OSError):
        while True:
            (junk / str(next(numbers))).touch()
    yield
    shutil.rmtree(junk)


async def is_published(server: Server, size: int) -> bool:
    return (await post(server, b"x" * size)).status == 201


@pytest.mark.needs_root
@commit_modes
@pytest.mark.parametrize("kind", ["tmpfs", "ext4"])
async def test_a_disk_without_inodes_refuses_publishers_only_and_recovers(
    needs_root: None, serve: Serve, root: Path, kind: str, commit: str
) -> None:
    with few_inodes(root, kind):
        server = await serve(commit=commit)
        await make_queue(server)
        ids, refusal = await fill(server, 10)
        assert len(ids) > 10
        assert_problem(refusal, 503, "no-inodes")
        assert message_files(root)["new"] == []
        with without_inodes(root / "junk"):
            assert_problem(await call(server, "PUT", "/another"), 503, "no-inodes")
        for message_id in ids:
            assert (await fetch(server)).id == message_id
            assert (await delete(server, message_id)).status == 202
        assert await reap_all(root) == len(ids)
        await comes_true(lambda: is_published(server, 10), "publishing works again")
        assert_audits_clean(root)
        await server.daemon.drain()


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
        assert_audits_clean(root)
        await server.daemon.drain()
