"""Messages that are found by entries: published, moved, swept, and put right."""

from pathlib import Path

from faults.playing import At, plays
from faults.plays.keys import at_link, place_of, removed_by_another
from faults.plays.messages import begun
from faults.plays.queues import drop
from faults.plays.repairs import begun as damaged
from faults.plays.repairs import put_right, spot
from faults.plays.sidelines import choose, cross, crossing
from harness.api import call
from harness.damage.each_breach import stale_entry
from harness.messages import new_id, put_file
from harness.server import Server

from mq.model.limits import FORGOTTEN_AFTER_S
from mq.model.names import MessageId
from mq.store.audit.repair import drop_orphan, give_entries
from mq.store.format.layout import Keys
from mq.store.keys.entries import EntrySweep
from mq.store.operations.queues import sweep_tombstones

DAY_S = 86_400
TAGGED = (b"X-Message-Tags: a\nx", ",t=1,h=18")
"""The file of a message with a tag, and what its id says of that."""


async def post(server: Server, query: str, body: bytes = b"x") -> str:
    reply = await call(server, "POST", f"/q/messages?{query}", data=body)
    assert reply.status in (200, 201), reply.body
    return reply.id


@plays(
    "publish with entries: with a tag and a time to live, for later", query="tag=a&ttl=60&delay=9"
)
@plays("publish with entries: with a tag, later", query="tag=a", times=3)
async def published(at: At, query: str, times: int = 1) -> None:
    server = await begun(at)
    for _ in range(times):
        at.watch()
        await post(server, query)


@plays("publish with entries: with a tag, to folders that another made")
async def published_to_another_s(at: At) -> None:
    await post(await begun(at), "tag=a")
    server = await at.served()
    at.watch()
    await post(server, "tag=a")


@plays("publish with entries: of two lines, for later")
async def published_many(at: At) -> None:
    server = await begun(at)
    at.watch()
    await call(server, "POST", "/q/messages?split=lines&tag=a&delay=60", data=b"1\n2\n")


@plays("publish with entries: sweep one whose message another removed")
@plays("publish with entries: sweep one whose message another removed from a bucket", bucket=True)
async def swept(at: At, bucket: bool = False) -> None:
    """Beside one that lives, of a queue without a sideline; each in a bucket of its own, so that
    it shows when that of the other is flushed, too.
    """
    server = await begun(at, bucket)
    removed_by_another(at, await post(server, "tag=a"))
    at.clock.advance(DAY_S)
    await post(server, "tag=a")
    place = place_of(at)
    place.pass_s(FORGOTTEN_AFTER_S + 60)
    at.watch()
    assert EntrySweep(place.root).sweep() == 1


@plays("publish with entries: sweep those of a deleted queue")
async def swept_of_a_deleted_queue(at: At) -> None:
    """Beside those of a queue that stands."""
    server = await begun(at)
    await post(server, "tag=a&ttl=60")
    await call(server, "PUT", "/other")
    await call(server, "POST", "/other/messages?tag=a", data=b"x")
    await drop(server)
    root = at.opened()
    at.watch()
    at.run(sweep_tombstones(root))


@plays("shovel chosen messages: move one with a key and a tag")
async def crossed(at: At) -> None:
    place, _ = crossing(at)
    body, more = TAGGED
    message_id = MessageId.parse(f"{new_id().text},k=k{more}")
    put_file(at.top / "queues/q" / message_id.text, body, place.clock.now_ms())
    link = Path(at_link(at, Keys.LOOKUP))
    link.parent.mkdir(parents=True)
    link.symlink_to(message_id.text)
    choose(place, message_id)
    at.watch()
    cross(place, message_id)


@plays("fsck: a message without its entries")
async def without_entries(at: At) -> None:
    place = damaged(at)
    path = place.ready(*TAGGED)
    put_right(at, place, lambda root: give_entries(root, spot(path)))


@plays("fsck: an entry of no message")
async def entry_of_none(at: At) -> None:
    place = damaged(at)
    path = stale_entry(place, "tags/orders/ca/a", TAGGED[1])
    put_right(at, place, lambda root: drop_orphan(root, str(path)))
