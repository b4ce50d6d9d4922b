"""Decides what happens to a message by its handler's result. Pure.

| the handler | the message |
|---|---|
| returns anything but False, as None | is deleted |
| returns False | is sidelined as `rejected`; or lapses: it is delivered again when it is due |
| raises an exception in `ignore` | is deleted; or is sidelined as `exception` |
| raises another exception | is sidelined as `exception`; or is released, and ready after a wait |
| cannot read the body | is sidelined as `exception` |
"""

import traceback
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import ClassVar, Final, Literal, TypeAlias, get_args

from mq.model.failure import Failure

# Waits between deliveries of a message whose handler failed.
BACKOFF_FIRST_S: Final = 1.0
BACKOFF_LONGEST_S: Final = 300.0
BACKOFF_DOUBLINGS_MAX: Final = 64
RETRIES_MAX: Final = 1_000_000
WORKER_SECONDS_MAX: Final = 7 * 24 * 3600.0


OnFalse: TypeAlias = Literal["sideline", "lapse"]
"""What happens to a message whose handler returned False."""
OnError: TypeAlias = Literal["sideline", "release"]
"""What happens to a message whose handler raised."""
OnIgnored: TypeAlias = Literal["delete", "sideline"]
"""What happens to a message whose handler raised an exception that is ignored."""


class BadBody(ValueError):
    """A message's body does not fit its handler's type. The message goes to the sideline, since no
    retry would change that.
    """


class BadResult(BadBody):
    """A task's result is no JSON, is too large, or mq refuses it. The message goes to the sideline,
    since a retry would run the task again.
    """


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waits in seconds: `first_s` after the first delivery, twice as long after each, at most
    `longest_s`. Half of each wait is random, so that messages that failed together are not ready
    together. Raises ValueError.
    """

    first_s: float = BACKOFF_FIRST_S
    longest_s: float = BACKOFF_LONGEST_S

    def __post_init__(self) -> None:
        if not 0 <= self.first_s <= self.longest_s <= WORKER_SECONDS_MAX:
            raise ValueError(
                f"0 <= first_s <= longest_s <= {WORKER_SECONDS_MAX:g} seconds must hold, not "
                f"first_s={self.first_s!r}, longest_s={self.longest_s!r}"
            )

    def delay_s(self, attempts: int, chance: float) -> float:
        """The wait of a message with `attempts`; `chance` is from 0 to 1."""
        doublings = min(max(attempts - 1, 0), BACKOFF_DOUBLINGS_MAX)
        whole_s = min(self.first_s * 2.0**doublings, self.longest_s)
        return whole_s * (1 + chance) / 2


@dataclass(frozen=True, slots=True)
class Delete:
    """It is deleted."""

    says: ClassVar = "it is deleted"


@dataclass(frozen=True, slots=True)
class Lapse:
    """It is extended no more, and delivered again when it is due."""

    says: ClassVar = "it is delivered again when it is due"


@dataclass(frozen=True, slots=True)
class Release:
    """It is ready after `delay_s`; `unhandled`: its handler was not called. `failure` is kept with
    it.
    """

    delay_s: float = 0.0
    unhandled: bool = False
    failure: Failure | None = None

    @property
    def says(self) -> str:
        if not self.delay_s:
            return "it is released"
        # The worker does not know the queue's `max_receives`.
        return f"it is ready again in {self.delay_s:.1f} s, unless this was its last attempt"


@dataclass(frozen=True, slots=True)
class Sideline:
    """It goes to its queue's sideline. Where that does not accept it, as when it is in one already,
    it is ready after `else_s`. `failure` is kept with it.
    """

    reason: Literal["rejected", "exception"]
    else_s: float = 0.0
    failure: Failure | None = None
    says: ClassVar = "it goes to the sideline"


Verdict: TypeAlias = Delete | Lapse | Release | Sideline


def with_failure(verdict: Verdict, failure: Failure | None) -> Verdict:
    """The verdict with the failure to keep, where the message stays."""
    return replace(verdict, failure=failure) if isinstance(verdict, Release | Sideline) else verdict


def failure_of(error: BaseException, handler: str) -> Failure:
    """The failure to keep of an exception that the handler of this name raised."""
    try:
        text = str(error)
    except Exception as strange:
        text = f"its text cannot be made: {type(strange).__name__}"
    kind = type(error)
    trace = "".join(traceback.format_exception(kind, error, _handlers_own(error)))
    is_builtin = kind.__module__ == "builtins"
    name = kind.__qualname__ if is_builtin else f"{kind.__module__}.{kind.__qualname__}"
    return Failure.cut(text, name, trace, handler)


def _handlers_own(error: BaseException) -> TracebackType | None:
    """The traceback from the handler on, without the worker's frames that called it."""
    found = error.__traceback__
    while found is not None and found.tb_frame.f_globals.get("__name__", "").startswith("mq."):
        found = found.tb_next
    return found or error.__traceback__


@dataclass(frozen=True, slots=True)
class Policy:
    """The options for a handler's results and exceptions. `retries`: how often a message whose
    handler raised is released before it is sidelined; None: as `on_error` has it. Raises
    ValueError, TypeError.
    """

    ignore: tuple[type[BaseException], ...] = ()
    on_false: OnFalse = "sideline"
    on_error: OnError = "sideline"
    backoff: Backoff = field(default_factory=Backoff)
    on_ignored: OnIgnored = "delete"
    retries: int | None = None

    def __post_init__(self) -> None:
        for name, words in (
            ("on_false", get_args(OnFalse)),
            ("on_error", get_args(OnError)),
            ("on_ignored", get_args(OnIgnored)),
        ):
            if (value := getattr(self, name)) not in words:
                raise ValueError(f"{name} must be {' or '.join(words)}, not {value!r}")
        if self.retries is not None and not 0 <= self.retries <= RETRIES_MAX:
            raise ValueError(
                f"retries must be a whole number from 0 to {RETRIES_MAX}, not {self.retries!r}"
            )
        for each in self.ignore:
            if not (isinstance(each, type) and issubclass(each, BaseException)):
                raise TypeError(f"ignore must have classes of exceptions, not {each!r}")

    def of_result(self, result: object, attempts: int, chance: float) -> Verdict:
        """The verdict on a message whose handler returned `result`."""
        if result is not False:
            return Delete()
        if self.on_false == "lapse":
            return Lapse()
        return Sideline("rejected", self.backoff.delay_s(attempts, chance))

    def of_error(self, error: BaseException, attempts: int, chance: float) -> Verdict:
        """The verdict on a message whose handler raised `error`."""
        delay_s = self.backoff.delay_s(attempts, chance)
        if not isinstance(error, BadBody):
            if isinstance(error, self.ignore):
                is_deleted = self.on_ignored == "delete"
                return Delete() if is_deleted else Sideline("exception", delay_s)
            if self._is_retried(attempts):
                return Release(delay_s)
        return Sideline("exception", delay_s)

    def _is_retried(self, attempts: int) -> bool:
        if self.retries is None:
            return self.on_error == "release"
        return attempts <= self.retries
