"""Messages that are found by entries of an index, each in a script like those of `scripts.py`: the
audit of what a cut leaves reports a living message without its entries.
"""

from crash.load import LARGE
from crash.registry import BUCKETS, FLAT, script
from crash.stage import ORDERS, Stage

TTL_S = 30 * 24 * 3600
LIVES = f"ttl={TTL_S}"


@script(FLAT, BUCKETS)
async def publish_with_a_ttl(on: Stage) -> None:
    await on.begin(ORDERS)
    first = await on.clients.publish_keyed(300, more=LIVES)
    await on.clients.publish_keyed(16, more=LIVES)
    await on.clients.delete(first)
    await on.clients.publish_keyed(300, more=f"{LIVES}&delay=60")


@script()
async def publish_streamed_with_a_ttl(on: Stage) -> None:
    await on.begin(ORDERS)
    await on.clients.publish_keyed(LARGE, more=LIVES)


@script()
async def publish_once_with_a_ttl(on: Stage) -> None:
    """A process that meets the key's link delivers the message, which has its entries by then."""
    await on.begin(ORDERS)
    first = await on.clients.publish_keyed(300, "night", "once", LIVES)
    assert await on.clients.publish_keyed(300, "night", "once", LIVES) == first


@script(FLAT, BUCKETS)
async def publish_lines_with_a_ttl(on: Stage) -> None:
    await on.begin(ORDERS)
    await on.clients.publish_lines([300, 16, 300], more={"ttl": TTL_S})
    await on.clients.publish_lines([300, 16], as_rows=True, more={"ttl_s": TTL_S})


@script(FLAT, BUCKETS)
async def outlive_a_ttl(on: Stage) -> None:
    """mq-mover finds by its entry what has expired; in its next pass the entry goes."""
    await on.begin(ORDERS)
    ids = [await on.clients.publish_keyed(300, more=LIVES) for _ in range(2)]
    for message_id in ids:
        on.disk.mark("delete_asked", queue=ORDERS, id=message_id)
    on.disk.pass_time(TTL_S)
    await on.sweep()
    await on.sweep()


@script(FLAT, BUCKETS)
async def publish_with_tags(on: Stage) -> None:
    await on.begin(ORDERS)
    first = await on.clients.publish_keyed(300, more="tag=a&tag=b")
    await on.clients.publish_keyed(16, more="tag=a")
    await on.clients.delete(first)
    await on.clients.publish_keyed(300, more="tag=b&delay=60")


@script()
async def publish_streamed_with_tags(on: Stage) -> None:
    await on.begin(ORDERS)
    await on.clients.publish_keyed(LARGE, "night", "once", f"tag=a&tag=b&{LIVES}")


@script()
async def publish_rows_with_tags(on: Stage) -> None:
    await on.begin(ORDERS)
    await on.clients.publish_lines([300, 16], as_rows=True, more={"tags": ["a", "b"]})


@script(FLAT, BUCKETS)
async def delete_by_tag(on: Stage) -> None:
    """Of the queue and of delay/; the tag's folder goes, and comes again."""
    await on.begin(ORDERS)
    said = ("tag=a&tag=b", "tag=a&tag=b&delay=60")
    ids = [await on.clients.publish_keyed(300, more=more) for more in said]
    await on.clients.delete_tagged("a", ids)
    await on.clients.publish_keyed(300, more="tag=a")


@script()
async def sideline_by_tag(on: Stage) -> None:
    """And back by a shovel's step: the entries are the queue's and the sideline's together."""
    await on.begin(ORDERS, f"{ORDERS}_SIDELINE")
    message_id = await on.clients.publish_keyed(300, more=f"tag=a&{LIVES}")
    on.disk.mark("sideline_asked", queue=ORDERS, id=message_id)
    await on.clients.post(f"/{ORDERS}/tags/a/sideline")
    on.disk.mark("sidelined", queue=ORDERS, id=message_id, is_timeless=True)


@script()
async def make_anew_with_tags(on: Stage) -> None:
    """The deleted queue's entries go in a sweep, which does not flush that; the next one's stay."""
    await on.begin(ORDERS)
    await on.clients.publish_keyed(300, more=f"tag=a&{LIVES}")
    await on.clients.drop(ORDERS)
    await on.sweep()
    await on.clients.make(ORDERS)
    await on.clients.publish_keyed(300, more=f"tag=a&{LIVES}")
