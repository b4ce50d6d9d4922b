"""How many ids backlogs know together."""

from mq.broker.ids import Ids
from mq.model.limits import BACKLOG_IDS_MAX, BACKLOG_IDS_MIN


class Known:
    def __init__(self, ids: Ids) -> None:
        self._ids = ids
        self.count = 0

    def tell(self, count: int) -> None:
        self.count = count
        self._ids.told(self, count)

    def forget(self) -> None:
        self.tell(0)


def test_the_one_that_was_used_least_recently_forgets_when_there_are_too_many() -> None:
    ids = Ids(total_max=1000)
    idle, used, new = Known(ids), Known(ids), Known(ids)
    idle.tell(400)
    used.tell(400)
    idle.tell(500)
    new.tell(300)
    assert (idle.count, used.count, new.count) == (500, 0, 300)
    assert ids.total == 800


def test_the_more_know_any_the_fewer_each_may() -> None:
    ids = Ids(total_max=4 * BACKLOG_IDS_MAX)
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
    ids = Ids(total_max=1000)
    known = [Known(ids) for _ in range(50)]
    for turn in range(200):
        known[turn * 7 % 50].tell(turn * 13 % 90)
        assert ids.total == sum(each.count for each in known) <= 1000
