"""The waiting consumers in the other processes of one mq, on a board in shared memory.

inotify tells every process of a new message, but one consumer should wake. So each process works
out from the board and the message's id, without a word to the others, which process the message is
for; processes that see the same board choose the same one. The chosen process claims; the others
leave the message for LEFT_S and then take it all the same, so that a wrong or stale board costs a
moment, never a message.

Each process writes only its own region: a sign of life, and for each queue with waiting consumers
how many have the highest priority, and how many messages it took. A process that ended is skipped.
"""

import hashlib
import math
import os
from collections.abc import Callable, Iterator
from typing import Final

from mq.model.limits import LOOK_INTERVAL_S
from mq.model.names import QueueName

# Queues that have rows in a process's region; those beyond have none. A row is in one of a few
# places.
ROWS_MAX: Final = 2048
PLACES_PER_ROW: Final = 8
# Seconds for which a message is left to another process.
LEFT_S: Final = 0.02
# How long consumers of another process with precedence may leave ready messages alone.
PATIENCE_S: Final = 3.0
# A process writes a sign of life at each look, and is skipped after this long without one.
SILENT_S: Final = 10 * LOOK_INTERVAL_S

_WORD: Final = 8
_PID, _ALIVE_MS, _FIRST = range(3)
_KEY, _WAITING, _TAKEN, _ROW = range(4)
_REGION: Final = _FIRST + ROWS_MAX * _ROW
# A row's waiting consumers are one word, so that a read is never torn.
_TOP_SHIFT: Final = 32
_COUNT_MASK: Final = (1 << _TOP_SHIFT) - 1
_WORD_MASK: Final = (1 << 64) - 1
# The end of a UUID, which is drawn by chance.
_CHANCE: Final = slice(24, 36)


def shared_bytes(processes: int) -> int:
    return processes * _REGION * _WORD


class Siblings:
    """One process's view of the board. Use it on the event loop's thread."""

    def __init__(
        self, memory: "memoryview[int]", index: int, steady_s: Callable[[], float]
    ) -> None:
        """`memory`: of `shared_bytes`, zero where no process wrote. What an earlier process of this
        index left there is gone.
        """
        self.words = memory.cast("Q")
        self.index = index
        self.steady_s = steady_s
        self._others = [each for each in range(len(self.words) // _REGION) if each != index]
        self._ended: dict[int, int] = {}
        """Process ids that are known to have ended, by the index."""
        own = index * _REGION
        self.words[own : own + _REGION] = memoryview(bytes(_REGION * _WORD)).cast("Q")
        self.words[own + _PID] = os.getpid()
        self.lives()

    def lives(self) -> None:
        self.words[self.index * _REGION + _ALIVE_MS] = round(self.steady_s() * 1000)

    def living(self) -> Iterator[int]:
        """The other processes that live, by their index."""
        words, now_ms = self.words, self.steady_s() * 1000
        for index in self._others:
            at = index * _REGION
            if now_ms - words[at + _ALIVE_MS] < SILENT_S * 1000 and (
                not self._ended or self._ended.get(index) != words[at + _PID]
            ):
                yield index

    def check(self) -> None:
        """A message that was left to others is still ready: looks which processes have ended."""
        for index in list(self.living()):
            pid = self.words[index * _REGION + _PID]
            try:
                os.kill(pid, 0)
            except ProcessLookupError:
                self._ended[index] = pid
            except PermissionError:
                continue

    def find(self, index: int, key: int) -> int | None:
        """The place of a process's row, if it has one."""
        first = index * _REGION + _FIRST
        for place in range(key, key + PLACES_PER_ROW):
            at = first + place % ROWS_MAX * _ROW
            found = self.words[at + _KEY]
            if found == key:
                return at
            if not found:
                return None
        return None

    def make(self, key: int) -> int | None:
        """Like `find`, for this process; makes a row if there is a place for it."""
        known = self.find(self.index, key)
        if known is not None:
            return known
        first = self.index * _REGION + _FIRST
        for place in range(key, key + PLACES_PER_ROW):
            at = first + place % ROWS_MAX * _ROW
            if not self.words[at + _WAITING]:
                self.words[at + _TAKEN] = 0
                self.words[at + _KEY] = key
                return at
        return None


class QueueSiblings:
    """The waiting consumers of one queue in this process and the others, those of the highest
    priority in each. Consumers with a selection do not count. `on_left` is called when a message
    was left to another process.
    """

    def __init__(self, siblings: Siblings, queue: QueueName, on_left: Callable[[], None]) -> None:
        self._siblings = siblings
        self._key = int.from_bytes(hashlib.sha256(queue.text.encode()).digest()[:_WORD]) or 1
        self._on_left = on_left
        self._top, self._count = -1, 0
        self._passed_over: dict[int, int] = {}
        """Processes whose consumers take nothing, and how much they had taken by then."""
        self._had_taken: dict[int, int] = {}
        """How much those had taken that go first, when they were last asked."""
        self._since_s = 0.0

    def shows(self, top: int, count: int) -> None:
        """Writes the highest priority of this process's waiting consumers, `top`, and their number,
        which may be 0.
        """
        self._top, self._count = top if count else -1, count
        row = self._siblings.make(self._key)
        if row is not None:
            waiting = (top + 1) << _TOP_SHIFT | min(count, _COUNT_MASK) if count else 0
            self._siblings.words[row + _WAITING] = waiting

    def took(self) -> None:
        """This process asked for a message, or took one."""
        siblings = self._siblings
        if (row := siblings.find(siblings.index, self._key)) is not None:
            siblings.words[row + _TAKEN] = siblings.words[row + _TAKEN] + 1 & _WORD_MASK

    def go_first(self, priority: int) -> bool:
        """Whether consumers of another process have precedence over this priority."""
        if any(top > priority for _, top, _, _ in self._rows()):
            self._on_left()
            return True
        return False

    def are_chosen(self, name: str) -> bool:
        """Whether the message of this id is for consumers of another process, of the same priority
        as the first of this one. All processes that see the same board choose the same.
        """
        top = self._top
        equals = [(each[0], each[2]) for each in self._rows() if each[1] == top >= 0]
        if not equals:
            return False
        number, own = int(name[_CHANCE], 16), self._siblings.index
        equals.append((own, self._count))
        chosen, _ = min(equals, key=lambda each: _distance(number, *each))
        if chosen != own:
            self._on_left()
        return chosen != own

    def check(self) -> None:
        """A message that was left to others is still ready: skips processes that ended, and those
        that have precedence and take none.
        """
        self._siblings.check()
        now_s = self._siblings.steady_s()
        taken = {index: taken for index, top, _, taken in self._rows() if top > self._top}
        if not taken or taken != self._had_taken:
            self._had_taken, self._since_s = taken, now_s
        elif now_s - self._since_s >= PATIENCE_S:
            self._passed_over.update(taken)

    def rests(self) -> None:
        self._had_taken = {}

    def _rows(self) -> Iterator[tuple[int, int, int, int]]:
        """Of each other process in which consumers wait: its index, their highest priority, how
        many have that, and how many messages it took.
        """
        words = self._siblings.words
        for index in self._siblings.living():
            row = self._siblings.find(index, self._key)
            if row is None or not (waiting := words[row + _WAITING]):
                continue
            taken = words[row + _TAKEN]
            if self._passed_over and self._passed_over.get(index) == taken:
                continue
            yield index, (waiting >> _TOP_SHIFT) - 1, waiting & _COUNT_MASK, taken


def _distance(number: int, index: int, count: int) -> float:
    """The nearest is chosen: each one as often as its share in all counts is, and with other counts
    mostly the same one.
    """
    drawn = (hash((number, index)) & _WORD_MASK) + 1
    return -math.log(drawn / (_WORD_MASK + 2)) / count
