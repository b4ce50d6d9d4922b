"""What the queue that mq comes from got wrong, one test each."""

import errno
import os
import re
import threading
from pathlib import Path

import pytest
from harness.api import assert_problem, call, fetch, make_queue, publish
from harness.clock import FakeClock
from harness.faults import FaultyFiles
from harness.folders import message_files
from harness.messages import new_id, put_entry, put_file
from harness.processes import Processes
from harness.raw import raw_connection, raw_head
from harness.server import Serve, Server
from harness.waiting import comes_true

from mq.model.clock import SystemClock
from mq.model.limits import BODY_HELD_BYTES_MAX, MIB
from mq.store.disk.files import Files
from mq.store.disk.flush import FsyncFlusher
from mq.store.opening import open_root
from mq.store.operations.redeliver import Timer
from mq_mover.mover import Mover

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")

Events = list[tuple[str, ...]]


class RecordingFiles(Files):
    """Writes down each change and flush once it is done, paths below the root, ids as ID."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self._root = root
        self._guard = threading.Lock()
        self._events: Events = []

    def take(self) -> Events:
        """What was done since the last time."""
        with self._guard:
            taken, self._events = self._events, []
        return taken

    def _did(self, call: str, *paths: str) -> None:
        below = [_UUID.sub("ID", os.path.relpath(path, self._root)) for path in paths]
        with self._guard:
            self._events.append((call, *below))

    def _path(self, descriptor: int) -> str:
        return os.readlink(f"/proc/self/fd/{descriptor}")

    def write(self, descriptor: int, data: bytes | bytearray | memoryview) -> None:
        super().write(descriptor, data)
        self._did("write", self._path(descriptor))

    def stamp(self, descriptor: int, mtime_ns: int) -> None:
        super().stamp(descriptor, mtime_ns)
        self._did("stamp", self._path(descriptor))

    def mkdir(self, path: str) -> None:
        super().mkdir(path)
        self._did("mkdir", path)

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        self._did("rename", source, target)

    def unlink(self, path: str) -> None:
        super().unlink(path)
        self._did("unlink", path)

    def sync(self, descriptor: int) -> None:
        super().sync(descriptor)
        self._did("sync", self._path(descriptor))

    def sync_folder(self, path: str) -> None:
        super().sync_folder(path)
        self._did("sync_folder", path)

    def sync_file_system(self, descriptor: int) -> None:
        super().sync_file_system(descriptor)
        self._did("sync_file_system")


@pytest.mark.parametrize("size", [5, BODY_HELD_BYTES_MAX + 1], ids=["held", "streamed"])
async def test_fsync_error_is_not_ignored(serve: Serve, size: int) -> None:
    files = FaultyFiles()
    server = await serve(files=files, commit="fsync")
    await make_queue(server)
    fault = files.fail("sync", errno.EIO, where="/new/q:")
    reply = await call(server, "POST", "/q/messages", data=b"x" * size)
    assert_problem(reply, 503, "storage-failed")
    assert fault.hits == 1  # A second call would say that all is well, and it would be a lie.
    assert (await fetch(server)).status == 204
    assert message_files(server.root) == {"new": [], "queues": [], "delay": [], "remove": []}
    files.heal()
    message_id = await publish(server)
    assert (await fetch(server)).id == message_id


async def test_fsync_error_of_a_fetch_serves_nothing(serve: Serve) -> None:
    files = FaultyFiles()
    server = await serve(files=files, commit="fsync")
    await make_queue(server)
    message_id = await publish(server)
    files.fail("sync", errno.EIO, where="/queues/q/")
    reply = await fetch(server)
    assert_problem(reply, 503, "storage-failed")
    assert b"hello" not in reply.body
    # Not lost: mq-mover brings it back when it is due.
    assert message_files(server.root)["delay"] == [f"q:{message_id}"]


@pytest.mark.parametrize("folder", ["/queues/q", "/new"])
async def test_fsync_error_of_a_folder_is_not_ignored(serve: Serve, folder: str) -> None:
    files = FaultyFiles()
    server = await serve(files=files, commit="fsync")
    await make_queue(server)
    files.fail("sync_folder", errno.EIO, where=folder)
    assert_problem(await call(server, "POST", "/q/messages", data=b"x"), 503, "storage-failed")


async def test_a_streamed_publish_is_fsynced_before_its_rename(serve: Serve, root: Path) -> None:
    files = RecordingFiles(root)
    server = await serve(files=files, commit="fsync")
    await make_queue(server)
    files.take()
    await publish(server, b"x" * (2 * MIB))
    events = files.take()
    last_write = max(place for place, event in enumerate(events) if event[0] == "write")
    assert events[last_write + 1 :] == [
        ("stamp", "new/q:ID"),
        ("sync", "new/q:ID"),
        ("rename", "new/q:ID", "queues/q/ID"),
        ("sync_folder", "queues/q"),
        ("sync_folder", "new"),
    ]


async def test_a_lone_publish_is_fsynced_also_where_syncfs_serves_many(
    serve: Serve, root: Path
) -> None:
    files = RecordingFiles(root)
    server = await serve(files=files, commit="syncfs")
    await make_queue(server)
    files.take()
    await publish(server)
    assert files.take() == [
        ("write", "new/q:ID"),
        ("stamp", "new/q:ID"),
        ("sync", "new/q:ID"),
        ("rename", "new/q:ID", "queues/q/ID"),
        ("sync_folder", "queues/q"),
        ("sync_folder", "new"),
    ]


async def test_loser_of_a_race_serves_nothing(serve: Serve, root: Path) -> None:
    class OvertakenFiles(Files):
        """Another process claims the first message in the moment before this one does."""

        def rename(self, source: str, target: str) -> None:
            if source == str(contested):
                os.rename(source, root / "delay" / f"q:{contested.name}")
            super().rename(source, target)

    contested = Path()
    server = await serve(files=OvertakenFiles())
    await make_queue(server)
    contested = root / "queues" / "q" / await publish(server, b"contested")
    other = await publish(server, b"other")
    reply = await fetch(server)
    assert (reply.id, reply.body) == (other, b"other")
    assert (await fetch(server)).status == 204


async def test_two_processes_never_serve_one_message_twice(serve: Serve) -> None:
    servers = [await serve(), await serve()]
    await make_queue(servers[0])
    published = [await publish(servers[0]) for _ in range(50)]
    served: list[str] = []
    empty = 0
    while empty < len(servers):
        empty = 0
        for server in servers:
            reply = await fetch(server)
            if reply.status == 204:
                empty += 1
            else:
                served.append(reply.id)
    assert sorted(served) == published


def test_timers_survive_a_restart(root: Path) -> None:
    clock = FakeClock()
    opened = open_root(str(root), Files(), clock)
    (root / "queues" / "q").mkdir()
    due_ms = clock.now_ms() + 60_000
    entries = [put_entry(root / "delay", "q", due_ms=due_ms, receives=1) for _ in range(3)]
    flusher = FsyncFlusher(opened.files, threads=2)
    assert Mover(opened, flusher, Timer()).run_once() == 0
    clock.advance(59)
    restarted = Mover(opened, flusher, Timer())
    assert restarted.run_once() == 0
    clock.advance(1)
    assert restarted.run_once() == 3
    flusher.close()
    ready = {path.name for path in (root / "queues" / "q").iterdir()}
    assert ready == {entry.name.removeprefix("q:") for entry in entries}


@pytest.mark.certificate
async def test_files_already_present_are_delivered(
    daemons: Processes, serve: Serve, root: Path
) -> None:
    for name in ("new", "queues/q", "delay", "remove"):
        (root / name).mkdir(parents=True)
    put_file(root / "queues" / "q" / new_id().text, b"ready")
    put_entry(root / "delay", "q", b"delayed", due_ms=SystemClock().now_ms() - 1000)
    server = await serve()
    daemons.mover("--root", str(root))
    assert (await fetch(server)).body == b"ready"

    async def fetched() -> bytes:
        return (await fetch(server)).body

    assert await comes_true(fetched) == b"delayed"


@pytest.mark.parametrize("size", [0, 5, 2 * MIB], ids=["empty", "held", "streamed"])
async def test_publish_to_a_missing_queue_is_answered_and_leaves_nothing(
    server: Server, size: int
) -> None:
    reply = await call(server, "POST", "/q/messages", data=b"x" * size)
    assert_problem(reply, 404, "queue-not-found")
    assert message_files(server.root) == {"new": [], "queues": [], "delay": [], "remove": []}
    assert list((server.root / "queues").iterdir()) == []


@pytest.mark.parametrize("size", [5, 2 * MIB], ids=["held", "streamed"])
async def test_publish_to_a_queue_that_goes_meanwhile_is_answered_and_leaves_nothing(
    serve: Serve, size: int
) -> None:
    server, other = await serve(), await serve()
    await make_queue(server)
    body = b"x" * size
    async with raw_connection(server.port) as connection:
        expect = "Expect: 100-continue"
        await connection.send(raw_head("POST", "/q/messages", f"Content-Length: {size}", expect))
        assert (await connection.response()).status == 100
        assert (await call(other, "DELETE", "/q")).status == 200
        await connection.send(body)
        assert_problem(await connection.response(), 404, "queue-not-found")
    assert message_files(server.root)["new"] == []
    assert list((server.root / "queues").iterdir()) == []
