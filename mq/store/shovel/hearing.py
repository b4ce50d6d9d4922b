"""Who hears of a run, and why it may stop before its end."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from mq.model.names import MessageId


class Stopping(Enum):
    """Why a run stops before its end."""

    ASKED = "asked"
    LEFT = "left"
    """Its process ends, or the queue is another member's: the schedule does not count it."""
    TAKEN = "taken"
    """Another has taken its turn, and says how that goes."""


def _go_on() -> bool:
    return True


def _nobody(moved: Sequence[MessageId]) -> None:
    return


def _nothing() -> None:
    return


@dataclass(frozen=True, slots=True)
class Heard:
    """Who hears of a run: `may_go_on` is asked before each batch, and now and then; `moved` is told
    of what was moved; `over` when all is over. All by threads of the run.
    """

    may_go_on: Callable[[], bool] = _go_on
    moved: Callable[[Sequence[MessageId]], None] = _nobody
    over: Callable[[], None] = _nothing


NOBODY: Final = Heard()
