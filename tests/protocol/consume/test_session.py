"""A connection's state, held against a plain model over whatever its client and its queues do."""

import pytest
from harness.api import id_at
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from mq.model.errors import (
    AlreadySubscribed,
    MessageNotFound,
    NotSubscribed,
    TooManySubscriptions,
    TooMuchCredit,
)
from mq.model.message import Delivery, Stamp
from mq.model.names import MessageId, QueueName
from mq.protocol.consume.frames import CREDIT_MAX, SUBSCRIPTIONS_MAX, Fetched
from mq.protocol.consume.session import (
    CLAIMED_AHEAD_BYTES,
    CLAIMED_AHEAD_MAX,
    TURN_MESSAGES_MIN,
    Session,
)

QUEUES = ("a", "b", "c")
LATE_MS = 1 << 50


def delivery(
    n: int, queue: str = "a", due_ms: int = LATE_MS, size: int = 1, receives: int = 1
) -> Delivery:
    name, message_id = QueueName.parse(queue), MessageId.parse(id_at(n=n))
    return Delivery(name, message_id, Stamp(due_ms, receives), size, 0, b"x" * size, None)


def subscribed(credit: int = 5, *queues: str) -> Session:
    session = Session()
    for queue in queues or ("a",):
        session.subscribe(queue, credit, 0)
    return session


def sent(session: Session, each: Delivery) -> str:
    """Has the client hold it; its id."""
    assert session.arrived(each)
    following, lapsed = session.next_unsent(0)
    assert (following, lapsed) == (each, [])
    session.sent(each)
    return each.id.text


def test_a_queue_is_subscribed_to_once() -> None:
    session = subscribed()
    with pytest.raises(AlreadySubscribed):
        session.subscribe("a", 1, 0)
    session.unsubscribe("a")
    session.subscribe("a", 1, 0)
    assert session.credit("a") == 1


def test_what_is_not_subscribed_to_is_told() -> None:
    session = Session()
    with pytest.raises(NotSubscribed):
        session.unsubscribe("a")
    with pytest.raises(NotSubscribed):
        session.grant("a", 1, 0)


def test_subscriptions_are_bounded() -> None:
    session = subscribed(0, *(f"q{n}" for n in range(SUBSCRIPTIONS_MAX)))
    with pytest.raises(TooManySubscriptions):
        session.subscribe("a", 0, 0)


def test_credit_adds_up_and_is_bounded_with_what_is_held() -> None:
    session = subscribed(CREDIT_MAX - 2)
    session.grant("a", 2, 0)
    assert session.credit("a") == CREDIT_MAX
    first = sent(session, delivery(0))
    with pytest.raises(TooMuchCredit):
        session.grant("a", 1, 0)
    taken = session.settle([first])[first]
    assert isinstance(taken, Delivery)
    with pytest.raises(TooMuchCredit):  # It may yet fail, and be held again.
        session.grant("a", 1, 0)
    session.settled(taken, is_kept=False)
    session.grant("a", 1, 0)
    with pytest.raises(TooMuchCredit):
        session.subscribe("b", 1, 0)


def test_what_is_past_its_time_makes_room() -> None:
    session = subscribed(CREDIT_MAX)
    lapsing, lasting = delivery(0, due_ms=100), delivery(1)
    for each in (lapsing, lasting):
        sent(session, each)
    with pytest.raises(TooMuchCredit):
        session.grant("a", 1, now_ms=99)
    session.grant("a", 1, now_ms=100)
    with pytest.raises(TooMuchCredit):
        session.grant("a", 1, now_ms=100)
    ends = session.settle([lapsing.id.text, lasting.id.text])
    assert isinstance(ends[lapsing.id.text], MessageNotFound)
    assert isinstance(ends[lasting.id.text], Delivery)


def test_what_lapsed_is_held_while_there_is_room() -> None:
    session = subscribed(3)
    lapsed = sent(session, delivery(0, due_ms=100))
    session.grant("a", 1, now_ms=200)
    assert isinstance(session.settle([lapsed])[lapsed], Delivery)


def test_queues_that_have_something_take_turns() -> None:
    session = subscribed(50, "a", "b", "c")
    assert session.next_claim() is None
    for queue in ("b", "a", "b"):
        session.has_something(queue)
    session.has_something("not subscribed")
    share = CLAIMED_AHEAD_MAX // 2
    assert [session.next_claim() for _ in range(4)] == [
        (queue, share) for queue in ("b", "a", "b", "a")
    ]
    session.has_nothing("b")
    session.has_something("c")
    turns = [session.next_claim() for _ in range(3)]
    assert [turn and turn[0] for turn in turns] == ["a", "c", "a"]


def test_what_is_claimed_ahead_is_bounded_in_number() -> None:
    session = subscribed(CREDIT_MAX)
    session.has_something("a")
    session.claims(CLAIMED_AHEAD_MAX - 2)
    assert session.next_claim() == ("a", 2)
    session.claims(1)
    session.claim_ended()
    assert session.arrived(delivery(0))
    session.claims(1)
    assert session.next_claim() is None
    session.next_unsent(0)
    assert session.next_claim() == ("a", 1)


def test_what_is_claimed_ahead_is_bounded_in_bytes_that_were_seen() -> None:
    session = subscribed(CREDIT_MAX)
    session.has_something("a")
    large = delivery(0, size=CLAIMED_AHEAD_BYTES // 3)
    sent(session, large)
    assert session.next_claim() == ("a", 3)
    sent(session, delivery(1, size=CLAIMED_AHEAD_BYTES * 2))
    assert session.next_claim() == ("a", 1)
    for n in range(500):
        sent(session, delivery(n + 2))
    assert session.next_claim() == ("a", CLAIMED_AHEAD_MAX)


def test_a_turn_is_never_too_small_to_be_worth_it() -> None:
    names = [f"q{n}" for n in range(CLAIMED_AHEAD_MAX)]
    session = subscribed(1, *names)
    for name in names:
        session.has_something(name)
    assert session.next_claim() == ("q0", TURN_MESSAGES_MIN)


def test_what_lapses_before_it_is_sent_is_left_out_and_its_credit_there_again() -> None:
    session = subscribed(3)
    early, late = delivery(0, due_ms=100), delivery(1)
    for each in (early, late):
        assert session.arrived(each)
    assert session.credit("a") == 1
    assert session.next_unsent(100) == (late, [early])
    assert session.credit("a") == 2
    assert session.next_unsent(100) == (None, [])


def test_what_nobody_reads_is_taken_back() -> None:
    session = subscribed(3, "a", "b")
    first, second, third = delivery(0), delivery(1, "b"), delivery(2)
    for each in (first, second, third):
        assert session.arrived(each)
    session.unsubscribe("b")
    assert session.take_back_unsent() == [first, second, third]
    assert (session.credit("a"), session.credit("b"), session.unsent) == (3, 0, 0)


def test_what_comes_after_the_unsubscribe_is_not_wanted() -> None:
    session = subscribed(1)
    session.unsubscribe("a")
    assert not session.arrived(delivery(0))
    assert session.end() == ([], [])


def test_a_message_is_settled_once_and_by_who_holds_it() -> None:
    session = subscribed()
    held = delivery(0, size=7)
    text = sent(session, held)
    ends = session.settle([text, text, "unknown"])
    assert isinstance(ends["unknown"], MessageNotFound)
    found = ends[text]
    assert isinstance(found, Delivery)
    assert (found.id, found.stamp, found.body) == (held.id, held.stamp, b"")
    assert isinstance(session.settle([text])[text], MessageNotFound)
    session.settled(found, is_kept=True)
    assert isinstance(session.settle([text])[text], Delivery)


def test_what_came_again_meanwhile_stays_what_is_held() -> None:
    session = subscribed()
    text = sent(session, delivery(0))
    first = session.settle([text])[text]
    assert isinstance(first, Delivery)
    sent(session, delivery(0, receives=2))
    session.settled(first, is_kept=True)
    second = session.settle([text])[text]
    assert isinstance(second, Delivery)
    assert second.stamp.receives == 2


def test_what_was_not_sent_yet_is_not_the_client_s_to_settle() -> None:
    session = subscribed()
    assert session.arrived(delivery(0))
    text = delivery(0).id.text
    assert isinstance(session.settle([text])[text], MessageNotFound)


def test_the_end_gives_all_back() -> None:
    session = subscribed(5, "a", "b")
    sent(session, delivery(0))
    settling = sent(session, delivery(1))
    assert session.arrived(delivery(2, "b"))
    assert isinstance(session.settle([settling])[settling], Delivery)
    begun, unhandled = session.end()
    assert [each.id for each in begun] == [delivery(0).id]
    assert [each.id for each in unhandled] == [delivery(2).id]
    assert session.end() == ([], [])
    assert session.next_claim() is None
    assert not session.arrived(delivery(3))


def test_the_end_tells_what_the_program_never_had() -> None:
    session = subscribed(5)
    before = sent(session, delivery(0))
    session.begin([])
    begun, waiting, settled = (sent(session, delivery(n)) for n in (1, 2, 3))
    session.begin([begun, "unknown"])
    session.settle([settled])
    had, unhandled = session.end()
    assert [each.id.text for each in had] == [before, begun]
    assert [each.id.text for each in unhandled] == [waiting]


def test_what_was_prefetched_is_remembered_up_to_a_limit() -> None:
    session = Session()
    fetched = [
        Fetched(QueueName("q"), MessageId.parse(id_at(1_700_000_000_000 + n)), 1)
        for n in range(CREDIT_MAX + 2)
    ]
    session.prefetched(fetched)
    session.begin([fetched[5].id.text])
    assert session.take_prefetched() == [each for each in fetched[2:] if each is not fetched[5]]
    assert session.take_prefetched() == []


class SessionMachine(RuleBasedStateMachine):
    """Whatever comes in whatever order: nothing is lost, had twice, or beyond what was granted."""

    def __init__(self) -> None:
        super().__init__()
        self.begin()

    def begin(self) -> None:
        self.session = Session()
        self.now_ms = 0
        self.count = 0
        self.claiming: list[str] = []
        self.open: dict[str, int] = {}
        self.unsent: list[Delivery] = []
        self.held: dict[str, Delivery] = {}
        self.settling: list[Delivery] = []
        self.with_work: set[str] = set()

    @rule(queue=st.sampled_from(QUEUES), credit=st.integers(0, 40))
    def subscribe(self, queue: str, credit: int) -> None:
        if queue in self.open:
            with pytest.raises(AlreadySubscribed):
                self.session.subscribe(queue, credit, self.now_ms)
        else:
            self.session.subscribe(queue, credit, self.now_ms)
            self.open[queue] = credit

    @rule(queue=st.sampled_from(QUEUES))
    def unsubscribe(self, queue: str) -> None:
        if queue in self.open:
            self.session.unsubscribe(queue)
            del self.open[queue]
            self.with_work.discard(queue)
        else:
            with pytest.raises(NotSubscribed):
                self.session.unsubscribe(queue)

    @rule(queue=st.sampled_from(QUEUES), credit=st.integers(1, 40))
    def grant(self, queue: str, credit: int) -> None:
        if queue in self.open:
            self.session.grant(queue, credit, self.now_ms)
            self.open[queue] += credit
        else:
            with pytest.raises(NotSubscribed):
                self.session.grant(queue, credit, self.now_ms)

    @rule(queue=st.sampled_from(QUEUES))
    def something_is_there(self, queue: str) -> None:
        self.session.has_something(queue)
        if queue in self.open:
            self.with_work.add(queue)

    @rule(queue=st.sampled_from(QUEUES))
    def nothing_is_there(self, queue: str) -> None:
        self.session.has_nothing(queue)
        self.with_work.discard(queue)

    @rule()
    def claim(self) -> None:
        room = CLAIMED_AHEAD_MAX - len(self.claiming) - len(self.unsent)
        found = self.session.next_claim()
        if found is None:
            assert room <= 0 or not self.with_work
            return
        queue, most = found
        assert queue in self.with_work
        assert most == min(room, CLAIMED_AHEAD_MAX // len(self.with_work))
        count = min(most, self.session.credit(queue))
        self.session.claims(count)
        self.claiming += [queue] * count

    @precondition(lambda self: self.claiming)
    @rule(data=st.data(), lives_ms=st.integers(1, 50))
    def claim_ends(self, data: st.DataObject, lives_ms: int) -> None:
        queue = self.claiming.pop(data.draw(st.integers(0, len(self.claiming) - 1)))
        self.session.claim_ended()
        if data.draw(st.booleans()):
            self.count += 1
            found = delivery(self.count % 4096, queue, self.now_ms + lives_ms)
            is_wanted = self.session.arrived(found)
            assert is_wanted == (self.open.get(queue, 0) > 0)
            if is_wanted:
                self.open[queue] -= 1
                self.unsent.append(found)

    @rule(ms=st.integers(1, 60))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms

    @rule(count=st.integers(1, 5))
    def send(self, count: int) -> None:
        for _ in range(count):
            following, lapsed = self.session.next_unsent(self.now_ms)
            for each in lapsed:
                assert each == self.unsent.pop(0)
                assert each.stamp.due_ms <= self.now_ms
                self.gives_back(each)
            if following is None:
                assert not self.unsent
                return
            assert following == self.unsent.pop(0)
            assert following.stamp.due_ms > self.now_ms
            self.session.sent(following)
            self.held[following.id.text] = following

    @rule()
    def nobody_reads(self) -> None:
        assert self.session.take_back_unsent() == self.unsent
        for each in self.unsent:
            self.gives_back(each)
        self.unsent = []

    def gives_back(self, each: Delivery) -> None:
        if each.queue.text in self.open:
            self.open[each.queue.text] += 1

    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        known = st.sampled_from(sorted(self.held)) if self.held else st.just("none")
        ids = data.draw(st.lists(known | st.just("unknown"), min_size=1, max_size=5))
        ends = self.session.settle(ids)
        assert ends.keys() == set(ids)
        for text, end in ends.items():
            if text in self.held:
                assert isinstance(end, Delivery)
                assert end.stamp == self.held.pop(text).stamp
                self.settling.append(end)
            else:
                assert isinstance(end, MessageNotFound)

    @precondition(lambda self: self.settling)
    @rule(is_kept=st.booleans())
    def settled(self, is_kept: bool) -> None:
        ended = self.settling.pop(0)
        self.session.settled(ended, is_kept)
        if is_kept:
            self.held.setdefault(ended.id.text, ended)

    @rule()
    def the_connection_ends(self) -> None:
        begun, unhandled = self.session.end()
        assert [each.id for each in begun] == [each.id for each in self.held.values()]
        assert [each.id for each in unhandled] == [each.id for each in self.unsent]
        self.begin()

    @invariant()
    def all_is_accounted_for(self) -> None:
        assert {queue: self.session.credit(queue) for queue in self.open} == self.open
        assert sorted(self.session.queues) == sorted(self.open)
        assert self.session.unsent == len(self.unsent)
        ahead = sum(self.open.values()) + len(self.unsent)
        assert self.session.promised == ahead + len(self.held) + len(self.settling)


TestSession = SessionMachine.TestCase
