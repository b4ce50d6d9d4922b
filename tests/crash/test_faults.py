"""A call that failed is over when it failed: what was there before is there after."""

import asyncio
import contextlib
import errno
import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from harness.api import assert_problem, call, delete, fetch, make_queue, publish
from harness.clock import FakeClock
from harness.faults import FaultyFiles
from harness.folders import message_files, nothing_anywhere
from harness.messages import new_id, put_entry, put_file
from harness.mounts import tmpfs
from harness.processes import Processes, eventually
from harness.server import Serve, Server
from harness.waiting import comes_true

from mq.model.errors import Busy, Unavailable
from mq.model.names import MessageId, QueueName
from mq.store.disk.commit import Committer
from mq.store.disk.files import Files
from mq.store.disk.flush import Failures, NoFlusher
from mq.store.disk.group import run_alone
from mq.store.disk.steps import Flush
from mq.store.opening import open_root
from mq.store.operations.fetch import fetch as fetch_steps
from mq.store.operations.publish import Draft
from mq.store.operations.publish import publish as publish_steps
from mq.store.operations.redeliver import forget


async def test_a_failed_listing_is_answered_and_the_next_one_finds_all(serve: Serve) -> None:
    class UnreadableFiles(Files):
        failures = 0

        def entries(self, folder: str):  # type: ignore[no-untyped-def]
            if folder.endswith("/queues/q") and self.failures:
                self.failures -= 1
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return super().entries(folder)

    files = UnreadableFiles()
    server = await serve(files=files)
    await make_queue(server)
    message_id = await publish(server)
    files.failures = 1
    assert_problem(await fetch(server), 503, "storage-failed")
    assert (await fetch(server)).id == message_id


def test_daemons_that_start_at_once_on_a_missing_root_all_open_it(root: Path) -> None:
    class OvertakenFiles(Files):
        """Another daemon makes each folder in the moment before this one does."""

        def mkdir(self, path: str) -> None:
            os.mkdir(path)
            super().mkdir(path)

    opened = open_root(str(root / "below"), OvertakenFiles(), FakeClock())
    assert all(Path(folder).is_dir() for folder in opened.layout.folders())


@pytest.mark.parametrize("code", [errno.ENOENT, errno.ESTALE])
async def test_a_rename_that_wrongly_finds_nothing_hides_no_message(
    serve: Serve, root: Path, code: int
) -> None:
    """As NFS may answer; the folder has been as it is for long, and does not change."""
    files = FaultyFiles()
    server = await serve(files=files)
    await make_queue(server)
    message_id = await publish(server)
    os.utime(root / "queues" / "q", ns=(10**18, 10**18))
    files.fail("rename", code, where="/delay/q:", times=1)
    assert (await fetch(server)).id == message_id


async def test_a_fetch_ends_though_a_name_is_in_listings_alone(serve: Serve) -> None:
    """As NFS's cache of names that are not there may have it."""
    files = FaultyFiles()
    server = await serve(files=files)
    await make_queue(server)
    absent_id = await publish(server)
    present_id = await publish(server)
    files.fail("open_claimed", errno.ENOENT, where=absent_id)
    assert (await fetch(server)).id == present_id
    assert (await fetch(server)).status == 204
    files.heal()
    await comes_true(lambda: _is_served(server, absent_id), "the message is served")


async def test_a_fetch_ends_though_thousands_of_names_are_in_listings_alone(
    serve: Serve, root: Path
) -> None:
    class HidingFiles(Files):
        """A client's cache has it that no message is in the queue."""

        hides = True

        def open_claimed(self, path: str) -> int:
            if self.hides and "/queues/q/" in path:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            return super().open_claimed(path)

        def status(self, path: str) -> os.stat_result | None:
            return None if self.hides and "/queues/q/" in path else super().status(path)

    files = HidingFiles()
    server = await serve(files=files)
    await make_queue(server)
    for _ in range(2000):
        put_file(root / "queues" / "q" / new_id().text, due_ms=1_000)
    assert (await fetch(server)).status == 204
    files.hides = False
    await comes_true(lambda: _is_any_served(server), "a message is served")


async def _is_any_served(server: Server) -> bool:
    return (await fetch(server)).status == 200


async def _is_served(server: Server, message_id: str) -> bool:
    return (await fetch(server)).headers.get("X-Message-Id") == message_id


async def test_a_message_that_is_due_again_before_its_answer_is_not_served(serve: Serve) -> None:
    files, clock = FaultyFiles(), FakeClock()
    server = await serve(files=files, clock=clock, commit="fsync")
    await make_queue(server)
    message_id = await publish(server, b"late")
    other_id = await publish(server, b"in time")
    gate = files.hold("sync", f"/queues/q/{message_id}")
    fetching = asyncio.create_task(fetch(server))
    await comes_true(gate.reached.is_set)
    clock.advance(31)
    gate.open()
    assert (await fetching).id == other_id


class TwoNames:
    """What a crash on btrfs can leave: one inode in both folders of a rename."""

    def __init__(self, root: Path, message_id: str) -> None:
        self.new = root / "new" / f"q:{message_id}"
        self.ready = root / "queues" / "q" / message_id
        self.delayed = root / "delay" / f"q:{message_id}"
        self.removed = root / "remove" / f"q:{message_id}"

    def names(self) -> list[str]:
        states = ("new", "ready", "delayed", "removed")
        return [state for state in states if getattr(self, state).exists()]


@pytest.mark.parametrize("also", ["new", "delayed", "removed"])
async def test_a_fetch_of_a_message_with_two_names_leaves_the_later(
    serve: Serve, root: Path, also: str
) -> None:
    server = await serve()
    await make_queue(server)
    message = TwoNames(root, await publish(server))
    os.link(message.ready, getattr(message, also))
    is_ready = also == "new"
    assert (await fetch(server)).status == (200 if is_ready else 204)
    assert message.names() == ["delayed" if is_ready else also]
    assert (await fetch(server)).status == 204


@pytest.mark.parametrize("full", [False, True], ids=["", "no-room-in-remove"])
@pytest.mark.parametrize("also", ["new", "delayed", "removed"])
async def test_a_delete_of_a_message_with_two_names_leaves_none(
    serve: Serve, root: Path, also: str, full: bool
) -> None:
    files = FaultyFiles()
    server = await serve(files=files)
    await make_queue(server)
    message_id = await publish(server)
    message = TwoNames(root, message_id)
    os.link(message.ready, getattr(message, also))
    if full:
        files.fail("rename", errno.ENOSPC, where="/remove/")
    assert (await delete(server, message_id)).status == 202
    assert message.names() in ([["removed"], []] if full else [["removed"]])
    assert (await fetch(server)).status == 204


@pytest.mark.parametrize("also", ["delayed", "removed"])
async def test_a_delete_of_a_message_with_two_names_outlives_a_fetch_meanwhile(
    serve: Serve, root: Path, also: str
) -> None:
    class OvertakenFiles(Files):
        """Another process fetches the message right after the rename to remove/."""

        overtakes = False

        def rename(self, source: str, target: str) -> None:
            super().rename(source, target)
            if self.overtakes and target == str(message.removed):
                self.overtakes = False
                ready = MessageId.parse(message_id)
                with contextlib.suppress(Busy):
                    run_alone(fetch_steps(other, QueueName.parse("q"), ready, 60), NoFlusher())

    files = OvertakenFiles()
    server = await serve(files=files)
    await make_queue(server)
    message_id = await publish(server)
    message = TwoNames(root, message_id)
    os.link(message.ready, getattr(message, also))
    other = open_root(str(root), Files(), FakeClock())
    files.overtakes = True
    assert (await delete(server, message_id)).status == 202
    assert message.names() == ["removed"]


@pytest.mark.parametrize("state", ["ready", "delayed", "removed"])
async def test_forgetting_a_name_that_a_crash_left_loses_no_message(
    serve: Serve, root: Path, state: str
) -> None:
    server = await serve()
    await make_queue(server)
    message_id = await publish(server)
    message = TwoNames(root, message_id)
    os.link(message.ready, message.new)
    os.rename(message.ready, getattr(message, state))
    opened = open_root(str(root), Files(), FakeClock())
    assert not forget(opened, QueueName.parse("q"), MessageId.parse(message_id), after_s=0)
    assert message.names() == [state]


async def test_a_queue_is_deleted_to_the_end_though_its_client_went(
    serve: Serve, root: Path
) -> None:
    files = FaultyFiles()
    server = await serve(files=files)
    await make_queue(server)
    await publish(server)
    await fetch(server)
    gate = files.hold("rename", "/queues/q")
    deleting = asyncio.create_task(call(server, "DELETE", "/q"))
    await comes_true(gate.reached.is_set)
    deleting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await deleting
    gate.open()
    await comes_true(lambda: not list((root / "delay").iterdir()), "what it had in delay/ went")
    assert (await fetch(server)).status == 404


async def test_a_group_that_cannot_run_answers_and_leaves_nothing(root: Path) -> None:
    class ThreadlessFlusher(NoFlusher):
        def flush(self, asked: Mapping[int, Flush]) -> Failures:
            raise RuntimeError("can't start new thread")

    opened = open_root(str(root), Files(), FakeClock())
    (root / "queues" / "q").mkdir()
    committer = Committer(ThreadlessFlusher())
    queue = QueueName.parse("q")
    drafts = [Draft(queue, new_id(), 0) for _ in range(3)]
    results = await asyncio.gather(
        *(committer.commit(publish_steps(opened, draft, b"x")) for draft in drafts),
        return_exceptions=True,
    )
    assert [type(result) for result in results] == [Unavailable] * 3
    assert message_files(root) == nothing_anywhere()
    await committer.drain()


@pytest.mark.needs_root
def test_daemons_start_on_a_disk_without_inodes(
    needs_root: None, daemons: Processes, root: Path
) -> None:
    """The reaper above all, which is what frees them."""
    with tmpfs(root, "size=4m,nr_inodes=40"):
        open_root(str(root), Files(), FakeClock())
        entries = []
        with contextlib.suppress(OSError):
            while True:
                entries.append(put_entry(root / "remove", "q", b"gone"))
        daemons.mover("--root", str(root)).kill()
        daemons.mq(root).kill()
        daemons.reaper("--root", str(root))
        eventually(lambda: not any(entry.exists() for entry in entries), "they are reaped")
