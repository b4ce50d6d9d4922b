"""Queues that the other machine deletes, and makes again: what a client remembers of the folder
that a queue's name led to decides nothing.
"""

import asyncio
import errno
import os
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from harness.api import (
    assert_problem,
    assert_works,
    call,
    fetch,
    id_at,
    post,
    publish,
    publish_lines,
)
from harness.clock import FakeClock
from harness.faults import FaultyFiles
from harness.folders import leased_files
from harness.processes import Processes, eventually
from harness.server import Serve, Server
from harness.waiting import comes_true
from nfs.mounts import Mount, nfs_mount
from nfs.pairs import Pair, fetched, serve_pair

from mq.model.clock import SystemClock
from mq.model.names import ConsumerName, MessageId, QueueName
from mq.store.disk.files import Files
from mq.store.disk.flush import NoFlusher
from mq.store.disk.group import run_alone
from mq.store.leases.lease import claim
from mq.store.opening import attach_root
from mq.store.operations.fetch import fetch as fetch_one
from mq.store.operations.release import release_many


@pytest.fixture(params=[False, True], ids=["asks again", "cannot tell"])
def clients(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Mount, Mount]]:
    """Both believe that a folder's name leads where it led: until they open its parent; or, where
    the server's times are too coarse to tell that it has changed, until they change it.
    """
    kept = {"keeps_entries": True, "trusts_parents": request.param}
    with nfs_mount(tmp_path, "one", **kept) as one, nfs_mount(tmp_path, "other", **kept) as other:
        yield one, other


@pytest.fixture
async def pair(clients: tuple[Mount, Mount], serve: Serve) -> Pair:
    """`q` was used at both."""
    both = await serve_pair(serve, clients)
    for server in both:
        await publish(server, b"before")
        assert await fetched(server) is not None
    return both


async def remake(server: Server, queue: str = "q") -> None:
    assert (await call(server, "DELETE", f"/{queue}")).status == 200
    assert (await call(server, "PUT", f"/{queue}")).status == 201


async def bodies(server: Server, queue: str = "q") -> list[bytes]:
    """What the queue has, by fetching it."""
    found = []
    while (reply := await fetch(server, queue)).status == 200:
        found.append(reply.body)
    return found


async def test_a_publish_that_is_answered_is_there(pair: Pair) -> None:
    one, other = pair
    for turn in range(3):
        for at, beside in (pair, (other, one)):
            await remake(at)
            await publish(beside, b"%d" % turn)
            assert await bodies(at) == [b"%d" % turn]


async def test_a_batch_that_is_answered_is_there(pair: Pair) -> None:
    one, other = pair
    await remake(one)
    await publish_lines(other, [b"a", b"b", b"c"])
    assert sorted(await bodies(one)) == [b"a", b"b", b"c"]


async def test_the_keys_of_what_is_published_are_the_queue_s_that_is(pair: Pair) -> None:
    one, other = pair
    idempotent = {"headers": {"Idempotency-Key": "i"}}
    for server in (other, one):  # Both know of the folders of keys.
        await publish(server, b"old", **idempotent)
        await call(server, "POST", "/q/messages?key=k", data=b"old")
    await remake(one)
    keyed = await call(other, "POST", "/q/messages?key=k", data=b"keyed")
    assert keyed.status == 201
    assert (await call(one, "GET", "/q/keys/k")).body == b"keyed"
    assert (await call(one, "POST", "/q/messages?key=k", data=b"again")).status == 409
    first = await publish(other, b"once", **idempotent)
    assert await publish(one, b"once", **idempotent) == first
    assert (await call(other, "DELETE", "/q/keys/k")).status == 202
    assert (await call(one, "POST", "/q/messages?key=k", data=b"again")).status == 201


@pytest.mark.parametrize("how", ["", "?delay=60", "?key=k", "?split=lines"])
async def test_a_queue_that_is_gone_takes_nothing(pair: Pair, how: str) -> None:
    one, other = pair
    assert (await call(one, "DELETE", "/q")).status == 200
    reply = await call(other, "POST", f"/q/messages{how}", data=b"x")
    assert_problem(reply, 404, "queue-not-found")


async def test_a_queue_that_is_gone_is_made_and_not_said_to_be_there(pair: Pair) -> None:
    one, other = pair
    assert (await call(one, "DELETE", "/q")).status == 200
    assert (await call(other, "PUT", "/q")).status == 201
    await publish(other, b"after")
    assert await comes_true(lambda: fetched(other), "the message") is not None
    await publish(one, b"too")
    assert await comes_true(lambda: fetched(one), "the message") is not None


async def test_a_queue_that_is_gone_is_not_deleted_once_more(pair: Pair) -> None:
    one, other = pair
    assert (await call(one, "DELETE", "/q")).status == 200
    assert_problem(await call(other, "DELETE", "/q"), 404, "queue-not-found")


async def test_what_a_deleted_queue_had_is_not_fetched_from_its_folder(pair: Pair) -> None:
    one, other = pair
    for _ in range(3):
        await publish(one, b"of the deleted one")
    assert await comes_true(lambda: fetched(other), "the first") is not None
    await remake(one)  # The other knows of two more.
    assert (await fetch(other)).status == 204
    assert (await fetch(one)).status == 204


async def test_a_lease_takes_nothing_of_what_a_deleted_queue_had(pair: Pair) -> None:
    one, other = pair
    for _ in range(3):
        await publish(one, b"of the deleted one")
    await remake(one)
    root = attach_root(str(other.root), Files(), SystemClock())
    queue, consumer = QueueName.parse("q"), ConsumerName.parse("c")
    take = claim(root, consumer, (queue,), 10, 60)
    assert await asyncio.to_thread(run_alone, take, NoFlusher()) is None
    assert not leased_files(one.root)


async def test_what_is_given_back_for_a_client_that_went_comes_to_the_queue_that_is(
    pair: Pair,
) -> None:
    """Those that were read ahead for it, many at once."""
    one, _ = pair
    await remake(one)
    ids = [await publish(one, b"alive") for _ in range(3)]
    queue = QueueName.parse("q")
    at_one, at_other = [attach_root(str(each.root), Files(), SystemClock()) for each in pair]

    def release() -> list[MessageId]:
        run = partial(run_alone, flusher=NoFlusher())
        taken = [run(fetch_one(at_one, queue, MessageId.parse(each), 60)) for each in ids]
        return run(release_many(at_other, queue, [each for each in taken if each is not None]))

    assert [each.text for each in await asyncio.to_thread(release)] == ids
    assert await bodies(one) == [b"alive"] * 3


async def test_what_comes_back_comes_to_the_queue_that_is(pair: Pair) -> None:
    one, other = pair
    await remake(one)
    message_id = await publish(one, b"alive")
    assert (await fetch(one)).id == message_id
    at_once = {"due_in_s": 0}
    reply = await call(other, "PATCH", f"/q/messages/{message_id}", json=at_once)
    assert reply.status == 200, reply.body
    assert await bodies(one) == [b"alive"]


async def test_what_is_sidelined_comes_to_the_sideline_that_is(pair: Pair) -> None:
    one, other = pair
    first, second = [await publish(other, body) for body in (b"first", b"second")]
    assert (await call(other, "POST", f"/q/messages/{first}/sideline")).status == 200
    await remake(one, "q_SIDELINE")
    assert (await call(other, "POST", f"/q/messages/{second}/sideline")).status == 200
    assert await bodies(one, "q_SIDELINE") == [b"second"]


@pytest.mark.parametrize("who", ["who makes it", "who deletes it again", "mq-mover"])
async def test_a_deletion_that_was_cut_off_is_ended_before_the_queue_is_another(
    pair: Pair, serve: Serve, daemons: Processes, who: str
) -> None:
    """Its folder was moved, and does not say yet that it is a deleted queue's."""
    one, other = pair
    files = FaultyFiles()
    dies = await serve(root=one.root, files=files)
    fault = files.fail("set_mode", errno.EIO, "/remove/q:")
    assert (await call(dies, "DELETE", "/q")).status == 503
    assert fault.hits == 1
    (deleted,) = [each for each in (one.root / "remove").iterdir() if each.is_dir()]
    assert deleted.stat().st_mode & 0o1777 == 0o700

    def is_marked() -> bool:
        return deleted.stat().st_mode & 0o1777 == 0o1700

    if who == "who deletes it again":
        assert (await call(one, "DELETE", "/q")).status == 404
        assert is_marked()
    if who == "mq-mover":
        daemons.mover("--root", str(one.root))
        eventually(is_marked, "mq-mover's pass")
    assert (await call(one, "PUT", "/q")).status == 201
    assert is_marked()
    await publish(other, b"after")
    assert await bodies(one) == [b"after"]


async def test_a_deleted_folder_that_is_reaped_at_once_needs_no_mark(
    pair: Pair, serve: Serve
) -> None:
    """By an mq-reaper of the other machine: the mount has a stale handle of it."""

    class ReapedFiles(Files):
        def set_mode(self, path: str, mode: int) -> None:
            shutil.rmtree(path)
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), path)

    deleting = await serve(root=pair[0].root, files=ReapedFiles())
    assert (await call(deleting, "DELETE", "/q")).status == 200
    assert (await call(pair[1], "PUT", "/q")).status == 201


async def test_what_others_move_to_a_deleted_queue_s_folder_comes_back(
    pair: Pair, daemons: Processes
) -> None:
    """A script beside the daemons, which does not look before it renames."""
    one, other = pair
    of_the_deleted = id_at(FakeClock().now_ms())
    (one.root / "queues" / "q" / of_the_deleted).write_bytes(b"of the deleted one")
    await remake(one)
    late = id_at(FakeClock().now_ms() + 10_000)
    (other.root / "new" / f"q:{late}").write_bytes(b"late")
    (other.root / "new" / f"q:{late}").rename(other.root / "queues" / "q" / late)
    (folder,) = [each for each in (one.root / "remove").iterdir() if each.is_dir()]
    assert sorted(os.listdir(folder)) == [of_the_deleted, late]
    daemons.reaper("--root", str(one.root))
    eventually(lambda: not folder.exists(), "the reaper's pass")
    assert await bodies(one) == [b"late"]


async def test_a_folder_that_was_moved_back_by_hand_takes_nothing(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = pair
    (other.root / "queues" / "q").chmod(0o1700)
    assert_problem(await post(one), 503, "storage-failed")
    assert "chmod -t" in caplog.records[-1].fields["error"]  # type: ignore[attr-defined]
    (other.root / "queues" / "q").chmod(0o700)
    await assert_works(one)
