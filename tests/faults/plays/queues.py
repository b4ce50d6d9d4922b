"""What is done to queues: made, deleted, configured and purged by HTTP; and swept."""

import os
from dataclasses import replace

import pytest
from faults.playing import At, plays
from faults.plays.keys import BOTH, place_of, post
from faults.plays.messages import begun
from harness.api import call, delete, fetch, make_queue, publish
from harness.internals import background_work
from harness.leases import QUEUE, LeasingRoot
from harness.messages import put_file
from harness.server import Server
from harness.waiting import comes_true

from mq.model.errors import QueueNotFound
from mq.model.limits import FORGOTTEN_AFTER_S
from mq.model.message import GivenBack
from mq.model.names import MessageId
from mq.model.settings import QueueSettings
from mq.store.core.facts import FACTS_SETTLE_S
from mq.store.disk.steps import Steps
from mq.store.format.layout import Keys
from mq.store.operations.buckets import sweep_buckets
from mq.store.operations.fetch import fetch as claim
from mq.store.operations.publish import Draft
from mq.store.operations.publish import publish as put
from mq.store.operations.purge import PURGE_MARK_KEPT_S, sweep_purged
from mq.store.operations.purge import purge as mark
from mq.store.operations.queues import create_queue, delete_queue, sweep_tombstones
from mq.store.operations.reap import reap
from mq.store.operations.redeliver import Redelivery, Timer, redeliver
from mq.store.operations.remove import remove
from mq.store.operations.reschedule import reschedule
from mq.store.settings.configure import change_settings

UUID = "01a20c26-881f-7134-a6ea-80676f881f38"
LONG_AGO = "0192f3a2-7c4e-7d2a-9b1e-0123456789a"
"""The beginning of ids of a bucket whose window is long past."""


async def drop(server: Server, status: int = 200) -> None:
    assert (await call(server, "DELETE", "/q")).status == status
    await comes_true(lambda: not background_work(server))


@plays("start-up: of a root that is not there")
async def started(at: At) -> None:
    at.opened()


@plays("create a queue: one that never was")
@plays("create a queue: of another shape", query="?bucket=7")
async def made(at: At, query: str = "") -> None:
    server = await at.served()
    at.watch()
    assert (await call(server, "PUT", f"/q{query}")).status == 201


@plays("create a queue: one that is there")
async def made_again(at: At) -> None:
    server = await begun(at)
    at.watch()
    assert (await call(server, "PUT", "/q")).status == 200


@plays("create a queue: one that was deleted with a message that was fetched")
async def made_anew(at: At) -> None:
    server = await begun(at)
    await publish(server)
    message_id = (await fetch(server)).id
    await drop(server)
    [removed] = (at.top / "remove").glob(f"q:{message_id}")
    removed.rename(at.top / "delay" / removed.name)
    at.watch()
    await make_queue(server)


@plays("create a queue: of whose name a schedule, settings and a mark were left")
async def made_over_what_was_left(at: At) -> None:
    server = await begun(at)
    await drop(server)
    put_file(at.top / "schedules/q:nightly", b"{}", at.clock.now_ms())
    (at.top / "settings/q.json").write_text('{"visibility_s": 60}')
    (at.top / "purged/q").touch()
    at.watch()
    await make_queue(server)


@plays("delete a queue: one that is not there")
async def not_deleted(at: At) -> None:
    server = await at.served()
    at.watch()
    await drop(server, 404)


@plays("delete a queue: with a message that was fetched", fetches=1)
@plays("delete a queue: with a message that was fetched to a bucket", fetches=1, in_buckets=True)
@plays("delete a queue: with keys, settings, a schedule and a mark", keyed=BOTH, configured=True)
async def deleted(
    at: At,
    fetches: int = 0,
    keyed: tuple[str, str] = ("", ""),
    configured: bool = False,
    in_buckets: bool = False,
) -> None:
    server = await begun(at, in_buckets)
    if any(keyed):
        await post(server, keyed)
    for _ in range(fetches):
        await publish(server)
        await fetch(server)
    if configured:
        await configure(server, 60)
        await call(server, "PUT", "/q/schedules/nightly?every=60", data=b"x")
        await purge(server)
    at.watch()
    await drop(server)


@plays("delete a queue: sweep one whose schedules a crash has left")
@plays("delete a queue: sweep one whose schedules and messages a crash has left", messages=1)
async def swept(at: At, messages: int = 0) -> None:
    server = await begun(at)
    await drop(server)
    put_file(at.top / "schedules/q:nightly", b"{}", at.clock.now_ms())
    for _ in range(messages):
        put_file(at.top / f"delay/q:{LONG_AGO}0", b"x", at.clock.now_ms())
    at.clock.advance(FORGOTTEN_AFTER_S + 1)
    root = at.opened()
    at.watch()
    at.run(sweep_tombstones(root))


async def configure(server: Server, visibility_s: float | None) -> None:
    fields = {"visibility_s": visibility_s}
    assert (await call(server, "PATCH", "/q/settings", json=fields)).status == 200


@plays("change settings: to others", to=[60])
@plays("change settings: to the same", to=[60, 60])
@plays("change settings: to those by default", to=[60, None])
async def configured(at: At, to: list[float | None]) -> None:
    server = await begun(at)
    for each in to:
        at.watch()
        await configure(server, each)


async def purge(server: Server) -> None:
    assert (await call(server, "DELETE", "/q/messages")).status == 202
    await comes_true(lambda: not background_work(server))


@plays("purge a queue: with a message that was fetched, and one that was not")
async def purged(at: At) -> None:
    server = await begun(at)
    await publish(server)
    await fetch(server)
    await publish(server)
    at.watch()
    await purge(server)


@plays("purge a queue: whose mark is as late")
async def purged_as_late(at: At) -> None:
    place = place_of(at)
    for _ in range(2):
        at.watch()
        place.run(mark(place.root, QUEUE, 1))


@plays("purge a queue: delete a message that was purged", method="DELETE")
@plays("purge a queue: extend a message that was purged", method="PATCH")
async def settled_purged(at: At, method: str) -> None:
    server = await begun(at)
    path = f"/q/messages/{await publish(server)}"
    at.run(mark(at.opened(), QUEUE, at.clock.now_ms()))
    at.clock.advance(FACTS_SETTLE_S)
    at.watch()
    wanted = {"due_in_s": 60} if method == "PATCH" else None
    assert (await call(server, method, path, json=wanted)).status == 404


@plays("purge a queue: delete a message that came later")
async def deleted_later(at: At) -> None:
    server = await begun(at)
    at.run(mark(at.opened(), QUEUE, at.clock.now_ms() - 1))
    at.clock.advance(FACTS_SETTLE_S)
    message_id = await publish(server)
    at.watch()
    assert (await delete(server, message_id)).status == 202


@plays("purge a queue: take its mark away, in buckets")
async def mark_gone(at: At) -> None:
    server = await begun(at, in_buckets=True)
    await publish(server)
    await fetch(server)
    await purge(server)
    place = place_of(at)
    for each in at.top.rglob(".full"):
        each.unlink()
    place.pass_s(PURGE_MARK_KEPT_S + 1)
    at.watch()
    sweep_purged(place.root, {})


@plays("redeliver: a message that is due")
@plays("redeliver: from a bucket to a bucket", in_buckets=True)
async def redelivered(at: At, in_buckets: bool = False) -> None:
    place = place_of(at, 1 if in_buckets else 10_000)
    if in_buckets:
        at.crowd()
    [message_id] = place.publish()
    delivery = place.run(claim(place.root, QUEUE, message_id, 30))
    assert delivery is not None
    place.pass_s(31)
    place.flusher = at.flusher()
    at.watch()
    operation = redeliver(place.root, QUEUE, message_id, Timer(), delivery.bucket)
    assert place.run(operation)[0] is Redelivery.DELIVERED


@plays("extend, postpone, release: release to a bucket of long ago", deep=0)
@plays("extend, postpone, release: release below a bucket of long ago", deep=1)
async def released_to_long_ago(at: At, deep: int) -> None:
    """Others may have taken the bucket away and made it anew: it is flushed at each use."""
    place = place_of(at, 1)
    at.crowd()
    for n in range(deep + 1):
        message_id = MessageId(f"{LONG_AGO}{n}")
        place.run(put(place.root, Draft(QUEUE, message_id, message_id.published_ms), b"x"))
    for _ in range(2):
        delivery = place.run(claim(place.root, QUEUE, message_id, 30))
        assert delivery is not None
        at.watch()
        place.run(reschedule(place.root, QUEUE, message_id, 0, None, GivenBack.UNHANDLED))


@plays("Buckets: take an empty one away")
async def emptied(at: At) -> None:
    place = place_of(at, 1)
    at.crowd("queues/q")
    ids = [MessageId(f"{LONG_AGO}{n}") for n in range(2)]
    for each in ids:
        place.run(put(place.root, Draft(QUEUE, each, each.published_ms), b"x"))
    for each in ids:
        place.run(remove(place.root, QUEUE, each))
    place.pass_s(10)
    at.watch()
    assert sweep_buckets(place.root, str(at.top / "queues/q")) is False


def over_network(at: At) -> LeasingRoot:
    place = place_of(at)
    place.root = replace(place.root, over_network=True)
    return place


@plays("extend, postpone, release: of a queue that is not found", act="postpone")
@plays("purge a queue: one that is not there", act="purge")
@plays("change settings: of a queue that is not there", act="change")
async def of_no_queue(at: At, act: str) -> None:
    """It went since the request was looked at."""
    root = at.opened()
    operations: dict[str, Steps[object]] = {
        "postpone": reschedule(root, QUEUE, MessageId(f"{LONG_AGO}0"), 60),
        "purge": mark(root, QUEUE, 1),
        "change": change_settings(root, QUEUE, {"visibility_s": 60}, QueueSettings()),
    }
    at.watch()
    with pytest.raises(QueueNotFound):
        at.run(operations[act])


@plays("deleted queues over a network: delete a queue")
async def deleted_over_network(at: At) -> None:
    place = over_network(at)
    os.makedirs(place.root.layout.keys_of(Keys.LOOKUP, QUEUE))
    at.watch()
    place.run(delete_queue(place.root, QUEUE, UUID))


@plays("deleted queues over a network: delete one whose deletion was cut off", then="delete")
@plays("deleted queues over a network: sweep one whose deletion was cut off", then="sweep")
@plays("deleted queues over a network: make one anew whose deletion was cut off", then="make")
async def gone_on_over_network(at: At, then: str) -> None:
    """Who deleted it died before it marked the folder."""
    place = over_network(at)
    place.run(delete_queue(place.root, QUEUE, UUID))
    os.chmod(place.root.layout.deleted_folder(QUEUE, UUID), 0o700)
    put_file(place.top / "delay" / f"{QUEUE.text}:{LONG_AGO}0", b"x", at.clock.now_ms())
    at.watch()
    match then:
        case "delete":
            with pytest.raises(QueueNotFound):
                place.run(delete_queue(place.root, QUEUE, UUID))
        case "sweep":
            place.run(sweep_tombstones(place.root))
        case _:
            place.run(create_queue(place.root, QUEUE))


@plays("deleted queues over a network: give back what came late")
async def given_back_late(at: At) -> None:
    place = over_network(at)
    place.run(delete_queue(place.root, QUEUE, UUID))
    place.run(create_queue(place.root, QUEUE))
    folder = at.top / "remove" / f"{QUEUE.text}:{UUID}.d"
    path = folder / "11a20c26-881f-7134-a6ea-80676f881f38"
    path.touch()
    place.clock.set_ms(max(each.stat().st_ctime_ns for each in (path, folder)) // 10**6 + 1)
    at.watch()
    reap(at.files, place.root.layout.remove, place.clock.now_ms(), 0, root=place.root)
