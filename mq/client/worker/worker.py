"""The worker: a function is called with each message of a queue, or of several."""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final, TypeVar

from mq.access.client_certificates import Certificates
from mq.client import address
from mq.client.client import AsyncClient
from mq.client.errors import BadName, NotUsable
from mq.client.limits import URL_DEFAULT
from mq.client.options import Seams
from mq.client.worker.backoff import Backoff
from mq.client.worker.calling import Handler, Middleware
from mq.client.worker.dispatching import TYPE_HEADER, Fit, Table
from mq.client.worker.running import Plan, Run
from mq.client.worker.scaling import Scale
from mq.client.worker.signals import heard
from mq.client.worker.verdicts import OnError, OnFalse, Policy
from mq.model.errors import BadName as Malformed
from mq.model.limits import VISIBILITY_S_MAX, VISIBILITY_S_MIN
from mq.model.names import QueueName
from mq.model.worker_limits import (
    CONSUMERS_DEFAULT,
    CONSUMERS_MAX,
    WORKER_CONNECTIONS_SPARE,
    WORKER_DRAIN_S_DEFAULT,
    WORKER_PREFETCH_MAX,
    WORKER_SECONDS_MAX,
)

_log: Final = logging.getLogger("mq.worker")

_IS_LOADING: Final = ContextVar("is_loading", default=False)

F = TypeVar("F", bound=Callable[[Any], object])


class RunsInImport(NotUsable):
    """A module runs its worker while `loading` imports it."""


@contextmanager
def loading() -> Iterator[None]:
    """Workers refuse to run inside the block."""
    token = _IS_LOADING.set(True)
    try:
        yield
    finally:
        _IS_LOADING.reset(token)


class Worker:
    """Calls a handler with each message of a queue, and does with the message what the handler's
    end says: deletes it, sidelines it, or gives it back.

    `url`: mq's, or an AsyncClient, which has a connection for each queue and each consumer, and
    stays open. `queue`, `handler`: the first handler; more by `handler()`. `consumers` (1 to 100):
    how many messages are handled at a time. `ignore`: exceptions after which a message is deleted.
    `on_false`: what becomes of a message whose handler returned False: "sideline", or "lapse", so
    that it comes back when it is due. `on_error`: of one whose handler raised: "sideline", or
    "release", so that it comes back after the wait that `backoff` says. `time_limit_s`: how long a
    handler may take. `visibility_s`: for how long a message is the worker's that then dies, else as
    the message or its queue says; it is extended while the worker lives. `drain_s`: how long a
    worker that ends waits for handlers. `follow_setting`: whether the queues' setting `consumers`
    goes before the worker's own. `prefetch`: how many messages of each queue may wait beside those
    that are handled, by itself as many as there are consumers. `middleware`: stands around each
    handler, the first outermost. `token`: sent as a bearer token. `ca_file`,
    `certificate`, `key`: as AsyncClient has them. `seams`: for tests.

    Raises ValueError, TypeError. It runs once.
    """

    def __init__(
        self,
        url: str | AsyncClient = URL_DEFAULT,
        queue: str | None = None,
        handler: Callable[[Any], object] | None = None,
        *,
        consumers: int = CONSUMERS_DEFAULT,
        ignore: type[BaseException] | Iterable[type[BaseException]] = (),
        on_false: OnFalse = "sideline",
        on_error: OnError = "sideline",
        backoff: Backoff | None = None,
        time_limit_s: float | None = None,
        visibility_s: float | None = None,
        drain_s: float = WORKER_DRAIN_S_DEFAULT,
        follow_setting: bool = False,
        prefetch: int | None = None,
        middleware: Sequence[Middleware] = (),
        token: str | None = None,
        ca_file: str | Path | None = None,
        certificate: str | Path | None = None,
        key: str | Path | None = None,
        seams: Seams | None = None,
    ) -> None:
        ignored = (ignore,) if isinstance(ignore, type) else tuple(ignore)
        if prefetch is not None and not 0 <= prefetch <= WORKER_PREFETCH_MAX:
            raise ValueError(f"prefetch is a whole number from 0 to {WORKER_PREFETCH_MAX}")
        _check("time_limit_s", time_limit_s, 0.001, WORKER_SECONDS_MAX)
        _check("visibility_s", visibility_s, VISIBILITY_S_MIN, VISIBILITY_S_MAX)
        _check("drain_s", drain_s, 0.0, WORKER_SECONDS_MAX)
        self._url = url
        self._token = token
        self._certificates = Certificates(ca_file, certificate, key)
        self._queue = queue
        self._table: Table[Handler] = Table()
        self._plan = Plan(
            self._table,
            Policy(ignored, on_false, on_error, backoff or Backoff()),
            tuple(middleware),
            time_limit_s,
            visibility_s,
            prefetch,
            drain_s,
            follow_setting,
        )
        self._scale = Scale(consumers)
        self._seams = seams or Seams()
        # What other threads use: how many, and the loop that is to hear of it.
        self._lock = threading.RLock()  # A signal may come while the main thread has it.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._run: Run | None = None
        self._asked: asyncio.Event | None = None
        self._was_run = False
        self._was_stopped = False
        if handler is not None:
            self.handler(queue)(handler)

    def handler(
        self,
        queue: str | None = None,
        *,
        type: str | None = None,  # noqa: A002
        key_prefix: str | None = None,
        type_header: str = TYPE_HEADER,
    ) -> Callable[[F], F]:
        """Makes a function a handler of the queue's messages, else of the worker's own queue's:
        `@worker.handler("orders")`.

        `type`: of those alone whose header `type_header` is this, or begins so where it ends in an
        asterisk. `key_prefix`: of those alone whose lookup key begins so. Of several handlers the
        one that says most closely what it takes has a message: both before one, a whole type before
        a beginning, longer before shorter. A message that none takes is as one whose handler
        raised: NoHandler.

        Raises ValueError for two handlers of the same messages, TypeError for what handles nothing,
        BadName, and NotUsable once the worker runs.
        """
        if callable(queue):
            raise TypeError("a handler is made with parentheses: @worker.handler()")
        name = queue if queue is not None else self._queue
        if name is None:
            raise ValueError("a handler is a queue's: which?")
        try:
            QueueName.parse(name)
        except Malformed as error:
            raise BadName(f"{name!r} is no queue's name: {error.expected}") from None
        fit = Fit(type, key_prefix, type_header)

        def registered(function: F) -> F:
            if self._was_run:
                raise NotUsable("the worker runs already")
            self._table.add(name, fit, Handler.of(function))
            return function

        return registered

    @property
    def queues(self) -> tuple[str, ...]:
        """Those that have a handler."""
        return self._table.queues

    @property
    def drain_s(self) -> float:
        """How long it waits for handlers when it ends."""
        return self._plan.drain_s

    @property
    def consumers(self) -> int:
        """How many messages are handled at a time, now."""
        return self._scale.total

    def scale(self, by: int) -> int:
        """Has so many more messages be handled at a time, or fewer, within 1 to 100; how many that
        makes. Those that are being handled go on. From any thread, at any time.
        """
        with self._lock:
            self._scale = self._scale.scaled(by)
            total = self._scale.total
        self._tell(lambda run: run.look_again())
        return total

    def stop(self) -> None:
        """Asks it to drain and end, as SIGTERM does. From any thread; before it runs, too. May be
        said again.
        """
        self._was_stopped = True
        self._tell(lambda _: self._asked.set() if self._asked else None)

    def use(
        self,
        url: str | None = None,
        token: str | None = None,
        certificates: Certificates | None = None,
    ) -> None:
        """Has it run against another mq than it was made for. Raises NotUsable where it has a
        client, or runs.
        """
        if self._was_run or not isinstance(self._url, str):
            raise NotUsable("the worker has its client")
        self._url = url if url is not None else self._url
        self._token = token if token is not None else self._token
        self._certificates = certificates or self._certificates

    def run(self) -> None:
        """Runs until SIGTERM, SIGINT or `stop()`, and drains. A second signal ends the process at
        once, with 128 and the signal's number. Signals are heard in the main thread alone. Raises
        as `run_async`.
        """
        with heard(self.stop):
            asyncio.run(self.run_async())

    async def run_async(self) -> None:
        """Runs in this event loop until `stop()`, and drains. Cancelled, it gives back what it has,
        and waits for no handler. It hears no signals.

        Raises ValueError without a handler, NotUsable for a second time, and where the client was
        closed; Refused for what mq will not do at any time, such as a visibility out of bounds.
        """
        if not self._table.queues:
            raise ValueError("the worker has no handler")
        if _IS_LOADING.get():
            raise RunsInImport(
                "the module runs its worker when it is imported. mqctl worker runs it: put run() "
                'below `if __name__ == "__main__":`.'
            )
        if self._was_run:
            raise NotUsable("a worker runs once")
        self._was_run = True
        client = self._url
        if isinstance(client, AsyncClient):
            await self._run_with(client)
            return
        connections = len(self._table.queues) + CONSUMERS_MAX + WORKER_CONNECTIONS_SPARE
        async with AsyncClient(
            client,
            token=self._token,
            ca_file=self._certificates.ca_file,
            certificate=self._certificates.certificate,
            key=self._certificates.key,
            connections_max=connections,
            seams=self._seams,
        ) as made:
            await self._run_with(made)

    async def _run_with(self, client: AsyncClient) -> None:
        asked = asyncio.Event()
        run = Run(self._plan, client, lambda: self._scale.total, self._follow, self._seams)
        with self._lock:
            self._loop, self._run, self._asked = asyncio.get_running_loop(), run, asked
        if self._was_stopped:
            asked.set()
        of = ", ".join(self._table.queues)
        url = address.shown(client.url)
        facts = {"of": of, "url": url, "consumers": self.consumers}
        _log.info(
            "works on %s at %s, %d messages at a time", *facts.values(), extra={"fields": facts}
        )
        try:
            await run.run(asked)
        finally:
            with self._lock:
                self._loop = self._run = self._asked = None

    def _follow(self, settings: Iterable[int]) -> None:
        with self._lock:
            before, self._scale = self._scale, self._scale.following(settings)
            total = self._scale.total
        if before.total != total:
            _log.info(
                "handles %d messages at a time; it was %d",
                *(total, before.total),
                extra={"fields": {"consumers": total, "was": before.total}},
            )
            self._tell(lambda run: run.look_again())

    def _tell(self, what: Callable[[Run], object]) -> None:
        with self._lock:
            if self._loop is not None and self._run is not None:
                self._loop.call_soon_threadsafe(what, self._run)


def _check(name: str, value: float | None, least: float, most: float) -> None:
    if value is not None and not least <= value <= most:
        raise ValueError(f"{name} is seconds from {least:g} to {most:g}")
