"""What is refused, as it would be lost or cannot be meant; and what was missing beside it."""

from datetime import UTC, datetime
from typing import Any

import pytest

from mq import AsyncClient
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


async def test_a_misspelled_header_and_setting_name_the_nearest(queue: Any) -> None:
    with pytest.raises(ValueError, match=r"'Tracparent' \(did you mean traceparent\?\)"):
        await queue.publish("x", headers={"Tracparent": "1"})
    settings = await queue.settings()
    with pytest.raises(KeyError, match=r"max_recieves \(did you mean max_receives\?\)"):
        settings["max_recieves"]


@pytest.mark.parametrize(
    "said",
    [
        {"headers": {"x-attribute-": "1"}},
        {"headers": {"ce-": "1"}},
        {"headers": {"x-attribute-a": " a"}},
        {"headers": {"x-attribute-a": "a\x01"}},
        {"headers": {"x-attribute-a": "\ud800"}},
        {"headers": {f"x-attribute-{n}": "a" for n in range(100)}},
        {"headers": {"x-attribute-a": "a" * 20_000}},
        {"content_type": "nonsense"},
    ],
)
async def test_headers_that_cannot_be_kept_are_not_sent(said: dict[str, Any]) -> None:
    async with AsyncClient("http://127.0.0.1:1") as client:
        queue = client.queue("orders")
        for asked in (queue.publish("x", **said), queue.schedule("s", "x", every_s=60, **said)):
            with pytest.raises(ValueError, match="headers"):
                await asked
        with pytest.raises(TypeError, match="must be text"):
            await queue.publish("x", headers={"x-attribute-a": 1})  # type: ignore[dict-item]


async def test_a_key_that_cannot_be_is_refused(queue: Any) -> None:
    with pytest.raises(Refused):
        await queue.publish("x", key="\0")


async def test_a_key_that_is_too_long_says_how_long(queue: Any) -> None:
    with pytest.raises(Refused, match="1 to 64 bytes as written in a name, not 72"):
        await queue.publish("x", key="\u9375" * 8)


async def test_a_time_is_a_datetime_or_a_text_with_a_zone(queue: Any) -> None:
    for text in ("2099-01-01T01:00:00+01:00", "2099-01-01T00:00:00Z"):
        message_id = await queue.publish("x", at=text)
        assert (await queue.read(message_id)).due == datetime(2099, 1, 1, tzinfo=UTC)
    made = await queue.schedule("s", "x", every_s=60, until="2099-01-01T00:00:00Z")
    assert made.until == datetime(2099, 1, 1, tzinfo=UTC)
    with pytest.raises(TypeError, match="datetime"):
        await queue.publish("x", at=4_070_908_800)
    for text in ("tomorrow", "2099-01-01T00:00:00", "2099-01-01"):
        with pytest.raises(ValueError, match="RFC 3339 with a zone"):
            await queue.publish("x", at=text)


async def test_a_url_without_a_scheme_is_of_http() -> None:
    async with AsyncClient("localhost:8080") as client:
        assert client.url == "http://localhost:8080"


async def test_a_schedule_has_a_json(queue: Any) -> None:
    await queue.schedule("s", json={"a": 1}, every_s=60)
    found = await queue.get_schedule("s")
    assert found.body == b'{"a":1}'
    with pytest.raises(ValueError, match="not both"):
        await queue.schedule("s", "x", json=1, every_s=60)
