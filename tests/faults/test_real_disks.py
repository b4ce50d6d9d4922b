"""Real file systems that stand still, become read-only, or reach their quota, under load."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from harness.api import Reply, assert_problem, assert_works, call, delete, fetch, make_queue, post
from harness.audits import assert_audits_clean
from harness.folders import message_files
from harness.internals import operations_waiting
from harness.mounts import device_of, frozen, new_disk, remount, remounted_read_only, run_tool
from harness.needs import cannot_run, program
from harness.server import KIB, MIB, STREAMED_BYTES, Serve, Server, commit_modes
from harness.waiting import comes_true

pytestmark = [pytest.mark.needs_root, pytest.mark.usefixtures("needs_root")]

PUBLISHERS = 4
# More than the load ever writes: a full disk would be another refusal.
ROOMY = "1G"
TRIES_AT_ONCE = 100


class Load:
    """Clients that publish, small and streamed, until they are told to end."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.acknowledged: set[str] = set()
        self.refused: list[Reply] = []
        self._tasks = [asyncio.create_task(self._publish(n)) for n in range(PUBLISHERS)]

    async def _publish(self, number: int) -> None:
        body = b"x" * (STREAMED_BYTES if number == 0 else 100)
        while len(self.acknowledged) < 2000:
            reply = await post(self.server, body)
            if reply.status == 201:
                self.acknowledged.add(reply.id)
            else:
                self.refused.append(reply)

    async def goes_well(self, count: int = 20) -> None:
        enough = len(self.acknowledged) + count
        await comes_true(lambda: len(self.acknowledged) >= enough, "acknowledged publishes")

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@contextlib.asynccontextmanager
async def load_on(server: Server) -> AsyncIterator[Load]:
    load = Load(server)
    try:
        yield load
    finally:
        await load.end()


async def all_of_queue(server: Server) -> set[str]:
    """Fetches and deletes everything; the ids."""
    ids = set()
    while (reply := await fetch(server)).status == 200:
        assert reply.id not in ids
        ids.add(reply.id)
        assert (await delete(server, reply.id)).status == 202
    return ids


@commit_modes
async def test_a_frozen_disk_acknowledges_nothing_and_goes_on_when_thawed(
    serve: Serve, root: Path, commit: str
) -> None:
    with new_disk(root, "ext4", ROOMY):
        server = await serve(commit=commit)
        await make_queue(server)
        async with load_on(server) as load:
            await load.goes_well()
            with frozen(root):
                waiting: list[asyncio.Task[Reply]] = []

                async def a_publish_waits() -> bool:
                    # One at a time: what comes at once may all join the last group.
                    waiting.append(asyncio.create_task(post(server, b"late")))
                    assert (await call(server, "GET", "/-/livez")).status == 200
                    return operations_waiting(server) > 0

                await comes_true(a_publish_waits, "publishes that wait for a group")
                known = set(load.acknowledged)
                for _ in range(20):
                    # The loop turns, answers, and reads requests.
                    assert (await call(server, "GET", "/-/livez")).status == 200
                    assert (await call(server, "POST", "/bad name/messages")).status == 400
                assert load.acknowledged == known
                assert not any(task.done() for task in waiting)
                draining = asyncio.create_task(server.daemon.drain())
                assert not draining.done()
            replies = await asyncio.gather(*waiting, return_exceptions=True)
        await draining
        assert load.refused == []
        promised = load.acknowledged | {
            reply.id for reply in replies if isinstance(reply, Reply) and reply.status == 201
        }
        again = await serve(commit=commit)
        assert promised <= await all_of_queue(again)
        assert_audits_clean(root)


async def becomes_read_only(root: Path) -> None:
    """Refused while a file is open for writing: as often as it takes, and at once one after the
    other, so that the load does not fill the disk meanwhile.
    """

    def done() -> bool:
        return any(remounted_read_only(root) for _ in range(TRIES_AT_ONCE))

    await comes_true(lambda: asyncio.to_thread(done), "a remount to read-only")


async def refuses_changes_only(server: Server, message_id: str) -> None:
    for size in (10, STREAMED_BYTES):
        assert_problem(await post(server, b"x" * size), 503, "read-only")
    assert_problem(await fetch(server), 503, "read-only")
    assert_problem(await delete(server, message_id), 503, "read-only")
    assert_problem(await call(server, "PUT", "/another"), 503, "read-only")
    assert_problem(await call(server, "DELETE", "/q"), 503, "read-only")
    assert_problem(await call(server, "GET", "/-/readyz"), 503, "read-only")
    assert (await call(server, "GET", "/q")).json()["ready"] > 0
    assert (await call(server, "GET", "/-/livez")).status == 200


@commit_modes
async def test_a_disk_that_becomes_read_only_under_load_loses_nothing(
    serve: Serve, root: Path, commit: str
) -> None:
    with new_disk(root, "ext4", ROOMY):
        server = await serve(commit=commit)
        await make_queue(server)
        async with load_on(server) as load:
            await load.goes_well()
            await becomes_read_only(root)
            await comes_true(lambda: len(load.refused) > PUBLISHERS, "refusals")
            for reply in load.refused:
                assert_problem(reply, 503, "read-only")
            await refuses_changes_only(server, next(iter(load.acknowledged)))
            remount(root, "rw")
            await load.goes_well()
        assert (await call(server, "GET", "/-/readyz")).status == 200
        assert load.acknowledged <= await all_of_queue(server)
        assert_audits_clean(root)
        await server.daemon.drain()


async def test_ext4s_own_remount_after_an_error_is_read_only_until_it_is_mounted_anew(
    serve: Serve, root: Path
) -> None:
    with new_disk(root, "ext4", ROOMY):
        run_tool("mount", "-o", "remount,errors=remount-ro", str(root))
        trigger = Path(f"/sys/fs/ext4/{device_of(root)}/trigger_fs_error")
        if not trigger.exists():
            cannot_run("this ext4 cannot be told to fail")
        server = await serve()
        await make_queue(server)
        async with load_on(server) as load:
            await load.goes_well()
            trigger.write_text("on purpose")
            await comes_true(lambda: len(load.refused) > PUBLISHERS, "refusals")
        for reply in load.refused:
            assert reply.status == 503
        await refuses_changes_only(server, next(iter(load.acknowledged)))
        run_tool("umount", "--lazy", str(root))
        image = root.with_name(root.name + ".img")
        os.system(f"e2fsck -fy {image} >/dev/null 2>&1")
        run_tool("mount", "-o", "loop", str(image), str(root))
        assert load.acknowledged <= await all_of_queue(server)
        await assert_works(server)
        assert_audits_clean(root)
        await server.daemon.drain()


@commit_modes
@pytest.mark.parametrize("size", [300 * KIB, 2 * MIB], ids=["held", "streamed"])
async def test_a_quota_refuses_publishers_and_what_frees_is_served(
    serve: Serve, root: Path, commit: str, size: int
) -> None:
    """On btrfs, whose quotas need nothing of the kernel's."""
    program("mkfs.btrfs")
    with new_disk(root, "btrfs", "256M"):
        run_tool("btrfs", "quota", "enable", str(root))
        run_tool("btrfs", "qgroup", "limit", "12M", "0/5", str(root))
        server = await serve(commit=commit)
        await make_queue(server)
        ids = []
        while (reply := await post(server, os.urandom(size))).status == 201:
            ids.append(reply.id)
            assert len(ids) < 200
        assert_problem(reply, 503, "quota-exceeded")
        assert len(ids) > 2
        assert message_files(root)["new"] == []
        reply = await fetch(server)
        if reply.status == 503:
            # A copy-on-write stamp needs room too: no more than a delete gives.
            assert_problem(reply, 503, "quota-exceeded")
        for message_id in ids:
            assert (await delete(server, message_id)).status == 202
        for left in (root / "remove").iterdir():
            left.unlink()
        run_tool("btrfs", "filesystem", "sync", str(root))
        await comes_true(lambda: goes(server), "publishing works again")
        assert_audits_clean(root)
        await server.daemon.drain()


async def goes(server: Server) -> bool:
    return (await post(server)).status == 201
