"""The worker, which calls functions with the messages of queues."""

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar, Unpack, overload

from mq.access.tls import Certificates
from mq.client.client import AsyncClient, check_queue_name
from mq.client.errors import NotUsable
from mq.client.http_transport import shown_url
from mq.client.options import URL_DEFAULT, Seams
from mq.client.worker.calling import Middleware
from mq.client.worker.choices import (
    A,
    B,
    Choices,
    Ignore,
    Plan,
    Registers,
    TaskChoices,
    all_of,
    chosen,
)
from mq.client.worker.dispatching import (
    TASK_HEADER,
    TYPE_HEADER,
    WORKER_QUEUES_MAX,
    Fit,
    Table,
    is_pattern,
)
from mq.client.worker.handlers import Handler, Options
from mq.client.worker.messages import AsyncWorkerMessage, WorkerMessage
from mq.client.worker.program import heard, refuse_while_loading
from mq.client.worker.results import Link
from mq.client.worker.running import Run
from mq.client.worker.supply import Scale
from mq.client.worker.tasks import MakesTask, Task
from mq.client.worker.verdicts import Backoff, OnError, OnFalse, OnIgnored
from mq.model.limits import CONSUMERS_MAX

# Messages that a worker handles at a time: each may have a thread of its own.
CONSUMERS_DEFAULT: Final = 4
WORKER_DRAIN_S_DEFAULT: Final = 30.0
# Connections beyond one for each queue and each consumer: for extensions, settings and releases.
WORKER_CONNECTIONS_SPARE: Final = 32

_log: Final = logging.getLogger("mq.worker")

P = ParamSpec("P")
R = TypeVar("R")


class Worker:
    """Calls a handler with each message of a queue, and settles the message by the handler's
    result: deletes, sidelines or releases it. Runs once.

    - `url`: mq's, or an AsyncClient, which needs a connection for each queue and each consumer, and
      stays open.
    - `queue`, `handler`: the first handler; `handler()` adds others.
    - `consumers` (1 to 100): how many messages are handled at a time.
    - `follow_setting`: whether the queues' setting `consumers` overrides the worker's.
    - `prefetch`: how many more messages of each queue wait here; by default as many as `consumers`.
    - `on_false`: what happens to a message whose handler returned False: "sideline", or "lapse" (it
      is delivered again when it is due).
    - `on_error`: what happens to a message whose handler raised: "sideline", or "release" (it is
      retried after the wait of `backoff`).
    - `retries`: how often it is retried before it is sidelined, whatever `on_error` is.
    - `ignore`: exceptions that are no failures.
    - `on_ignored`: what happens to their message: "delete", or "sideline", without a retry.
    - `time_limit_s`: how long a handler may take.
    - `visibility_s`: how soon a dead worker's messages are delivered again, by default as the
      message or its queue has it; a living worker extends it.
    - `drain_s`: how long a worker that ends waits for handlers.
    - `priority` (0 to 9): consumers of a higher one are served first.
    - `middleware`: wraps each handler, the first outermost.
    - `token`: sent as a bearer token.
    - `ca_file`, `certificate`, `key`: as for AsyncClient.
    - `seams`: for tests.

    Raises ValueError and TypeError for options out of bounds.
    """

    def __init__(
        self,
        url: str | AsyncClient = URL_DEFAULT,
        queue: str | None = None,
        handler: Callable[..., object] | None = None,
        *,
        consumers: int = CONSUMERS_DEFAULT,
        ignore: Ignore = (),
        on_ignored: OnIgnored = "delete",
        on_false: OnFalse = "sideline",
        on_error: OnError = "sideline",
        retries: int | None = None,
        backoff: Backoff | None = None,
        time_limit_s: float | None = None,
        visibility_s: float | None = None,
        drain_s: float = WORKER_DRAIN_S_DEFAULT,
        follow_setting: bool = False,
        prefetch: int | None = None,
        priority: int = 0,
        middleware: Sequence[Middleware] = (),
        token: str | None = None,
        ca_file: str | Path | None = None,
        certificate: str | Path | None = None,
        key: str | Path | None = None,
        seams: Seams | None = None,
    ) -> None:
        self._url = url
        self._token = token
        self._certificates = Certificates(ca_file, certificate, key)
        self._queue = queue
        self._table: Table[Handler] = Table()
        options = Options(
            ignore=all_of(ignore),
            on_false=on_false,
            on_error=on_error,
            backoff=backoff or Backoff(),
            on_ignored=on_ignored,
            retries=retries,
            time_limit_s=time_limit_s,
        )
        self._plan = Plan(
            self._table,
            options,
            tuple(middleware),
            visibility_s=visibility_s,
            prefetch=prefetch,
            drain_s=drain_s,
            follow_setting=follow_setting,
            priority=priority,
        )
        self._scale = Scale(consumers)
        self._seams = seams or Seams()
        given = url if isinstance(url, AsyncClient) else None
        self._link = Link(self._connected, given, self._seams)
        # Of `scale` and `stop`, which any thread may call. A signal may interrupt the main thread
        # while it holds the lock.
        self._lock = threading.RLock()
        self._run: Run | None = None
        self._was_run = False
        self._was_stopped = False
        if handler is not None:
            self.handler(queue)(handler)

    @overload
    def handler(self, queue: Callable[[A], R], /) -> Callable[[A], R]: ...
    @overload
    def handler(self, queue: Callable[[A, B], R], /) -> Callable[[A, B], R]: ...
    @overload
    def handler(
        self,
        queue: str | None = None,
        *,
        type: str | None = None,
        key_prefix: str | None = None,
        type_header: str = TYPE_HEADER,
        **choices: Unpack[Choices],
    ) -> Registers: ...
    def handler(
        self,
        queue: str | Callable[..., object] | None = None,
        *,
        type: str | None = None,  # noqa: A002
        key_prefix: str | None = None,
        type_header: str = TYPE_HEADER,
        **choices: Unpack[Choices],
    ) -> Any:
        """Decorates a handler of the queue's messages, by default of the worker's own queue's:
        `@worker.handler`, `@worker.handler("orders")`. A pattern of names, such as `orders.*`,
        stands for all queues that match it, also later ones; for sidelines only if it ends in
        `_SIDELINE`.

        The handler's argument is the message; or, if it is annotated with a dataclass or a pydantic
        model, the message's body of JSON; or both. A body that does not fit goes to the sideline.
        `type`: only messages whose header `type_header` is this, or begins with the part before an
        asterisk at the end. `key_prefix`: only messages whose lookup key begins with this.
        `choices`: the handler's options, see Choices.

        Of several handlers the closest fit gets a message: one with type and key before one with
        either, a whole type before a beginning, longer before shorter; a queue's own handler before
        a pattern's. A message that no handler takes is settled as if its handler had raised
        NoHandler.

        Raises ValueError for two handlers of the same messages and for options out of bounds,
        TypeError for an object that is no handler, ImportError for a typed body without the extra
        `typed`, BadName, and NotUsable once the worker runs.
        """
        if callable(queue):
            return self.handler()(queue)
        name = self._queue_of(queue, "handler(queue)")
        if not is_pattern(name):
            check_queue_name(name)
        fit = Fit(type, key_prefix, type_header)
        options = chosen(self._plan.options, choices, Choices)

        def registered(function: Callable[..., object]) -> Callable[..., object]:
            kinds = (AsyncWorkerMessage, WorkerMessage)
            self._add(name, fit, Handler.of(function, options, kinds))
            return function

        return registered

    @overload
    def task(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> Task[P, R, Coroutine[Any, Any, R]]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R, R]: ...
    @overload
    def task(
        self,
        *,
        name: str | None = None,
        queue: str | None = None,
        result_ttl_s: int | None = None,
        **choices: Unpack[TaskChoices],
    ) -> MakesTask: ...
    def task(
        self,
        function: Callable[..., Any] | None = None,
        *,
        name: str | None = None,
        queue: str | None = None,
        result_ttl_s: int | None = None,
        **choices: Unpack[TaskChoices],
    ) -> Any:
        """Makes a function a task: `send()` publishes a call of it, which a worker runs.
        `@worker.task`, `@worker.task(retries=5)`.

        A call's arguments are JSON, read by the function's annotations, which may be what a typed
        body's fields may be. `name`: by which workers find it, by default the function's. `queue`:
        of its calls, by default the worker's. `result_ttl_s`: how long its results are kept for
        `Handle.result`; by default none is. `choices`: see TaskChoices. What it returns settles
        nothing, False included.

        Raises ValueError for a second task of this name, and for options out of bounds; TypeError
        for annotations that JSON cannot give, ImportError without the extra `typed`, BadName, and
        NotUsable once the worker runs.
        """
        if function is not None:
            return self.task()(function)
        options = chosen(self._plan.options, choices, TaskChoices)
        of = self._queue_of(queue, "task(queue=...)")

        def made(function: Callable[..., Any]) -> Task[Any, Any, Any]:
            named = name if name is not None else getattr(function, "__name__", "")
            task: Task[Any, Any, Any] = Task(function, (of, named), result_ttl_s, self._link)
            self._add(of, Fit(named, None, TASK_HEADER), task.handler(options))
            return task

        return made

    def _queue_of(self, given: str | None, call: str) -> str:
        queue = given if given is not None else self._queue
        if queue is None:
            raise ValueError(f"which queue is it of? Name it: Worker(queue=...) or {call}")
        return queue

    def _add(self, queue: str, fit: Fit, handler: Handler) -> None:
        if self._was_run:
            raise NotUsable("the worker runs already: add handlers before")
        self._table.add(queue, fit, handler)

    @property
    def queues(self) -> tuple[str, ...]:
        """The queues and patterns that have a handler."""
        return self._table.queues

    @property
    def drain_s(self) -> float:
        """How long it waits for handlers when it ends, in seconds."""
        return self._plan.drain_s

    @property
    def consumers(self) -> int:
        """How many messages it handles at a time, now."""
        return self._scale.total

    def scale(self, by: int) -> int:
        """Handles `by` more messages at a time, or fewer, within 1 to 100; returns how many.
        Handlers that run continue. In any thread, at any time.
        """
        with self._lock:
            self._scale = self._scale.scaled(by)
            total = self._scale.total
        self._in_loop(Run.fill)
        return total

    def stop(self) -> None:
        """Asks it to drain and end, as SIGTERM does. In any thread, also before it runs. May be
        called again.
        """
        self._was_stopped = True
        self._in_loop(Run.stop)

    def use(
        self,
        url: str | None = None,
        token: str | None = None,
        certificates: Certificates | None = None,
    ) -> None:
        """Replaces the mq that it was made for. Raises NotUsable where it has a client, or runs."""
        if self._was_run or not isinstance(self._url, str):
            raise NotUsable("the worker was made with an AsyncClient, or runs: its URL is fixed")
        self._url = url if url is not None else self._url
        self._token = token if token is not None else self._token
        self._certificates = certificates or self._certificates

    def run(self) -> None:
        """Runs until SIGTERM, SIGINT or `stop()`, and drains. A second signal ends the process at
        once, with exit code 128 + its number. Only in the main thread it handles signals. Raises as
        `run_async`.
        """
        with heard(self.stop):
            asyncio.run(self.run_async())

    async def run_async(self) -> None:
        """Runs in this event loop until `stop()`, and drains. Cancelled, it releases its messages,
        and waits for no handler. It handles no signals.

        Raises ValueError without a handler; NotUsable for a second run, and for a closed client;
        Refused for options that mq does not accept.
        """
        if not self._table.queues:
            raise ValueError("the worker has no handler: add one with @worker.handler(queue)")
        refuse_while_loading()
        if self._was_run:
            raise NotUsable("a worker runs once: make another one")
        self._was_run = True
        client = self._url
        if isinstance(client, AsyncClient):
            await self._run_with(client)
            return
        async with self._connected() as made:
            await self._run_with(made)

    def _connected(self) -> AsyncClient:
        """A client of its URL."""
        queues = WORKER_QUEUES_MAX if self._table.has_patterns else len(self._table.queues)
        return AsyncClient(
            str(self._url),
            token=self._token,
            ca_file=self._certificates.ca_file,
            certificate=self._certificates.certificate,
            key=self._certificates.key,
            connections_max=queues + CONSUMERS_MAX + WORKER_CONNECTIONS_SPARE,
            seams=self._seams,
        )

    async def _run_with(self, client: AsyncClient) -> None:
        run = Run(self._plan, client, lambda: self._scale.total, self._follow, self._seams)
        with self._lock:
            self._run = run
        self._link.running = (run.loop, client)
        if self._was_stopped:
            run.stop()
        of = ", ".join(self._table.queues)
        facts = {"of": of, "url": shown_url(client.url), "consumers": self.consumers}
        _log.info(
            "the worker works on %s at %s, %d messages at a time",
            *facts.values(),
            extra={"fields": facts},
        )
        try:
            await run.run()
        finally:
            with self._lock:
                self._run = None
            self._link.running = None

    def _follow(self, settings: Iterable[int]) -> None:
        with self._lock:
            before, self._scale = self._scale, self._scale.following(settings)
            total = self._scale.total
        if before.total != total:
            _log.info(
                "the worker of %s handles %d messages at a time, after %d, by its queues' setting "
                "consumers",
                *(", ".join(self._table.queues), total, before.total),
                extra={"fields": {"consumers": total, "was": before.total}},
            )
            self._in_loop(Run.fill)

    def _in_loop(self, what: Callable[[Run], object]) -> None:
        with self._lock:
            if self._run is not None:
                self._run.loop.call_soon_threadsafe(what, self._run)
