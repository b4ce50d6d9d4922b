"""Tasks: functions whose calls are messages of JSON, found by their name at the worker, and whose
results are messages of a queue of their own.

A call's message has the task's name as its header `x-attribute-task`, and its body is an object of
arguments by name. A result is a message of the queue `{queue}-results`: its lookup key is the UUID
of the call's id, it has a time to live, and its body is `{"result": ...}` or `{"failure": {...}}`.
It is durable before the call's message is deleted: the worker that gets the message of one that was
killed between the two finds it, and does not run the task again.
"""

import copy
import functools
import inspect
import json
import re
from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime, timedelta
from typing import (
    Any,
    Final,
    Generic,
    ParamSpec,
    Protocol,
    TypedDict,
    TypeVar,
    Unpack,
    cast,
    overload,
)

from mq.client import wire
from mq.client.client import AsyncClient, check_queue_name
from mq.client.errors import ClientError, Forbidden, MessageNotFound, NotUsable, QueueNotFound
from mq.client.values import NewMessage, Schedule
from mq.client.worker.dispatching import TASK_HEADER
from mq.client.worker.handlers import Handler, Options
from mq.client.worker.messages import AsyncWorkerMessage
from mq.client.worker.results import Asks, Link, Results, in_queue
from mq.client.worker.verdicts import BadResult, Release, failure_of
from mq.model.failure import Failure
from mq.model.limits import SIDELINE_SUFFIX
from mq.model.recurrence import Cron, Every

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C")
T = TypeVar("T")

# How soon a result that is not there is looked for again: the first time, and at most.
LOOK_S: Final = 0.05
LOOK_S_MAX: Final = 1.0
_LOOK_GROWTH: Final = 1.5

_NAME: Final = re.compile(r"[0-9A-Za-z_.:-]{1,128}")


class TaskFailed(RuntimeError):
    """A task failed for good: its message is in the sideline, or its exception was ignored."""

    def __init__(self, task: str, id_: str, failure: Failure | None) -> None:
        why = "it was delivered as often as its queue allows"
        if failure is not None:
            why = ": ".join(each for each in (failure.type, failure.text) if each)
        super().__init__(f"the task {task} ({id_}) failed: {why}")
        self.failure = failure
        """The exception's type, text and trace; None: no worker reported any."""


class MessageOptions(TypedDict, total=False):
    """Options of a call's message, as in `AsyncQueue.publish`."""

    priority: int | None
    key: str | None
    group: str | None
    visibility_s: int | None
    ttl_s: int | None
    idempotency_key: str | None


class Handle(Generic[R]):
    """A call that was published. `id`: its message's id, by which `task.handle(id)` finds it."""

    __slots__ = ("_task", "id")

    def __init__(self, task: "Task[Any, R, Any]", id_: str) -> None:
        self._task = task
        self.id = id_

    def result(self, timeout_s: float) -> R:
        """Waits for the task's result, which stays for `result_ttl_s`; 0: only looks. Raises
        TaskFailed; TimeoutError; NotUsable for a task that keeps no results; BadBody for a result
        that does not fit the function's annotation.
        """
        return self._task.link.wait(functools.partial(self._result, timeout_s))

    async def result_async(self, timeout_s: float) -> R:
        """As `result`, in an event loop."""
        return await self._task.link.call(functools.partial(self._result, timeout_s))

    async def _result(self, timeout_s: float, client: AsyncClient) -> R:
        task, seams = self._task, self._task.link.seams
        if task.results is None:
            raise NotUsable(
                f"the task {task.name} keeps no results: @worker.task(result_ttl_s=...) keeps them"
            )
        ends_s = seams.clock.steady_s() + timeout_s
        pause_s = LOOK_S
        while True:
            found = await task.results.read(client, self.id)
            left_s = ends_s - seams.clock.steady_s()
            if found is None and (left_s <= 0 or pause_s == LOOK_S_MAX):
                found = await self._sidelined(client)
            if found is not None:
                if "result" in found:
                    return cast(R, task.form.result(found["result"]))
                said = found["failure"]
                raise TaskFailed(task.name, self.id, said and Failure.of(said))
            if left_s <= 0:
                raise TimeoutError(
                    f"the task {task.name} ({self.id}) has no result after {timeout_s:g} s"
                )
            await seams.sleep(min(pause_s, left_s))
            pause_s = min(pause_s * _LOOK_GROWTH, LOOK_S_MAX)

    async def _sidelined(self, client: AsyncClient) -> dict[str, Any] | None:
        """The failure of a call that went to the sideline without a report of the task's."""
        try:
            settings = await client.queue(self._task.queue).settings()
            name = settings.values.get("sideline_to") or self._task.queue + SIDELINE_SUFFIX
            kept = await client.queue(name).failures(self.id)
        except (Forbidden, MessageNotFound, QueueNotFound):
            return None
        last = max(kept, key=lambda each: each.time, default=None)
        names = ("text", "type", "trace", "handler")
        said = {name: getattr(last, name) for name in names if last and getattr(last, name)}
        return {"failure": said or None}


class Task(Generic[P, R, C]):
    """A function that programs call by messages of a queue, see Worker.task. Called itself, it runs
    at once, here. Each method has a twin for event loops, whose name ends in `_async`.
    """

    def __init__(
        self, function: Callable[P, C], names: tuple[str, str], result_ttl_s: int | None, link: Link
    ) -> None:
        """`names`: the queue's and the task's. Raises TypeError, ValueError, BadName; ImportError
        without the extra `typed`.
        """
        self.queue, self.name = names
        check_queue_name(self.queue)
        if not _NAME.fullmatch(self.name):
            raise ValueError(
                f"a task's name must be 1 to 128 letters, digits, _ . : -, not {self.name!r}; give "
                "one: task(name=...)"
            )
        self.function = function
        self.__doc__ = function.__doc__
        self.link = link
        # The extra is needed only here.
        from mq.client.worker.forms import Form  # noqa: PLC0415

        self.form = Form(self.name, function, result_ttl_s is not None)
        self.results = None if result_ttl_s is None else Results(self.queue, result_ttl_s, link)
        self._options: MessageOptions = {}

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> C:
        """Runs the function here and now."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Task {self.name} of {self.queue}>"

    def options(self, **options: Unpack[MessageOptions]) -> "Task[P, R, C]":
        """The same task, whose calls have these options. Raises TypeError for an unknown one."""
        for each in options.keys() - MessageOptions.__annotations__.keys():
            known = ", ".join(MessageOptions.__annotations__)
            raise TypeError(f"a call has no option {each}: its options are {known}")
        other = copy.copy(self)
        other._options = {**self._options, **options}  # noqa: SLF001
        return other

    def handle(self, id_: str) -> Handle[R]:
        """The call of this id, without a request."""
        return Handle(self, id_)

    def send(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Publishes a call; a queue that does not exist is created. Durable on return. Raises
        TypeError for arguments that the function does not take, ValueError for those that are no
        JSON, BadBody for values that do not fit its annotations; and as `Queue.publish`.
        """
        return self.link.wait(self._sending(None, args, kwargs))

    async def send_async(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """As `send`, in an event loop."""
        return await self.link.call(self._sending(None, args, kwargs))

    def send_after(
        self, when: float | timedelta | datetime, /, *args: P.args, **kwargs: P.kwargs
    ) -> Handle[R]:
        """Publishes a call that is ready after these seconds, or at a time with its zone."""
        return self.link.wait(self._sending(when, args, kwargs))

    async def send_after_async(
        self, when: float | timedelta | datetime, /, *args: P.args, **kwargs: P.kwargs
    ) -> Handle[R]:
        """As `send_after`, in an event loop."""
        return await self.link.call(self._sending(when, args, kwargs))

    def schedule(
        self, name: str, when: Every | Cron, /, *args: P.args, **kwargs: P.kwargs
    ) -> Schedule:
        """Creates the queue's schedule of this name, or replaces it: each firing is a call. The
        same schedule again changes nothing. Durable on return.
        """
        return self.link.wait(self._scheduling(name, when, args, kwargs))

    async def schedule_async(
        self, name: str, when: Every | Cron, /, *args: P.args, **kwargs: P.kwargs
    ) -> Schedule:
        """As `schedule`, in an event loop."""
        return await self.link.call(self._scheduling(name, when, args, kwargs))

    def handler(self, options: Options) -> Handler:
        """The handler of its calls."""

        @functools.wraps(self.function)
        def call(bound: inspect.BoundArguments) -> object:
            return self.function(*bound.args, **bound.kwargs)

        is_async = inspect.iscoroutinefunction(self.function)
        return Handler(call, is_async, options, (True,), self.form.arguments, self._around(options))

    def _sending(
        self,
        when: float | timedelta | datetime | None,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> "Asks[Handle[R]]":
        timing: dict[str, Any] = {"delay_s": when}
        if isinstance(when, datetime):
            timing = {"at": when}
        elif isinstance(when, timedelta):
            timing = {"delay_s": when.total_seconds()}
        message = NewMessage(**self._call(args, kwargs), **timing)

        async def ask(client: AsyncClient) -> Handle[R]:
            queue = client.queue(self.queue)
            publish = functools.partial(queue.publish_message, message)
            return self.handle(await in_queue(queue, publish))

        return ask

    def _scheduling(
        self, name: str, when: Every | Cron, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> "Asks[Schedule]":
        if "idempotency_key" in self._options:
            raise ValueError("a schedule's calls have no idempotency_key")
        if isinstance(when, Cron):
            timing: dict[str, Any] = {"cron": when.expression, "tz": when.tz}
        else:
            timing = {"every_s": when.every_s, "delay_s": when.delay_s}
        given = {**self._call(args, kwargs), **timing}

        async def ask(client: AsyncClient) -> Schedule:
            queue = client.queue(self.queue)
            return await in_queue(queue, functools.partial(queue.schedule, name, **given))

        return ask

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The message of a call, as arguments of `publish` and `schedule`."""
        return {
            "body": self.form.written(args, kwargs),
            "content_type": wire.JSON,
            "headers": {TASK_HEADER: self.name},
            **self._options,
        }

    def _around(
        self, options: Options
    ) -> Callable[[AsyncWorkerMessage, Callable[[], Awaitable[object]]], Awaitable[object]]:
        """Wraps the handler: keeps its result, or the failure after which there is no retry."""

        async def around(
            message: AsyncWorkerMessage, call: Callable[[], Awaitable[object]]
        ) -> object:
            if self.results is None:
                await call()
                return None
            if message.receives > 1 and await self.results.has_result(message):
                return None
            try:
                body = self.form.written_result(await call())
                await self.results.keep(message, body, is_result=True)
            except Exception as error:
                verdict = options.of_error(error, message.attempts, 0.0)
                if not isinstance(verdict, Release):
                    await self._keep_failure(message, error)
                raise
            return None

        return around

    async def _keep_failure(self, message: AsyncWorkerMessage, error: Exception) -> None:
        failure = failure_of(error, f"{self.function.__module__}.{self.function.__qualname__}")
        body = json.dumps({"failure": failure.said()}).encode()
        try:
            await cast(Results, self.results).keep(message, body, is_result=False)
        except (BadResult, ClientError):
            return  # The sideline has the failure too, where `Handle.result` looks as well.


class MakesTask(Protocol):
    """The decorator of a task."""

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> Task[P, R, Coroutine[Any, Any, R]]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R, R]: ...
