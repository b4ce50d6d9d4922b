"""A queue's bounded backlog: the first ready messages in delivery order, as far as known.

Pure and synchronous; the queue acts on what it says. A wrong hint costs a lost race, never a
message: whoever takes a candidate still has to win its rename.
"""

import random
from bisect import bisect_left
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Final, Protocol

from mq.model.limits import BACKLOG_IDS_MAX, BUSY_ASIDE_S, LOOK_INTERVAL_S, TAKES_PER_STRANGER
from mq.model.names import MessageId
from mq.store.core.listing import look_pause_s
from mq.store.format.bucket_names import shard_of
from mq.store.scan.order import STRICT, Candidate, FolderMark, Listing

_key: Final = attrgetter("key")


class Watcher(Protocol):
    """Who hears of candidates, and says how many there may be."""

    @property
    def capacity(self) -> int:
        """How many candidates there may be."""
        ...

    def listed(self, backlog: "Backlog") -> None:
        """A look said which candidates there are."""
        ...

    def changed(self, backlog: "Backlog") -> None:
        """There is one more, or there is none any more."""
        ...

    def dropped(self, name: str) -> None:
        """The message of that id is none any more, though nobody took it."""
        ...

    def forgot(self, backlog: "Backlog") -> None:
        """None is known any more."""
        ...


class Unwatched:
    """A watcher for whom nothing depends on them."""

    def __init__(self, capacity: int = BACKLOG_IDS_MAX) -> None:
        self.capacity = capacity

    def listed(self, backlog: "Backlog") -> None:
        """Nothing."""

    def changed(self, backlog: "Backlog") -> None:
        """Nothing."""

    def dropped(self, name: str) -> None:
        """Nothing."""

    def forgot(self, backlog: "Backlog") -> None:
        """Nothing."""


class Backlog:
    """Candidates for the next fetches. Times are a steady clock's seconds.

    With `peers` other processes each leaves the others' shares of the messages, by their ids, to
    them as long as it has some of its own: else all would try the same ones. `own` is which share
    is this process's.
    """

    def __init__(self, peers: int = 0, own: int = 0, watcher: Watcher | None = None) -> None:
        self._watcher = watcher or Unwatched()
        self._shares = peers + 1
        self._own = own % self._shares
        self._takes = 0
        self._took_own = False
        self._candidates: list[Candidate] = []
        self._left: list[Candidate] = []
        """What was left to others, before all of `_candidates` in the order."""
        self._order = STRICT
        self._complete = False
        self._mark: FolderMark | None = None
        self._looked_s = float("-inf")
        self._has_missed = False
        self._look_cost_s = 0.0
        self._offered_meanwhile: list[MessageId] | None = None
        self._taken_meanwhile: set[str] = set()
        self._aside_until_s: dict[str, float] = {}
        self._lost_since_s: dict[str, float] = {}
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._candidates) + len(self._left)

    @property
    def capacity(self) -> int:
        """How many candidates it may have now."""
        return self._watcher.capacity

    @property
    def mark(self) -> FolderMark | None:
        """The folder as last listed, to ask whether it changed; None before the first look and
        when candidates were left out or taken, so that an unchanged folder would say nothing.
        """
        return self._mark if self._complete and not len(self) else None

    def is_due_for_look(self, now_s: float) -> bool:
        """Whether the folder should be looked at before the next fetch.

        Always when nothing is known to be there, and when its own share of what is known is used
        up and there is more. Else now and then, for what other processes published or redelivered,
        and soon where that is known to be more than was told, as long as looking takes a small
        share of the time.
        """
        used_up = self._took_own and not self._candidates and not self._complete
        if used_up or not len(self) or (self._has_missed and self.may_look(now_s)):
            return True
        interval_s = max(LOOK_INTERVAL_S, look_pause_s(self._look_cost_s))
        return now_s - self._looked_s >= interval_s

    def may_look(self, now_s: float) -> bool:
        """Whether looking once more, for those who wait, takes a small share of the time."""
        return now_s - self._looked_s >= look_pause_s(self._look_cost_s)

    @property
    def may_be_more(self) -> bool:
        """Whether there may be messages beyond those that are known."""
        return not self._complete

    @property
    def is_of_one_folder(self) -> bool:
        """Whether the last look found all there was, in the queue's own folder, and no bucket."""
        return self._complete and self._mark is not None and len(self._mark.mtimes_ns) == 1

    def is_as_looked(self, now_s: float) -> None:
        """What is known is what a look would find now: it was asked, or all that came was told."""
        if not self._has_missed:
            self._looked_s = now_s

    def missed(self) -> None:
        """More came than was told: what is known is not the first of what is there."""
        self._has_missed = True

    def look_began(self, taken: Iterable[str] = ()) -> None:
        """From here on the listing may miss what is offered, and have what others take, or, of
        these ids, what they are about to.
        """
        self._has_missed = False
        self._offered_meanwhile = []
        self._taken_meanwhile = set(taken)

    def look_ended(self, listing: Listing | None, began_s: float, now_s: float) -> None:
        """Takes what a look found; None: the folder is as it was."""
        offered, self._offered_meanwhile = self._offered_meanwhile or [], None
        self._looked_s = now_s
        self._took_own = False
        self._look_cost_s = now_s - began_s
        if listing is None or self._is_closed:
            return
        self._aside_until_s = {
            name: until_s for name, until_s in self._aside_until_s.items() if now_s < until_s
        }
        if self._lost_since_s:
            listed = {each.name for each in listing.candidates}
            self._lost_since_s = {
                name: since_s for name, since_s in self._lost_since_s.items() if name in listed
            }
        self._order = listing.order
        self._candidates, self._left = listing.candidates, []
        if self._aside_until_s:
            self._candidates = [
                each for each in listing.candidates if each.name not in self._aside_until_s
            ]
        self._complete = listing.complete
        self._mark = None if self._aside_until_s else listing.mark
        taken, self._taken_meanwhile = self._taken_meanwhile, set()
        for name in taken:
            self.discard(name)
        for message_id in offered:
            self.offer(message_id)
        self._watcher.listed(self)

    def look_failed(self) -> None:
        """The folder could not be listed: what was known stays."""
        self._offered_meanwhile = None

    def forget(self) -> None:
        """Nothing of what is known is served any more: the next fetch looks."""
        self._candidates, self._left = [], []
        self._complete, self._mark = False, None
        if self._offered_meanwhile is not None:
            self._offered_meanwhile = []
        self._watcher.forgot(self)

    def close(self) -> None:
        """The queue or the selection has ended. The backlog knows nothing from here on, whatever
        look or publish ends later, and leaves its share of ids to others.
        """
        self.forget()
        self._is_closed = True

    def distrust(self) -> None:
        """A candidate that was taken may be there still: an unchanged folder says nothing."""
        self._mark = None

    def was_lost(self, candidate: Candidate, now_s: float) -> None:
        """A candidate that was taken is not there. One that looks find again and again all the
        same, as NFS's cache of absent names can have it, is put aside, so that a fetch ends: each
        time for longer than since its first loss, for there may be many.
        """
        since_s = self._lost_since_s.get(candidate.name)
        if since_s is None:
            self._lost_since_s[candidate.name] = now_s
        else:
            self.put_aside(candidate, 2 * now_s - since_s)
        self.distrust()

    def put_aside(self, candidate: Candidate, now_s: float) -> None:
        """A candidate that was taken cannot be had now: for a moment no look finds it, so that a
        fetch ends though another process holds it and is stopped.
        """
        self._aside_until_s[candidate.name] = now_s + BUSY_ASIDE_S
        self._mark = None

    def offer(self, message_id: MessageId) -> None:
        """Takes a message that became ready by this process's hand.

        Beyond the end of an incomplete backlog it is left to a later listing: others may stand
        between.
        """
        if self._is_closed:
            return
        if self._offered_meanwhile is not None:
            self._offered_meanwhile.append(message_id)
        key = self._order.key(message_id.text)
        is_last = not self._candidates or key > self._candidates[-1].key
        if is_last and not self._complete:
            return
        # Mostly: what is published is the youngest.
        place = len(self._candidates) if is_last else bisect_left(self._candidates, key, key=_key)
        if place < len(self._candidates) and self._candidates[place].key == key:
            return
        self._candidates.insert(place, Candidate(key, None, message_id))
        if len(self._candidates) > self._watcher.capacity:
            self._watcher.dropped(self._candidates.pop().name)
            self._complete = False
        self._watcher.changed(self)

    def holds(self, name: str) -> bool:
        """Whether the message of this id is a candidate."""
        key = self._order.key(name)
        return _place_of(self._candidates, key) is not None or (
            bool(self._left) and _place_of(self._left, key) is not None
        )

    def discard(self, name: str) -> None:
        """Another list of the same folder took the message of this id."""
        if self._offered_meanwhile is not None:
            self._taken_meanwhile.add(name)
        key = self._order.key(name)
        for candidates in (self._candidates, self._left):
            place = _place_of(candidates, key)
            if place is not None:
                # It may come to nothing: then the folder is as it was, and the message there.
                self._mark = None
                del candidates[place]
                self._lost_one()

    def drop(self, is_dropped: Callable[[str], bool]) -> int:
        """Candidates whose ids' texts satisfy it are none any more; how many. They may lie there
        still, but a look would not find them.
        """
        count = len(self)
        for candidates in (self._left, self._candidates):
            for candidate in [each for each in candidates if is_dropped(each.name)]:
                self._watcher.dropped(candidate.name)
            candidates[:] = [each for each in candidates if not is_dropped(each.name)]
        return count - len(self)

    def take_first(self, takes: Callable[[str], bool]) -> Candidate | None:
        """The first candidate whose id's text satisfies `takes`, in the order of delivery."""
        for candidates in (self._left, self._candidates):
            for place, candidate in enumerate(candidates):
                if takes(candidate.name):
                    del candidates[place]
                    self._lost_one()
                    return candidate
        return None

    def first(self, count: int) -> list[Candidate]:
        """The first so many candidates."""
        return self._candidates[:count]

    def take(self, chance: random.Random) -> Candidate | None:
        """The next candidate: the first, or, with peers, the first of this process's own share.

        Every so often, and when none of its own is there or an urgent one is not, it is any of the
        first few of what was left to others: nobody may be there who takes them. Where the queue
        has shards, the order begins with one's own, and any of the first few is taken.
        """
        candidate = self._take(chance)
        if candidate is not None:
            self._lost_one()
        return candidate

    def _take(self, chance: random.Random) -> Candidate | None:
        if self._shares == 1:
            return self._candidates.pop(0) if self._candidates else None
        self._takes += 1
        if self._order.shards == 1 and self._takes % TAKES_PER_STRANGER:
            own = self._take_own()
            if own is not None:
                return own
        few = self._left or self._candidates
        return few.pop(chance.randrange(min(self._shares, len(few)))) if few else None

    def _lost_one(self) -> None:
        if not (self._candidates or self._left):
            self._watcher.changed(self)

    def _take_own(self) -> Candidate | None:
        while self._candidates:
            if self._left and self._left[0].key[0] < self._candidates[0].key[0]:
                break  # Of a higher priority.
            candidate = self._candidates.pop(0)
            if shard_of(candidate.name, self._shares) == self._own:
                self._took_own = True
                return candidate
            self._left.append(candidate)
        return None


def _place_of(candidates: list[Candidate], key: str) -> int | None:
    place = bisect_left(candidates, key, key=_key)
    return place if place < len(candidates) and candidates[place].key == key else None
