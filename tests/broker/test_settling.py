"""Settling messages: an operation ends well though its caller has gone."""

import asyncio
import gc
import logging
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from harness.processes import PATIENCE_S
from harness.waiting import comes_true

from mq.broker.broker import Broker
from mq.broker.settling import Disposition, Reschedule, Sideline, settle, settle_many
from mq.model.clock import SystemClock
from mq.model.names import MessageId, QueueName
from mq.model.settings import QueueSettings
from mq.store.disk.commit import Committer
from mq.store.disk.files import Files
from mq.store.disk.flush import NoFlusher
from mq.store.opening import open_root

QUEUE = QueueName.parse("q")


def many(
    broker: Broker, queue: QueueName, message_id: MessageId, how: Disposition[Any]
) -> Awaitable[object]:
    return settle_many(broker, queue, {message_id: how})


@pytest.mark.parametrize("act", [settle, many])
@pytest.mark.parametrize("kind", [partial(Reschedule, 0), Sideline])
async def test_an_error_is_no_trouble_though_its_caller_is_gone(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    act: Callable[..., Awaitable[object]],
    kind: Callable[..., Disposition[Any]],
) -> None:
    gc.collect()
    caplog.clear()  # Of earlier tests.
    reached, goes_on = threading.Event(), threading.Event()

    def refuse(receives: int) -> bool:
        reached.set()
        assert goes_on.wait(PATIENCE_S)
        return False

    root = open_root(str(tmp_path / "root"), Files(), SystemClock())
    broker = Broker(root, Committer(NoFlusher()), QueueSettings())
    await broker.create_queue(QUEUE)
    message_id = await broker.publish(QUEUE, b"x")
    settling = asyncio.ensure_future(act(broker, QUEUE, message_id, kind(if_receives=refuse)))
    await comes_true(reached.is_set, "the operation is at the message")
    settling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await settling
    goes_on.set()
    await broker.drain()
    with caplog.at_level(logging.ERROR, "asyncio"):
        gc.collect()
    assert not caplog.records
