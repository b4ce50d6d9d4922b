"""A queue's ready list: its first ready messages in delivery order, as far as this process knows.

Pure and synchronous. The list holds hints: a wrong one costs a lost race, never a message, since a
claim still has to win the rename of its candidate.
"""

import itertools
import random
from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final, Protocol

from mq.broker.groups import HEADS_MAX, Groups
from mq.model.limits import LOOK_INTERVAL_S
from mq.model.names import GROUP_BEGINS, PACKED, MessageId, group_in, items_of, uuid_beginning
from mq.store.format.bucket_names import shard_of
from mq.store.format.walk import look_pause_s
from mq.store.scan.order import RANK_CHARS, STRICT, Candidate, FolderMark, Listing

BACKLOG_IDS_MAX: Final = 4096
# Every Nth fetch of a process with peers takes a message from another peer's share.
TAKES_PER_STRANGER: Final = 16
# How long a message that another process has locked stays aside.
BUSY_ASIDE_S: Final = 0.1
# Ids in all ready lists together; and in each list, however many lists there are.
BACKLOG_IDS_TOTAL_MAX: Final = 128 * 1024
BACKLOG_IDS_MIN: Final = 256

# Messages of a group that are known while it waits.
PARKED_MAX: Final = 64
# Groups of which a list knows that it lacks messages: more than one scan finds.
HIDDEN_MAX: Final = 4 * HEADS_MAX
# Where a candidate's key has the beginning of its uuid, which is a time.
_MOMENT: Final = slice(RANK_CHARS, RANK_CHARS + 13)

_key: Final = attrgetter("key")


@dataclass(frozen=True, slots=True)
class Share:
    """The share of a queue's messages that this process takes first, beside `peers` other
    processes. The id decides a message's share; `own` is this process's. `chance` picks from the
    others' messages.
    """

    peers: int = 0
    own: int = 0
    chance: random.Random = field(default_factory=random.Random)


@dataclass(slots=True)
class Parked:
    """The first messages of a group that waits for its head, in delivery order, as found by the
    scan at `since_s`. `left_out`: the key of the first message beyond PARKED_MAX, or "".
    """

    since_s: float
    candidates: list[Candidate] = field(default_factory=list)
    left_out: str = ""

    def park(self, candidate: Candidate) -> None:
        """Adds a message, if there is room."""
        if len(self.candidates) < PARKED_MAX:
            insort(self.candidates, candidate, key=_key)
        else:
            self.left_out = min(self.left_out or candidate.key, candidate.key)

    def is_before(self, key: str) -> bool:
        """Whether a parked or left-out message comes before this key."""
        return bool(self.candidates and self.candidates[0].key < key) or self.is_left_out(key)

    def is_left_out(self, before: str) -> bool:
        """Whether a message before this key was left out."""
        return bool(self.left_out) and self.left_out < before

    def take_first(self) -> Candidate | None:
        """Removes and returns the first message; None if it was left out, or there is none."""
        if not self.candidates or self.is_left_out(self.candidates[0].key):
            return None
        return self.candidates.pop(0)


class Forgetful(Protocol):
    """A list of ids that can be listed again."""

    def forget(self) -> None:
        """Drops all ids. The next fetch scans."""
        ...


class IdBudget:
    """Limits the ids in all lists of a process. Every list may grow to the same size. When all
    together are too large, the list that was used least recently drops its ids.
    """

    def __init__(self, total_max: int = BACKLOG_IDS_TOTAL_MAX) -> None:
        self.total = 0
        self.capacity = BACKLOG_IDS_MAX
        """How many ids one list may know now."""
        self._total_max = total_max
        self._known: OrderedDict[Forgetful, int] = OrderedDict()

    def counted(self, known: Forgetful, count: int) -> None:
        """A list that is in use has `count` ids now."""
        lists = self._known
        before = lists.pop(known, 0)
        self.total += count - before
        if count:
            lists[known] = count
            if before and self.total <= self._total_max:
                return  # There are as many lists as before.
        while self.total > self._total_max and len(lists) > 1:
            idle, known_there = lists.popitem(last=False)
            self.total -= known_there
            idle.forget()
        share = self._total_max // max(1, len(lists))
        self.capacity = max(BACKLOG_IDS_MIN, min(BACKLOG_IDS_MAX, share))


class ReadyList:
    """Candidates for the next fetches. Times are a steady clock's seconds.

    With peers, a process first takes the messages of its own share: otherwise all processes would
    try the same ones.

    Of a group, only the first message is a candidate. The messages behind it are parked while it is
    in flight. A scan finds all predecessors of an id that existed before the scan began. A message
    for which that is uncertain waits for the next scan.
    """

    def __init__(
        self,
        share: Share,
        ids: IdBudget | None = None,
        ids_max: int = BACKLOG_IDS_MAX,
        groups: Groups | None = None,
    ) -> None:
        self._ids = ids or IdBudget()
        self._ids_max = ids_max
        self._chance = share.chance
        self._shares = share.peers + 1
        self._own = share.own % self._shares
        self._takes = 0
        self._took_own = False
        self._candidates: list[Candidate] = []
        self._left: list[Candidate] = []
        """Candidates of other shares, before all of `_candidates` in delivery order."""
        self._order = STRICT
        self._complete = False
        self._mark: FolderMark | None = None
        self._scanned_s = float("-inf")
        self._has_missed = False
        self._scan_cost_s = 0.0
        self._offered_meanwhile: list[MessageId] | None = None
        self._taken_meanwhile: set[str] = set()
        self._released_meanwhile: dict[str, float] = {}
        """When heads were done with during a scan, which may have passed over their groups."""
        self._aside_until_s: dict[str, float] = {}
        self._lost_since_s: dict[str, float] = {}
        self._is_closed = False
        self._groups = groups or Groups(lambda: 0.0)
        self._parked: dict[str, Parked] = {}
        """By their groups."""
        self._hidden: set[str] = set()
        """Groups of which messages may be there that are neither known nor parked."""
        self._missed_meanwhile: set[str] = set()
        """Those of which a claim failed during a scan, which left its message out."""
        self._unsure: set[str] = set()
        """Of the groups' messages known, those that wait for the next scan."""
        self._sure_then: frozenset[str] = frozenset()
        """Those that do not wait after the scan that goes on."""
        self._threshold = ""
        self._lacks_scan = False

    def __len__(self) -> int:
        return len(self._candidates) + len(self._left)

    @property
    def capacity(self) -> int:
        """The most candidates that it may have now."""
        return min(self._ids.capacity, self._ids_max)

    @property
    def mark(self) -> FolderMark | None:
        """The folder's mark at the last listing, to ask whether the folder has changed. None before
        the first scan, and while candidates are missing from the list, since an unchanged folder
        would prove nothing.
        """
        is_known = self._complete and not (len(self) or self._parked or self._hidden)
        return self._mark if is_known else None

    def is_due_for_scan(self, now_s: float) -> bool:
        """Whether to scan the folder before the next claim.

        True when no candidate is left, or none of its own share while there are others. Otherwise
        now and then, for messages that other processes published or redelivered, and sooner where
        messages were missed, as long as scans take a small share of the time.
        """
        used_up = self._took_own and not self._candidates and not self._complete
        is_empty = not (self._candidates or self._left)
        if used_up or is_empty or self._lacks_scan or (self._has_missed and self.may_scan(now_s)):
            return True
        interval_s = max(LOOK_INTERVAL_S, look_pause_s(self._scan_cost_s))
        return now_s - self._scanned_s >= interval_s

    def may_scan(self, now_s: float) -> bool:
        """Whether one more scan for waiters keeps scans a small share of the time."""
        return now_s - self._scanned_s >= look_pause_s(self._scan_cost_s)

    def waiting_groups(self) -> frozenset[str]:
        """The groups whose heads are in flight, where all known messages are of such groups."""
        if len(self) or not self._complete or self._lacks_scan or self._has_missed:
            return frozenset()
        return frozenset((*self._parked, *self._hidden))

    @property
    def may_be_more(self) -> bool:
        """Whether there may be messages beyond the candidates."""
        return not self._complete

    @property
    def is_of_one_folder(self) -> bool:
        """Whether the last scan found all messages in the queue's own folder, and no bucket."""
        return self._complete and self._mark is not None and len(self._mark.mtimes_ns) == 1

    def is_as_scanned(self, now_s: float) -> None:
        """The list equals what a scan would find now: the folder is unchanged, or inotify has
        reported every rename into it. It does not report that a group's head was settled.
        """
        if not (self._has_missed or self._hidden or self._parked):
            self._scanned_s = now_s

    def missed(self) -> None:
        """Messages arrived that were not offered, so that the candidates may not be the first
        messages.
        """
        self._has_missed = True

    def scan_began(self, taken: Iterable[str] = (), now_ms: int = 0) -> None:
        """A scan began at `now_ms` since the epoch. From here on the listing may miss offered
        messages, and may contain messages that other processes take, and the ids `taken` that are
        being claimed.
        """
        self._has_missed = self._lacks_scan = False
        self._threshold = uuid_beginning(now_ms)
        self._sure_then = frozenset(self._unsure)
        self._offered_meanwhile = []
        self._missed_meanwhile = set()
        self._taken_meanwhile = set(taken)

    def scan_ended(self, listing: Listing | None, began_s: float, now_s: float) -> None:
        """Takes over the listing of a scan; None: the folder is unchanged."""
        offered, self._offered_meanwhile = self._offered_meanwhile or [], None
        self._scanned_s = now_s
        self._took_own = False
        self._scan_cost_s = now_s - began_s
        if listing is None or self._is_closed:
            self._release_later()
            return
        self._aside_until_s = {
            name: until_s for name, until_s in self._aside_until_s.items() if began_s < until_s
        }
        if self._lost_since_s:
            listed = {each.name for each in listing.candidates}
            self._lost_since_s = {
                name: since_s for name, since_s in self._lost_since_s.items() if name in listed
            }
        self._order = listing.order
        self._candidates, self._left = listing.candidates, []
        self._sort_out(listing)
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
        self._release_later()
        self._ids.counted(self, len(self))

    def scan_failed(self) -> None:
        """A scan failed: the candidates stay."""
        self._offered_meanwhile = None
        self._release_later()

    def forget(self) -> None:
        """Drops all candidates. The next claim scans."""
        self._candidates, self._left = [], []
        self._parked, self._hidden, self._unsure = {}, set(), set()
        self._complete, self._mark = False, None
        if self._offered_meanwhile is not None:
            self._offered_meanwhile = []
        self._ids.counted(self, 0)

    def close(self) -> None:
        """The queue or the selection has ended. The list stays empty from here on, whatever scan or
        publish ends later, and leaves its ids to other lists.
        """
        self.forget()
        self._is_closed = True

    def distrust(self) -> None:
        """A candidate that was taken may still be ready, so that an unchanged folder proves
        nothing.
        """
        self._mark = None

    def was_lost(self, candidate: Candidate, now_s: float) -> None:
        """The file of a taken candidate was not found. NFS may list an absent name again and again.
        Such a name is put aside, each time for longer than the time since its first loss, so that a
        fetch ends; one of a group for a moment, since those behind it go meanwhile.
        """
        since_s = self._lost_since_s.get(candidate.name)
        if since_s is None:
            self._lost_since_s[candidate.name] = now_s
        else:
            is_grouped = GROUP_BEGINS in candidate.key
            self.put_aside(candidate, now_s if is_grouped else 2 * now_s - since_s)
        self.distrust()

    def put_aside(self, candidate: Candidate, now_s: float) -> None:
        """Another process has the candidate locked. No scan finds it for BUSY_ASIDE_S, so that a
        fetch ends even if that process is stopped.
        """
        self._aside_until_s[candidate.name] = now_s + BUSY_ASIDE_S
        self._mark = None

    def offer(self, message_id: MessageId) -> None:
        """Adds a message that became ready. A message beyond the end of an incomplete list waits
        for a scan, since other messages may come before it.
        """
        if self._is_closed:
            return
        if self._offered_meanwhile is not None:
            self._offered_meanwhile.append(message_id)
        name, group = message_id.text, message_id.group
        if self._aside_until_s:
            # inotify reports a returned message while mq-mover still has it locked; the unlock
            # is reported again.
            self._aside_until_s.pop(name, None)
        if group and self._groups.holds_back(name):
            self._lacks(group)
            return
        key = self._order.key(name)
        candidates = self._list_of(key)
        if not candidates or key > candidates[-1].key:
            if not self._complete:
                return
            # The usual case: a published message is the youngest.
            candidates.append(Candidate(key, None, message_id))
        else:
            place = bisect_left(candidates, key, key=_key)
            if candidates[place].key == key:
                return
            candidates.insert(place, Candidate(key, None, message_id))
        if group and not self._groups.holds(group):
            self._unsure.add(name)
        count = len(self._candidates) + len(self._left)
        if count > self.capacity:
            (self._candidates or self._left).pop()
            self._complete = False
            count -= 1
        self._ids.counted(self, count)

    def _list_of(self, key: str) -> list[Candidate]:
        """The one of both lists in which a message of this key has its place."""
        return self._left if self._left and key <= self._left[-1].key else self._candidates

    def names(self) -> set[str]:
        parked = itertools.chain.from_iterable(each.candidates for each in self._parked.values())
        return {each.key[RANK_CHARS:] for each in (*self._left, *self._candidates, *parked)}

    def holds(self, name: str) -> bool:
        """Whether the message of this id is a candidate."""
        candidates = self._candidates
        if candidates and candidates[-1].key[RANK_CHARS:] == name:
            return True  # The usual case: it was published just now.
        key = self._order.key(name)
        return _place_of(self._candidates, key) is not None or (
            bool(self._left) and _place_of(self._left, key) is not None
        )

    def leave(self, name: str, until_s: float) -> None:
        """Leaves the message of this id to another process: no scan finds it until then."""
        self._aside_until_s[name] = until_s
        self._mark = None

    def discard(self, name: str) -> None:
        """Another list of the same folder, or another process, took the message of this id."""
        self._aside_until_s.pop(name, None)
        if self._offered_meanwhile is not None:
            self._taken_meanwhile.add(name)
            self._offered_meanwhile = [
                each for each in self._offered_meanwhile if each.text != name
            ]
        key = self._order.key(name)
        for candidates in (self._candidates, self._left):
            place = _place_of(candidates, key)
            if place is not None:
                # That claim may fail, and leave the message in an unchanged folder.
                self._mark = None
                del candidates[place]
                self._lost_one()

    def drop(self, is_dropped: Callable[[str], bool]) -> int:
        """Drops the candidates whose id's text satisfies `is_dropped`; returns how many messages.
        Scans ignore them too, though their files may still be there.
        """
        dropped: list[str] = []
        for candidates in (self._left, self._candidates):
            kept: list[Candidate] = []
            for each in candidates:
                if is_dropped(each.name):
                    dropped.append(each.name)
                else:
                    kept.append(each)
            candidates[:] = kept
        return sum(items_of(each) if PACKED in each else 1 for each in dropped)

    def take_first(self, takes: Callable[[str], bool]) -> Candidate | None:
        """The first candidate in delivery order whose id's text satisfies `takes`. Of a group only
        its first one is looked at.
        """
        passed: set[str] = set()
        for candidates in (self._left, self._candidates):
            for place, candidate in enumerate(candidates):
                group = group_in(candidate.name) if GROUP_BEGINS in candidate.key else ""
                if group in passed:
                    continue
                if takes(candidate.name) and not self._waits(candidate):
                    del candidates[place]
                    self._lost_one()
                    return candidate
                if group:
                    passed.add(group)
        return None

    def take(self) -> Candidate | None:
        """The next candidate: the first one, or, with peers, the first one of this process's own
        share.

        Every TAKES_PER_STRANGER takes, and when its own share has none or an urgent one is
        elsewhere, it takes one of the first few of other shares, whose processes may be gone. In a
        queue with shards the order begins with the own shard, and any of the first few is taken.
        """
        while (candidate := self._next()) is not None:
            if not self._waits(candidate):
                break
            self._park(candidate)
        if not (self._candidates or self._left):
            self._ids.counted(self, 0)
        return candidate

    def _next(self) -> Candidate | None:
        if self._shares > 1:
            return self._take_of_shares()
        return self._candidates.pop(0) if self._candidates else None

    def _take_of_shares(self) -> Candidate | None:
        self._takes += 1
        if self._order.shards == 1 and self._takes % TAKES_PER_STRANGER:
            own = self._take_own()
            if own is not None:
                return own
        few = self._left or self._candidates
        if not few:
            return None
        place = self._chance.randrange(min(self._shares, len(few)))
        if group := group_in(few[place].name):
            place = next(at for at, each in enumerate(few) if group_in(each.name) == group)
        return few.pop(place)

    # Groups

    def released(self, group: str, now_s: float) -> None:
        """The head of the group was settled. The first parked message becomes a candidate if it was
        parked a moment ago; otherwise the next claim scans. A scan in progress changes neither.
        """
        if self._offered_meanwhile is not None:
            self._released_meanwhile[group] = now_s
            return
        parked = self._parked.get(group)
        if parked is None and group not in self._hidden:
            return
        is_young = parked is not None and now_s - parked.since_s <= LOOK_INTERVAL_S
        if parked is not None and is_young and (first := parked.take_first()) is not None:
            # Both lists become one: a group's message in one must not pass a message in the other.
            self._candidates = sorted((*self._left, *self._candidates, first), key=_key)
            self._left = []
            self._ids.counted(self, len(self))
            return
        self.hide(group)
        self._complete, self._mark, self._lacks_scan = False, None, True

    def _release_later(self) -> None:
        released, self._released_meanwhile = self._released_meanwhile, {}
        for group, now_s in released.items():
            if not self._groups.holds(group):
                self.released(group, now_s)

    def _waits(self, candidate: Candidate) -> bool:
        """Whether another message of the group goes first, or may."""
        if GROUP_BEGINS not in candidate.key:
            return False
        group = group_in(candidate.name)
        if self._groups.holds(group):
            return self._groups.holds_back(candidate.name)
        if candidate.name in self._unsure:
            self.hide(group)
        if group in self._hidden:
            self._lacks_scan = True
            return True
        parked = self._parked.get(group)
        return parked is not None and parked.is_before(candidate.key)

    def _park(self, candidate: Candidate) -> None:
        group = group_in(candidate.name)
        if candidate.name in self._unsure:
            self.hide(group)
        if group in self._hidden:
            return  # A message before it was left out, or may be there, and is not known now.
        parked = self._parked.get(group)
        if parked is None:
            parked = self._parked[group] = Parked(self._scanned_s)
        parked.park(candidate)

    def hide(self, group: str) -> None:
        """The group has more messages than are known."""
        self._parked.pop(group, None)
        self._hidden.add(group)

    def claim_failed(self, group: str) -> None:
        """A claim of a message of the group failed, by this or another list of the folder. The
        message may be there, and this list may lack it: the group waits for a scan that begins
        later.
        """
        if self._offered_meanwhile is not None:
            self._missed_meanwhile.add(group)
        self._lacks(group)

    def _lacks(self, group: str) -> None:
        """Hides a group. A list that is not used for long forgets all before it has too many."""
        is_full = group not in self._hidden and len(self._hidden) >= HIDDEN_MAX
        if is_full and self._offered_meanwhile is None:
            self.forget()
        self.hide(group)

    def _sort_out(self, listing: Listing) -> None:
        """Applies a scan to the groups: one whose head the scan skipped is still in flight, or
        needs a scan.
        """
        passed, threshold = listing.passed, self._threshold
        still = {
            group
            for group in passed
            if self._groups.holds(group) or group in self._released_meanwhile
        }
        self._lacks_scan = self._lacks_scan or len(still) < len(passed)
        self._parked = {group: each for group, each in self._parked.items() if group in still}
        self._hidden = (still - self._parked.keys()) | self._missed_meanwhile
        self._unsure = {
            each.name
            for each in listing.candidates
            if each.key[_MOMENT] >= threshold
            and group_in(each.name)
            and each.name not in self._sure_then
        }

    def _lost_one(self) -> None:
        if not (self._candidates or self._left):
            self._ids.counted(self, 0)

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
