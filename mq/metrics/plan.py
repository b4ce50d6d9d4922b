"""The place and the name of each number in a process's region of the board.

All processes of one mq run one program, so they agree on them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Final

from mq.broker.accounts import Totals
from mq.broker.memory import Holder
from mq.runtime.histogram import FLUSH_SECONDS, SECONDS, SIZES
from mq.store.disk.files import FLUSHED

OUTCOMES: Final = ("1xx", "2xx", "3xx", "4xx", "5xx", "gone")
"""The outcomes of a request; `gone`: the client disconnected before the answer."""
GONE: Final = len(OUTCOMES) - 1
RESULTS: Final = ("ok", "failed")


@dataclass(frozen=True, slots=True)
class Kept:
    """Numbers of one name that the process counts elsewhere: one for each value of the label, or a
    single one. `is_counter`: it never decreases.
    """

    name: str
    says: str
    is_counter: bool = False
    label: str = ""
    values: tuple[str, ...] = ("",)


_HOLDERS: Final = tuple(each.name.lower() for each in Holder)
_LISTS: Final = "holder"

KEPT: Final = (
    Kept(
        "mq_messages",
        "Messages to which this was done, of all queues.",
        is_counter=True,
        label="event",
        values=tuple(each.name for each in fields(Totals) if each.name != "lost_races"),
    ),
    Kept(
        "mq_lost_races", "Claims of messages that another had just taken or held.", is_counter=True
    ),
    Kept(
        "mq_memory_bodies_wanted",
        "Bodies that a claim found in memory or had to read, and those that found no room.",
        is_counter=True,
        label="result",
        values=("hit", "miss", "refused"),
    ),
    Kept("mq_memory_evicted", "Kept bodies that gave way to others.", is_counter=True),
    Kept(
        "mq_history_lines_dropped", "Lines of histories that could not be written.", is_counter=True
    ),
    Kept(
        "mq_clock_steps", "Times that a process saw its clock set, ahead or back.", is_counter=True
    ),
    Kept("mq_memory_budget_bytes", "The budget for bodies in memory."),
    Kept("mq_memory_held_bytes", "Bytes of bodies in memory.", label=_LISTS, values=_HOLDERS),
    Kept("mq_memory_bodies", "Bodies in memory.", label=_LISTS, values=_HOLDERS),
    Kept("mq_memory_ids", "Ids of messages that are known and were not asked for."),
    Kept("mq_connections", "Connections of clients."),
    Kept("mq_websockets", "Those that consume by a WebSocket."),
    Kept("mq_consumers", "Subscriptions, and fetches that wait for a message."),
    Kept("mq_commit_operations_waiting", "Operations that wait for their turn at the disk."),
    Kept("mq_queues_used", "Queues that the processes have used, each process's own summed."),
)

Key = tuple[str, str]
"""A number's name, and its label's value."""


class Plan:
    """The layout of a region for these operations."""

    def __init__(self, operations: Sequence[str]) -> None:
        self.operations = tuple(operations)
        self.request_width = len(SECONDS) + 2
        self.requests = 0
        """The position of the histograms of requests, by operation, then by outcome; each has its
        counts, then the sum.
        """
        self.flush_width = len(FLUSH_SECONDS) + 2
        self.flushes = self.request_width * len(self.operations) * len(OUTCOMES)
        self.commit_seconds = self.flushes + self.flush_width * len(FLUSHED) * len(RESULTS)
        self.commit_sizes = self.commit_seconds + self.flush_width
        self.size_width = len(SIZES) + 2
        self.kept = self.commit_sizes + self.size_width
        self.keys: tuple[Key, ...] = tuple(
            (each.name, value) for each in KEPT for value in each.values
        )
        self.numbers = self.kept + len(self.keys)
        """The number of numbers in a region."""

    def request_rows(self) -> Iterator[tuple[tuple[str, str], int]]:
        """The labels of each histogram of requests, and its position."""
        at = self.requests
        for operation in self.operations:
            for outcome in OUTCOMES:
                yield (operation, outcome), at
                at += self.request_width

    def flush_rows(self) -> Iterator[tuple[tuple[str, str], int]]:
        """The labels of each histogram of flushes, and its position."""
        at = self.flushes
        for kind in FLUSHED:
            for result in RESULTS:
                yield (kind, result), at
                at += self.flush_width
