"""The main job, once, and in every commit mode."""

import asyncio
from pathlib import Path

from harness.api import delete, fetch, make_queue, publish
from harness.folders import message_files
from harness.server import Serve, Server, body_sizes, commit_modes


async def test_publish_fetch_delete(server: Server) -> None:
    async with server.request("PUT", "/orders") as made:
        assert made.status == 201
    async with server.request("POST", "/orders/messages", data=b"hello") as published:
        assert published.status == 201
    async with server.request("GET", "/orders/messages") as fetched:
        assert await fetched.read() == b"hello"
        message_id = fetched.headers["X-Message-Id"]
    async with server.request("DELETE", f"/orders/messages/{message_id}") as deleted:
        assert deleted.status == 202


@commit_modes
@body_sizes
async def test_a_message_lives_in_every_commit_mode(
    serve: Serve, root: Path, commit: str, size: int
) -> None:
    server = await serve(commit=commit)
    await make_queue(server)
    ids = await asyncio.gather(*(publish(server, b"x" * size) for _ in range(10)))
    replies = await asyncio.gather(*(fetch(server) for _ in ids))
    assert {len(reply.body) for reply in replies} == {size}
    deletes = await asyncio.gather(*(delete(server, reply.id) for reply in replies))
    assert {reply.status for reply in deletes} == {202}
    assert message_files(root)["remove"] == sorted(f"q:{message_id}" for message_id in ids)
