"""One memory budget over all bodies of a process: who may hold which bytes, and who gives way.

Thread-safe, and each call does a bounded amount of work, or one that earlier calls have paid for.
Nothing waits here: what finds no room is not held, and passes through in small pieces.
"""

import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final

from mq.broker.memory_figures import Figures, HolderFigures, ShelfFigures, largest
from mq.broker.shelf import LISTS, Holder, Shelf, cost_of
from mq.model.limits import (
    BODY_OVERHEAD_BYTES,
    MEMORY_AHEAD_SHARE,
    MEMORY_EVICTION_LOOKS_MAX,
    MEMORY_IDLE_S,
    MEMORY_IN_HAND_BYTES_MIN,
    MEMORY_QUEUE_BYTES_MIN,
    MEMORY_SMALL_BYTES_MAX,
    MEMORY_SMALL_SHARE,
)
from mq.model.message import Held

_IN_HAND: Final = (Holder.DIRECT, Holder.PUBLISHING)


class Hand:
    """Bytes that somebody has in hand. They count until nobody has a reference to this any more,
    however the way of those bytes ends.
    """

    __slots__ = ("_returned", "cost")

    def __init__(self, cost: int, returned: "deque[int]") -> None:
        self.cost = cost
        self._returned = returned

    def __del__(self) -> None:
        # In whatever thread, and perhaps while that one has the memory's lock.
        self._returned.append(self.cost)


class Memory:
    """The budget and its holders. `steady_s`: a steady clock's seconds.

    What lists hold, and all together where the budget is at least MEMORY_IN_HAND_BYTES_MIN, is
    never more than the budget; what is in hand is never more than the larger of the two. Who wants
    room gets it from the lists that give way before it, from their ends. A list leaves each other
    queue a small minimum, and so does what is in hand while there is more; but it has all the room
    that it needs, and gives none.
    """

    def __init__(self, budget_bytes: int, steady_s: Callable[[], float]) -> None:
        self.budget_bytes = budget_bytes
        self._in_hand_max = max(budget_bytes, MEMORY_IN_HAND_BYTES_MIN)
        self._large_max = round(self._in_hand_max * (1 - MEMORY_SMALL_SHARE))
        self._steady_s = steady_s
        self._lock = threading.Lock()
        self._returned: dict[Holder, deque[int]] = {each: deque() for each in _IN_HAND}
        self._given_back = tuple(self._returned.items())
        self._in_hand = dict.fromkeys(_IN_HAND, 0)
        self._hands = dict.fromkeys(_IN_HAND, 0)
        self._in_hand_bytes = 0
        self._list_bytes = dict.fromkeys(LISTS, 0)
        self._bodies = dict.fromkeys(LISTS, 0)
        self._evicted = dict.fromkeys(LISTS, 0)
        # The shelves that have something in a list, those that give way first before the others.
        self._filled: dict[Holder, OrderedDict[Shelf, None]] = {
            each: OrderedDict() for each in LISTS
        }
        self._kept_bytes = 0
        self._shelves: dict[Shelf, None] = {}
        self._consumed: OrderedDict[Shelf, None] = OrderedDict()
        self._hits = 0
        self._misses = 0
        self._refused = 0

    def hold(self, size: int, shelf: Shelf | None = None) -> Hand | None:
        """Counts a body of `size` bytes that is to be read for whoever asked, a consumer of the
        queue where one is said; None: there is no room, and it must pass through.
        """
        cost = size + BODY_OVERHEAD_BYTES
        with self._lock:
            if shelf is not None and shelf.consumed_s is not None:
                self._raise_watermark(shelf, cost)
            return self._take_in_hand(Holder.DIRECT, cost)

    def receive(self, size: int = 0) -> Hand | None:
        """Counts so many bytes of what a client publishes; None: there is no room."""
        with self._lock:
            return self._take_in_hand(Holder.PUBLISHING, size + BODY_OVERHEAD_BYTES)

    def grow(self, hand: Hand, size: int) -> bool:
        """Counts so many bytes more of what a client publishes; False: there is no room, and
        nothing was counted.
        """
        with self._lock:
            if not self._has_room(hand.cost + size, size):
                return False
            hand.cost += size
            self._count(Holder.PUBLISHING, size)
            return True

    def keep(self, shelf: Shelf, name: str, held: Held, instead: Hand | None = None) -> bool:
        """Keeps a body for the queue's next fetches, if there is room; `held` has no hand.

        `instead`: it was published here, and counted by this hand until now; else it was read
        ahead.
        """
        if not self.budget_bytes:
            return False
        cost, now_s = cost_of(held), self._steady_s()
        with self._lock:
            self._collect()
            self._fade(now_s)
            if instead is not None:
                self._count(Holder.PUBLISHING, -instead.cost)
                instead.cost = 0
            if shelf.find(name) is not None:
                return True
            holder = self._list_for(shelf, cost, instead is None)
            if holder is None or not self._make_room(shelf, holder, cost):
                return False
            self._add(shelf, holder, name, held, cost)
            return True

    def take_publishing(self, shelf: Shelf, held: Held) -> Held:
        """What is being published, for a consumer that has waited for it; its hand counts it until
        both have ended. Says, too, that the queue is consumed.
        """
        now_s = self._steady_s()
        with self._lock:
            self._consume(shelf, now_s)
            self._raise_watermark(shelf, cost_of(held))
            self._hits += 1
        return held

    def take(self, shelf: Shelf, name: str) -> Held | None:
        """What is kept of the message, in hand from here on; None: nothing. Says, too, that the
        queue is consumed.
        """
        if not self.budget_bytes:
            self._misses += 1
            return None
        now_s = self._steady_s()
        with self._lock:
            self._consume(shelf, now_s)
            holder = shelf.find(name)
            if holder is None:
                self._misses += 1
                return None
            held = self._remove(shelf, holder, name)
            cost = cost_of(held)
            self._raise_watermark(shelf, cost)
            self._promote(shelf)
            hand = self._take_in_hand(Holder.DIRECT, cost)
            if hand is None:
                self._misses += 1
                return None
            self._hits += 1
            return Held(held.headers, held.body, held.head_bytes, hand)

    def is_kept(self, shelf: Shelf, name: str) -> bool:
        """Whether the message's body is."""
        with self._lock:
            return shelf.find(name) is not None

    def drop(self, shelf: Shelf, name: str) -> None:
        """Forgets a message that is no candidate any more."""
        with self._lock:
            holder = shelf.find(name)
            if holder is not None:
                self._remove(shelf, holder, name)

    def retain(self, shelf: Shelf, wanted: Callable[[str], bool] = lambda name: False) -> None:
        """Forgets all of the queue but what is wanted still."""
        if not shelf.bytes:
            return
        with self._lock:
            for holder in LISTS:
                for name in [each for each in shelf.lists[holder] if not wanted(each)]:
                    self._remove(shelf, holder, name)

    def close(self, shelf: Shelf) -> None:
        """Forgets a queue that is gone."""
        self.retain(shelf)
        with self._lock:
            self._consumed.pop(shelf, None)
            shelf.consumed_s, shelf.ahead_bytes = None, 0

    def ahead(self, shelf: Shelf) -> int:
        """How many bytes more may be read ahead for the queue."""
        with self._lock:
            self._collect()
            self._fade(self._steady_s())
            if shelf.consumed_s is None:
                return max(0, min(self._free(), MEMORY_QUEUE_BYTES_MIN - shelf.bytes))
            return max(0, self._watermark(shelf) - shelf.list_bytes[Holder.DIRECT])

    def figures(self) -> Figures:
        """What is held, as it is now."""
        with self._lock:
            self._collect()
            self._fade(self._steady_s())
            holders = {}
            for each in Holder:
                holders[each] = HolderFigures(
                    bytes=self._list_bytes.get(each, 0) + self._in_hand.get(each, 0),
                    in_hand_bytes=self._in_hand.get(each, 0),
                    bodies=self._bodies.get(each, 0) + self._hands.get(each, 0),
                    evicted=self._evicted.get(each, 0),
                )
            return Figures(
                self.budget_bytes,
                self._held(),
                holders,
                self._hits,
                self._misses,
                self._refused,
                len(self._shelves),
                largest(
                    ShelfFigures(each.name, each.bytes, each.ahead_bytes, each in self._consumed)
                    for each in self._shelves
                ),
            )

    def _held(self) -> int:
        return self._kept_bytes + self._in_hand_bytes

    def _free(self) -> int:
        return self.budget_bytes - self._held()

    def _count(self, holder: Holder, size: int) -> None:
        self._in_hand[holder] += size
        self._in_hand_bytes += size

    def _collect(self) -> None:
        """Takes note of what is in hand no more."""
        for holder, returned in self._given_back:
            while returned:
                cost = returned.popleft()
                self._in_hand[holder] -= cost
                self._in_hand_bytes -= cost
                self._hands[holder] -= 1

    def _take_in_hand(self, holder: Holder, cost: int) -> Hand | None:
        self._collect()
        if not self._has_room(cost, cost):
            return None
        self._count(holder, cost)
        self._hands[holder] += 1
        return Hand(cost, self._returned[holder])

    def _has_room(self, size: int, more: int) -> bool:
        """Makes room for `more` bytes in hand, of something that is then of `size`."""
        is_small = size <= MEMORY_SMALL_BYTES_MAX + BODY_OVERHEAD_BYTES
        in_hand = self._in_hand_bytes + more
        if in_hand > (self._in_hand_max if is_small else self._large_max):
            self._refused += 1
            return False
        lacking = min(in_hand + self._kept_bytes - self.budget_bytes, self._kept_bytes)
        if lacking > 0:
            for minimum in (self._minimum(), 0):
                for holder in LISTS:
                    lacking = self._evict(holder, lacking, minimum)
        return True

    def _list_for(self, shelf: Shelf, cost: int, was_read: bool) -> Holder | None:
        if shelf.consumed_s is None:
            return Holder.HEAD if was_read else Holder.PENDING
        if shelf.list_bytes[Holder.DIRECT] + cost <= self._watermark(shelf):
            return Holder.DIRECT
        return None if was_read else Holder.PENDING

    def _watermark(self, shelf: Shelf) -> int:
        share = self.budget_bytes * MEMORY_AHEAD_SHARE / max(1, len(self._consumed))
        return max(self._minimum(), min(shelf.ahead_bytes, int(share)))

    def _minimum(self) -> int:
        return min(MEMORY_QUEUE_BYTES_MIN, self.budget_bytes // max(1, len(self._shelves)))

    def _make_room(self, shelf: Shelf, holder: Holder, cost: int) -> bool:
        """Has lists give way that do so before this one; and others of its kind too, when the queue
        has less than the minimum.
        """
        lacking, minimum = cost - self._free(), self._minimum()
        for each in LISTS:
            if lacking <= 0:
                break
            is_own = each is holder
            if is_own and shelf.bytes + cost > minimum:
                break
            lacking = self._evict(each, lacking, minimum)
            if is_own:
                break
        return lacking <= 0

    def _evict(self, holder: Holder, lacking: int, minimum: int) -> int:
        """Has bodies of one kind of list give way, none of a queue that has no more than the
        minimum; how many bytes are lacking then.
        """
        filled, looks = self._filled[holder], MEMORY_EVICTION_LOOKS_MAX
        while lacking > 0 and filled and looks:
            shelf = next(iter(filled))
            if minimum and shelf.bytes <= minimum:
                filled.move_to_end(shelf)
                looks -= 1
                continue
            name = next(reversed(shelf.lists[holder]))
            lacking -= cost_of(self._remove(shelf, holder, name))
            self._evicted[holder] += 1
        return lacking

    def _add(self, shelf: Shelf, holder: Holder, name: str, held: Held, cost: int) -> None:
        shelf.lists[holder][name] = held
        shelf.list_bytes[holder] += cost
        shelf.bytes += cost
        self._list_bytes[holder] += cost
        self._kept_bytes += cost
        self._bodies[holder] += 1
        self._filled[holder][shelf] = None
        self._shelves[shelf] = None

    def _remove(self, shelf: Shelf, holder: Holder, name: str) -> Held:
        held = shelf.lists[holder].pop(name)
        cost = cost_of(held)
        shelf.list_bytes[holder] -= cost
        shelf.bytes -= cost
        self._list_bytes[holder] -= cost
        self._kept_bytes -= cost
        self._bodies[holder] -= 1
        if not shelf.lists[holder]:
            del self._filled[holder][shelf]
            if not shelf.bytes:
                del self._shelves[shelf]
        return held

    def _consume(self, shelf: Shelf, now_s: float) -> None:
        if shelf.consumed_s is None:
            self._turn(shelf, Holder.HEAD, Holder.DIRECT)
        shelf.consumed_s = now_s
        self._consumed[shelf] = None
        self._consumed.move_to_end(shelf)
        if shelf.lists[Holder.DIRECT]:
            self._filled[Holder.DIRECT].move_to_end(shelf)
        self._fade(now_s)

    def _fade(self, now_s: float) -> None:
        """Queues that nobody consumes any more have heads, and no watermark."""
        while self._consumed:
            shelf = next(iter(self._consumed))
            if shelf.consumed_s is not None and now_s - shelf.consumed_s < MEMORY_IDLE_S:
                return
            del self._consumed[shelf]
            shelf.consumed_s, shelf.ahead_bytes = None, 0
            self._turn(shelf, Holder.DIRECT, Holder.HEAD)

    def _turn(self, shelf: Shelf, was: Holder, becomes: Holder) -> None:
        """Makes one list of a queue the other one, which is empty: no queue has both."""
        lists, size = shelf.lists, shelf.list_bytes[was]
        count = len(lists[was])
        if not count:
            return
        lists[was], lists[becomes] = lists[becomes], lists[was]
        for holder, sign in ((was, -1), (becomes, 1)):
            shelf.list_bytes[holder] += sign * size
            self._list_bytes[holder] += sign * size
            self._bodies[holder] += sign * count
        del self._filled[was][shelf]
        self._filled[becomes][shelf] = None

    def _raise_watermark(self, shelf: Shelf, cost: int) -> None:
        """It follows what is consumed, and is cut to what the queue may have where it is used."""
        shelf.ahead_bytes = min(shelf.ahead_bytes + cost, self.budget_bytes)

    def _promote(self, shelf: Shelf) -> None:
        """What waits for the direct list comes into it as that empties."""
        waiting = shelf.lists[Holder.PENDING]
        if waiting:
            name, held = next(iter(waiting.items()))
            cost = cost_of(held)
            if shelf.list_bytes[Holder.DIRECT] + cost <= self._watermark(shelf):
                self._add(
                    shelf, Holder.DIRECT, name, self._remove(shelf, Holder.PENDING, name), cost
                )
