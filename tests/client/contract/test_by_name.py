"""Messages by their ids and keys."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from mq.client.errors import DeliveredAgain, KeyNotFound, KeyTaken, MessageNotFound, Refused
from mq.model.failure import Failure

GONE = "0192f3a2-7c4e-7d2a-9b1e-0123456789ab.json"


async def test_a_message_is_read_in_every_state(queue: Any) -> None:
    message_id = await queue.publish("two pizzas", key="table 7", priority=2)
    ready = await queue.read(message_id)
    assert (ready.state, ready.body, ready.size) == ("ready", b"two pizzas", 10)
    assert (ready.receives, ready.key, ready.priority) == (0, "table 7", 2)
    assert ready.text() == "two pizzas"
    assert abs(ready.published - datetime.now(UTC)) < timedelta(minutes=5)
    message = await queue.fetch()
    assert (await queue.read_key("table 7")).receives == 1
    await message.delete()
    assert (await queue.read(message_id)).state == "removed"
    with pytest.raises(KeyNotFound) as refused:
        await queue.read_key("table 7")
    assert refused.value.facts["key"] == "table 7"
    with pytest.raises(MessageNotFound) as refused:
        await queue.read(GONE)
    assert refused.value.facts["id"] == GONE


async def test_a_part_of_a_body(queue: Any) -> None:
    message_id = await queue.publish(b"0123456789")
    for start, length, part in ((0, 3, b"012"), (8, None, b"89"), (5, 100, b"56789")):
        found = await queue.read(message_id, start=start, length=length)
        assert (found.body, found.size) == (part, 10)
    with pytest.raises(Refused) as refused:
        await queue.read(message_id, start=10)
    assert refused.value.facts["size"] == 10
    for start, length in ((-1, None), (0, 0)):
        with pytest.raises(ValueError, match="a part"):
            await queue.read(message_id, start=start, length=length)


async def test_deleting_by_id(queue: Any) -> None:
    message_id = await queue.publish(b"x")
    message = await queue.fetch()
    with pytest.raises(DeliveredAgain):
        await queue.delete_message(message_id, receives=7)
    await queue.delete_message(message_id, receives=message.receives)
    await queue.delete_message(message_id)
    with pytest.raises(MessageNotFound):
        await queue.delete_message(GONE)
    with pytest.raises(Refused) as refused:
        await queue.delete_message("no id")
    assert refused.value.slug == "bad-name"


async def test_deleting_many(queue: Any) -> None:
    ids = [await queue.publish(b"x") for _ in range(3)]
    found = await queue.delete_messages([*ids, GONE, "no id"])
    assert [each.id for each in found] == [*ids, GONE, "no id"]
    assert [each.is_done for each in found] == [True, True, True, False, False]
    assert isinstance(found[3].problem, MessageNotFound)
    assert isinstance(found[4].problem, Refused)
    with pytest.raises(Refused):
        await queue.delete_messages([])


async def test_settling_many(client: Any, queue: Any) -> None:
    await queue.publish_many(["1", "2", "3", "4"])
    messages = await queue.fetch_many(4)
    ids = [each.id for each in messages]
    found = await queue.extend_messages([messages[0], ids[1], GONE], 600)
    assert [(each.id, each.is_done) for each in found] == [
        (ids[0], True), (ids[1], True), (GONE, False)
    ]  # fmt: skip
    assert (await queue.read(ids[1])).due - messages[1].due > timedelta(minutes=5)
    found = await queue.release_messages(messages[:2], reason="busy")
    assert [each.is_done for each in found] == [True, True]
    assert [each.text for each in await queue.failures(ids[1])] == ["busy"]
    assert [each.id for each in await queue.fetch_many(2)] == ids[:2]
    # The message stands for its delivery, which is over.
    [late] = await queue.release_messages([messages[0]], delay_s=60)
    assert isinstance(late.problem, DeliveredAgain)
    for reason, each in (("exception", messages[2]), (Failure("x", "E"), messages[3])):
        [result] = await queue.sideline_messages([each], reason=reason)
        assert result.is_done
    aside = await client.queue("orders_SIDELINE").peek()
    assert [(each.sidelined, each.reason) for each in aside] == [
        ("exception", None), ("exception", "E: x")
    ]  # fmt: skip
    [late] = await queue.delete_messages([messages[1]])
    assert isinstance(late.problem, DeliveredAgain)
    assert [each.is_done for each in await queue.delete_messages(ids[:2])] == [True, True]


async def test_deleting_by_key(queue: Any) -> None:
    await queue.publish(b"1", key="night/run")
    with pytest.raises(KeyTaken):
        await queue.publish(b"2", key="night/run")
    with pytest.raises(DeliveredAgain):
        await queue.delete_key("night/run", receives=1)
    await queue.delete_key("night/run", receives=0)
    await queue.publish(b"2", key="night/run")


async def test_extending_and_releasing_by_id(queue: Any) -> None:
    message_id = await queue.publish(b"x")
    found = await queue.extend(message_id, 500.25)
    assert (found.id, found.receives) == (message_id, 0)
    assert timedelta(seconds=400) < found.due - datetime.now(UTC) < timedelta(seconds=600)
    assert (await queue.read(message_id)).state == "delayed"
    await queue.release(message_id)
    message = await queue.fetch()
    with pytest.raises(DeliveredAgain):
        await queue.release(message_id, receives=7)
    found = await queue.release(message_id, delay_s=50, receives=message.receives)
    assert found.due > datetime.now(UTC)
    with pytest.raises(MessageNotFound):
        await queue.extend(GONE, 1)


async def test_sidelining_by_id(queue: Any) -> None:
    message_id = await queue.publish(b"x")
    with pytest.raises(DeliveredAgain):
        await queue.sideline(message_id, receives=7)
    found = await queue.sideline(message_id, reason="exception", receives=0)
    assert (found.id, found.queue, found.receives) == (message_id, "orders_SIDELINE", 0)
    assert (await queue.sideline(message_id)).reason == "exception"


async def test_peeking(client: Any, queue: Any) -> None:
    ids = [await queue.publish(str(n)) for n in range(5)]
    await queue.publish(b"\xff" * 5000, delay_s=100)
    page = await queue.peek(count=2)
    assert [each.id for each in page] == ids[:2]
    page = await queue.peek(count=2, after=page[-1].id)
    assert [each.text() for each in page] == ["2", "3"]
    await queue.sideline(ids[0])
    [sidelined] = await client.queue("orders_SIDELINE").peek()
    assert sidelined.sidelined == "rejected"
    assert sidelined.sidelined_at is not None
    ready, delayed = (await queue.peek(states=("ready", "delayed")))[3:]
    assert (ready.state, delayed.state) == ("ready", "delayed")
    assert (len(delayed.body), delayed.size) == (4096, 5000)
    with pytest.raises(Refused) as refused:
        await queue.peek(states=("ready", "delayed"), after=ids[0])
    assert refused.value.slug == "bad-after"
    await queue.publish(b"x", priority=7, tags=["eu"])
    assert [each.priority for each in await queue.peek(select=["priority:5.."])] == [7]
    assert [each.tags for each in await queue.peek(tag="eu")] == [("eu",)]


async def test_browsing_goes_through_all_pages(queue: Any) -> None:
    ids = [await queue.publish(str(n)) for n in range(5)]
    late = await queue.publish(b"x", delay_s=100)
    for count in (1, 2, 5, 1000):
        found = [each.id async for each in queue.browse(["ready", "delayed"], count=count)]
        assert found == [*ids, late]


async def test_history(queue: Any) -> None:
    await queue.change_settings({"history": True})
    message_id = await queue.publish(b"x")
    async with await queue.fetch():
        pass
    found = await queue.history(message_id)
    assert (found.id, found.recording, found.left_out) == (message_id, True, 0)
    # What was just done may show a moment later.
    assert [each.event for each in found.events] == ["published", "fetched", "removed"][
        : len(found.events)
    ]
    with pytest.raises(MessageNotFound):
        await queue.history(GONE)
