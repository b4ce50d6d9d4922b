"""The message of a handler in a thread that is still at work after its worker has ended."""

import asyncio
import gc
import warnings
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from mq.client.errors import NotUsable
from mq.client.wire import Row
from mq.client.worker.leases import Delivery
from mq.client.worker.messages import WorkerMessage

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Message:
    queue = "orders"
    row = Row("0192f3a2-7c4e-7d2a-9b1e-0123456789ab", 1, NOW, NOW, {})

    async def delete(self) -> None: ...

    async def release(self, delay_s: float, reason: object = None) -> None: ...

    async def sideline(self, reason: object) -> None: ...


@pytest.mark.parametrize("settle", ["delete", "release", "sideline"])
def test_a_message_of_a_worker_that_has_ended_cannot_be_settled(settle: str) -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    delivery = Delivery(cast(Any, Message()), "http://localhost", None, 0.0)
    message = WorkerMessage(delivery, cast(Any, None), loop)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with pytest.raises(NotUsable, match="the worker has ended"):
            getattr(message, settle)()
        gc.collect()
    assert told == []
