"""What goes to a sideline, comes back from there, and crosses from one queue to another."""

import pytest
from faults.playing import At, plays
from faults.plays.keys import KEY, place_of, post
from faults.plays.messages import ONE_FILE, begun, patch
from faults.plays.queues import drop, purge
from harness.api import call, delete, fetch, make_queue, publish
from harness.folders import files_below
from harness.leases import QUEUE, LeasingRoot, stamp_of
from harness.messages import put_file
from harness.server import Server
from harness.waiting import comes_true

from mq.model.errors import MessageUnreadable
from mq.model.lifecycle import State
from mq.model.message import Delivery
from mq.model.names import MessageId, QueueName, ReplayId
from mq.model.shovel import ALL
from mq.store.format.crossings import Crossing
from mq.store.format.layout import Place
from mq.store.operations.fetch import fetch as claim
from mq.store.operations.purge import PURGE_MARK_KEPT_S, sweep_purged
from mq.store.operations.redeliver import Swept, sweep_overdue
from mq.store.operations.release import release_many
from mq.store.shovel.crossing_files import Chosen, candidate_of, finish, held, record_chosen, renew
from mq.store.shovel.shovel import Aim, shovel_many

SIDELINE = QUEUE.sideline()
SHARED = "failed_SIDELINE"
OTHER = QueueName.parse("other")
RUN = Crossing(ReplayId.parse("run-1"), QUEUE, OTHER)


async def sideline(server: Server, message_id: str) -> None:
    path = f"/q/messages/{message_id}/sideline?reason=exception"
    assert (await call(server, "POST", path)).status == 200


async def shovel(server: Server) -> None:
    assert (await call(server, "POST", "/q/shovel")).status == 202

    async def is_over() -> object:
        return (await call(server, "GET", "/q/shovel")).json()["state"] == "done"

    await comes_true(is_over, "the shovel's end")


async def both(at: At, in_buckets: bool = False) -> Server:
    """An mq that has made the queue and its sideline, and flushed both."""
    server = await begun(at, in_buckets)
    await make_queue(server, SIDELINE.text)
    if in_buckets:
        at.crowd("queues/q_SIDELINE")
    return server


@plays("sideline: what is ready")
@plays("sideline: what was fetched", is_fetched=True)
@plays("sideline: with a key", keyed=KEY)
@plays("sideline: what is ready, again", times=2)
@plays("sideline: what was fetched, again", is_fetched=True, times=2)
@plays("sideline: to a bucket", in_buckets=True)
@plays("sideline: from a bucket, again", in_buckets=True, times=2)
async def sidelined(
    at: At,
    is_fetched: bool = False,
    keyed: tuple[str, str] = ("", ""),
    times: int = 1,
    in_buckets: bool = False,
) -> None:
    server = await both(at, in_buckets)
    message_id = (await post(server, keyed)).id
    if is_fetched:
        await fetch(server)
    for _ in range(times):
        at.watch()
        await sideline(server, message_id)


@plays("sideline: where there is none")
async def sidelined_first(at: At) -> None:
    server = await begun(at)
    message_id = await publish(server)
    at.watch()
    await sideline(server, message_id)


@plays("sideline: what a fetch cannot read")
async def unreadable(at: At) -> None:
    place = place_of(at)
    place.make_queue(SIDELINE)
    message_id = MessageId(place.uuids.next(), header_bytes=99)
    put_file(at.top / "queues/q" / message_id.text, b"short", place.clock.now_ms())
    at.watch()
    with pytest.raises(MessageUnreadable):
        place.run(claim(place.root, QUEUE, message_id, 60))


@plays("share a sideline: the first message")
@plays("share a sideline: the first message, with a key and a tag", query="?key=k&tag=a")
async def shared(at: At, query: str = "") -> None:
    server = await begun(at)
    await make_queue(server, SHARED)
    await call(server, "PATCH", "/q/settings", json={"sideline_to": SHARED})
    message_id = (await call(server, "POST", f"/q/messages{query}", data=b"x")).id
    at.watch()
    await sideline(server, message_id)


@plays("sideline: publish with the key of what another sidelined")
async def published_after(at: At) -> None:
    """Who sidelined it died before the key was free."""
    server = await both(at)
    message_id = (await post(server, KEY)).id
    [path] = files_below(at.top / "queues/q")
    path.rename(at.top / "queues/q_SIDELINE" / message_id)
    at.watch()
    assert (await post(server, KEY)).status == 201


@plays("fetch: what was sidelined", move="fetch")
@plays("delete a message: that was sidelined", move="delete")
@plays("extend, postpone, release: postpone what was sidelined", move="postpone")
@plays("fetch: what was shovelled", move="fetch", queue="q")
@plays("delete a message: that was shovelled", move="delete", queue="q")
@plays("extend, postpone, release: postpone what was shovelled", move="postpone", queue="q")
@plays("sideline: what was shovelled", move="sideline", queue="q")
@plays("delete a queue: with what was shovelled", move="drop", queue="q")
async def moved_on(at: At, move: str, queue: str = SIDELINE.text) -> None:
    """Who brought it there died before its own flush."""
    server = await both(at, in_buckets=True)
    message_id = await publish(server)
    await sideline(server, message_id)
    if queue == "q":
        at.clock.advance(1)
        await shovel(server)
    at.watch()
    match move:
        case "fetch":
            assert (await fetch(server, queue)).id == message_id
        case "delete":
            assert (await delete(server, message_id, queue)).status == 202
        case "sideline":
            await sideline(server, message_id)
        case "drop":
            await drop(server)
        case _:
            assert await patch(server, message_id, 60, queue) == 200


@plays("shovel: a message")
@plays("shovel: one more", times=2)
@plays("shovel: with a key", keyed=KEY)
@plays("shovel: to a bucket", in_buckets=True)
async def shovelled(
    at: At, keyed: tuple[str, str] = ("", ""), times: int = 1, in_buckets: bool = False
) -> None:
    server = await both(at, in_buckets)
    for _ in range(times):
        await sideline(server, (await post(server, keyed)).id)
        at.clock.advance(1)
        at.watch()
        await shovel(server)


@plays("shovel: to a queue and from a sideline that another made")
@plays("shovel: to a queue and from a sideline that another made, in buckets", in_buckets=True)
async def shovelled_between_another_s(at: At, in_buckets: bool = False) -> None:
    server = await both(at, in_buckets)
    await sideline(server, await publish(server))
    at.clock.advance(1)
    other = await at.served(**(ONE_FILE if in_buckets else {}))
    at.watch()
    await shovel(other)


@plays("purge a queue: take the mark of what was shovelled from a bucket away")
async def mark_gone(at: At) -> None:
    server = await both(at, in_buckets=True)
    await sideline(server, await publish(server))
    at.clock.advance(1)
    await shovel(server)
    await purge(server)
    at.clock.advance(PURGE_MARK_KEPT_S + 1)
    root = at.opened()
    at.watch()
    sweep_purged(root, {})


def crossing(at: At) -> tuple[LeasingRoot, MessageId]:
    place = place_of(at)
    place.make_queue(OTHER)
    [message_id] = place.publish(1)
    return place, message_id


def choose(place: LeasingRoot, message_id: MessageId) -> None:
    with held(place.root, RUN.id):
        chosen = Chosen(message_id, stamp_of(place.root, message_id))
        place.run(record_chosen(place.root, RUN, {"where": "true"}, [chosen]))


def cross(place: LeasingRoot, message_id: MessageId) -> None:
    stamps = {message_id.text: stamp_of(place.root, message_id)}
    aim = Aim(OTHER, ALL, place.clock.now_ms(), QUEUE, stamps)
    found = candidate_of(place.root, RUN, message_id)
    assert found is not None
    assert shovel_many(place.root, place.flusher, aim, [found]).moved == (message_id,)


@plays("shovel chosen messages: choose")
async def chosen(at: At) -> None:
    place, message_id = crossing(at)
    at.watch()
    choose(place, message_id)


@plays("shovel chosen messages: go on with what was chosen")
async def chosen_before(at: At) -> None:
    place, message_id = crossing(at)
    choose(place, message_id)
    at.watch()
    renew(place.root, RUN)


@plays("shovel chosen messages: move")
async def crossed(at: At) -> None:
    place, message_id = crossing(at)
    choose(place, message_id)
    at.watch()
    cross(place, message_id)


@plays("shovel chosen messages: end")
async def ended(at: At) -> None:
    place, message_id = crossing(at)
    choose(place, message_id)
    cross(place, message_id)
    at.watch()
    place.run(finish(place.root, RUN, {}))


@plays("fetch: what crossed")
async def fetched_crossed(at: At) -> None:
    """Who moved it died before its own flush."""
    place, message_id = crossing(at)
    choose(place, message_id)
    cross(place, message_id)
    at.watch()
    assert place.run(claim(place.root, OTHER, message_id, 60)) is not None


@plays("sweep overdue messages: to the sideline", queue=QUEUE, expected=Swept.SIDELINED)
@plays("sweep overdue messages: of the sideline", queue=SIDELINE, expected=Swept.RETURNED)
async def swept(at: At, queue: QueueName, expected: Swept) -> None:
    place = place_of(at)
    place.make_queue(SIDELINE)
    message_id = MessageId(place.uuids.next())
    put_file(
        at.top / "delay" / f"{queue.text}:{message_id.text}", b"x", place.clock.now_ms() - 10**6
    )
    at.watch()
    operation = sweep_overdue(
        place.root, Place(State.DELAYED, queue, message_id), lambda status: True
    )
    assert place.run(operation) is expected


@plays("extend, postpone, release: release many", count=3)
@plays("extend, postpone, release: release many to buckets", count=3, in_buckets=True)
async def released_many(at: At, count: int, in_buckets: bool = False) -> None:
    place = place_of(at, 1 if in_buckets else 10_000)
    deliveries: list[Delivery] = []
    for each in place.publish(count):
        delivery = place.run(claim(place.root, QUEUE, each, 60))
        assert delivery is not None
        deliveries.append(delivery)
    place.flusher = at.flusher()
    at.watch()
    assert len(place.run(release_many(place.root, QUEUE, deliveries))) == count
