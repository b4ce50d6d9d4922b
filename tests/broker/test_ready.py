"""What a ready list decides, and how many ids all lists know together."""

import random
from dataclasses import replace

import pytest
from harness.chance import TIMES

from mq.broker.groups import Groups
from mq.broker.ready import (
    BACKLOG_IDS_MAX,
    BACKLOG_IDS_MIN,
    BUSY_ASIDE_S,
    HIDDEN_MAX,
    PARKED_MAX,
    TAKES_PER_STRANGER,
    IdBudget,
    ReadyList,
    Share,
)
from mq.model.limits import LOOK_INTERVAL_S
from mq.model.names import MessageId
from mq.store.format.bucket_names import shard_of
from mq.store.format.walk import LOOK_SHARE
from mq.store.scan.order import STRICT, Candidate, FolderMark, Listing

MARK = FolderMark((("queues/q", 1),), trusted=True)
CHANCE = random.Random(1)


def message_id(count: int, priority: int = 0) -> MessageId:
    return MessageId(f"0192f3a2-7c4e-7{count:03x}-9b1e-0123456789ab", priority=priority)


def listing(*ids: MessageId, complete: bool = True) -> Listing:
    found = sorted(Candidate(STRICT.key(each.text), "") for each in ids)
    return Listing(found, complete, MARK)


def listed(ready: ReadyList, *ids: MessageId, complete: bool = True) -> None:
    ready.scan_began()
    ready.scan_ended(listing(*ids, complete=complete), began_s=0.0, now_s=0.0)


def taken(ready: ReadyList) -> list[MessageId]:
    found = []
    while (candidate := ready.take()) is not None:
        found.append(candidate.id)
    return found


def test_order_is_priority_then_publish_time() -> None:
    ready = ReadyList(Share())
    listed(ready, message_id(3), message_id(1))
    ready.offer(message_id(2))
    ready.offer(message_id(9, priority=5))
    assert taken(ready) == [
        message_id(9, priority=5), message_id(1), message_id(2), message_id(3),
    ]  # fmt: skip


def test_what_was_offered_twice_is_there_once() -> None:
    ready = ReadyList(Share())
    listed(ready, message_id(1))
    ready.offer(message_id(1))
    assert taken(ready) == [message_id(1)]


def test_before_a_look_nothing_is_known_so_an_offer_waits_for_it() -> None:
    ready = ReadyList(Share())
    ready.offer(message_id(2))
    assert len(ready) == 0
    assert ready.is_due_for_scan(0.0)


def test_beyond_an_incomplete_end_an_offer_is_left_to_a_later_listing() -> None:
    ready = ReadyList(Share())
    listed(ready, message_id(1), message_id(5), complete=False)
    ready.offer(message_id(9))
    ready.offer(message_id(3))
    assert taken(ready) == [message_id(1), message_id(3), message_id(5)]


def test_a_full_backlog_drops_its_end_and_is_incomplete() -> None:
    ready = ReadyList(Share(), ids_max=2)
    listed(ready, message_id(2), message_id(3))
    ready.offer(message_id(1))
    ready.offer(message_id(9))
    assert taken(ready) == [message_id(1), message_id(2)]
    assert ready.mark is None


def test_what_is_offered_during_a_look_is_not_lost_to_it() -> None:
    ready = ReadyList(Share())
    ready.scan_began()
    ready.offer(message_id(2))
    ready.scan_ended(listing(message_id(1)), 0.0, 0.0)
    assert taken(ready) == [message_id(1), message_id(2)]


def test_a_failed_look_keeps_what_was_known() -> None:
    ready = ReadyList(Share())
    listed(ready, message_id(1))
    ready.scan_began()
    ready.scan_failed()
    assert taken(ready) == [message_id(1)]


def test_an_unchanged_folder_says_something_only_of_an_empty_complete_backlog() -> None:
    ready = ReadyList(Share())
    assert ready.mark is None
    listed(ready, message_id(1))
    assert ready.mark is None
    ready.take()
    assert ready.mark == MARK
    listed(ready, complete=False)
    assert ready.mark is None


@pytest.mark.parametrize("cost_s", [0.0, 0.4])
def test_others_are_looked_for_within_a_share_of_the_time(cost_s: float) -> None:
    ready = ReadyList(Share())
    ready.scan_began()
    ready.scan_ended(listing(message_id(1)), began_s=0.0, now_s=cost_s)
    interval_s = max(LOOK_INTERVAL_S, cost_s / LOOK_SHARE)
    assert not ready.is_due_for_scan(cost_s + interval_s * 0.99)
    assert ready.is_due_for_scan(cost_s + interval_s)


def spread_id(count: int) -> MessageId:
    """Ids whose shares differ, as those of a UuidSource do."""
    return MessageId(f"0192f3a2-7c4e-7{count:03x}-9b1e-01234567{7 * count:04x}")


def shares_of(count: int, shares: int) -> list[list[MessageId]]:
    """The ids of `count` messages, a list for each share."""
    ids = [spread_id(number) for number in range(count)]
    return [[each for each in ids if shard_of(each.text, shares) == own] for own in range(shares)]


@pytest.mark.parametrize("own", [0, 1, 2])
def test_peers_take_their_own_share_in_its_order_and_then_what_is_left(own: int) -> None:
    mine = shares_of(12, 3)[own]
    assert mine
    ready = ReadyList(Share(2, own, CHANCE))
    listed(ready, *(spread_id(number) for number in range(12)))
    taken = [ready.take() for _ in range(12)]
    ids = [each.id for each in taken if each is not None]
    assert ids[: len(mine)] == mine
    assert sorted(ids, key=str) == [spread_id(number) for number in range(12)]
    assert ready.take() is None
    assert len(ready) == 0


def test_what_is_left_to_others_is_taken_now_and_then_though_there_is_enough_of_ones_own() -> None:
    """The process whose share it is may be down, or have no consumer."""
    ready = ReadyList(Share(1, 0, CHANCE))
    theirs = shares_of(200, 2)[1]
    listed(ready, *(spread_id(number) for number in range(200)))
    taken = [ready.take() for _ in range(4 * TAKES_PER_STRANGER)]
    strangers = [each.id for each in taken if each is not None and each.id in theirs]
    assert len(strangers) == 4
    assert set(strangers) <= set(theirs[:8])


def test_an_urgent_message_is_not_left_to_others_while_lesser_ones_are_taken() -> None:
    for number in range(8):
        urgent = replace(spread_id(number), priority=5)
        ready = ReadyList(Share(3, 1, CHANCE))
        listed(ready, urgent, *(spread_id(20 + each) for each in range(20)))
        first = ready.take()
        assert first is not None
        assert first.id == urgent


@pytest.mark.parametrize("complete", [False, True])
def test_a_share_that_is_used_up_is_looked_for_before_others_shares_where_there_is_more(
    complete: bool,
) -> None:
    mine, theirs = shares_of(20, 2)
    ready = ReadyList(Share(1, 0, CHANCE))
    listed(ready, *mine[:3], *theirs, complete=complete)
    for _ in range(3):
        assert not ready.is_due_for_scan(0.0)
        ready.take()
    while ready.take() and not ready.is_due_for_scan(0.0):
        pass
    assert (len(ready) == 0) is complete
    # None of its own turned up: it takes the others' without looking each time.
    listed(ready, *theirs, complete=False)
    ready.take()
    assert not ready.is_due_for_scan(0.0)


class Known:
    def __init__(self, ids: IdBudget) -> None:
        self._ids = ids
        self.count = 0

    def tell(self, count: int) -> None:
        self.count = count
        self._ids.counted(self, count)

    def forget(self) -> None:
        self.tell(0)


def test_the_one_that_was_used_least_recently_forgets_when_there_are_too_many() -> None:
    ids = IdBudget(total_max=1000)
    idle, used, new = Known(ids), Known(ids), Known(ids)
    idle.tell(400)
    used.tell(400)
    idle.tell(500)
    new.tell(300)
    assert (idle.count, used.count, new.count) == (500, 0, 300)
    assert ids.total == 800


def test_the_more_know_any_the_fewer_each_may() -> None:
    ids = IdBudget(total_max=4 * BACKLOG_IDS_MAX)
    assert ids.capacity == BACKLOG_IDS_MAX
    known = [Known(ids) for _ in range(8)]
    for each in known:
        each.tell(10)
    assert ids.capacity == BACKLOG_IDS_MAX // 2
    for each in known:
        each.forget()
    assert (ids.capacity, ids.total) == (BACKLOG_IDS_MAX, 0)
    for _ in range(1000):
        Known(ids).tell(1)
    assert ids.capacity == BACKLOG_IDS_MIN


def test_no_more_are_known_than_that_however_many_know_some() -> None:
    ids = IdBudget(total_max=1000)
    known = [Known(ids) for _ in range(50)]
    for turn in range(200):
        known[turn * 7 % 50].tell(turn * 13 % 90)
        assert ids.total == sum(each.count for each in known) <= 1000


def test_a_look_ends_though_it_takes_longer_than_a_message_is_aside() -> None:
    ready = ReadyList(Share())
    listed(ready, message_id(1))
    candidate = ready.take()
    assert candidate is not None
    ready.put_aside(candidate, 0.0)
    ready.scan_began()
    ready.scan_ended(listing(message_id(1)), BUSY_ASIDE_S / 2, 9 * BUSY_ASIDE_S)
    assert taken(ready) == []
    ready.scan_began()
    ready.scan_ended(listing(message_id(1)), 9 * BUSY_ASIDE_S, 9 * BUSY_ASIDE_S)
    assert taken(ready) == [message_id(1)]


def test_what_was_put_aside_has_its_turn_again_once_it_is_offered() -> None:
    ready = ReadyList(Share())
    listed(ready, message_id(1))
    candidate = ready.take()
    assert candidate is not None
    ready.put_aside(candidate, 0.0)
    listed(ready, message_id(1))
    assert taken(ready) == []
    ready.offer(message_id(1))
    listed(ready, message_id(1))
    assert taken(ready) == [message_id(1)]


def of_group(count: int, priority: int = 0, group: str = "a") -> MessageId:
    return replace(message_id(count, priority), group=group * 16)


OLD, YOUNG = 1 << 47, 0
"""Times of scans that began after, or before, the ids of this file were made."""


class Grouped:
    """A list of one process, and the heads that it knows."""

    def __init__(self, share: Share | None = None) -> None:
        self.now_s = 0.0
        self.groups = Groups(lambda: self.now_s)
        self.ready = ReadyList(share or Share(), groups=self.groups)

    def scans(self, *ids: MessageId, began_ms: int = OLD) -> None:
        """Lists these; the others of groups whose heads are out are passed over."""
        heads = self.groups.held()
        self.ready.scan_began((), began_ms)
        waits = [each for each in ids if heads.get(each.group, each.text) != each.text]
        found = listing(*(each for each in ids if each not in waits))
        found = replace(found, passed=frozenset(each.group for each in waits))
        self.ready.scan_ended(found, self.now_s, self.now_s)

    def takes(self) -> MessageId | None:
        """As a claim does."""
        candidate = self.ready.take()
        if candidate is None:
            return None
        if candidate.id.group:
            self.groups.hold(candidate.id.group, candidate.name)
        return candidate.id

    def ends(self, message: MessageId) -> None:
        """The message is done with."""
        assert self.groups.let_go(message.group, message.text)
        self.ready.released(message.group, self.now_s)


@pytest.mark.parametrize("peers", [0, 3])
def test_the_messages_of_a_group_are_taken_one_by_one(peers: int) -> None:
    shop = Grouped(Share(peers, 0, random.Random(peers)))
    ids = [of_group(count) for count in range(5)]
    shop.scans(*ids, message_id(9), of_group(7, group="b"))
    others = {message_id(9), of_group(7, group="b")}
    for each in ids:
        taken_now = [taken_one for _ in range(4) if (taken_one := shop.takes()) is not None]
        assert each in taken_now
        assert set(taken_now) - {each} <= others
        others -= set(taken_now)
        assert shop.ready.mark is None  # An unchanged folder says nothing.
        shop.ends(each)
    assert not others


def test_a_group_that_is_deep_goes_on_from_what_is_parked() -> None:
    shop = Grouped()
    shop.scans(*map(of_group, range(PARKED_MAX + 5)))
    for count in range(PARKED_MAX + 1):
        assert shop.takes() == of_group(count)
        assert shop.takes() is None
        assert shop.ready.waiting_groups() == {"a" * 16}
        shop.ends(of_group(count))
    assert shop.takes() is None
    assert shop.ready.is_due_for_scan(shop.now_s)
    assert shop.ready.waiting_groups() == frozenset()


def test_a_head_that_is_done_with_during_a_scan_lets_the_next_go_behind_it() -> None:
    shop = Grouped()
    shop.scans(of_group(1), of_group(2))
    assert shop.takes() == of_group(1)
    assert shop.takes() is None
    shop.ready.scan_began()
    shop.ends(of_group(1))
    passed = replace(listing(), passed=frozenset({"a" * 16}))
    shop.ready.scan_ended(passed, shop.now_s, shop.now_s)
    assert shop.takes() == of_group(2)


def test_a_group_of_which_a_claim_failed_during_a_scan_waits_for_the_next() -> None:
    shop = Grouped()
    shop.ready.scan_began(taken=(of_group(1).text,))
    shop.ready.claim_failed("a" * 16)
    shop.ready.scan_ended(listing(of_group(1), of_group(2)), shop.now_s, shop.now_s)
    assert shop.takes() is None
    assert shop.ready.is_due_for_scan(shop.now_s)
    shop.scans(of_group(1), of_group(2))
    assert shop.takes() == of_group(1)


@pytest.mark.parametrize("own", range(2))
@pytest.mark.parametrize("seed", range(20))
def test_with_peers_a_first_message_that_is_offered_again_stays_the_first(
    own: int, seed: int
) -> None:
    """As where the limits of deliveries allow none."""
    shop = Grouped(Share(1, own, random.Random(seed)))
    shop.scans(of_group(1), of_group(2), message_id(9))
    while (found := shop.ready.take()) is not None and found.id != of_group(1):
        continue
    shop.ready.offer(of_group(1))
    for _ in range(4):
        assert shop.takes() in (None, message_id(9))
    shop.scans(of_group(1), of_group(2))
    assert shop.takes() == of_group(1)


def test_a_group_is_scanned_though_all_arrivals_are_reported() -> None:
    """No report says that another process has settled its head."""
    shop = Grouped()
    shop.scans(of_group(1), of_group(2), *map(message_id, range(3, 9)))
    assert shop.takes() == of_group(1)
    assert shop.takes() == message_id(3)
    shop.now_s += 2 * LOOK_INTERVAL_S
    shop.ready.is_as_scanned(shop.now_s)
    assert shop.ready.is_due_for_scan(shop.now_s)


def test_what_is_left_to_others_is_not_passed_by_the_next_of_its_group() -> None:
    shop = Grouped()
    shop.scans(of_group(1), of_group(2), message_id(3))
    left = of_group(1).text
    candidate = shop.ready.take_first(lambda name: name != left)
    assert candidate is not None
    assert candidate.id == message_id(3)
    assert shop.ready.take_first(lambda name: name != left) is None
    assert shop.takes() == of_group(1)


def test_what_a_scan_may_have_found_without_those_before_it_waits_for_the_next() -> None:
    shop = Grouped()
    shop.scans(of_group(2), began_ms=YOUNG)
    assert shop.takes() is None
    assert shop.ready.is_due_for_scan(0.0)
    shop.scans(of_group(1), of_group(2), began_ms=YOUNG)
    assert shop.takes() is None  # The first is as new as the second was.
    shop.scans(of_group(1), of_group(2), began_ms=YOUNG)
    assert shop.takes() == of_group(1)


def test_a_list_that_is_not_used_forgets_before_it_lacks_too_many_groups() -> None:
    shop = Grouped()
    shop.scans(of_group(1), of_group(2))
    for number in range(HIDDEN_MAX + 1):
        shop.ready.claim_failed(f"{number:016x}")
    assert not len(shop.ready)
    assert shop.ready.is_due_for_scan(shop.now_s)


def test_what_was_published_here_waits_for_a_scan() -> None:
    shop = Grouped()
    shop.scans()
    shop.ready.offer(of_group(2))
    shop.ready.offer(message_id(3))
    assert shop.takes() == message_id(3)
    assert shop.ready.is_due_for_scan(0.0)
    shop.scans(of_group(1), of_group(2))
    assert shop.takes() == of_group(1)


@pytest.mark.parametrize("how", ["offered", "late", "unknown"])
def test_a_group_that_goes_on_is_scanned_where_what_is_known_may_not_be_the_first(how: str) -> None:
    shop = Grouped()
    shop.scans(of_group(1), of_group(3), message_id(5))
    assert shop.takes() == of_group(1)
    assert shop.takes() == message_id(5)
    if how == "offered":
        shop.ready.offer(of_group(2))
    elif how == "late":
        shop.now_s += LOOK_INTERVAL_S + 0.01
    else:
        shop.ready.hide("a" * 16)
    shop.ends(of_group(1))
    assert shop.takes() is None
    assert shop.ready.is_due_for_scan(shop.now_s)
    shop.scans(of_group(2), of_group(3))
    assert shop.takes() == of_group(2)


def test_a_head_that_is_ready_again_is_taken_before_those_that_are_parked() -> None:
    shop = Grouped()
    shop.scans(of_group(1), of_group(2))
    assert shop.takes() == of_group(1)
    assert shop.takes() is None
    shop.ready.offer(of_group(1))
    assert shop.takes() == of_group(1)
    shop.ends(of_group(1))
    assert shop.takes() == of_group(2)


def test_what_waits_for_a_scan_waits_for_it_after_a_head_too() -> None:
    """Another process has published message 2 before this one published message 3."""
    shop = Grouped()
    shop.scans(of_group(1))
    shop.ready.offer(of_group(3))
    assert shop.takes() == of_group(1)
    assert shop.takes() is None
    shop.scans(of_group(2), of_group(3))  # Passes the group over.
    shop.ends(of_group(1))
    assert shop.takes() is None
    assert shop.ready.is_due_for_scan(shop.now_s)
    shop.scans(of_group(2), of_group(3))
    assert shop.takes() == of_group(2)


def test_by_priority_too_a_group_is_taken_one_by_one() -> None:
    shop = Grouped()
    shop.scans(of_group(1), of_group(2), message_id(3), of_group(4, group="b"))
    shop.groups.hold("a" * 16, of_group(0).text)
    assert shop.ready.take_first(lambda name: True) is not None
    shop.groups.hold("b" * 16, "")
    assert shop.ready.take_first(lambda name: True) is None


class World(Grouped):
    """Messages that come, by this process or another one, and go, by chance."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__(Share(chance.choice([0, 2]), 0, chance))
        self.chance = chance
        self.there: dict[str, MessageId] = {}
        self.out: list[MessageId] = []
        self.known: set[str] = set()
        self.taken: set[str] = set()
        self.made = 0

    def publish(self, count: int) -> None:
        for _ in range(count):
            self.made += 1
            priority, group = self.chance.choice([0, 0, 0, 5]), self.chance.choice("aaaaaabbb-")
            each = of_group(self.made, priority, group)
            each = message_id(self.made, priority) if group == "-" else each
            self.there[each.text] = each
            if self.chance.random() < 0.5:  # Else another process publishes it.
                self.ready.offer(each)
                self.known.add(each.text)

    def end(self) -> None:
        each = self.out.pop(self.chance.randrange(len(self.out)))
        if each.group and self.chance.random() < 0.3:
            self.there[each.text] = each  # Released.
            self.ready.offer(each)
        elif each.group:
            self.ends(each)

    def claim(self) -> None:
        if self.ready.is_due_for_scan(self.now_s):
            self.scans(*self.there.values(), began_ms=self.chance.choice([OLD, YOUNG]))
            heads = self.groups.held()
            self.known |= {text for text, each in self.there.items() if each.group not in heads}
        while len(self.out) < 4 and (each := self.takes()) is not None:
            assert each.text in self.taken or not self.before(each)
            self.taken.add(each.text)
            del self.there[each.text]
            self.out.append(each)

    def before(self, each: MessageId) -> list[str]:
        """What of its group is ready before it, and was known, or published before."""
        key = STRICT.key(each.text)
        return [
            text
            for text, other in self.there.items()
            if each.group and other.group == each.group and STRICT.key(text) < key
            and (text in self.known or other.priority == each.priority)
        ]  # fmt: skip


@pytest.mark.certificate
@pytest.mark.parametrize("seed", range(2 * TIMES))
def test_whatever_comes_and_goes_the_first_of_a_group_is_taken(seed: int) -> None:
    world = World(random.Random(seed))
    world.publish(200)
    for _ in range(4_000):
        world.now_s += world.chance.choice([0.0, 0.0, 0.01, 1.0])
        turn = world.chance.random()
        if turn < 0.02 and world.made < 350:
            world.publish(world.chance.randrange(1, 40))
        elif turn < 0.5 and world.out:
            world.end()
        else:
            world.claim()
        if not (world.there or world.out):
            break
    assert not world.there
