"""What a process keeps of selections: so many at a time, and nothing of those that nobody uses."""

import asyncio

import pytest
from harness.api import assert_problem, call, fetch, make_queue, publish
from harness.internals import interested, queue_of, selections, selections_kept
from harness.server import Server
from harness.waiting import comes_true

import mq.broker.selections
from mq.broker.selections import SELECTIONS_PER_QUEUE_MAX
from mq.store.scan.barren import BARREN_FOLDERS_MAX, BARREN_NAMES_MAX

UNUSED = (0, BARREN_FOLDERS_MAX, BARREN_NAMES_MAX)


@pytest.fixture
async def queue(server: Server) -> Server:
    """An mq whose queue has messages that no selection here takes."""
    await make_queue(server)
    for _ in range(3):
        await publish(server, headers={"ce-id": "1"})
    return server


async def select(server: Server, text: str, more: str = "") -> int:
    return (await call(server, "GET", f"/q/messages?select={text}{more}")).status


async def test_one_after_the_other_there_may_be_any_number(queue: Server) -> None:
    for number in range(2 * SELECTIONS_PER_QUEUE_MAX):
        assert await select(queue, f"key:a{number}") == 204
    kept, _, _ = selections(queue, "q")
    assert kept == SELECTIONS_PER_QUEUE_MAX


async def test_what_nobody_uses_is_dropped(queue: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mq.broker.selections, "SELECTION_IDLE_S", 0.02)
    waiting = asyncio.create_task(select(queue, "header:ce-id=3", "&wait=60"))
    await comes_true(lambda: interested(queue, "q") == 1, "its waiting")
    for text in ("header:ce-id=2", "key:a", "key:b"):
        assert await select(queue, text) == 204
    assert selections(queue, "q") > (1, 0, 0)
    # The one that somebody waits for stays.
    await comes_true(lambda: selections(queue, "q")[0] == 1, "dropping them")
    await publish(queue, headers={"ce-id": "3"})
    assert await waiting == 200
    await comes_true(lambda: selections(queue, "q") == UNUSED, "dropping the last one")
    assert await select(queue, "header:ce-id=1") == 200


async def test_nothing_is_kept_of_a_deleted_queue(queue: Server) -> None:
    assert await select(queue, "header:ce-id=2") == 204
    found = selections(queue, "q")
    assert found[0] == 1
    waiting = asyncio.create_task(call(queue, "GET", "/q/messages?select=header:ce-id=4&wait=60"))
    await comes_true(lambda: interested(queue, "q") == 1, "its waiting")
    deleted = queue_of(queue, "q")
    assert (await call(queue, "DELETE", "/q")).status == 200
    assert_problem(await waiting, 404, "queue-not-found")
    await make_queue(queue)
    assert (await fetch(queue)).status == 204
    await comes_true(lambda: selections(queue, "q") == UNUSED, "forgetting them")
    assert selections_kept(deleted) == 0
