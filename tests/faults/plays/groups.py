"""Claims of messages of a group, and what ends them."""

import os

from faults.playing import At, plays
from faults.plays.messages import begun, patch
from harness.api import Reply, call, delete, fetch
from harness.server import Server


async def post(server: Server, group: str = "g") -> str:
    reply: Reply = await call(server, "POST", f"/q/messages?group={group}", data=b"hello")
    assert reply.status == 201
    return reply.id


@plays("fetch: the first of a group")
@plays("fetch: the first of a group, in buckets", in_buckets=True)
async def first(at: At, in_buckets: bool = False) -> None:
    server = await begun(at, in_buckets)
    message_id = await post(server)
    at.watch()
    assert (await fetch(server)).id == message_id


@plays("fetch: the head of a group again")
async def again(at: At) -> None:
    server = await begun(at)
    message_id = await post(server)
    await fetch(server)
    assert await patch(server, message_id, 0) == 200
    at.watch()
    assert (await fetch(server)).id == message_id


@plays("fetch: one whose group's head was removed by another, which died")
async def after_a_dead_one(at: At) -> None:
    server = await begun(at)
    head, message_id = await post(server), await post(server)
    assert (await fetch(server)).id == head
    os.rename(at.top / f"delay/q:{head}", at.top / f"remove/q:{head}")
    at.watch()
    assert (await fetch(server)).id == message_id


@plays("delete a message: the head of a group")
async def deleted(at: At) -> None:
    server = await begun(at)
    message_id = await post(server)
    await fetch(server)
    at.watch()
    assert (await delete(server, message_id)).status == 202
