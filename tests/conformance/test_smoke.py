"""The main job, once."""

from harness.server import Server


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
