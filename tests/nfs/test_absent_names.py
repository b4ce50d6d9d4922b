"""Names that one client has looked for in vain, and the other makes.

Mounted with lookupcache=positive they are there at once. Otherwise a client believes for a while
that they are not, though it sees them in listings: what it is asked for by name it does not find,
and nothing is lost by it.
"""

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.api import Reply, assert_problem, call, delete, fetch, make_queue, publish
from harness.clock import FakeClock
from harness.folders import message_files, nothing_anywhere
from harness.server import Serve, Server
from harness.waiting import comes_true
from nfs.mounts import Mount, nfs_mount
from nfs.pairs import Pair, fetched, serve_pair

from mq.model.names import MessageId, QueueName
from mq.store.disk.files import Files
from mq.store.disk.flush import NoFlusher
from mq.store.disk.group import run_alone
from mq.store.opening import open_root
from mq.store.operations.redeliver import Redelivery, Timer, redeliver


@pytest.fixture
def caching(tmp_path: Path) -> Iterator[Mount]:
    """A client that believes in what it did not find until it is told to forget that."""
    with nfs_mount(tmp_path, "caching", negative_s=3600) as mount:
        yield mount


@pytest.fixture
async def cached(clients: tuple[Mount, Mount], caching: Mount, serve: Serve) -> Pair:
    """An mq with a mount as documented, and one whose client caches; and a queue."""
    return await serve_pair(serve, (clients[0], caching))


def look(server: Server, *names: str) -> None:
    """Looks for names that are not there, so that its client may cache that."""
    assert not [name for name in names if (server.root / name).exists()]


async def delete_in_delay(one: Server, other: Server) -> tuple[str, Reply]:
    """A delete by the one of what the other has fetched meanwhile."""
    message_id = await publish(one)
    look(other, f"delay/q:{message_id}", f"remove/q:{message_id}")
    refused = await delete(other, message_id, headers={"If-Match": '"7"'})
    assert_problem(refused, 412, "delivered-again")
    assert (await comes_true(lambda: fetched(one))).id == message_id
    return message_id, await delete(other, message_id)


async def test_a_delete_finds_what_the_other_has_justfetched(pair: Pair) -> None:
    message_id, deleted = await delete_in_delay(*pair)
    assert deleted.status == 202
    assert message_files(pair[0].root) == nothing_anywhere() | {"remove": [f"q:{message_id}"]}


async def test_a_delete_finds_what_was_redelivered(pair: Pair) -> None:
    one, other = pair
    message_id = await publish(one)
    assert (await fetch(one)).id == message_id
    look(other, f"queues/q/{message_id}")
    (one.root / "delay" / f"q:{message_id}").rename(one.root / "queues" / "q" / message_id)
    assert (await delete(other, message_id)).status == 202


async def test_a_delete_sees_the_other_s_delete(pair: Pair) -> None:
    one, other = pair
    message_id = await publish(one)
    look(other, f"remove/q:{message_id}")
    assert (await delete(one, message_id)).status == 202
    assert (await delete(other, message_id)).status == 202


async def test_a_queue_that_the_other_made_is_there(pair: Pair) -> None:
    one, other = pair
    assert_problem(await call(other, "GET", "/late"), 404, "queue-not-found")
    await make_queue(one, "late")
    assert (await call(other, "GET", "/late")).status == 200
    await publish(other, queue="late")


async def test_a_delete_with_a_cache_is_not_sure_and_loses_nothing(
    cached: Pair, caching: Mount
) -> None:
    message_id, deleted = await delete_in_delay(*cached)
    assert_problem(deleted, 404, "message-not-found")
    caching.tell("forget")
    assert (await delete(cached[1], message_id)).status == 202


async def test_a_delete_with_a_cache_whose_reply_was_lost_does_not_say_404(
    cached: Pair, caching: Mount
) -> None:
    """It has seen the message, and does not see where it went."""
    one, other = cached
    message_id = await publish(one)
    caching.arm("rename", errno.ENOENT, "/remove/", done=True)
    assert_problem(await delete(other, message_id), 503, "message-busy")
    assert message_files(one.root) == nothing_anywhere() | {"remove": [f"q:{message_id}"]}


async def test_a_fetch_with_a_cache_is_answered_and_finds_the_message_later(
    cached: Pair, caching: Mount
) -> None:
    one, other = cached
    hidden = await publish(one)
    (one.root / "queues" / "q" / hidden).rename(one.root / "delay" / f"q:{hidden}")
    look(other, f"queues/q/{hidden}")
    (one.root / "delay" / f"q:{hidden}").rename(one.root / "queues" / "q" / hidden)
    assert (await fetch(other)).status == 204
    seen = await publish(one)
    found = await comes_true(lambda: fetched(other))
    assert found.id == seen
    caching.tell("forget")
    found = await comes_true(lambda: fetched(other))
    assert found.id == hidden


async def test_a_queue_with_a_cache_is_found_late(cached: Pair, caching: Mount) -> None:
    one, other = cached
    assert_problem(await call(other, "GET", "/late"), 404, "queue-not-found")
    await make_queue(one, "late")
    assert_problem(await call(other, "GET", "/late"), 404, "queue-not-found")
    caching.tell("forget")
    assert (await call(other, "GET", "/late")).status == 200


async def test_a_publish_whose_reply_was_lost_is_not_answered_for_sure(
    cached: Pair, caching: Mount
) -> None:
    """The client looked for the target before it asked for the rename, and believes that still."""
    one, other = cached
    caching.arm("rename", errno.ENOENT, "/queues/q/", done=True)
    reply = await call(other, "POST", "/q/messages", data=b"perhaps")
    assert_problem(reply, 503, "publish-forgotten")
    assert (await fetch(one)).body == b"perhaps"


async def test_a_redelivery_with_a_cache_comes_late(cached: Pair, caching: Mount) -> None:
    one, other = cached
    message_id = await publish(one)
    look(other, f"delay/q:{message_id}")
    await fetch(one)
    clock = FakeClock()
    clock.advance(60)
    root = open_root(str(other.root), Files(), clock)

    def move() -> Redelivery:
        steps = redeliver(root, QueueName.parse("q"), MessageId.parse(message_id), Timer())
        return run_alone(steps, NoFlusher())[0]

    assert move() is Redelivery.LOST
    caching.tell("forget")
    assert move() is Redelivery.DELIVERED
