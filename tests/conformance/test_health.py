"""`/-/livez` and `/-/readyz`: alive, and able to persist now."""

import errno
import shutil
from pathlib import Path

import pytest
from harness.api import StillClock, assert_problem, call, make_queue, publish
from harness.faults import FaultyFiles
from harness.folders import tree
from harness.mounts import remount, tmpfs
from harness.server import Serve, Server

from mq import __version__


async def test_livez_says_alive(server: Server) -> None:
    reply = await call(server, "GET", "/-/livez")
    assert reply.status == 200
    assert reply.json()["alive"] is True


async def test_readyz_says_what_a_success_promises(server: Server, root: Path) -> None:
    reply = await call(server, "GET", "/-/readyz")
    assert reply.status == 200
    facts = reply.json()
    assert facts["ready"] is True
    assert facts["durability"].partition(",")[0] in ("media", "memory")
    assert facts["commit"] in ("fsync", "syncfs")
    assert facts["file_system"]
    assert facts["free_bytes"] > 0
    assert facts["free_inodes"] >= 0
    assert facts["below_reserve"] is False


async def test_readyz_leaves_nothing_behind(server: Server, root: Path) -> None:
    before = tree(root)
    await call(server, "GET", "/-/readyz")
    assert tree(root) == before


async def test_the_root_says_what_this_is_and_where_to_go_on(server: Server) -> None:
    reply = await call(server, "GET", "/")
    assert reply.status == 200
    said = reply.json()
    assert (said.pop("name"), said.pop("version")) == ("mq", __version__)
    assert set(said) == {"page", "openapi", "livez", "readyz"}
    for path in said.values():
        assert (await call(server, "GET", path)).status == 200
    assert_problem(await call(server, "PUT", "/"), 405, "method-not-allowed")


@pytest.mark.parametrize("path", ["/", "/-/livez", "/-/readyz"])
async def test_head_asks_the_same_without_the_body(server: Server, path: str) -> None:
    reply = await call(server, "HEAD", path)
    assert (reply.status, reply.body) == (200, b"")


@pytest.mark.parametrize("commit", ["fsync", "syncfs"])
async def test_readyz_tells_the_commit_mode(serve: Serve, commit: str) -> None:
    server = await serve(commit=commit)
    assert (await call(server, "GET", "/-/readyz")).json()["commit"] == commit


async def test_readyz_is_503_when_the_root_is_gone(server: Server, root: Path) -> None:
    shutil.rmtree(root)
    assert_problem(await call(server, "GET", "/-/readyz"), 503, "root-away")
    assert (await call(server, "GET", "/-/livez")).status == 200


@pytest.mark.parametrize("call_name", ["open_kept", "write", "sync", "sync_folder"])
async def test_readyz_really_writes_and_fsyncs(serve: Serve, call_name: str) -> None:
    files = FaultyFiles()
    server = await serve(files=files)
    files.fail(call_name, errno.EIO)
    assert_problem(await call(server, "GET", "/-/readyz"), 503, "storage-failed")
    files.heal()
    assert (await call(server, "GET", "/-/readyz")).status == 200


async def test_a_good_probe_is_believed_for_a_second_only(serve: Serve) -> None:
    files, clock = FaultyFiles(), StillClock()
    server = await serve(files=files, clock=clock)
    assert (await call(server, "GET", "/-/readyz")).status == 200
    files.fail("sync", errno.EIO)
    clock.steady += 0.9
    assert (await call(server, "GET", "/-/readyz")).status == 200
    clock.steady += 0.2
    assert (await call(server, "GET", "/-/readyz")).status == 503


@pytest.mark.needs_root
async def test_readyz_is_503_on_a_read_only_root(
    needs_root: None, root: Path, serve: Serve
) -> None:
    with tmpfs(root, "size=4m"):
        server = await serve()
        remount(root, "ro")
        assert_problem(await call(server, "GET", "/-/readyz"), 503, "read-only")
        remount(root, "rw")
        assert (await call(server, "GET", "/-/readyz")).status == 200


@pytest.mark.needs_root
async def test_readyz_tells_of_memory_and_of_the_reserve(
    needs_root: None, root: Path, serve: Serve
) -> None:
    with tmpfs(root, "size=4m"):
        server = await serve(reserve_bytes=2 * 1024 * 1024)
        facts = (await call(server, "GET", "/-/readyz")).json()
        assert (facts["file_system"], facts["durability"]) == ("tmpfs", "memory")
        assert facts["below_reserve"] is False
        await make_queue(server)
        await publish(server, b"x" * 1_500_000)
        (root / "ballast").write_bytes(b"x" * 1_000_000)
        another = await serve(reserve_bytes=2 * 1024 * 1024)
        facts = (await call(another, "GET", "/-/readyz")).json()
        assert facts["below_reserve"] is True
