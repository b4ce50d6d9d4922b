"""What clients do to messages, by HTTP."""

from faults.playing import At, plays
from harness.api import UNKNOWN_ID, call, delete, fetch, make_queue, publish
from harness.messages import new_id, put_file
from harness.server import STREAMED_BYTES, Server

from mq.model.errors import QueueNotFound
from mq.model.names import QueueName
from mq.store.operations.queues import create_queue
from mq.store.operations.remove import Wanted, remove_many

QUEUE = QueueName.parse("q")

MESSAGE = f"/q/messages/{UNKNOWN_ID}"
ONE_FILE = {"folder_max": 1}


async def begun(at: At, in_buckets: bool = False) -> Server:
    server = await at.served(**(ONE_FILE if in_buckets else {}))
    await make_queue(server)
    if in_buckets:
        at.crowd()
    return server


@plays("publish: to a queue")
@plays("publish: to a queue", "streamed", size=STREAMED_BYTES)
@plays("publish: to a bucket that it makes", in_buckets=True)
@plays("publish: below a bucket", in_buckets=True, times=2)
@plays("publish: below a bucket that was used before", in_buckets=True, times=3)
async def published(at: At, size: int = 5, times: int = 1, in_buckets: bool = False) -> None:
    server = await begun(at, in_buckets)
    for _ in range(times):
        at.watch()
        await publish(server, b"x" * size)


@plays("publish: to a queue", "that another made")
async def published_to_another_s(at: At) -> None:
    server = await at.served()
    (at.top / "queues" / "q").mkdir(mode=0o700)
    at.watch()
    await publish(server)


@plays("publish a batch: of two")
@plays("publish a batch: of two, to a bucket", in_buckets=True)
@plays("publish a batch: of two, for later", query="&delay=60")
async def published_many(at: At, in_buckets: bool = False, query: str = "") -> None:
    server = await begun(at, in_buckets)
    at.watch()
    reply = await call(server, "POST", f"/q/messages?split=lines{query}", data=b"1\n2\n")
    assert len(reply.body.splitlines()) == 2


@plays("publish for later: to a queue")
@plays("publish for later: to a queue", "streamed", size=STREAMED_BYTES)
async def published_for_later(at: At, size: int = 5) -> None:
    server = await begun(at)
    at.watch()
    reply = await call(server, "POST", "/q/messages?delay=60", data=b"x" * size)
    assert reply.status == 201


@plays("fetch: a message")
@plays("fetch: from a bucket to one that it makes", in_buckets=True)
async def fetched(at: At, in_buckets: bool = False) -> None:
    server = await begun(at, in_buckets)
    message_id = await publish(server)
    at.watch()
    assert (await fetch(server)).id == message_id


@plays("delete a message: that is ready", is_fetched=False)
@plays("delete a message: that was fetched")
@plays("delete a message: that was deleted", times=2)
@plays("delete a message: that was fetched to a bucket", in_buckets=True)
async def deleted(
    at: At, is_fetched: bool = True, times: int = 1, in_buckets: bool = False
) -> None:
    server = await begun(at, in_buckets)
    message_id = await publish(server)
    if is_fetched:
        await fetch(server)
    for _ in range(times):
        at.watch()
        assert (await delete(server, message_id)).status == 202


@plays("delete a message: that is not found")
async def not_deleted(at: At) -> None:
    server = await begun(at)
    at.watch()
    assert (await delete(server, UNKNOWN_ID)).status == 404


@plays("delete a message: two of a queue that goes meanwhile")
async def deleted_as_it_goes(at: At) -> None:
    """One lies in delay/, and the other went with the queue."""
    root = at.opened()
    at.run(create_queue(root, QUEUE))
    delayed, gone = new_id(), new_id()
    put_file(at.top / "delay" / f"q:{delayed.text}")
    assert root.facts.of(QUEUE).exists
    (at.top / "queues/q").rename(at.top.parent / "away")
    at.watch()
    removed, missing = at.run(remove_many(root, QUEUE, [Wanted(delayed), Wanted(gone)]))
    assert removed is True
    assert isinstance(missing, QueueNotFound)


@plays("delete a message: of a queue that is not found", method="DELETE", path=MESSAGE)
@plays("delete a message: by key, of a queue that is not found", method="DELETE", path="/q/keys/k")
@plays("sideline: of a queue that is not found", method="POST", path=f"{MESSAGE}/sideline")
async def of_no_queue(at: At, method: str, path: str) -> None:
    server = await at.served()
    at.watch()
    assert (await call(server, method, path)).status == 404


async def patch(server: Server, message_id: str, due_in_s: float, queue: str = "q") -> int:
    path = f"/{queue}/messages/{message_id}"
    return (await call(server, "PATCH", path, json={"due_in_s": due_in_s})).status


@plays("keep a failure: the first", times=1)
@plays("keep a failure: another", times=2)
async def failed(at: At, times: int) -> None:
    server = await begun(at)
    message_id = await publish(server)
    await fetch(server)
    for said in range(times):
        at.watch()
        body = {"due_in_s": 60, "release": True, "reason": f"try {said}"}
        path = f"/q/messages/{message_id}"
        assert (await call(server, "PATCH", path, json=body)).status == 200


@plays("extend, postpone, release: postpone", due_in_s=[60])
@plays("extend, postpone, release: extend", due_in_s=[60, 90])
@plays("extend, postpone, release: release", due_in_s=[60, 0])
@plays("extend, postpone, release: release what is ready", due_in_s=[60, 0, 0])
@plays("extend, postpone, release: extend in buckets", due_in_s=[60, 90], in_buckets=True)
@plays(
    "extend, postpone, release: release what is ready in buckets",
    due_in_s=[60, 0, 0],
    in_buckets=True,
)
async def rescheduled(at: At, due_in_s: list[float], in_buckets: bool = False) -> None:
    server = await begun(at, in_buckets)
    message_id = await publish(server)
    for each in due_in_s:
        at.watch()
        assert await patch(server, message_id, each) == 200


@plays("extend, postpone, release: postpone", "another's", due_in_s=60)
@plays("extend, postpone, release: extend", "another's", due_in_s=60, fetches=1)
@plays("extend, postpone, release: release", "another's", due_in_s=0, fetches=1)
@plays("extend, postpone, release: release what is ready", "another's", due_in_s=0)
async def rescheduled_another_s(at: At, due_in_s: float, fetches: int = 0) -> None:
    server, other = await at.served(), await at.serve()
    await make_queue(other)
    message_id = await publish(other)
    for _ in range(fetches):
        await fetch(other)
    at.watch()
    assert await patch(server, message_id, due_in_s) == 200


@plays("extend, postpone, release: what is not found")
@plays("extend, postpone, release: what is not found, in buckets", in_buckets=True)
async def not_rescheduled(at: At, in_buckets: bool = False) -> None:
    server = await begun(at, in_buckets)
    gone = UNKNOWN_ID
    if in_buckets:
        there = await publish(server)
        gone = there[:-1] + ("0" if there[-1] != "0" else "1")
    at.watch()
    assert await patch(server, gone, 60) == 404
