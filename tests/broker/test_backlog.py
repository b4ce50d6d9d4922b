"""The backlog's decisions."""

import random

import pytest

from mq.broker.backlog import Backlog
from mq.limits import LOOK_INTERVAL_S, LOOK_SHARE
from mq.names import MessageId
from mq.store.order import STRICT, Candidate, FolderMark, Listing

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
    while (candidate := backlog.take(0, CHANCE)) is not None:
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
    backlog = Backlog(capacity=2)
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
    backlog.take(0, CHANCE)
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


def test_peers_pick_among_the_first_few() -> None:
    picks = set()
    for seed in range(50):
        backlog = Backlog()
        listed(backlog, *(message_id(count) for count in range(10)))
        picked = backlog.take(3, random.Random(seed))
        assert picked is not None
        picks.add(picked.id)
    assert picks == {message_id(count) for count in range(4)}
