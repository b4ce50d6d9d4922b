"""Publishes with keys: by HTTP, and, where another died, what is done for its keys."""

import errno
import os
from pathlib import Path

from faults.playing import At, plays
from faults.plays.messages import begun, patch
from harness.api import Reply, call, delete, fetch
from harness.leases import QUEUE, LeasingRoot
from harness.messages import set_due
from harness.server import STREAMED_BYTES, Server

from mq.model.limits import FORGOTTEN_AFTER_S, IDEMPOTENCY_S_DEFAULT
from mq.model.names import Key, MessageId
from mq.store.format.layout import Keys
from mq.store.keys.orphans import OrphanSweep, give_up_publishes
from mq.store.operations.publish import Draft, begin
from mq.store.operations.purge import purge
from mq_reaper.reaper import Reaper

K = Key.parse("k")
KEY, ONCE, BOTH = ("k", ""), ("", "k"), ("k", "k")
Keyed = tuple[str, str]
"""A lookup key and an idempotency key; empty: none."""


async def post(server: Server, keyed: Keyed, size: int = 5) -> Reply:
    key, once = keyed
    headers = {"Content-Type": "text/plain", **({"Idempotency-Key": once} if once else {})}
    query = f"?key={key}" if key else ""
    return await call(server, "POST", f"/q/messages{query}", data=b"x" * size, headers=headers)


@plays("publish with a key: a lookup key", keyed=KEY)
@plays("publish with a key: a lookup key", "streamed", keyed=KEY, size=STREAMED_BYTES)
@plays("publish with a key: an idempotency key", keyed=ONCE)
@plays("publish with a key: both", keyed=BOTH)
@plays("publish with a key: a lookup key that is taken", keyed=KEY, statuses=(201, 409))
@plays("publish with a key: an idempotency key again", keyed=ONCE, statuses=(201, 201))
@plays(
    "publish with a key: a lookup key that is taken, in buckets",
    keyed=KEY,
    statuses=(201, 409),
    in_buckets=True,
)
async def published(
    at: At,
    keyed: Keyed,
    statuses: tuple[int, ...] = (201,),
    size: int = 5,
    in_buckets: bool = False,
) -> None:
    server = await begun(at, in_buckets)
    for status in statuses:
        at.watch()
        assert (await post(server, keyed, size)).status == status


@plays("publish with a key: an idempotency key whose message is gone")
async def published_before_and_gone(at: At) -> None:
    server = await begun(at)
    first = await post(server, ONCE)
    assert (await delete(server, first.id)).status == 202
    (at.top / "remove" / f"q:{first.id}").unlink()
    at.watch()
    assert (await post(server, ONCE)).id == first.id


@plays("publish with a key: a lookup key that is taken", "another's")
async def taken_of_another_s(at: At) -> None:
    await post(await begun(at), KEY)
    server = await at.served()
    at.watch()
    assert (await post(server, KEY)).status == 409


@plays("publish with a key: a lookup key that is taken by what was released, in buckets")
async def taken_by_what_was_released(at: At) -> None:
    """Who released it died before its own flush."""
    server = await begun(at, in_buckets=True)
    message_id = (await post(server, KEY)).id
    await fetch(server)
    assert await patch(server, message_id, 0) == 200
    at.watch()
    assert (await post(server, KEY)).status == 409


@plays("publish with a key: an idempotency key of long ago")
async def published_long_ago(at: At) -> None:
    server = await begun(at)
    await post(server, ONCE)
    at.clock.advance(IDEMPOTENCY_S_DEFAULT + 1)
    at.watch()
    assert (await post(server, ONCE)).status == 201


@plays("publish with a key: a link that is made and not answered", keyed=KEY, kind=Keys.LOOKUP)
@plays("publish with a key: the same of an idempotency key", keyed=ONCE, kind=Keys.IDEMPOTENCY)
async def published_unanswered(at: At, keyed: Keyed, kind: Keys) -> None:
    """A network mount loses the reply."""
    server = await begun(at)
    folder = Path(at_link(at, kind)).parent
    for each in (folder.parent, folder):
        each.mkdir(mode=0o700)
    at.files.fail("link", errno.EEXIST, times=1, performed=True)
    at.watch()
    assert (await post(server, keyed)).status == 201


def at_link(at: At, kind: Keys) -> str:
    return place_of(at).root.layout.link(kind, QUEUE, K).path


def place_of(at: At, folder_max: int = 10_000) -> LeasingRoot:
    """The root for a process beside it."""
    return LeasingRoot(at.top, folder_max, at.files, at.flusher())


@plays("publish with a key: a lookup key whose message another removed")
@plays("publish with a key: the same from a bucket", in_buckets=True)
async def published_over_a_removed_one(at: At, in_buckets: bool = False) -> None:
    """Who removed it died before its own flush."""
    server = await begun(at, in_buckets)
    removed_by_another(at, (await post(server, KEY)).id)
    at.watch()
    assert (await post(server, KEY)).status == 201


def removed_by_another(at: At, message_id: str) -> Path:
    [path] = (at.top / "queues").rglob(f"{message_id}*")
    return path.rename(at.top / "remove" / f"q:{path.name}")


@plays("publish with a key: a lookup key whose message was purged")
async def published_over_a_purged_one(at: At) -> None:
    server = await begun(at)
    await post(server, KEY)
    at.run(purge(at.opened(), QUEUE, at.clock.now_ms()))
    at.clock.advance(1)
    at.watch()
    assert (await post(server, KEY)).status == 201


def left_in_new(at: At, kind: Keys, key: Key | None = None) -> MessageId:
    """A message of one who died once its link of this kind was made."""
    place = place_of(at)
    message_id = MessageId(place.uuids.next(), key=K if kind is Keys.LOOKUP else key)
    draft = Draft(QUEUE, message_id, message_id.published_ms)
    os.close(begin(place.root, draft))
    set_due(at.top / "new" / f"q:{message_id.text}", draft.due_ms)
    link = Path(at_link(at, kind))
    link.parent.mkdir(parents=True)
    link.symlink_to(message_id.text)
    return message_id


@plays("publish with a key: a lookup key whose message another left in new")
async def published_over_one_in_new(at: At) -> None:
    server = await begun(at)
    left_in_new(at, Keys.LOOKUP)
    at.clock.advance(60)
    at.watch()
    assert (await post(server, KEY)).status == 201


@plays("publish with a key: an idempotency key whose message another left in new")
async def published_again_over_one_in_new(at: At) -> None:
    server = await begun(at)
    left = left_in_new(at, Keys.IDEMPOTENCY)
    at.clock.advance(60)
    at.watch()
    assert (await post(server, ONCE)).id != left.text


@plays("publish with a key: both, of what another left in new before it made the lookup key's link")
async def published_again_over_one_half_linked(at: At) -> None:
    server = await begun(at)
    left = left_in_new(at, Keys.IDEMPOTENCY, K)
    at.clock.advance(60)
    at.watch()
    assert (await post(server, BOTH)).id != left.text


@plays("publish with a key: forget one with an idempotency key")
async def forgotten(at: At) -> None:
    place, message_id = place_of(at), left_in_new(at, Keys.IDEMPOTENCY)
    at.watch()
    assert not place.run(give_up_publishes(place.root, {(QUEUE, message_id)}))


@plays("publish with a key: free a key")
async def freed(at: At) -> None:
    server = await begun(at)
    message_id = (await post(server, KEY)).id
    at.watch()
    assert (await delete(server, message_id)).status == 202


@plays("publish with a key: sweep a key whose message another removed")
async def swept(at: At) -> None:
    removed_by_another(at, (await post(await begun(at), KEY)).id)
    place = place_of(at)
    place.pass_s(FORGOTTEN_AFTER_S + 60)
    at.watch()
    assert place.run(OrphanSweep(place.root).sweep()) == 1


@plays("publish with a key: reap a message that another removed")
async def reaped(at: At) -> None:
    removed_by_another(at, (await post(await begun(at), KEY)).id)
    place = place_of(at)
    place.pass_s(60)
    at.watch()
    assert Reaper(at.files, place.clock, place.root.layout.remove, 0).run_once() == 1
