"""What is done to schedules: by HTTP, by mq-mover, and by those who come after one who died."""

from dataclasses import replace

import pytest
from faults.playing import At, plays
from faults.plays.messages import begun
from harness.api import call
from harness.messages import new_id
from harness.schedules import EVERY_S, MINUTELY, NAME, QUEUE, TimedRoot
from harness.server import Server

from mq.model.errors import QueueNotFound
from mq.model.limits import FORGOTTEN_AFTER_S
from mq.model.names import Key, MessageId
from mq.store.keys.orphans import FIRING_KEPT_S, OrphanSweep, give_up_publishes
from mq.store.operations.publish import Draft, publish
from mq.store.schedules.schedules import put_schedule

NIGHT = Key.parse("night")
PATH = "/q/schedules/nightly"


async def put(server: Server, body: bytes, status: int) -> None:
    assert (await call(server, "PUT", f"{PATH}?every=60", data=body)).status == status


@plays("make or change a schedule: one, or to another", bodies=[b"x"])
@plays("make or change a schedule: one, or to another", "changed", bodies=[b"x", b"y"])
@plays("make or change a schedule: to the same", bodies=[b"x", b"x"])
async def made(at: At, bodies: list[bytes]) -> None:
    server = await begun(at)
    for body, status in zip(bodies, (201, 200), strict=False):
        at.watch()
        await put(server, body, status)


@plays("make or change a schedule: of a queue that is not there")
async def not_made(at: At) -> None:
    root = at.opened()
    at.watch()
    with pytest.raises(QueueNotFound):
        at.run(put_schedule(root, QUEUE, NAME, MINUTELY))


@plays("make or change a schedule: of a queue that goes meanwhile")
async def not_made_in_time(at: At) -> None:
    place = TimedRoot(at.top, at.files, at.flusher())
    operation = put_schedule(place.root, QUEUE, NAME, MINUTELY)
    assert next(operation).files
    (at.top / "queues/q").rename(at.top / "remove" / f"q:{new_id().uuid}.d")
    at.watch()
    with pytest.raises(QueueNotFound):
        place.run(operation)
    assert place.names() == [".lock"]


@plays("delete a schedule: one that is there", statuses=[200])
@plays("delete a schedule: one that is not there", statuses=[200, 404])
async def deleted(at: At, statuses: list[int]) -> None:
    server = await begun(at)
    await put(server, b"x", 201)
    for status in statuses:
        at.watch()
        assert (await call(server, "DELETE", PATH)).status == status


@plays("delete a schedule: of a queue that is not there")
async def not_deleted(at: At) -> None:
    server = await at.served()
    at.watch()
    assert (await call(server, "DELETE", PATH)).status == 404


def timed(at: At, *names: str, key: Key | None = None) -> TimedRoot:
    """A root with these schedules, all of them due."""
    place = TimedRoot(at.top, at.files, at.flusher())
    for name in names or (NAME.text,):
        place.put(name=name, key=key)
    place.pass_s()
    return place


def fired(place: TimedRoot) -> MessageId:
    message = place.fire().message
    assert message is not None
    return message


def left_in_new(at: At, message: MessageId) -> None:
    """As one leaves it who dies before its rename."""
    (at.top / "queues/q" / message.text).rename(at.top / "new" / f"q:{message.text}")


@plays("fire a schedule: with a key", key=NIGHT)
@plays("fire a schedule: without one")
async def fired_once(at: At, key: Key | None = None) -> None:
    place = timed(at, key=key)
    at.watch()
    fired(place)


@plays("fire a schedule: write what is next of two")
async def rearmed(at: At) -> None:
    place = timed(at, "a", "b")
    both = [place.fire("a"), place.fire("b")]
    at.watch()
    place.rearm(*both)


@plays("fire a schedule: that another fired")
async def fired_by_another(at: At) -> None:
    """Who died before its own flush."""
    place = timed(at)
    message = fired(place)
    at.watch()
    assert fired(place) == message


@plays("fire a schedule: whose message another left in new")
async def fired_over_one_in_new(at: At) -> None:
    place = timed(at)
    message = fired(place)
    left_in_new(at, message)
    at.watch()
    assert fired(place) != message


@plays("fire a schedule: whose key is taken")
async def not_fired(at: At) -> None:
    place = timed(at, key=NIGHT)
    message_id = replace(new_id(), key=NIGHT)
    place.run(publish(place.root, Draft(QUEUE, message_id, message_id.published_ms), b""))
    at.watch()
    assert place.fire().message is None


@plays("fire a schedule: sweep its link")
async def swept(at: At) -> None:
    place = timed(at)
    place.rearm(place.fire())
    place.pass_s(FIRING_KEPT_S + EVERY_S)
    at.watch()
    assert place.run(OrphanSweep(place.root).sweep()) == 1


@plays("fire a schedule: forget its message")
async def forgotten(at: At) -> None:
    place = timed(at)
    message = fired(place)
    left_in_new(at, message)
    place.pass_s(FORGOTTEN_AFTER_S + 1)
    at.watch()
    assert not place.run(give_up_publishes(place.root, {(QUEUE, message)}))
