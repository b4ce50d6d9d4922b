"""A handler: the function, its arguments and its options. Pure."""

import dataclasses
import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, get_args, get_origin

from mq.client.options import check_seconds
from mq.client.worker.verdicts import WORKER_SECONDS_MAX, Policy
from mq.model.limits import BATCH_MESSAGES_MAX, CONSUMERS_MAX

Function: TypeAlias = Callable[..., object]
Reader: TypeAlias = Callable[[bytes], object]
"""Makes a value from a body. Raises BadBody."""

_ARGUMENTS_MAX: Final = 2
_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_EXPECTED: Final = (
    "a handler takes a message, or a dataclass or a pydantic model that the body fits, or both"
)


@dataclass(frozen=True, slots=True)
class Options(Policy):
    """A handler's options. `consumers`: how many of its calls run at a time; None: as many as the
    worker's. `max`, of a handler of batches: how many messages a call gets at most; `wait`: for how
    many seconds the first one waits for others. Raises ValueError, TypeError.
    """

    time_limit_s: float | None = None
    consumers: int | None = None
    max: int | None = None
    wait: float = 0.0

    def __post_init__(self) -> None:
        Policy.__post_init__(self)
        if self.time_limit_s is not None:
            check_seconds("time_limit_s", self.time_limit_s, 0.001, WORKER_SECONDS_MAX)
        for name, most in (("consumers", CONSUMERS_MAX), ("max", BATCH_MESSAGES_MAX)):
            value = getattr(self, name)
            if value is not None and not (_is_whole(value) and 1 <= value <= most):
                raise ValueError(f"{name} must be a whole number from 1 to {most}, not {value!r}")
        check_seconds("wait", self.wait, 0.0, WORKER_SECONDS_MAX)
        if self.wait and self.max is None:
            raise ValueError("wait is of a handler of batches: give max as well")


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


@dataclass(frozen=True, slots=True, eq=False)
class Handler:
    """A handler; `is_async`: it runs in the event loop. `takes`: whether each argument is the body,
    whose value `reader` makes. `around`: wraps its calls, inside the worker's middleware.
    """

    function: Function
    is_async: bool
    options: Options
    takes: tuple[bool, ...] = (False,)
    reader: Reader | None = None
    around: Callable[[Any, Callable[[], Awaitable[object]]], Awaitable[object]] | None = None

    @classmethod
    def of(cls, function: Function, options: Options, messages: tuple[type, type]) -> "Handler":
        """Reads its arguments from its annotations. `messages`: the types of a message in the event
        loop and in a thread. Raises TypeError for an object that handles nothing when it is called,
        and for arguments that it would not get; ImportError for a body without the extra `typed`.
        """
        if not callable(function):
            raise TypeError(f"a handler must be a function of a message, not {function!r}")
        forms = (function, type(function).__call__)  # An object may be callable by a method.
        yielding = (inspect.isgeneratorfunction, inspect.isasyncgenfunction)
        if any(yields(form) for form in forms for yields in yielding):
            raise TypeError(f"a handler must be no generator, whose body never runs: {function!r}")
        is_async = any(inspect.iscoroutinefunction(each) for each in forms)
        kinds = [_of_one(each, options.max is not None, function) for each in _kinds(function)]
        bodies = [each for each in kinds if is_body(each)]
        if len(bodies) > 1 or len(kinds) - len(bodies) > 1:
            raise TypeError(f"{_EXPECTED}: {function!r} takes two of a kind")
        if messages[is_async] in kinds:
            raise TypeError(
                f"annotate the message of {'an async def' if is_async else 'a plain'} handler "
                f"as {messages[not is_async].__name__}: {function!r}"
            )
        takes = tuple(is_body(each) for each in kinds)
        return cls(function, is_async, options, takes, _reader(bodies[0]) if bodies else None)

    @property
    def name(self) -> str:
        """Its module and name, as far as it has them."""
        kind = type(self.function)
        module = getattr(self.function, "__module__", None) or kind.__module__
        return f"{module}.{getattr(self.function, '__qualname__', kind.__qualname__)}"

    @property
    def size(self) -> int:
        """How many messages a call gets at most."""
        return self.options.max or 1

    def arguments(self, messages: Sequence[object], bodies: Sequence[object]) -> list[Any]:
        """Its arguments for a call with these messages and their bodies' values."""
        columns = [list(bodies if is_body else messages) for is_body in self.takes]
        return columns if self.options.max is not None else [each[0] for each in columns]


def is_body(kind: object) -> bool:
    """Whether a handler's argument of this type is a message's body."""
    if not isinstance(kind, type):
        return dataclasses.is_dataclass(get_origin(kind))
    return dataclasses.is_dataclass(kind) or callable(getattr(kind, "model_validate_json", None))


def _reader(kind: Any) -> Reader:
    # The extra is needed only here.
    from mq.client.worker.typed import reader_of  # noqa: PLC0415

    return reader_of(kind, f"the message's body does not fit {kind.__name__}")


def _kinds(function: Function) -> list[Any]:
    """The annotations of the arguments that it is called with."""
    try:
        try:
            signature = inspect.signature(function, eval_str=True)
        except NameError:
            signature = inspect.signature(function)
    except (ValueError, TypeError):
        return [Any]  # Some functions in C have no signature.
    given = list(signature.parameters.values())
    found = [each for each in given if each.kind in _POSITIONAL]
    needed = [each for each in found if each.default is inspect.Parameter.empty]
    more = [each for each in given if each.kind is inspect.Parameter.KEYWORD_ONLY]
    if not found and not any(each.kind is inspect.Parameter.VAR_POSITIONAL for each in given):
        raise TypeError(f"{_EXPECTED}: {function!r} takes nothing")
    if len(needed) > _ARGUMENTS_MAX or any(
        each.default is inspect.Parameter.empty for each in more
    ):
        raise TypeError(f"{_EXPECTED}: {function!r} takes more")
    return [each.annotation for each in needed or found[:1]] or [Any]


def _of_one(kind: Any, is_batch: bool, function: Function) -> Any:
    """The type of one message's argument; for a handler of batches, the type in its list."""
    if isinstance(kind, str):
        if not kind.replace("'", "").replace("]", "").endswith("WorkerMessage"):
            raise TypeError(
                f"the annotation {kind} of {function!r} cannot be read: import or define it where "
                "the module can see it, and not under TYPE_CHECKING alone"
            )
        return Any
    origin = get_origin(kind)
    is_list = kind is list or (
        isinstance(origin, type) and origin is not tuple and issubclass(list, origin)
    )
    if is_list and not is_batch:
        raise TypeError(f"a handler that takes a list needs max, as in max=100: {function!r}")
    if is_batch:
        if not is_list and kind not in (Any, inspect.Parameter.empty, object):
            raise TypeError(f"a handler of batches takes lists, such as list[Order]: {function!r}")
        kind = get_args(kind)[0] if get_args(kind) else Any
    plain = get_origin(kind) or kind
    if isinstance(plain, type) and plain.__module__ == "builtins" and plain is not object:
        raise TypeError(f"{_EXPECTED}, not a {plain.__name__}: {function!r}")
    return kind
