"""When a member has what it was dealt: never while another may believe that it has it."""

from dataclasses import dataclass, field

from harness.chance import examples
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from mq.coordination.assigning import NO_DEAL, Deal, assign
from mq.coordination.settling import Settling
from mq.model.names import QueueName

BELIEVE_S = 30.0
ORDERS = QueueName.parse("orders")
QUEUES = [QueueName.parse(name) for name in ("a", "b", "c", "d_SIDELINE", "orders")]
NAMES = ["m1", "m2", "m3", "m4"]


def settling(deal: Deal, *members: str, now_s: float = 0.0) -> Settling:
    made = Settling("me", BELIEVE_S)
    made.learn(deal, members, now_s)
    return made


def test_of_what_nobody_has_said_nothing_is_ours() -> None:
    made = Settling("me", BELIEVE_S)
    assert not made.has(ORDERS, 1e9)
    assert (made.deal, made.members) == (NO_DEAL, ())


def test_one_who_is_alone_waits_for_nobody() -> None:
    assert settling(Deal("me"), "me").has(ORDERS, 0.0)


def test_one_who_has_just_come_waits_for_who_had_it_before() -> None:
    made = settling(Deal("you", {"orders": "me"}), "me", "you")
    assert not made.has(ORDERS, 29.9)
    assert made.has(ORDERS, 30.0)
    assert made.has(ORDERS.sideline(), 30.0)


def test_what_goes_is_gone_at_once_and_what_comes_again_waits() -> None:
    mine, yours = Deal("you", {"orders": "me"}), Deal("you", {})
    made = settling(mine, "me", "you")
    made.learn(yours, ("me", "you"), 40.0)
    assert not made.has(ORDERS, 40.0)
    made.learn(mine, ("me", "you"), 41.0)
    assert not made.has(ORDERS, 70.9)
    assert made.has(ORDERS, 71.0)


def test_what_stays_ours_does_not_wait() -> None:
    made = settling(Deal("you", {"orders": "me"}), "me", "you")
    made.learn(Deal("you", {"orders": "me", "other": "me"}), ("me", "you"), 40.0)
    assert made.has(ORDERS, 40.0)
    assert not made.has(QueueName.parse("other"), 40.0)


def test_what_comes_from_one_that_is_gone_comes_at_once() -> None:
    made = settling(Deal("you", {}), "me", "you", "she")
    made.learn(Deal("me", {}), ("me", "she"), 40.0)
    assert made.has(ORDERS, 40.0)


def test_of_a_deal_that_is_not_of_all_who_had_it_is_not_known() -> None:
    made = settling(Deal("you", {"mine": "me"}, of_all=False), "me", "you")
    made.learn(Deal("you", {"mine": "me", "orders": "me"}, of_all=False), ("me", "you"), 40.0)
    assert made.has(QueueName.parse("mine"), 40.0)
    assert not made.has(ORDERS, 69.9)
    assert made.has(ORDERS, 70.0)


def test_one_that_forgets_begins_anew() -> None:
    made = settling(Deal("me"), "me", "you")
    assert made.has(ORDERS, 30.0)
    made.forget()
    assert not made.has(ORDERS, 30.0)
    made.learn(Deal("me"), ("me", "you"), 31.0)
    assert not made.has(ORDERS, 60.9)


@dataclass
class Member:
    """One that looks when the machine lets it; what it was told is good for BELIEVE_S."""

    name: str
    settling: Settling
    looked_s: float = float("-inf")
    here: set[str] = field(default_factory=set)

    def has(self, queue: QueueName, now_s: float) -> bool:
        return now_s - self.looked_s < BELIEVE_S and self.settling.has(queue, now_s)


class SettlingMachine(RuleBasedStateMachine):
    """Members that look at any time, or not for long; one is gone for the others once it has not
    looked for longer than what it was told is good for, and a deal is made for those that are
    there. A member sees each deal, or was away for so long that it begins anew.
    """

    @initialize()
    def begin(self) -> None:
        self.now_s = 0.0
        self.members = [Member(name, Settling(name, BELIEVE_S)) for name in NAMES]
        self.deal = NO_DEAL
        self.unseen: dict[str, int] = dict.fromkeys(NAMES, 0)

    @rule(seconds=st.sampled_from([0.5, 5.0, 14.0, 29.5]))
    def time_passes(self, seconds: float) -> None:
        self.now_s += seconds

    @rule(at=st.sampled_from(range(len(NAMES))), deals=st.booleans())
    def looks(self, at: int, deals: bool) -> None:
        member = self.members[at]
        if self.now_s - member.looked_s >= BELIEVE_S:
            member.settling.forget()
        here = {each.name for each in self.members if self._is_there(each)} | {member.name}
        leads = self.deal.leader == member.name or self.deal.leader not in here
        if leads and (deals or self.deal.leader not in here):
            self._deal(member, here)
        member.settling.learn(self.deal, here, self.now_s)
        member.looked_s = self.now_s
        self.unseen[member.name] = 0

    def _deal(self, leader: Member, here: set[str]) -> None:
        # Each that is there, and believes what it was told, has looked since the last deal.
        if any(self.unseen[each.name] for each in self.members if self._is_there(each)):
            return
        whose = {q: m for q, m in assign(QUEUES, here).items() if m != leader.name}
        dealt = Deal(leader.name, whose)
        if dealt != self.deal:
            self.deal = dealt
            self.unseen = dict.fromkeys(NAMES, 1)

    def _is_there(self, member: Member) -> bool:
        return self.now_s - member.looked_s < 1.5 * BELIEVE_S

    @invariant()
    def no_queue_is_of_two(self) -> None:
        for queue in QUEUES:
            owners = [each.name for each in self.members if each.has(queue, self.now_s)]
            assert len(owners) <= 1, (queue, owners)


TestSettlingMachine = SettlingMachine.TestCase
TestSettlingMachine.settings = settings(max_examples=examples(200), stateful_step_count=40)
