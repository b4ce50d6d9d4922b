"""Queues as a whole: made, listed, described, purged, deleted."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from mq.client.errors import BadName, QueueExpired, QueueNotFound, Refused, SettingsFixed


async def test_a_queue_is_made_once(client: Any) -> None:
    queue = client.queue("orders")
    assert await queue.create(bucket=9, shards=2) is True
    assert await queue.create() is False
    assert await queue.create(bucket=9, shards=2) is False
    with pytest.raises(SettingsFixed) as refused:
        await queue.create(shards=3)
    assert (refused.value.status, refused.value.facts["queue"]) == (409, "orders")


async def test_a_malformed_name_is_told_at_once(client: Any) -> None:
    for name in ("", "a/b", "-/livez", "x" * 56):
        with pytest.raises(BadName, match="queue"):
            client.queue(name)


async def test_what_is_out_of_bounds_is_refused(client: Any) -> None:
    with pytest.raises(Refused) as refused:
        await client.queue("orders").create(shards=17)
    assert refused.value.slug == "bad-shards"
    assert refused.value.facts == {"parameter": "shards"}
    assert not refused.value.retryable
    assert "shards" in str(refused.value)


async def test_queues_are_listed_by_name_in_pages(client: Any) -> None:
    for name in ("b", "a", "c_SIDELINE", "Z"):
        await client.queue(name).create()
    for page in (1, 2, 1000):
        found = [(each.name, each.sideline) async for each in client.queues(page=page)]
        assert found == [("Z", False), ("a", False), ("b", False), ("c_SIDELINE", True)]


async def test_a_description_has_counts_and_settings(client: Any, queue: Any) -> None:
    await queue.publish(b"one")
    await queue.publish(b"later", delay_s=60)
    await queue.publish(b"two")
    message = await queue.fetch()
    found = await queue.describe()
    assert found.name == "orders"
    assert (found.ready, found.delayed, found.in_flight, found.removed) == (1, 1, 1, 0)
    assert found.totals["published"] == 3
    assert (found.lifetime["published"], found.lifetime["expired"]) == (3, 0)
    assert found.settings["visibility_s"] == 30.0
    assert found.process["of"] >= 1
    assert found.as_of["ready"].tzinfo is not None
    assert found.oldest_ready_age_s is not None
    assert not found.expired
    await message.release()


async def test_there_is_no_such_queue(client: Any) -> None:
    queue = client.queue("nowhere")
    for asked in (
        queue.describe(), queue.delete(), queue.purge(), queue.fetch(), queue.fetch_many(3),
        queue.publish(b"x"), queue.publish_lines(b"x\n"), queue.settings(), queue.peek(),
        queue.schedules(), queue.shovel(), queue.delete_messages(["x"]),
    ):  # fmt: skip
        with pytest.raises(QueueNotFound) as refused:
            await asked
        assert refused.value.facts["queue"] == "nowhere"


async def test_a_queue_is_deleted_with_its_messages(client: Any, queue: Any) -> None:
    await queue.publish(b"x")
    await queue.delete()
    with pytest.raises(QueueNotFound):
        await queue.describe()
    assert await queue.create()
    assert await queue.fetch() is None


@pytest.mark.certificate
async def test_a_purge_takes_what_was_published_until_then(client: Any, queue: Any) -> None:
    await queue.publish(b"before")
    until = await queue.purge()
    assert abs(until - datetime.now(UTC)) < timedelta(minutes=5)
    await queue.publish(b"after")
    assert [each.body async for each in queue.browse()] == [b"after"]


async def test_an_expired_queue_takes_nothing(client: Any, queue: Any) -> None:
    await queue.change_settings({"expires_at": "2001-01-01T00:00:00Z"})
    with pytest.raises(QueueExpired) as refused:
        await queue.publish(b"x")
    assert refused.value.status == 410
    assert refused.value.facts["expired_at"].startswith("2001-01-01")
    assert (await queue.describe()).expired
