"""What becomes of a message by how its handler ended. Pure.

| the handler | the message |
|---|---|
| returns anything but False: True, None | is deleted |
| returns False | is sidelined as `rejected`; or lapses: it comes back when it is due |
| raises what is in `ignore` | is deleted |
| raises anything else | is sidelined as `exception`; or is released, to come back after a while |
"""

from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from mq.client.worker.backoff import Backoff

OnFalse: TypeAlias = Literal["sideline", "lapse"]
"""What becomes of a message whose handler said False."""
OnError: TypeAlias = Literal["sideline", "release"]
"""What becomes of one over which its handler failed."""
ON_FALSE: Final = ("sideline", "lapse")
ON_ERROR: Final = ("sideline", "release")


@dataclass(frozen=True, slots=True)
class Delete:
    """It is done."""

    @property
    def says(self) -> str:
        """For a line of the log."""
        return "it is deleted"


@dataclass(frozen=True, slots=True)
class Lapse:
    """Nothing is done: it is no longer extended, and comes back when it is due."""

    @property
    def says(self) -> str:
        """For a line of the log."""
        return "it comes back when it is due"


@dataclass(frozen=True, slots=True)
class Release:
    """It comes back after so long; `unhandled`: its handler was not called."""

    delay_s: float = 0.0
    unhandled: bool = False

    @property
    def says(self) -> str:
        """For a line of the log."""
        return f"it comes back in {self.delay_s:.1f} s" if self.delay_s else "it is given back"


@dataclass(frozen=True, slots=True)
class Sideline:
    """It goes to its queue's sideline, for this reason. Where that does not take it, as it is in
    one already, it comes back after `else_s`.
    """

    reason: Literal["rejected", "exception"]
    else_s: float = 0.0

    @property
    def says(self) -> str:
        """For a line of the log."""
        return "it goes to the sideline"


Verdict: TypeAlias = Delete | Lapse | Release | Sideline


@dataclass(frozen=True, slots=True)
class Policy:
    """What a worker was told of all this."""

    ignore: tuple[type[BaseException], ...] = ()
    on_false: OnFalse = "sideline"
    on_error: OnError = "sideline"
    backoff: Backoff = field(default_factory=Backoff)

    def __post_init__(self) -> None:
        if self.on_false not in ON_FALSE:
            raise ValueError(f"on_false is one of {', '.join(ON_FALSE)}")
        if self.on_error not in ON_ERROR:
            raise ValueError(f"on_error is one of {', '.join(ON_ERROR)}")
        for each in self.ignore:
            if not (isinstance(each, type) and issubclass(each, BaseException)):
                raise TypeError("ignore has classes of exceptions")

    def of_result(self, result: object, receives: int, chance: float) -> Verdict:
        """Of a handler that returned this."""
        if result is not False:
            return Delete()
        if self.on_false == "lapse":
            return Lapse()
        return Sideline("rejected", self.backoff.delay_s(receives, chance))

    def of_error(self, error: BaseException, receives: int, chance: float) -> Verdict:
        """Of one that raised this, over a message that was received so often."""
        if isinstance(error, self.ignore):
            return Delete()
        delay_s = self.backoff.delay_s(receives, chance)
        return Release(delay_s) if self.on_error == "release" else Sideline("exception", delay_s)
