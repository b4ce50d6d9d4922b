"""Settings, schedules, shovels; and mq itself."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from mq.client.errors import (
    NotUsable,
    QueueNotFound,
    Refused,
    ScheduleNotFound,
    SettingsChanged,
    ShovelNotFound,
)
from mq.client.options import Retry, Timeouts


async def test_settings_are_changed_and_restored(queue: Any) -> None:
    before = await queue.settings()
    assert before["visibility_s"] == 30.0
    changed = await queue.change_settings({"visibility_s": 60, "history": True})
    assert (changed["visibility_s"], changed["history"]) == (60.0, True)
    assert changed.etag != before.etag
    assert await queue.settings() == changed
    assert (await queue.change_settings({"visibility_s": None}))["visibility_s"] == 30.0


async def test_settings_by_keywords(queue: Any) -> None:
    changed = await queue.change_settings(max_receives=3, visibility_s=60)
    assert (changed["max_receives"], changed["visibility_s"]) == (3, 60.0)
    changed = await queue.change_settings({"history": True}, max_receives=None)
    assert (changed["max_receives"], changed["history"]) == (0, True)
    with pytest.raises(SettingsChanged):
        await queue.change_settings(max_receives=4, if_match='"old"')
    for given in (((), {}), (({"max_receives": 1},), {"max_receives": 2})):
        with pytest.raises(ValueError, match="once"):
            await queue.change_settings(*given[0], **given[1])


async def test_settings_that_are_others_by_now(queue: Any) -> None:
    before = await queue.settings()
    after = await queue.change_settings({"max_receives": 5}, if_match=before.etag)
    with pytest.raises(SettingsChanged):
        await queue.change_settings({"max_receives": 6}, if_match=before.etag)
    await queue.change_settings({"max_receives": 6}, if_match=after.etag)


async def test_settings_that_are_refused(queue: Any) -> None:
    for changes, slug, status in (
        ({"nothing": 1}, "unknown-setting", 400),
        ({"visibility_s": "x"}, "bad-setting", 422),
    ):
        with pytest.raises(Refused) as refused:
            await queue.change_settings(changes)
        assert (refused.value.slug, refused.value.status) == (slug, status)
        assert refused.value.facts["parameter"] in changes


async def test_schedules(queue: Any) -> None:
    until = datetime.now(UTC) + timedelta(days=3)
    made = await queue.schedule(
        "stock", "take stock", every_s=3600, delay_s=60.5, count=7, until=until, overlap="skip",
        priority=3, key="k", visibility_s=9, headers={"ce-type": "t"}, ttl_s=60, group="g",
        tags=["a", "b c"],
    )  # fmt: skip
    assert made.is_new
    assert (made.every_s, made.delay_s, made.count, made.overlap) == (3600.0, 60.5, 7, "skip")
    assert (made.priority, made.key, made.visibility_s) == (3, "k", 9)
    assert (made.ttl_s, made.group, made.tags) == (60, "g", ("a", "b c"))
    assert made.until is not None
    assert abs(made.until - until) < timedelta(milliseconds=1)
    assert made.next is not None
    assert (made.body, made.size) == (b"take stock", 10)
    assert made.headers == {"content-type": "text/plain", "ce-type": "t"}
    nightly = {"cron": "30 2 * * MON-FRI", "tz": "Europe/Berlin"}
    assert (await queue.schedule("nightly", b"\xff", **nightly)).is_new
    assert not (await queue.schedule("nightly", b"\xff", **nightly)).is_new
    found = await queue.get_schedule("nightly")
    assert (found.cron, found.tz, found.body) == ("30 2 * * MON-FRI", "Europe/Berlin", b"\xff")
    assert (found.fired, found.skipped, found.last, found.is_new) == (0, 0, None, None)
    assert [each.name for each in await queue.schedules()] == ["nightly", "stock"]
    await queue.delete_schedule("stock")
    with pytest.raises(ScheduleNotFound):
        await queue.get_schedule("stock")
    with pytest.raises(ScheduleNotFound):
        await queue.delete_schedule("stock")
    with pytest.raises(Refused) as refused:
        await queue.schedule("x", b"", cron="never")
    assert refused.value.slug == "bad-cron"


@pytest.mark.certificate
async def test_shovels(queue: Any) -> None:
    with pytest.raises(ShovelNotFound):
        await queue.shovel_progress()
    ids = [await queue.publish(str(n), priority=n) for n in range(3)]
    for each in ids:
        await queue.sideline(each)
    found = await _over(queue, await queue.shovel(ids=ids[:2], dry_run=True))
    assert (found.moved, found.criteria["ids"]) == (2, 2)
    run = await queue.shovel(priority="1..", dry_run=True)
    found = await _over(queue, run)
    assert (found.state, found.moved, found.dry_run, found.by) == ("done", 2, True, "request")
    found = await _over(queue, await queue.shovel(limit=2, max_receives=5))
    assert found.moved == 2
    assert found.criteria["max_receives"] == 5
    assert len(await queue.peek()) == 2
    found = await _over(queue, await queue.shovel(priority=2, rate=100, older_than_s=0, key="x*"))
    assert found.rate == 100
    assert sum(found.stayed.values()) == 1
    assert (await queue.stop_shovel()).is_over
    with pytest.raises(Refused):
        await queue.shovel(limit=-1)


async def _over(queue: Any, run: str) -> Any:
    while not (found := await queue.shovel_progress()).is_over:
        pass
    assert found.id == run
    return found


async def test_a_shovel_that_is_only_scheduled(queue: Any) -> None:
    await queue.change_settings({"shovel_interval_s": 60})
    found = await queue.shovel_progress()
    assert (found.state, found.id, found.moved) == ("scheduled", None, 0)
    assert found.is_over


async def test_mq_itself(client: Any, queue: Any) -> None:
    assert await client.is_alive()
    ready = await client.readiness()
    assert ready.durability
    assert ready.free_bytes > 0
    assert (await client.refresh()).queues == 1
    members = await client.members()
    assert members.leader is None or isinstance(members.leader, str)
    await client.members("orders")
    for queue_name in (None, "orders"):
        trends = await client.trends("day", queue_name)
        assert (trends.step_s, trends.points, trends.last) == (900, (), None)
    with pytest.raises(QueueNotFound):
        await client.trends(queue="none")
    assert (await client.memory())["budget_bytes"] > 0
    assert (await client.openapi())["openapi"].startswith("3.1")
    with pytest.raises(Refused):
        await client.members("no/queue")


async def test_a_closed_client_says_so(opened: Any) -> None:
    client = opened()
    queue = client.queue("orders")
    await queue.create()
    late = queue.consume()
    await client.close()
    await client.close()
    for asked in (queue.describe(), queue.publish(b"x"), client.is_alive(), late.next()):
        with pytest.raises(NotUsable):
            await asked
    with pytest.raises(NotUsable):
        queue.consume()
    with pytest.raises(NotUsable):
        client.consume("orders")


async def test_a_client_that_was_never_used_is_closed(opened: Any) -> None:
    client = opened(timeouts=Timeouts(1, 1), retry=Retry(attempts=1))
    async with client:
        pass
    with pytest.raises(NotUsable):
        await client.is_alive()
