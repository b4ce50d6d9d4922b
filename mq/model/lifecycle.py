"""The message lifecycle as data: states, and every rename between them.

A state is the existence of a file. `mq/store/FORMAT.md` draws this table, and a test compares the
two. Code that moves a message names its transition, so that no move happens outside the table.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final


class State(Enum):
    """The state of a message's file; the value is its name in documents."""

    ABSENT = "absent"
    NEW = "new"
    READY = "ready"
    DELAYED = "delayed"
    LEASED = "leased"
    REMOVED = "removed"

    # Enum's own hash is Python code, and each message uses these as keys.
    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True, eq=False)
class Transition:
    """One step of a life: a create from absent, an unlink to absent, or one rename. Each is one
    object, so none is compared by value.
    """

    name: str
    source: State
    target: State
    by: str


STAGE: Final = Transition("stage", State.ABSENT, State.NEW, "mq, mq-mover, mq.spark")
DELIVER: Final = Transition("deliver", State.NEW, State.READY, "mq, mq-mover, mq.spark")
SCHEDULE: Final = Transition("schedule", State.NEW, State.DELAYED, "mq, mq-mover, mq.spark")
DISCARD: Final = Transition("discard", State.NEW, State.ABSENT, "mq, mq-mover, mq.spark")
FORGET: Final = Transition("forget", State.NEW, State.REMOVED, "mq, mq-mover, mq.spark")
FETCH: Final = Transition("fetch", State.READY, State.DELAYED, "mq")
POSTPONE: Final = Transition("postpone", State.READY, State.DELAYED, "mq")
RELEASE: Final = Transition("release", State.DELAYED, State.READY, "mq")
REDELIVER: Final = Transition("redeliver", State.DELAYED, State.READY, "mq-mover")
REMOVE_READY: Final = Transition("remove ready", State.READY, State.REMOVED, "mq, mq-mover")
REMOVE_DELAYED: Final = Transition("remove delayed", State.DELAYED, State.REMOVED, "mq, mq-mover")
EXPUNGE_READY: Final = Transition("expunge ready", State.READY, State.ABSENT, "mq, mq-mover")
EXPUNGE_DELAYED: Final = Transition("expunge delayed", State.DELAYED, State.ABSENT, "mq, mq-mover")
SIDELINE_READY: Final = Transition("sideline ready", State.READY, State.READY, "mq, mq-mover")
SIDELINE_DELAYED: Final = Transition("sideline delayed", State.DELAYED, State.READY, "mq, mq-mover")
SHOVEL: Final = Transition("shovel", State.READY, State.READY, "mq, mq-mover, mq.spark")
LEASE: Final = Transition("lease", State.READY, State.LEASED, "mq.spark")
RETURN: Final = Transition("return", State.LEASED, State.READY, "mq-mover, mq.spark")
RETURN_DELAYED: Final = Transition(
    "return delayed", State.LEASED, State.DELAYED, "mq-mover, mq.spark"
)
ACKNOWLEDGE: Final = Transition("acknowledge", State.LEASED, State.REMOVED, "mq.spark")
REMOVE_LEASED: Final = Transition(
    "remove leased", State.LEASED, State.REMOVED, "mq, mq-mover, mq.spark"
)
EXPUNGE_LEASED: Final = Transition("expunge leased", State.LEASED, State.ABSENT, "mq, mq-mover")
PART_READY: Final = Transition("part ready", State.READY, State.NEW, "mq")
PART_DELAYED: Final = Transition("part delayed", State.DELAYED, State.NEW, "mq")
RETIRE: Final = Transition("retire", State.DELAYED, State.REMOVED, "mq, mq-mover")
REAP: Final = Transition("reap", State.REMOVED, State.ABSENT, "mq-reaper")

TRANSITIONS: Final = (
    STAGE,
    DELIVER,
    SCHEDULE,
    DISCARD,
    FORGET,
    FETCH,
    POSTPONE,
    RELEASE,
    REDELIVER,
    REMOVE_READY,
    REMOVE_DELAYED,
    EXPUNGE_READY,
    EXPUNGE_DELAYED,
    SIDELINE_READY,
    SIDELINE_DELAYED,
    SHOVEL,
    LEASE,
    RETURN,
    RETURN_DELAYED,
    ACKNOWLEDGE,
    REMOVE_LEASED,
    EXPUNGE_LEASED,
    PART_READY,
    PART_DELAYED,
    RETIRE,
    REAP,
)
