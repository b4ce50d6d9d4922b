"""Which idle connections go for new ones: pure."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from mq.http.acceptor import IDLE_LOOK_EVERY_S, IDLE_S_MIN, Bounds, ConnectionLimit, found_idle

HEAD_S = 5.0


@dataclass(eq=False)
class Held:
    """A connection, as far as this is about it."""

    idle_since_s: float | None
    has_spoken: bool = True
    is_closed: bool = False

    def close(self) -> None:
        assert not self.is_closed
        self.is_closed, self.idle_since_s = True, None


class Rooms:
    def __init__(self, *held: Held, most: int = 2) -> None:
        self.now_s = 100.0
        self.held = list(held)
        self.looks = 0
        self.room = ConnectionLimit(Bounds(most, HEAD_S), self._look, lambda: self.now_s)

    def _look(self) -> list[Held]:
        self.looks += 1
        return self.held


def test_while_there_is_room_nobody_goes() -> None:
    rooms = Rooms(Held(0.0))
    assert rooms.room.admits(1)
    assert rooms.looks == 0


def test_the_one_that_is_idle_for_longest_goes_first() -> None:
    young, old, busy = Held(50.0), Held(40.0), Held(None)
    rooms = Rooms(young, busy, old)
    assert rooms.room.admits(2)
    assert (young.is_closed, old.is_closed, busy.is_closed) == (False, True, False)
    assert rooms.room.admits(2)
    assert young.is_closed
    assert not rooms.room.admits(2)


def test_one_that_was_used_since_it_was_looked_at_stays() -> None:
    first, second = Held(40.0), Held(50.0)
    rooms = Rooms(first, second)
    assert rooms.room.admits(2)
    second.idle_since_s = 99.5
    assert not rooms.room.admits(2)
    assert not second.is_closed


def test_looks_are_not_more_often_than_they_may_be() -> None:
    rooms = Rooms(Held(None))
    for _ in range(10):
        assert not rooms.room.admits(2)
    assert rooms.looks == 1
    rooms.now_s += 2 * IDLE_LOOK_EVERY_S
    assert not rooms.room.admits(2)
    assert rooms.looks == 2


@given(st.lists(st.tuples(st.none() | st.floats(0, 100), st.booleans())))
def test_nobody_is_closed_who_may_be_about_to_ask(rows: list[tuple[float | None, bool]]) -> None:
    held = [Held(since_s, has_spoken) for since_s, has_spoken in rows]
    found = found_idle(held, 100.0, HEAD_S)
    assert [since_s for since_s, _ in found] == sorted(since_s for since_s, _ in found)
    chosen = {each for _, each in found}
    for each in held:
        patience_s = IDLE_S_MIN if each.has_spoken else HEAD_S
        is_idle = each.idle_since_s is not None and 100.0 - each.idle_since_s >= patience_s
        assert (each in chosen) == is_idle
