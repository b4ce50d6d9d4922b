"""One consumer's interest in a queue's messages: its states, and what leads from one to another."""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

from mq.model.errors import MqError
from mq.model.selection import Selection


class State(Enum):
    """What a consumer is to its queue."""

    NOT_INTERESTED = auto()
    INTERESTED = auto()
    NOTIFIED = auto()


class Event(Enum):
    """What happens to one."""

    WANTS = auto()
    """It would take messages: it is new, was given credit, or goes on after a pause."""
    NOTICE = auto()
    """It is its turn."""
    PULLS = auto()
    """It has asked for messages."""
    FOUND = auto()
    """It got what it asked for, and there is more."""
    FOUND_NOTHING = auto()
    """Nothing is left for it."""
    OUT_OF_CREDIT = auto()
    PAUSED = auto()
    STALLED = auto()
    """It was notified and does not ask."""
    CLOSED = auto()


_NOT, _INTERESTED, _NOTIFIED = State
# What is not here cannot happen. A consumer may ask before it is notified, and hears of what it
# asked for also when it is not interested any more.
TRANSITIONS: Final[Mapping[State, Mapping[Event, State]]] = {
    State.NOT_INTERESTED: {
        Event.WANTS: _INTERESTED,
        Event.PULLS: _NOT,
        Event.FOUND: _NOT,
        Event.FOUND_NOTHING: _NOT,
        Event.OUT_OF_CREDIT: _NOT,
        Event.PAUSED: _NOT,
        Event.CLOSED: _NOT,
    },
    State.INTERESTED: {
        Event.WANTS: _INTERESTED,
        Event.NOTICE: _NOTIFIED,
        Event.PULLS: _INTERESTED,
        Event.FOUND: _INTERESTED,
        Event.FOUND_NOTHING: _INTERESTED,
        Event.OUT_OF_CREDIT: _NOT,
        Event.PAUSED: _NOT,
        Event.CLOSED: _NOT,
    },
    State.NOTIFIED: {
        Event.WANTS: _NOTIFIED,
        Event.PULLS: _NOTIFIED,
        Event.FOUND: _NOTIFIED,
        Event.FOUND_NOTHING: _INTERESTED,
        Event.OUT_OF_CREDIT: _NOT,
        Event.PAUSED: _NOT,
        Event.STALLED: _NOT,
        Event.CLOSED: _NOT,
    },
}


class Interest:
    """One consumer's interest in a queue. `number`: its place among all who are interested."""

    __slots__ = (
        "asks", "is_armed", "number", "priority", "selection", "since_s", "state", "woken_for",
    )  # fmt: skip

    def __init__(self, priority: int = 0, selection: Selection | None = None) -> None:
        self.priority = priority
        self.selection = selection
        self.state = State.NOT_INTERESTED
        self.number = 0
        self.woken_for: str | None = None
        """The message that notified it, by its id's text, where it was one."""
        self.is_armed = False
        """Whether it is its turn to ask."""
        self.asks = False
        """Whether it waits for what it asked for."""
        self.since_s = 0.0

    def was_notified(self) -> None:
        """Its turn has come: for those who act."""

    def failed(self, error: MqError) -> None:
        """Something stands in the way: for those who act."""
