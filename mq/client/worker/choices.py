"""The options of a worker, and what a handler and a task may be registered with."""

from collections.abc import Callable, Iterable
from dataclasses import Field, dataclass, replace
from typing import Any, ClassVar, Final, Protocol, TypeAlias, TypedDict, TypeVar, overload

from mq.client.options import check_seconds
from mq.client.worker.calling import Middleware
from mq.client.worker.dispatching import Table
from mq.client.worker.handlers import Handler, Options
from mq.client.worker.messages import AsyncWorkerMessage, WorkerMessage
from mq.client.worker.verdicts import WORKER_SECONDS_MAX, Backoff, OnError, OnFalse, OnIgnored
from mq.model.errors import suggestion
from mq.model.limits import PRIORITY_MAX, VISIBILITY_S_MAX, VISIBILITY_S_MIN

# Messages that wait in a worker beside those that are handled, for each queue.
WORKER_PREFETCH_MAX: Final = 500


class Dataclass(Protocol):
    """A dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


class Model(Protocol):
    """A model of pydantic."""

    @classmethod
    def model_validate_json(cls, json_data: bytes, /) -> Any:
        """The model that a body of JSON has. Raises ValueError."""


Ignore: TypeAlias = type[BaseException] | Iterable[type[BaseException]]
"""Exceptions of handlers that are no failures."""
Taken: TypeAlias = WorkerMessage | AsyncWorkerMessage | Dataclass | Model
"""What a handler may take of a message."""
A = TypeVar("A", bound=Taken)
B = TypeVar("B", bound=Taken)
R = TypeVar("R")


class TaskChoices(TypedDict, total=False):
    """A task's options, each by default the worker's; see Worker. `consumers`: how many of its
    calls run at a time, by default as many as the worker's.
    """

    ignore: Ignore
    on_ignored: OnIgnored
    on_error: OnError
    retries: int | None
    backoff: Backoff
    time_limit_s: float | None
    consumers: int | None


class Choices(TaskChoices, total=False):
    """A handler's options: also what happens if it returns False. `max`: the handler takes lists of
    at most that many messages; `wait`: the seconds that the first one waits for others.
    """

    on_false: OnFalse
    max: int
    wait: float


class Registers(Protocol):
    """The decorator of a handler, which it returns as it is."""

    @overload
    def __call__(self, function: Callable[[A], R], /) -> Callable[[A], R]: ...
    @overload
    def __call__(self, function: Callable[[A, B], R], /) -> Callable[[A, B], R]: ...
    @overload
    def __call__(self, function: Callable[[list[A]], R], /) -> Callable[[list[A]], R]: ...
    @overload
    def __call__(
        self, function: Callable[[list[A], list[B]], R], /
    ) -> Callable[[list[A], list[B]], R]: ...


@dataclass(frozen=True, slots=True)
class Plan:
    """A worker's options; `options`: of handlers that have no others. Raises ValueError."""

    table: Table[Handler]
    options: Options
    middleware: tuple[Middleware, ...] = ()
    visibility_s: float | None = None
    prefetch: int | None = None
    drain_s: float = 0.0
    follow_setting: bool = False
    priority: int = 0

    def __post_init__(self) -> None:
        if self.prefetch is not None and not 0 <= self.prefetch <= WORKER_PREFETCH_MAX:
            raise ValueError(
                f"prefetch must be a whole number from 0 to {WORKER_PREFETCH_MAX}, not "
                f"{self.prefetch!r}"
            )
        if not 0 <= self.priority <= PRIORITY_MAX:
            raise ValueError(
                f"priority must be a whole number from 0 to {PRIORITY_MAX}, not {self.priority!r}"
            )
        if self.visibility_s is not None:
            check_seconds("visibility_s", self.visibility_s, VISIBILITY_S_MIN, VISIBILITY_S_MAX)
        check_seconds("drain_s", self.drain_s, 0.0, WORKER_SECONDS_MAX)


def all_of(ignore: Ignore) -> tuple[type[BaseException], ...]:
    return (ignore,) if isinstance(ignore, type) else tuple(ignore)


def chosen(
    options: Options, choices: Choices | TaskChoices, kind: type[Choices] | type[TaskChoices]
) -> Options:
    """The options of a handler, or of a task. Raises ValueError, TypeError."""
    for name in choices.keys() - kind.__annotations__.keys():
        what = "handler" if kind is Choices else "task"
        known = ", ".join(kind.__annotations__)
        raise TypeError(
            f"a {what} has no option {name}{suggestion(name, kind.__annotations__)}: its "
            f"options are {known}"
        )
    given: dict[str, Any] = dict(choices)
    if "ignore" in choices:
        given["ignore"] = all_of(choices["ignore"])
    return replace(options, **given)
