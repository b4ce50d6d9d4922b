"""Packs of the client: many messages in a request with one key, and single publishes that wait for
others.
"""

import asyncio
from collections.abc import AsyncIterator

import pytest

from mq import AsyncClient
from mq.client.errors import ConnectionLost, QueueNotFound
from mq.client.options import Retry, Seams
from mq.client.queue import AsyncQueue
from mq.client.values import NewMessage
from mq.testing import FakeMq

LINGER_MS = 20.0


@pytest.fixture
async def fake() -> AsyncIterator[FakeMq]:
    made = FakeMq()
    yield made
    made.close()


@pytest.fixture
async def client(fake: FakeMq) -> AsyncIterator[AsyncClient]:
    async def jump(seconds: float) -> None:
        fake.clock.advance(seconds)

    seams = Seams(sleep=jump, clock=fake.clock)
    async with AsyncClient(
        transport=fake.transport(), seams=seams, retry=Retry(attempts=3), linger_ms=LINGER_MS
    ) as made:
        yield made


async def queue_of(client: AsyncClient, most: int = 100) -> AsyncQueue:
    queue = client.queue("orders")
    await queue.create()
    await queue.change_settings(pack_messages_max=most)
    return queue


def packs(ids: list[str]) -> list[str]:
    """The packs that the messages are of, in their order; "" for a message of its own."""
    return [each[:20] if ",n=" in each else "" for each in ids]


async def test_single_publishes_of_one_moment_are_one_pack(client: AsyncClient) -> None:
    queue = await queue_of(client)
    bodies = [b"%d" % number for number in range(30)]
    ids = await asyncio.gather(*map(queue.publish, bodies))
    assert len(set(ids)) == 30
    assert len(set(packs(ids))) == 1
    for message_id, body in zip(ids, bodies, strict=True):
        assert (await queue.read(message_id)).body == body


async def test_what_differs_goes_apart_and_what_cannot_share_goes_alone(
    client: AsyncClient,
) -> None:
    queue = await queue_of(client)
    ids = await asyncio.gather(
        *(queue.publish(b"1", priority=1), queue.publish(b"2", priority=1)),
        *(queue.publish("a\nb"), queue.publish("", content_type="text/plain")),
        *(queue.publish(b"5", key="k"), queue.publish(b"6", idempotency_key="i")),
        *(queue.publish(b"7", group="g"), queue.publish(b"8", headers={"traceparent": "00-1"})),
    )
    found = packs(ids)
    assert found[0] == found[1] != found[2] == found[3]
    assert all(found[:4])
    assert not any(found[4:])
    assert (await queue.read(ids[2])).body == b"a\nb"
    assert (await queue.read(ids[3])).body == b""


async def test_a_full_pack_does_not_wait(fake: FakeMq) -> None:
    async with AsyncClient(transport=fake.transport(), linger_ms=1000) as client:
        queue = await queue_of(client)
        async with asyncio.timeout(30):
            ids = await asyncio.gather(*(queue.publish(b"x") for _ in range(200)))
        assert len(set(packs(ids))) == 2


async def test_a_lost_answer_publishes_once(fake: FakeMq, client: AsyncClient) -> None:
    queue = await queue_of(client)
    fake.lose_answer(method="POST")
    ids = await asyncio.gather(*(queue.publish(b"x") for _ in range(5)))
    assert len(set(packs(ids))) == 1
    assert (await queue.describe()).ready == 5


async def test_a_queue_without_packs_gets_single_messages(
    fake: FakeMq, client: AsyncClient
) -> None:
    queue = await queue_of(client, 0)
    for _ in range(2):
        ids = await asyncio.gather(*(queue.publish(b"x") for _ in range(5)))
        assert packs(ids) == [""] * 5
    assert (await queue.describe()).ready == 10


async def test_one_that_is_refused_does_not_take_the_others_along(client: AsyncClient) -> None:
    queue = await queue_of(client)
    await queue.change_settings(body_bytes_max=3)
    ends = await asyncio.gather(*map(queue.publish, (b"1", b"12345", b"2")), return_exceptions=True)
    assert [isinstance(each, str) for each in ends] == [True, False, True]
    assert (await queue.describe()).ready == 2


async def test_each_publisher_hears_of_what_failed(fake: FakeMq, client: AsyncClient) -> None:
    ends = await asyncio.gather(
        *(client.queue("missing").publish(b"x") for _ in range(3)), return_exceptions=True
    )
    assert all(isinstance(each, QueueNotFound) for each in ends)
    queue = await queue_of(client)
    fake.lose_request(3, method="POST")
    ends = await asyncio.gather(*(queue.publish(b"x") for _ in range(3)), return_exceptions=True)
    assert all(isinstance(each, ConnectionLost) for each in ends)


async def test_a_publisher_that_gave_up_is_left_out(client: AsyncClient) -> None:
    queue = await queue_of(client)
    going = [asyncio.create_task(queue.publish(b"%d" % number)) for number in range(3)]
    await asyncio.sleep(0)
    going[1].cancel()
    ids = await asyncio.gather(going[0], going[2])
    assert len(set(packs(ids))) == 1
    assert (await queue.describe()).ready == 2


async def test_publish_many_makes_packs_of_what_is_alike(fake: FakeMq, client: AsyncClient) -> None:
    queue = await queue_of(client)
    messages = [NewMessage(b"%d" % number) for number in range(250)]
    messages += [NewMessage("text"), NewMessage("more"), NewMessage(b"k", key="k")]
    fake.lose_answer(method="POST")
    found = await queue.publish_many(messages, concurrency=1, pack=True)
    ids = [each.id or "" for each in found]
    assert all(ids)
    assert len(set(packs(ids))) == 5
    assert [packs(ids).count(each) for each in dict.fromkeys(packs(ids))] == [100, 100, 50, 2, 1]
    fetched = await queue.fetch_many(1000, packs=True)
    assert [each.id for each in fetched] == ids
    assert (await queue.delete_messages(fetched))[0].is_done
    again = await queue.publish_many([b"a", b"b"], pack=True)
    await queue.change_settings(pack_messages_max=0)
    single = await queue.publish_many([b"a", b"b"], pack=True)
    assert [len(set(packs([each.id or "" for each in of]))) for of in (again, single)] == [1, 1]
    assert packs([each.id or "" for each in single]) == ["", ""]


async def test_lines_and_rows_in_packs(client: AsyncClient) -> None:
    queue = await queue_of(client)
    lines = await queue.publish_lines(b"1\n2\n3", pack=True)
    rows = await queue.publish_rows(b'{"body": "4"}\n{"body": "5"}', pack=True)
    ids = [each.id or "" for each in (*lines, *rows)]
    assert len(set(packs(ids))) == 2
    async with queue.consume(packs=True, prefetch=2) as consumer:
        for message_id in ids:
            message = await consumer.next(wait_s=20)
            assert message is not None
            assert message.id == message_id
            await message.delete()
    assert (await queue.describe()).in_flight == 0


def test_a_linger_has_bounds() -> None:
    with pytest.raises(ValueError, match="linger_ms"):
        AsyncClient(linger_ms=1001)
