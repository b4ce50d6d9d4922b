"""The results of tasks, in queues of their own; and how tasks ask mq."""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar, cast

from mq.client import wire
from mq.client.client import AsyncClient, check_queue_name
from mq.client.errors import (
    KeyNotFound,
    KeyTaken,
    NotUsable,
    Problem,
    QueueNotFound,
    Unanswered,
    one_line,
)
from mq.client.options import Seams
from mq.client.portal import Portal
from mq.client.queue import AsyncQueue
from mq.client.values import NewMessage
from mq.client.worker.messages import AsyncWorkerMessage
from mq.client.worker.settling import SETTLE_AGAIN_S, SETTLE_AGAIN_S_MAX
from mq.client.worker.verdicts import BadResult
from mq.model.limits import MESSAGE_TTL_S_MAX

T = TypeVar("T")

RESULTS_SUFFIX: Final = "-results"

Asks: TypeAlias = Callable[[AsyncClient], Coroutine[Any, Any, T]]


class Link:
    """How tasks ask mq: by the worker's client in its event loop, elsewhere by a client of their
    own, in a background thread that starts with the first call.
    """

    def __init__(
        self, connected: Callable[[], AsyncClient], given: AsyncClient | None, seams: Seams
    ) -> None:
        """`given`: the client that the worker was made with: the only one then."""
        self._connected = connected
        self._given = given
        self._lock = threading.Lock()
        self._own: tuple[Portal, AsyncClient] | None = None
        self.seams = seams
        self.running: tuple[asyncio.AbstractEventLoop, AsyncClient] | None = None
        """The worker's loop and its client, while it runs."""

    async def call(self, ask: "Asks[T]") -> T:
        """Asks from an event loop."""
        running = self.running
        if running is not None and running[0] is asyncio.get_running_loop():
            return await ask(running[1])
        if self._given is not None:
            return await ask(self._given)
        portal, client = self._opened()
        return await asyncio.wrap_future(portal.submit(lambda: ask(client)))

    def wait(self, ask: "Asks[T]") -> T:
        """Asks from a thread. Raises NotUsable for a worker that was made with an AsyncClient."""
        if self._given is not None:
            raise NotUsable(
                "the worker was made with an AsyncClient, which works in its event loop alone: "
                "await the method whose name ends in _async"
            )
        portal, client = self._opened()
        return portal.run(lambda: ask(client))

    def _opened(self) -> tuple[Portal, AsyncClient]:
        with self._lock:
            if self._own is None or self._own[0].is_over:  # As in a forked process.
                client = self._connected()
                self._own = Portal(client.close, name="mq-tasks"), client
            return self._own


async def in_queue(queue: AsyncQueue, ask: Callable[[], Awaitable[T]]) -> T:
    """Asks something of a queue, which is created where there is none."""
    try:
        return await ask()
    except QueueNotFound:
        await queue.create()
        return await ask()


class Results:
    """The results of one task, in a queue of their own. Raises ValueError, BadName."""

    def __init__(self, queue: str, ttl_s: int, link: Link) -> None:
        if not 1 <= ttl_s <= MESSAGE_TTL_S_MAX:
            raise ValueError(
                f"result_ttl_s must be whole seconds from 1 to {MESSAGE_TTL_S_MAX}, not {ttl_s!r}"
            )
        self.queue = queue + RESULTS_SUFFIX
        check_queue_name(self.queue)
        self._ttl_s = ttl_s
        self._link = link

    async def read(self, client: AsyncClient, id_: str) -> dict[str, Any] | None:
        """The kept `result` or `failure` of a call; None: it has neither."""
        try:
            stored = await client.queue(self.queue).read_key(_key(id_))
        except (KeyNotFound, QueueNotFound):
            return None
        return cast(dict[str, Any], json.loads(stored.body))

    async def has_result(self, message: AsyncWorkerMessage) -> bool:
        """Whether a message that was delivered before has a result."""
        found = await self._link.call(lambda client: self.read(client, message.id))
        return found is not None and "result" in found

    async def keep(self, message: AsyncWorkerMessage, body: bytes, *, is_result: bool) -> None:
        """Keeps a result, in place of a failure; or a failure, if there is neither. Durable on
        return. Retries while the message is the worker's. Raises BadResult once mq refuses it.
        """
        pause_s = SETTLE_AGAIN_S
        wanted = NewMessage(
            body, content_type=wire.JSON, key=_key(message.id), ttl_s=self._ttl_s, priority=None
        )
        while not message.is_lost:
            try:
                await self._link.call(lambda client: self._keep(client, wanted, is_result))
                return
            except (Problem, Unanswered) as error:
                if isinstance(error, Problem) and not error.retryable:
                    raise BadResult(f"mq does not keep the result: {one_line(error)}") from error
                await self._link.seams.sleep(pause_s)
                pause_s = min(2 * pause_s, SETTLE_AGAIN_S_MAX)

    async def _keep(self, client: AsyncClient, wanted: NewMessage, is_result: bool) -> None:
        queue = client.queue(self.queue)
        publish = partial(queue.publish_message, wanted)
        try:
            await in_queue(queue, publish)
        except KeyTaken:
            key = cast(str, wanted.key)
            found = await self.read(client, key)
            if is_result and (found is None or "failure" in found):
                if found is not None:
                    with suppress(KeyNotFound):
                        await queue.delete_key(key)
                await in_queue(queue, publish)


def _key(id_: str) -> str:
    """The lookup key of a result: the UUID with which the call's id begins."""
    return id_.partition(",")[0]
