"""What is refused, as it would be lost or cannot be meant; and what was missing beside it."""

from typing import Any

import pytest

from mq import AsyncClient, Worker
from mq.client.errors import KeyNotFound, Refused


async def test_a_sidelined_message_has_no_key(client: Any, queue: Any) -> None:
    await queue.publish("x", key="k")
    await (await queue.fetch()).sideline()
    with pytest.raises(KeyNotFound):
        await client.queue("orders_SIDELINE").read_key("k")
    await client.queue("orders_SIDELINE").publish("y", key="k")
    assert (await client.queue("orders_SIDELINE").read_key("k")).body == b"y"


@pytest.mark.parametrize("name", ["x-mine", "User-Agent", "x-attribut-a"])
async def test_a_header_that_would_be_lost_is_refused(queue: Any, name: str) -> None:
    with pytest.raises(ValueError, match="do not keep"):
        await queue.publish("x", headers={name: "1"})
    assert await queue.fetch() is None


@pytest.mark.parametrize(
    "said",
    [
        {"headers": {"x-attribute-": "1"}},
        {"headers": {"ce-": "1"}},
        {"content_type": "nonsense"},
        {"key": "\0"},
    ],
)
async def test_what_cannot_be_meant_is_refused(queue: Any, said: dict[str, Any]) -> None:
    with pytest.raises(Refused):
        await queue.publish("x", **said)


async def test_a_key_that_is_too_long_says_how_long(queue: Any) -> None:
    with pytest.raises(Refused, match="1 to 64 bytes as written in a name, not 72"):
        await queue.publish("x", key="\u9375" * 8)


async def test_a_time_is_a_datetime(queue: Any) -> None:
    with pytest.raises(TypeError, match="datetime"):
        await queue.publish("x", at="2099-01-01T00:00:00Z")


async def test_a_url_without_a_scheme_is_of_http() -> None:
    async with AsyncClient("localhost:8080") as client:
        assert client.url == "http://localhost:8080"


def test_a_handler_without_parentheses_says_so() -> None:
    worker = Worker("localhost:8080", "orders")
    with pytest.raises(TypeError, match="parentheses"):
        worker.handler(print)  # type: ignore[arg-type]


async def test_a_schedule_has_a_json(queue: Any) -> None:
    await queue.schedule("s", json={"a": 1}, every_s=60)
    found = await queue.get_schedule("s")
    assert found.body == b'{"a":1}'
    with pytest.raises(ValueError, match="not both"):
        await queue.schedule("s", "x", json=1, every_s=60)
