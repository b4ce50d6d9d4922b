"""Publishing: bodies of all kinds, what is said of a message, many at once."""

import asyncio
import dataclasses
import io
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from mq.client.errors import KeyTaken, QueueNotFound, Refused, TooLarge
from mq.client.values import NewMessage


@pytest.mark.parametrize(
    ("body", "came", "content_type"),
    [
        (b"", b"", "application/octet-stream"),
        (b"\x00\xff", b"\x00\xff", "application/octet-stream"),
        (bytearray(b"abc"), b"abc", "application/octet-stream"),
        (memoryview(b"abc"), b"abc", "application/octet-stream"),
        ("grüß", "grüß".encode(), "text/plain"),
        ("a file", b"of a file", "application/octet-stream"),
    ],
)
async def test_a_body_comes_as_it_was(
    queue: Any, body: Any, came: bytes, content_type: str
) -> None:
    message_id = await queue.publish(io.BytesIO(came) if body == "a file" else body)
    async with await queue.fetch() as message:
        assert (message.id, message.body) == (message_id, came)
        assert message.content_type == content_type
        assert (message.receives, message.priority, message.key) == (1, 0, None)


async def test_json_is_said_as_json(queue: Any) -> None:
    await queue.publish(json={"n": [1, None, "ü"]})
    await queue.publish(json=None, content_type="application/vnd.x+json")
    first, second = await queue.fetch_many(2)
    assert first.json() == {"n": [1, None, "ü"]}
    assert first.content_type == "application/json"
    assert second.json() is None
    assert second.content_type == "application/vnd.x+json"
    with pytest.raises(ValueError, match="not both"):
        await queue.publish(b"x", json=1)
    with pytest.raises(ValueError, match="JSON"):
        await queue.publish(json=float("nan"))


async def test_a_large_file_is_streamed(queue: Any, tmp_path: Path) -> None:
    body = bytes(range(256)) * 10_000
    path = tmp_path / "body"
    path.write_bytes(b"before" + body)
    with path.open("rb") as file:
        file.seek(6)
        message_id = await queue.publish(file)
    assert (await queue.read(message_id)).body == body
    await queue.publish(body)
    first, second = await queue.fetch_many(2)
    assert first.body == second.body == body


async def test_pieces_are_streamed(queue: Any) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for piece in (b"one ", b"", b"two"):
            yield piece

    message_id = await queue.publish(pieces(), headers={"ce-id": "7"})
    found = await queue.read(message_id)
    assert (found.body, found.headers["ce-id"]) == (b"one two", "7")


async def test_what_goes_wrong_in_a_body_is_the_caller_s(queue: Any) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"one"
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        await queue.publish(pieces())
    assert await queue.fetch() is None
    for body in (7, None, ["x"]):
        with pytest.raises(TypeError, match="a body is"):
            await queue.publish(body)


async def test_headers_are_kept(queue: Any) -> None:
    said = {"x-attribute-Shop": "nörth", "traceparent": "00-ab"}
    await queue.publish(b"x", headers={**said, "Content-Type": "text/csv"})
    await queue.publish(json=1, headers={"content-type": "application/cloudevents+json"})
    first, second = await queue.fetch_many(2)
    assert first.headers == {
        "content-type": "text/csv",
        "x-attribute-shop": "nörth",
        "traceparent": "00-ab",
    }
    assert second.content_type == "application/cloudevents+json"
    for name, value in (("a b", "c"), ("", "c"), ("x-attribute-a", "b\r\nX-Evil: 1"), ("a:b", "c")):
        with pytest.raises(ValueError, match="no header"):
            await queue.publish(b"x", headers={name: value})


async def test_one_message_alone_says_the_same_headers_as_a_batch(queue: Any) -> None:
    said = {"x-attribute-a": "1", "ce-type": "t", "Content-Encoding": "gzip"}
    await queue.publish(b"no gzip", headers=said, content_type="text/plain; charset=utf-8")
    alone = await queue.fetch()
    await alone.release()
    [batched] = await queue.fetch_many(1)
    assert alone.headers == batched.headers
    assert alone.body == batched.body == b"no gzip"


async def test_delay_and_time(queue: Any) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    first = await queue.publish(b"1", delay_s=3600.0005)
    second = await queue.publish(b"2", at=later.astimezone())
    found = [each async for each in queue.browse(["delayed"])]
    assert [each.id for each in found] == [first, second]
    assert abs(found[1].due - later) < timedelta(milliseconds=1)
    with pytest.raises(ValueError, match="time zone"):
        await queue.publish(b"3", at=later.replace(tzinfo=None))
    with pytest.raises(Refused) as refused:
        await queue.publish(b"3", at=later, delay_s=1)
    assert refused.value.status == 400


async def test_groups(queue: Any) -> None:
    first = await queue.publish(b"1", group="g")
    [line] = await queue.publish_lines(b"2", group="g")
    [other] = await queue.publish_many([NewMessage(b"3", group="h")])
    message = await queue.fetch()
    assert (message.id, message.group) == (first, "g")
    assert [each.id for each in await queue.fetch_many(10)] == [other.id]
    assert await queue.fetch() is None
    assert [(each.group, each.id, each.state) for each in await queue.groups()] == [
        ("g", first, "delayed"), ("h", other.id, "delayed"),
    ]  # fmt: skip
    [peeked] = await queue.peek()
    assert (peeked.id, peeked.group) == (line.id, "g")
    assert (await queue.read(first)).group == "g"
    await message.delete()
    assert (await queue.fetch()).id == line.id


async def test_priority_key_and_visibility(queue: Any) -> None:
    await queue.publish(b"low")
    high = await queue.publish(b"high", priority=9, key="a/b ü", visibility_s=77)
    message = await queue.fetch()
    assert (message.id, message.priority, message.key) == (high, 9, "a/b ü")
    assert timedelta(seconds=70) < message.due - datetime.now(UTC) < timedelta(seconds=90)
    with pytest.raises(KeyTaken) as taken:
        await queue.publish(b"x", key="a/b ü")
    assert (taken.value.id, taken.value.key) == (high, "a/b ü")


async def test_publishes_with_an_idempotency_key_are_one(queue: Any) -> None:
    for key in ("42", 'with "quotes", and commas'):
        first = await queue.publish(b"1", idempotency_key=key)
        assert await queue.publish(b"2", idempotency_key=key) == first
    assert len(await queue.peek()) == 2


async def test_a_body_that_is_too_large(queue: Any) -> None:
    await queue.change_settings({"body_bytes_max": 10})
    with pytest.raises(TooLarge) as refused:
        await queue.publish(b"x" * 11)
    assert refused.value.facts["bytes_max"] == 10
    with pytest.raises(TooLarge):
        await queue.publish(io.BytesIO(b"x" * 3_000_000))
    await queue.publish(b"x" * 10)


async def test_many_are_told_of_in_their_order(queue: Any) -> None:
    messages = [
        b"0",
        "1",
        NewMessage(json=2, priority=3),
        NewMessage(b"3", priority=10),
        NewMessage(b"4", key="k"),
    ]
    found = await queue.publish_many(messages, concurrency=2)
    assert [each.problem is None for each in found] == [True, True, True, False, True]
    assert isinstance(found[3].problem, Refused)
    bodies = {each.id: each.body for each in await queue.peek()}
    assert [bodies[each.id] for each in found if each.id] == [b"0", b"1", b"2", b"4"]
    assert await queue.publish_many([]) == []
    with pytest.raises(ValueError, match="concurrency"):
        await queue.publish_many([b"x"], concurrency=0)
    with pytest.raises(TypeError, match="a body is"):
        await queue.publish_many([b"x", 7])


async def test_many_are_as_if_each_was_published_alone(queue: Any) -> None:
    """Small ones go together, large ones and streams by themselves."""
    later = datetime.now(UTC) + timedelta(hours=1)
    messages = [
        NewMessage(b"\x00\xff"),
        NewMessage("\x00" * 100_000),
        NewMessage(b"x" * 200_000, content_type="image/png"),
        NewMessage(io.BytesIO(b"file")),
        NewMessage(json={"n": [1.5, "\u00fc"]}, headers={"ce-type": "order", "X-Attribute-A": "b"}),
        NewMessage("t", priority=9, visibility_s=90, key="k", idempotency_key='"q"'),
        NewMessage("later", delay_s=600.25, tags=("a", "b c"), ttl_s=3600, group="g"),
        NewMessage("at", at=later),
        NewMessage(b""),
        *[NewMessage(str(n)) for n in range(300)],
    ]
    with pytest.raises(TypeError, match="tags"):
        await queue.publish_many([NewMessage("x", tags="ab"), b"y"])
    found = await queue.publish_many(messages)
    assert [each.problem for each in found] == [None] * len(messages)
    assert len({each.id for each in found}) == len(messages)
    assert await queue.publish_message(messages[5]) == found[5].id
    for message, each in zip(messages[:9], found, strict=False):
        alone = dataclasses.replace(message, key=None, idempotency_key=None)
        if isinstance(alone.body, io.BytesIO):
            alone.body.seek(0)
        first = await queue.read(each.id)
        second = await queue.read(await queue.publish_message(alone))
        assert (first.body, first.headers) == (second.body, second.headers)
        assert (first.tags, first.group) == (second.tags, second.group)
        assert (first.state, first.priority) == (second.state, second.priority)
        assert abs(first.due - second.due) < timedelta(minutes=5)
    assert (await queue.read_key("k")).id == found[5].id


class _WithoutEnd(io.BytesIO):
    """A file that fails when it is read at its end."""

    def read(self, size: int | None = -1, /) -> bytes:
        assert self.tell() < len(self.getvalue())
        return super().read(size)


async def test_a_file_of_known_size_is_not_read_past_its_end(queue: Any) -> None:
    """Its answer comes once mq has its bytes, and must not meet a request that still sends."""
    for body in (b"file", b"x" * 300_000, b""):
        found = await queue.read(await queue.publish(_WithoutEnd(body)))
        assert found.body == body


async def test_a_refused_message_leaves_the_caller_as_it_was(queue: Any) -> None:
    with pytest.raises(TypeError, match="a body is"):
        await queue.publish_many([b"x", 7])
    caller = asyncio.current_task()
    assert caller is not None
    assert not caller.cancelling()


async def test_many_to_a_queue_that_is_not_there(client: Any) -> None:
    found = await client.queue("nowhere").publish_many([b"0", b"1"])
    assert [type(each.problem) for each in found] == [QueueNotFound, QueueNotFound]


async def test_lines(queue: Any) -> None:
    found = await queue.publish_lines('{"n": 1}\n\n{"n": 2}\r\n', content_type="application/json")
    assert [each.problem for each in found] == [None, None]
    messages = await queue.fetch_many(10)
    assert [each.id for each in messages] == [each.id for each in found]
    assert [each.json() for each in messages] == [{"n": 1}, {"n": 2}]


async def test_lines_that_are_refused(queue: Any) -> None:
    await queue.change_settings({"body_bytes_max": 3})
    short, long = await queue.publish_lines(b"one\nthree\n")
    assert short.id is not None
    assert isinstance(long.problem, TooLarge)
    assert long.id is None
