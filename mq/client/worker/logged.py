"""Middleware that logs each message."""

import logging
from collections.abc import Mapping
from typing import Final

from mq.client.worker.calling import CallNext, Middleware
from mq.client.worker.messages import AsyncWorkerMessage
from mq.model.clock import Clock, SystemClock

_LOG: Final = logging.getLogger("mq.worker.messages")


def logged(
    logger: logging.Logger = _LOG, level: int = logging.INFO, clock: Clock | None = None
) -> Middleware:
    """Logs a line for each message: `handled` with how long that took, or `failed` with the
    exception's name as well (the worker itself logs its trace). The record's `fields` are the
    facts: `queue`, `id`, `receives`, `took_s`, `result` or `error`.
    """
    steady = clock or SystemClock()

    def say(
        what: str, more: Mapping[str, object], message: AsyncWorkerMessage, began_s: float
    ) -> None:
        took_s = steady.steady_s() - began_s
        facts = {
            "queue": message.queue,
            "id": message.id,
            "receives": message.receives,
            "took_s": round(took_s, 6),
            **more,
        }
        ends = f": {more['error']}" if "error" in more else ""
        logger.log(
            *(level, "%s %s of %s in %.3f s%s", what),
            *(message.id, message.queue, took_s, ends),
            extra={"fields": facts},
        )

    async def log(message: AsyncWorkerMessage, call_next: CallNext) -> object:
        began_s = steady.steady_s()
        try:
            result = await call_next(message)
        except BaseException as error:
            say("failed over", {"error": type(error).__name__}, message, began_s)
            raise
        say("handled", {"result": result is not False}, message, began_s)
        return result

    return log
