"""What is wanted of messages that are looked at and not consumed: pages of them, parts of bodies.

Pure.
"""

import codecs
from dataclasses import dataclass

from mq.model.lifecycle import State
from mq.model.names import MessageId


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes of a body: so many, from the one of this number."""

    first: int
    size: int


@dataclass(frozen=True, slots=True)
class Page:
    """At most `count` messages of these states, each state behind the one before; behind the id
    `after`, where that is given, with one state alone.
    """

    states: tuple[State, ...]
    count: int
    after: MessageId | None = None


def cut(text: bytes) -> bytes:
    """What was cut somewhere, cut at the character's beginning where it is UTF-8 up to there."""
    try:
        _, whole = codecs.utf_8_decode(text, "strict", False)
    except UnicodeDecodeError:
        return text
    return text[:whole]
