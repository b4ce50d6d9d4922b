"""One queue's bodies in memory, in their lists. `Memory` decides, under its lock."""

from collections import OrderedDict
from enum import Enum, auto

from mq.model.limits import BODY_OVERHEAD_BYTES
from mq.model.message import Held


class Holder(Enum):
    """What holds a byte of a body. The lists give way in this order."""

    HEAD = 0
    """The first bodies of a queue that nobody consumes, for whoever comes next."""
    PENDING = 1
    """Published here, and above what its queue's direct list may have."""
    DIRECT = 2
    """The first bodies of a queue that is consumed; and what consumers have in hand."""
    PUBLISHING = auto()
    """In hand, on its way to the disk."""

    # Enum's own is Python code, and these are keys on the way of each message.
    __hash__ = object.__hash__


LISTS = (Holder.HEAD, Holder.PENDING, Holder.DIRECT)
"""In the order in which they give way."""


def cost_of(held: Held) -> int:
    """The bytes that it counts for."""
    return len(held.body) + held.head_bytes + BODY_OVERHEAD_BYTES


class Shelf:
    """A queue's lists, each in the order of delivery as far as that is known."""

    __slots__ = ("ahead_bytes", "bytes", "consumed_s", "list_bytes", "lists", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.lists: dict[Holder, OrderedDict[str, Held]] = {each: OrderedDict() for each in LISTS}
        self.list_bytes = dict.fromkeys(LISTS, 0)
        self.bytes = 0
        self.ahead_bytes = 0
        """The watermark: what the direct list may have."""
        self.consumed_s: float | None = None
        """When the last fetch was, a steady clock's seconds; None: it is not consumed."""

    def find(self, name: str) -> Holder | None:
        """Which list has the message of that name."""
        for holder in (Holder.DIRECT, Holder.PENDING, Holder.HEAD):
            if name in self.lists[holder]:
                return holder
        return None
