"""What is done to messages, whoever waits for it."""

import asyncio
import gc
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from mq.broker.broker import Broker
from mq.broker.settling import Disposition, IfReceives, Reschedule, Sideline, settle, settle_many
from mq.model.clock import SystemClock
from mq.model.names import MessageId, QueueName
from mq.model.settings import QueueSettings
from mq.store.disk.commit import Committer
from mq.store.disk.files import Files
from mq.store.disk.flush import NoFlusher
from mq.store.opening import open_root

QUEUE = QueueName.parse("q")
OTHER = IfReceives(7)


def many(
    broker: Broker, queue: QueueName, message_id: MessageId, how: Disposition[Any]
) -> Awaitable[object]:
    return settle_many(broker, queue, {message_id: how})


@pytest.mark.parametrize("act", [settle, many])
@pytest.mark.parametrize("how", [Reschedule(0, OTHER), Sideline(if_receives=OTHER)])
async def test_an_error_is_no_trouble_though_its_caller_is_gone(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    act: Callable[..., Awaitable[object]],
    how: Disposition[Any],
) -> None:
    root = open_root(str(tmp_path / "root"), Files(), SystemClock())
    broker = Broker(root, Committer(NoFlusher()), QueueSettings())
    await broker.create_queue(QUEUE)
    message_id = await broker.publish(QUEUE, b"x")
    settling = asyncio.ensure_future(act(broker, QUEUE, message_id, how))
    while not broker.committer.waiting:
        await asyncio.sleep(0)
    settling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await settling
    await broker.drain()
    with caplog.at_level(logging.ERROR, "asyncio"):
        gc.collect()
    assert not caplog.records
