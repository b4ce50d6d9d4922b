"""Uploads whose publisher goes just as they begin."""

import asyncio
from pathlib import Path

import pytest
from harness.clock import FakeClock
from harness.faults import FaultyFiles
from harness.folders import message_files
from harness.waiting import comes_true

from mq.broker.broker import Broker
from mq.names import QueueName
from mq.settings import QueueSettings
from mq.store.commit import Committer
from mq.store.flush import NoFlusher
from mq.store.root import open_root

QUEUE = QueueName.parse("q")


@pytest.mark.parametrize("turns", range(4))
async def test_nothing_stays_open_of_an_upload_that_just_began(tmp_path: Path, turns: int) -> None:
    """`turns`: of the loop, between the file's opening and the end of whoever asked for it."""
    files = FaultyFiles()
    broker = Broker(
        open_root(str(tmp_path), files, FakeClock()), Committer(NoFlusher()), QueueSettings()
    )
    await broker.create_queue(QUEUE)
    gate = files.hold("create", "/new/")
    asking = asyncio.create_task(broker.upload(QUEUE))
    await comes_true(gate.reached.is_set)
    others = asyncio.all_tasks() - {asking, asyncio.current_task()}
    [staging] = [each for each in others if "call" in repr(each.get_coro())]
    gate.open()
    await asyncio.wait([staging])
    for _ in range(turns):
        await asyncio.sleep(0)
    asking.cancel()
    try:
        upload = await asking
    except asyncio.CancelledError:
        pass
    else:
        await upload.abort()
    await broker.drain()
    assert not files.open_paths("/new/")
    assert message_files(tmp_path)["new"] == []
