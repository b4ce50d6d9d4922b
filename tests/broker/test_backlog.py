"""The backlog's decisions."""

import random
from dataclasses import replace

import pytest

from mq.broker.backlog import Backlog, Unwatched
from mq.model.limits import LOOK_INTERVAL_S, LOOK_SHARE, TAKES_PER_STRANGER
from mq.model.names import MessageId
from mq.store.format.bucket_names import shard_of
from mq.store.scan.order import STRICT, Candidate, FolderMark, Listing

MARK = FolderMark((("queues/q", 1),), trusted=True)
CHANCE = random.Random(1)


def message_id(count: int, priority: int = 0) -> MessageId:
    return MessageId(f"0192f3a2-7c4e-7{count:03x}-9b1e-0123456789ab", priority=priority)


def listing(*ids: MessageId, complete: bool = True) -> Listing:
    found = sorted(Candidate(STRICT.key(each.text), "") for each in ids)
    return Listing(found, complete, MARK)


def listed(backlog: Backlog, *ids: MessageId, complete: bool = True) -> None:
    backlog.look_began()
    backlog.look_ended(listing(*ids, complete=complete), began_s=0.0, now_s=0.0)


def taken(backlog: Backlog) -> list[MessageId]:
    found = []
    while (candidate := backlog.take(CHANCE)) is not None:
        found.append(candidate.id)
    return found


def test_order_is_priority_then_publish_time() -> None:
    backlog = Backlog()
    listed(backlog, message_id(3), message_id(1))
    backlog.offer(message_id(2))
    backlog.offer(message_id(9, priority=5))
    assert taken(backlog) == [
        message_id(9, priority=5), message_id(1), message_id(2), message_id(3),
    ]  # fmt: skip


def test_what_was_offered_twice_is_there_once() -> None:
    backlog = Backlog()
    listed(backlog, message_id(1))
    backlog.offer(message_id(1))
    assert taken(backlog) == [message_id(1)]


def test_before_a_look_nothing_is_known_so_an_offer_waits_for_it() -> None:
    backlog = Backlog()
    backlog.offer(message_id(2))
    assert len(backlog) == 0
    assert backlog.is_due_for_look(0.0)


def test_beyond_an_incomplete_end_an_offer_is_left_to_a_later_listing() -> None:
    backlog = Backlog()
    listed(backlog, message_id(1), message_id(5), complete=False)
    backlog.offer(message_id(9))
    backlog.offer(message_id(3))
    assert taken(backlog) == [message_id(1), message_id(3), message_id(5)]


def test_a_full_backlog_drops_its_end_and_is_incomplete() -> None:
    backlog = Backlog(watcher=Unwatched(2))
    listed(backlog, message_id(2), message_id(3))
    backlog.offer(message_id(1))
    backlog.offer(message_id(9))
    assert taken(backlog) == [message_id(1), message_id(2)]
    assert backlog.mark is None


def test_what_is_offered_during_a_look_is_not_lost_to_it() -> None:
    backlog = Backlog()
    backlog.look_began()
    backlog.offer(message_id(2))
    backlog.look_ended(listing(message_id(1)), 0.0, 0.0)
    assert taken(backlog) == [message_id(1), message_id(2)]


def test_a_failed_look_keeps_what_was_known() -> None:
    backlog = Backlog()
    listed(backlog, message_id(1))
    backlog.look_began()
    backlog.look_failed()
    assert taken(backlog) == [message_id(1)]


def test_an_unchanged_folder_says_something_only_of_an_empty_complete_backlog() -> None:
    backlog = Backlog()
    assert backlog.mark is None
    listed(backlog, message_id(1))
    assert backlog.mark is None
    backlog.take(CHANCE)
    assert backlog.mark == MARK
    listed(backlog, complete=False)
    assert backlog.mark is None


@pytest.mark.parametrize("cost_s", [0.0, 0.4])
def test_others_are_looked_for_within_a_share_of_the_time(cost_s: float) -> None:
    backlog = Backlog()
    backlog.look_began()
    backlog.look_ended(listing(message_id(1)), began_s=0.0, now_s=cost_s)
    interval_s = max(LOOK_INTERVAL_S, cost_s / LOOK_SHARE)
    assert not backlog.is_due_for_look(cost_s + interval_s * 0.99)
    assert backlog.is_due_for_look(cost_s + interval_s)


def spread_id(count: int) -> MessageId:
    """Ids whose shares differ, as those of a UuidSource do."""
    return MessageId(f"0192f3a2-7c4e-7{count:03x}-9b1e-01234567{7 * count:04x}")


def shares_of(count: int, shares: int) -> list[list[MessageId]]:
    """So many messages by whose share they are."""
    ids = [spread_id(number) for number in range(count)]
    return [[each for each in ids if shard_of(each.text, shares) == own] for own in range(shares)]


@pytest.mark.parametrize("own", [0, 1, 2])
def test_peers_take_their_own_share_in_its_order_and_then_what_is_left(own: int) -> None:
    mine = shares_of(12, 3)[own]
    assert mine
    backlog = Backlog(peers=2, own=own)
    listed(backlog, *(spread_id(number) for number in range(12)))
    taken = [backlog.take(CHANCE) for _ in range(12)]
    ids = [each.id for each in taken if each is not None]
    assert ids[: len(mine)] == mine
    assert sorted(ids, key=str) == [spread_id(number) for number in range(12)]
    assert backlog.take(CHANCE) is None
    assert len(backlog) == 0


def test_what_is_left_to_others_is_taken_now_and_then_though_there_is_enough_of_ones_own() -> None:
    """Whoever owns it may not be there, or have nobody who fetches."""
    backlog = Backlog(peers=1, own=0)
    theirs = shares_of(200, 2)[1]
    listed(backlog, *(spread_id(number) for number in range(200)))
    taken = [backlog.take(CHANCE) for _ in range(4 * TAKES_PER_STRANGER)]
    strangers = [each.id for each in taken if each is not None and each.id in theirs]
    assert len(strangers) == 4
    assert set(strangers) <= set(theirs[:8])


def test_an_urgent_message_is_not_left_to_others_while_lesser_ones_are_taken() -> None:
    for number in range(8):
        urgent = replace(spread_id(number), priority=5)
        backlog = Backlog(peers=3, own=1)
        listed(backlog, urgent, *(spread_id(20 + each) for each in range(20)))
        first = backlog.take(CHANCE)
        assert first is not None
        assert first.id == urgent


@pytest.mark.parametrize("complete", [False, True])
def test_a_share_that_is_used_up_is_looked_for_before_others_shares_where_there_is_more(
    complete: bool,
) -> None:
    mine, theirs = shares_of(20, 2)
    backlog = Backlog(peers=1, own=0)
    listed(backlog, *mine[:3], *theirs, complete=complete)
    for _ in range(3):
        assert not backlog.is_due_for_look(0.0)
        backlog.take(CHANCE)
    while backlog.take(CHANCE) and not backlog.is_due_for_look(0.0):
        pass
    assert (len(backlog) == 0) is complete
    # None of its own turned up: it takes the others' without looking each time.
    listed(backlog, *theirs, complete=False)
    backlog.take(CHANCE)
    assert not backlog.is_due_for_look(0.0)
