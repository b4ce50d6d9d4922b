"""What was done and is said to have failed: each operation's answer, and what the other client
finds.
"""

import asyncio
import errno
from pathlib import Path

import pytest
from harness.api import assert_problem, call, delete, fetch, make_queue, publish
from harness.clock import FakeClock
from harness.folders import message_files, nothing_anywhere
from harness.processes import Processes, eventually
from harness.server import Serve, Server
from harness.waiting import comes_true
from nfs.mounts import Mount
from nfs.pairs import Pair, deleted, fetched, serve_pair

from mq.model.errors import Busy
from mq.model.limits import BODY_HELD_BYTES_MAX
from mq.model.names import MessageId, QueueName
from mq.model.shovel import ALL
from mq.store.core.root import Root
from mq.store.disk.files import Files
from mq.store.disk.flush import NoFlusher
from mq.store.disk.group import run_alone
from mq.store.format.layout import Layout
from mq.store.opening import open_root
from mq.store.operations.fetch import fetch as fetch_steps
from mq.store.operations.queues import sweep_tombstones
from mq.store.operations.redeliver import forget
from mq.store.operations.release import release_many
from mq.store.shovel.shovel import Aim, Pass, shovel_many
from mq_mover.scheduler import Scheduler


@pytest.mark.parametrize("size", [5, BODY_HELD_BYTES_MAX + 1])
async def test_a_publish_is_done(clients: tuple[Mount, Mount], pair: Pair, size: int) -> None:
    one, other = pair
    clients[0].arm("rename", errno.ENOENT, "/queues/q/", done=True)
    message_id = await publish(one, b"x" * size)
    assert clients[0].hits() == {"lost rename": 1}
    found = await fetch(other)
    assert (found.id, len(found.body)) == (message_id, size)
    assert message_files(other.root) == nothing_anywhere() | {"delay": [f"q:{message_id}"]}


async def test_a_fetch_claims_nothing_and_the_message_comes_back(
    clients: tuple[Mount, Mount], pair: Pair, daemons: Processes
) -> None:
    one, other = pair
    first, second = [await publish(one) for _ in range(2)]
    clients[0].arm("rename", errno.ENOENT, "/delay/", done=True)
    assert (await fetch(one)).id == second
    assert (await fetch(other)).status == 204
    daemons.mover("--root", str(other.root))
    back = await comes_true(lambda: fetched(other))
    assert (back.id, back.headers["X-Message-Receives"]) == (first, "1")


@pytest.mark.parametrize("was_fetched", [False, True], ids=["ready", "delayed"])
@pytest.mark.parametrize("if_match", [False, True], ids=["", "if-match"])
async def test_a_delete_is_done(
    clients: tuple[Mount, Mount], pair: Pair, was_fetched: bool, if_match: bool
) -> None:
    one, other = pair
    message_id = await publish(one)
    if was_fetched:
        assert (await fetch(other)).id == message_id
    clients[0].arm("rename", errno.ENOENT, "/remove/", done=True)
    headers = {"If-Match": f'"{int(was_fetched)}"'} if if_match else {}
    reply = await comes_true(lambda: deleted(one, message_id, headers=headers))
    assert reply.status == 202
    assert clients[0].hits() == {"lost rename": 1}
    assert message_files(other.root) == nothing_anywhere() | {"remove": [f"q:{message_id}"]}
    assert (await fetch(other)).status == 204


async def test_a_delete_by_unlink_is_not_sure(clients: tuple[Mount, Mount], pair: Pair) -> None:
    """Where remove/ has no room: nobody can see whose unlink it was."""
    one, other = pair
    message_id = await publish(one)
    clients[0].arm("rename", errno.ENOSPC, "/remove/")
    clients[0].arm("unlink", errno.ENOENT, "/queues/q/", done=True)
    assert_problem(await delete(one, message_id), 503, "message-busy")
    assert message_files(other.root) == nothing_anywhere()
    assert_problem(await delete(one, message_id), 404, "message-not-found")


async def test_a_redelivery_is_done(
    clients: tuple[Mount, Mount], serve: Serve, daemons: Processes
) -> None:
    one, other = await serve_pair(serve, clients, visibility_s=1)
    message_id = await publish(one)
    await fetch(one)
    clients[1].arm("rename", errno.ENOENT, "/queues/q/", done=True)
    mover = daemons.mover("--root", str(other.root))
    back = await comes_true(lambda: fetched(one))
    assert (back.id, back.headers["X-Message-Receives"]) == (message_id, "2")
    assert clients[1].hits() == {"lost rename": 1}
    assert not mover.logged("Traceback|could not redeliver")


async def test_a_redelivery_to_the_sideline_is_done(
    clients: tuple[Mount, Mount], serve: Serve, daemons: Processes
) -> None:
    one, other = await serve_pair(serve, clients, visibility_s=1)
    assert (await call(one, "PATCH", "/q/settings", json={"max_receives": 1})).status == 200
    message_id = await publish(one)
    await fetch(one)
    clients[1].arm("rename", errno.ENOENT, "/queues/q_SIDELINE/", done=True)
    daemons.mover("--root", str(other.root))

    async def is_there() -> bool:
        peeked = await call(one, "GET", "/q_SIDELINE/peek")
        return peeked.status == 200 and message_id.encode() in peeked.body

    await comes_true(is_there)
    assert clients[1].hits() == {"lost rename": 1}
    assert (await fetch(one)).status == 204
    assert message_files(other.root)["delay"] == []


async def test_a_retirement_is_done(
    clients: tuple[Mount, Mount], pair: Pair, daemons: Processes
) -> None:
    """What a deleted queue has in delay/."""
    one, other = pair
    message_id = await publish(one)
    await fetch(one)
    clients[0].arm("rename", errno.ENOENT, f"/remove/q:{message_id}", done=True)
    assert (await call(one, "DELETE", "/q")).status == 200
    await comes_true(lambda: message_files(other.root)["remove"] == [f"q:{message_id}"])
    assert (await call(other, "PUT", "/q")).status == 201
    assert (await fetch(other)).status == 204


async def test_a_release_is_done(clients: tuple[Mount, Mount], pair: Pair) -> None:
    one, other = pair
    message_id = await publish(one)
    root = _open(one)
    claim = fetch_steps(root, QueueName.parse("q"), MessageId.parse(message_id), 30)
    delivery = run_alone(claim, NoFlusher())
    assert delivery is not None
    clients[0].arm("rename", errno.ENOENT, "/queues/q/", done=True)
    run_alone(release_many(root, delivery.queue, [delivery], unhandled=True), NoFlusher())
    assert clients[0].hits() == {"lost rename": 1}
    back = await comes_true(lambda: fetched(other))
    assert (back.id, back.headers["X-Message-Receives"]) == (message_id, "2")


@pytest.mark.parametrize("key", ["", "night"])
async def test_a_shovel_is_done(clients: tuple[Mount, Mount], pair: Pair, key: str) -> None:
    one, other = pair
    said = f"?key={key}" if key else ""
    message_id = (await call(one, "POST", f"/q/messages{said}", data=b"x")).id
    reply = await call(one, "POST", f"/q/messages/{message_id}/sideline")
    assert reply.status == 200
    root = _open(one)
    at = Pass(root, Aim(QueueName("q"), ALL, root.now_ms()))
    batch = at.batch(10)
    assert batch is not None
    if key:
        clients[0].arm("symlink", errno.EEXIST, "/.keys/", done=True)
    clients[0].arm("rename", errno.ENOENT, "/queues/q/", done=True)
    became = shovel_many(root, NoFlusher(), at.aim, batch.candidates)

    assert (became.error, became.stayed) == (None, {})
    assert [each.text for each in became.moved] == [message_id]
    assert sum(clients[0].hits().values()) == 2 if key else 1
    back = await comes_true(lambda: fetched(other))
    assert back.id == message_id


async def test_what_is_forgotten_is_gone(clients: tuple[Mount, Mount], pair: Pair) -> None:
    one, other = pair
    message_id = await publish(one)
    staged = one.root / "new" / f"q:{message_id}"
    (one.root / "queues" / "q" / message_id).rename(staged)
    clock = FakeClock()
    clock.advance(7200)
    root = open_root(str(one.root), Files(), clock)
    clients[0].arm("rename", errno.ENOENT, "/remove/", done=True)
    forget(root, QueueName.parse("q"), MessageId.parse(message_id), 3600)
    assert message_files(other.root) == nothing_anywhere() | {"remove": [staged.name]}


# Queues


async def test_a_queue_is_made(clients: tuple[Mount, Mount], pair: Pair) -> None:
    clients[0].arm("mkdir", errno.EEXIST, "/queues/", done=True)
    assert (await call(pair[0], "PUT", "/made")).status == 201
    assert (await call(pair[1], "GET", "/made")).status == 200


async def test_a_queue_is_deleted(clients: tuple[Mount, Mount], pair: Pair) -> None:
    one, other = pair
    message_id = await publish(one)
    await publish(one)
    assert (await fetch(one)).id == message_id
    clients[0].arm("rename", errno.ENOENT, "/queues/q", done=True)
    assert (await call(one, "DELETE", "/q")).status == 200
    assert_problem(await call(other, "GET", "/q"), 404, "queue-not-found")
    await comes_true(lambda: message_files(other.root)["delay"] == [])
    assert (await call(other, "PUT", "/q")).status == 201
    assert (await fetch(other)).status == 204


async def test_a_deleted_queue_is_made_again(clients: tuple[Mount, Mount], pair: Pair) -> None:
    one, other = pair
    assert (await call(one, "DELETE", "/q")).status == 200
    clients[1].arm("unlink", errno.ENOENT, "/deleted/q", done=True)
    assert (await call(other, "PUT", "/q")).status == 201
    assert clients[1].hits() == {"lost unlink": 1}
    await publish(one)
    assert (await fetch(other)).status == 200


async def test_a_tombstone_is_swept(clients: tuple[Mount, Mount], pair: Pair) -> None:
    one, other = pair
    for queue in ("a", "b"):
        await make_queue(one, queue)
        assert (await call(one, "DELETE", f"/{queue}")).status == 200
    clock = FakeClock()
    clock.advance(7200)
    root = open_root(str(other.root), Files(), clock)
    clients[1].arm("unlink", errno.ENOENT, "/deleted/", done=True)

    def is_swept() -> bool:
        try:
            run_alone(sweep_tombstones(root), NoFlusher())
        except Busy:  # FUSE hears of the end of a lock after close() has returned.
            return False
        return True

    eventually(is_swept)
    assert clients[1].hits() == {"lost unlink": 1}
    assert [path.name for path in (one.root / "deleted").iterdir()] == [".lock"]


async def test_what_was_removed_is_reaped(
    clients: tuple[Mount, Mount], pair: Pair, daemons: Processes
) -> None:
    one, other = pair
    await publish(one)
    assert (await delete(one, await publish(one))).status == 202
    assert (await call(one, "DELETE", "/q")).status == 200
    for name in ("unlink", "rmdir"):
        clients[1].arm(name, errno.ENOENT, "/remove/", times=2, done=True)
    reaper = daemons.reaper("--root", str(other.root))
    await asyncio.to_thread(eventually, lambda: not list((one.root / "remove").iterdir()))
    assert clients[1].hits() == {"lost unlink": 2, "lost rmdir": 1}
    assert reaper.terminate() == 0
    assert not reaper.logged("failed|Traceback|foreign")


# Schedules


async def test_a_schedule_is_put_and_deleted(clients: tuple[Mount, Mount], pair: Pair) -> None:
    one, other = pair
    path = "/q/schedules/nightly"
    clients[0].arm("rename", errno.ENOENT, "/schedules/q:", done=True)
    assert (await call(one, "PUT", f"{path}?every=60", data=b"again")).status == 201
    assert clients[0].hits() == {"lost rename": 1}
    assert (await call(other, "GET", path)).json()["body"] == "again"
    clients[1].arm("unlink", errno.ENOENT, "/schedules/q:", done=True)
    assert (await call(other, "DELETE", path)).status == 200
    assert clients[1].hits() == {"lost unlink": 1}
    assert_problem(await call(one, "GET", path), 404, "schedule-not-found")


async def test_a_firing_is_one_message(clients: tuple[Mount, Mount], pair: Pair) -> None:
    """Its link was made, its message renamed, and what is next written, each without an answer."""
    one, other = pair
    path = "/q/schedules/nightly"
    assert (await call(one, "PUT", f"{path}?every=60", data=b"again")).status == 201
    clock = FakeClock()
    clock.advance(60)
    movers = [Scheduler(open_root(str(each.root), Files(), clock), NoFlusher()) for each in pair]
    clients[1].arm("symlink", errno.EEXIST, "/.firings/", done=True)
    clients[1].arm("rename", errno.ENOENT, "/queues/q", done=True)
    clients[1].arm("rename", errno.ENOENT, "/schedules/q:", done=True)
    fired = [await asyncio.to_thread(mover.run_once) for mover in reversed(movers)]
    assert fired == [1, 0]
    assert sum(clients[1].hits().values()) == 3
    said = (await call(one, "GET", path)).json()
    message = await fetch(one)
    assert (said["fired"], said["last"], message.body) == (1, message.id, b"again")
    assert (await fetch(other)).status == 204


# Starting


async def test_a_root_is_made(clients: tuple[Mount, Mount], serve: Serve) -> None:
    clients[0].arm("mkdir", errno.EEXIST, times=30, done=True)
    server = await serve(root=clients[0].where / "root")
    folders = Layout.of(clients[0].where / "root").folders()
    assert clients[0].hits() == {"lost mkdir": 1 + len(folders)}
    await make_queue(server)
    await publish(server)


async def test_a_probe_of_readiness_succeeds(clients: tuple[Mount, Mount], pair: Pair) -> None:
    clients[0].arm("unlink", errno.ENOENT, "/.probe", done=True)
    assert (await call(pair[0], "GET", "/-/readyz")).status == 200
    assert clients[0].hits() == {"lost unlink": 1}


@pytest.mark.parametrize("folder", ["queues", "delay", "remove"])
def test_a_start_probes_its_folders(clients: tuple[Mount, Mount], folder: str) -> None:
    where = clients[0].where / "root"
    clients[0].arm("rename", errno.ENOENT, f"/{folder}/.probe", done=True)
    open_root(str(where), Files(), FakeClock())
    assert clients[0].hits() == {"lost rename": 1}
    assert not list(Path(where).rglob(".probe*"))


def _open(server: Server) -> Root:
    return open_root(str(server.root), Files(), FakeClock())
