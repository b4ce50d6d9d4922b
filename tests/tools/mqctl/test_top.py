"""What `mqctl top` makes of answers: rates, turns, rows, keys, the view and the picture."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mq.client.values import Description, Readiness
from mq.tools.mqctl.printing import duration
from mq.tools.mqctl.top import keys
from mq.tools.mqctl.top.asking import NAMES_A_TICK, REST_SHARE, next_asked
from mq.tools.mqctl.top.board import NAMES_MAX, Board, Health, Reach
from mq.tools.mqctl.top.command import INTERVAL_S_MIN
from mq.tools.mqctl.top.keys import Keys
from mq.tools.mqctl.top.picture import Screen, document, picture
from mq.tools.mqctl.top.rates import GROWTH_S, RATE_OVER_S_MIN, Rates, Seen
from mq.tools.mqctl.top.rows import ORDERS, Row, in_order, rows_of, troubles_of
from mq.tools.mqctl.top.view import View, press, settled

BEGAN = datetime(2026, 1, 31, 12, tzinfo=UTC)
READY = Readiness("media", "ext4", "fsync", 1 << 34, 1000, below_reserve=False)


def answer(
    name: str = "orders",
    at_s: float = 0.0,
    totals: tuple[int, int, int] = (0, 0, 0),
    process: tuple[int, int] = (0, 1),
    **counts: Any,
) -> Description:
    """A description, as a process gives it `at_s` seconds after the beginning."""
    figures = dict.fromkeys(
        ("ready", "delayed", "in_flight", "leased", "overdue", "removed", "sidelined", "foreign"), 0
    )
    published, fetched, deleted = totals
    return Description(
        name=name,
        **{**figures, "oldest_ready_age_s": None, **counts},
        expired=False,
        totals={"published": published, "fetched": fetched, "deleted": deleted},
        lifetime={},
        process={"index": process[0], "of": process[1]},
        as_of={"totals": BEGAN + timedelta(seconds=at_s)},
        settings={},
        said={},
    )


def seen(*answers: Description, apart_s: float = 2.0) -> Seen:
    first, *others = answers
    found = Seen.first(first, 0.0)
    for place, said in enumerate(others, 1):
        found.take(said, place * apart_s)
    return found


def test_a_rate_is_the_difference_of_two_answers_by_the_servers_clock() -> None:
    found = seen(answer(at_s=0, totals=(10, 5, 0)), answer(at_s=4, totals=(30, 5, 8)))
    assert found.rates() == Rates(5.0, 0.0, 2.0)


def test_one_answer_is_no_rate() -> None:
    assert seen(answer(totals=(10, 5, 0))).rates() is None


def test_a_process_that_began_anew_has_no_rate_until_it_answered_twice() -> None:
    found = seen(
        answer(at_s=0, totals=(100, 0, 0)),
        answer(at_s=2, totals=(200, 0, 0)),
        answer(at_s=4, totals=(3, 0, 0)),
    )
    assert found.rates() is None
    found.take(answer(at_s=6, totals=(7, 0, 0)), 6.0)
    assert found.rates() == Rates(2.0, 0.0, 0.0)


def test_a_clock_that_was_put_back_is_no_rate() -> None:
    found = seen(answer(at_s=10, totals=(1, 0, 0)), answer(at_s=5, totals=(9, 0, 0)))
    assert found.rates() is None


def test_answers_that_are_too_close_are_counted_from_the_earlier() -> None:
    found = seen(answer(at_s=0), answer(at_s=0.01, totals=(5, 0, 0)))
    assert found.rates() is None
    found.take(answer(at_s=2, totals=(10, 0, 0)), 2.0)
    assert found.rates() == Rates(5.0, 0.0, 0.0)


def test_each_of_several_processes_counts_for_itself() -> None:
    found = seen(
        answer(at_s=0, totals=(100, 0, 0), process=(0, 2)),
        answer(at_s=1, totals=(7, 0, 0), process=(1, 2)),
        answer(at_s=2, totals=(110, 0, 0), process=(0, 2)),
    )
    assert found.rates() == Rates(5.0, 0.0, 0.0)
    assert (found.processes_counted(), found.processes) == (1, 2)
    found.take(answer(at_s=3, totals=(9, 0, 0), process=(1, 2)), 6.0)
    assert found.rates() == Rates(6.0, 0.0, 0.0)
    assert found.processes_counted() == 2


def test_a_process_that_answers_no_more_counts_no_more() -> None:
    found = seen(
        answer(at_s=0, process=(0, 2)),
        answer(at_s=2, totals=(10, 0, 0), process=(0, 2)),
        answer(at_s=2, process=(1, 2)),
    )
    found.take(answer(at_s=100, totals=(98, 0, 0), process=(1, 2)), 100.0)
    assert found.rates() == Rates(1.0, 0.0, 0.0)


def test_what_is_on_the_screen_is_asked_about_and_the_rest_has_its_turns() -> None:
    names = [f"q{number:04}" for number in range(1000)]
    asked: dict[str, float | None] = dict.fromkeys(names)
    shown = names[:10]
    for tick in range(100):
        chosen = next_asked(asked, shown, 40)
        assert len(chosen) == len(set(chosen)) <= 40
        assert set(shown) <= set(chosen)
        asked.update(dict.fromkeys(chosen, float(tick)))
    assert None not in asked.values()
    # 30 of 990 a tick: each within 33.
    assert min(when for when in asked.values() if when is not None) >= 99 - 33


@given(
    known=st.dictionaries(st.integers(0, 60).map(str), st.none() | st.floats(0, 100), max_size=50),
    shown=st.lists(st.integers(0, 60).map(str)),
    room=st.integers(1, 60),
)
def test_no_more_is_asked_than_there_is_room_for(
    known: dict[str, float | None], shown: list[str], room: int
) -> None:
    chosen = next_asked(known, shown, room)
    assert len(chosen) == len(set(chosen)) == min(room, len(known))
    assert set(chosen) <= set(known)


def board_of(*answers: Description, now_s: float = 0.0) -> Board:
    board = Board(Reach(0.0), Health(READY))
    board.list_names(said.name for said in answers)
    board.end_of_list()
    for said in answers:
        board.take(said, now_s)
    return board


def test_what_is_listed_no_more_is_gone_and_what_is_new_is_there() -> None:
    board = board_of(answer("a"), answer("b"))
    board.begin_list()
    board.list_names(["b", "c"])
    assert set(board.entries) == {"a", "b", "c"}
    board.end_of_list()
    assert set(board.entries) == {"b", "c"}
    assert board.seen_count == 1


def test_names_are_bounded() -> None:
    board = Board(Reach(0.0))
    board.list_names(str(number) for number in range(NAMES_MAX + 10))
    assert len(board.entries) == NAMES_MAX
    assert board.has_more
    board.end_of_list()
    assert board.has_more


def test_a_queue_that_is_refused_is_tried_again_in_its_turn() -> None:
    board = board_of(answer("a"))
    board.list_names(["b"])
    board.refused("b", 5.0, "its settings are damaged")
    assert board.tried_s() == {"a": 0.0, "b": 5.0}
    row = next(row for row in rows_of(board, 6.0) if row.name == "b")
    assert (row.seen, row.refusal) == (None, "its settings are damaged")


def test_a_loss_lasts_from_its_first_moment_until_an_answer() -> None:
    board = Board(Reach(0.0))
    board.lost(3.0, "refused")
    board.lost(9.0, "refused")
    assert board.reach == Reach(3.0, "refused")
    board.answered(10.0)
    assert board.reach == Reach(10.0)


def test_the_busiest_is_first_and_of_the_idle_the_fullest() -> None:
    board = board_of(
        answer("busy"), answer("full", ready=9), answer("idle"), answer("less", ready=2)
    )
    board.take(answer("busy", at_s=1, totals=(1, 0, 0)), 1.0)
    board.list_names(["unknown"])
    rows = rows_of(board, 2.0)
    names = [row.name for row in in_order(rows, "activity", is_reversed=False)]
    assert names == ["busy", "full", "less", "idle", "unknown"]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("is_reversed", [False, True])
def test_every_order_has_every_row_and_the_unknown_last(order: str, is_reversed: bool) -> None:
    board = board_of(*(answer(str(number), ready=number) for number in range(5)))
    board.list_names(["unknown"])
    found = in_order(rows_of(board, 1.0), order, is_reversed)
    assert len(found) == 6
    if order != "queue":
        assert found[-1].name == "unknown"
    if order == "ready":
        digits = [row.name for row in found[:-1]]
        assert digits == sorted(digits, reverse=not is_reversed)


def test_a_part_of_the_name_filters_in_any_case() -> None:
    board = board_of(answer("Orders"), answer("orders_SIDELINE"), answer("events"))
    assert {row.name for row in rows_of(board, 0.0, "orDER")} == {"Orders", "orders_SIDELINE"}


def test_a_sideline_is_a_part_of_its_queue() -> None:
    board = board_of(answer("orders"), answer("orders_SIDELINE"), answer("gone_SIDELINE"))
    assert [row.name for row in rows_of(board, 0.0)] == ["orders", "gone_SIDELINE"]
    assert board.tried_s().keys() == {"orders", "gone_SIDELINE"}


def test_trouble_is_first_and_in_words() -> None:
    board = board_of(
        answer("busy"),
        answer("dead", sidelined=1),
        answer("grows", sidelined=2),
        answer("late", overdue=3),
        answer("old", oldest_ready_age_s=301.0, ready=1),
    )
    board.take(answer("busy", at_s=1, totals=(9, 0, 0)), 1.0)
    board.take(answer("grows", at_s=1, sidelined=9), 1.0)
    board.list_names(["refused"])
    board.refused("refused", 1.0, "its settings are damaged")
    rows = in_order(rows_of(board, 2.0), ORDERS[0], is_reversed=False)
    assert [(row.name, [each.text for each in row.troubles]) for row in rows] == [
        ("refused", ["its settings are damaged"]),
        ("late", ["3 overdue: is a mover running?"]),
        ("grows", ["9 dead letters, 7 new"]),
        ("old", ["oldest waits long"]),
        ("dead", ["1 dead letter"]),
        ("busy", []),
    ]
    lines = drawn(board, Screen(80, 24))
    assert "5 with trouble" in lines[2]
    assert lines[5].startswith(">refused")
    assert "grows" in lines[7]
    assert lines[7].endswith("9 dead letters, 7 new")


def test_dead_letters_are_new_for_some_minutes() -> None:
    found = seen(answer(at_s=0, sidelined=1), answer(at_s=10, sidelined=4), apart_s=10.0)
    assert [each.text for each in troubles_of(found)] == ["4 dead letters, 3 new"]
    found.take(answer(at_s=20, sidelined=4), 10.0 + GROWTH_S)
    assert [each.text for each in troubles_of(found)] == ["4 dead letters"]


def test_totals_are_of_the_queues_that_the_filter_lets_through() -> None:
    board = board_of(
        answer("a", ready=2, oldest_ready_age_s=5.0), answer("b", ready=40), answer("c", ready=500)
    )
    board.list_names(["unknown"])
    lines = drawn(board, Screen(200, 24), View(order="queue"))
    assert lines[4].split()[:2] == ["total", "542"]
    rows = [row for row in rows_of(board, 0.0) if row.name != "c"]
    said = document(board, rows, "http://there", "2026-01-31T12:00:00.000Z", 2.0)["totals"]
    assert (said["ready"], said["oldest_ready_age_s"], said["published_per_s"]) == (42, 5.0, None)


def test_80_columns_break_no_name() -> None:
    name = "q" * 55 + "_SIDELINE"
    lines = drawn(board_of(answer(name, ready=10**6, sidelined=1)), Screen(80, 24))
    assert name in lines[5]
    assert "1,000,000" in lines[5]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.04, "0.0s"),
        (9.96, "10.0s"),
        (59.9, "59s"),
        (61, "1m01s"),
        (3725, "1h02m"),
        (90000, "1d01h"),
    ],
)
def test_durations_have_two_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text


SENT = [
    (b"\x1b[A", keys.UP), (b"\x1bOB", keys.DOWN), (b"\x1b[5~", keys.PAGE_UP),
    (b"\x1b[6~", keys.PAGE_DOWN), (b"\x1b[H", keys.HOME), (b"\x1b[4~", keys.END),
    (b"q", "q"), (b"\r", keys.ENTER), (b"\x7f", keys.BACKSPACE), ("é".encode(), "é"),
]  # fmt: skip


def test_keys_are_told_from_what_a_terminal_sends() -> None:
    assert Keys().feed(b"".join(data for data, _ in SENT)) == [key for _, key in SENT]


def test_keys_that_come_byte_by_byte_are_the_same() -> None:
    parser = Keys()
    found = [key for data, _ in SENT for byte in data for key in parser.feed(bytes([byte]))]
    assert found == [key for _, key in SENT]


def test_an_escape_alone_is_one_when_nothing_follows() -> None:
    parser = Keys()
    assert parser.feed(b"\x1b") == []
    assert parser.is_within
    assert parser.flush() == [keys.ESCAPE]
    assert not parser.is_within


@given(st.lists(st.binary(max_size=20), max_size=20))
def test_anything_may_be_sent(parts: list[bytes]) -> None:
    parser = Keys()
    for part in parts:
        for key in parser.feed(part):
            assert key == keys.ESCAPE or key.isprintable()
    parser.flush()
    assert parser.feed(b"q")[-1:] == ["q"]


def test_keys_move_the_mark_and_the_page_follows() -> None:
    view = View()
    for _ in range(7):
        view = press(view, keys.DOWN, 100, 5)
    assert (view.selected, view.first) == (7, 3)
    view = press(view, keys.PAGE_DOWN, 100, 5)
    assert (view.selected, view.first) == (12, 8)
    view = press(view, keys.END, 100, 5)
    assert (view.selected, view.first) == (99, 95)
    view = press(view, keys.HOME, 100, 5)
    assert (view.selected, view.first) == (0, 0)


@given(
    pressed=st.lists(
        st.sampled_from([*"q<>sSr/p jkxy", keys.UP, keys.DOWN, keys.PAGE_UP, keys.PAGE_DOWN,
                         keys.HOME, keys.END, keys.ENTER, keys.ESCAPE, keys.BACKSPACE])
    ),
    count=st.integers(0, 30),
    page=st.integers(1, 10),
)  # fmt: skip
def test_the_mark_is_always_on_the_screen(pressed: list[str], count: int, page: int) -> None:
    view = View()
    for key in pressed:
        view = settled(press(view, key, count, page), count, page)
        assert 0 <= view.first <= view.selected < max(view.first + page, 1)
        assert view.selected < max(count, 1)


def test_a_filter_is_typed_kept_and_given_up() -> None:
    view = View()
    for key in ["/", "a", "q", keys.BACKSPACE, "b"]:
        view = press(view, key, 10, 5)
    assert (view.wanted, view.is_over) == ("ab", False)
    view = press(view, keys.ENTER, 10, 5)
    assert (view.part, view.typing) == ("ab", None)
    again = press(press(press(view, "/", 10, 5), "c", 10, 5), keys.ESCAPE, 10, 5)
    assert again.wanted == "ab"
    assert press(again, keys.ESCAPE, 10, 5).wanted == ""


def test_q_ends_p_pauses_and_orders_go_round() -> None:
    assert press(View(), "q", 1, 1).is_over
    assert press(View(), "p", 1, 1).is_paused
    view = View()
    for _ in ORDERS:
        view = press(view, ">", 1, 1)
    assert view.order == ORDERS[0]
    assert press(view, "<", 1, 1).order == ORDERS[-1]


def drawn(board: Board, screen: Screen, view: View | None = None, now_s: float = 0.0) -> list[str]:
    view = view or View()
    rows = in_order(rows_of(board, now_s, view.wanted), view.order, view.is_reversed)
    lines = picture(board, rows, view, screen, now_s, "http://127.0.0.1:8080")
    return [line.plain for line in lines]


def test_the_picture_has_the_figures() -> None:
    board = board_of(answer("orders", ready=1234, in_flight=5, oldest_ready_age_s=75.0))
    text = "\n".join(drawn(board, Screen(120)))
    for word in ("orders", "1,234", "1m15s", "durability media, ext4", "publish/s"):
        assert word in text


@pytest.mark.parametrize("columns", [1, 10, 40, 80, 200])
@pytest.mark.parametrize("height", [1, 6, 24])
def test_the_picture_fits_its_screen(columns: int, height: int) -> None:
    board = board_of(*(answer(f"queue-{number}-{'x' * 30}", ready=10**9) for number in range(50)))
    lines = drawn(board, Screen(columns, height))
    assert all(len(line) <= columns for line in lines)
    assert len(lines) == max(height, 7)


def test_a_narrow_screen_keeps_name_and_ready() -> None:
    titles = drawn(board_of(answer(ready=7)), Screen(40, 24))[3]
    assert "ready" in titles
    assert "overdue" not in titles


def test_what_is_wrong_is_said() -> None:
    board = board_of(answer())
    board.lost(1.0, "connection refused")
    assert (
        "cannot be reached for 4.0s: connection refused" in drawn(board, Screen(120), now_s=5.0)[0]
    )
    board.answered(6.0)
    board.health = Health(None, "no space")
    assert "not ready: no space" in drawn(board, Screen(120))[0]
    board.health = Health(replace(READY, below_reserve=True))
    assert "BELOW THE RESERVE" in drawn(board, Screen(160))[0]


def test_rates_of_some_processes_alone_are_marked() -> None:
    board = board_of(answer(at_s=0, process=(0, 2)))
    board.take(answer(at_s=1, totals=(500, 0, 0), process=(0, 2)), 1.0)
    assert all("~500" in line for line in drawn(board, Screen(140))[4:])


def test_the_document_has_null_for_what_is_not_known() -> None:
    board = board_of(answer("a", ready=3))
    board.list_names(["b"])
    rows: list[Row] = in_order(rows_of(board, 2.0), "queue", is_reversed=False)
    said = document(board, rows, "http://there", "2026-01-31T12:00:00.000Z", 2.0)
    a, b = said["queues"]
    assert (a["ready"], a["published_per_s"], a["age_s"]) == (3, None, 2.0)
    assert (b["ready"], b["age_s"], b["processes"]) == (None, None, None)
    assert said["members"] is None
    assert (said["queues_known"], said["queues_seen"]) == (2, 1)


def test_the_limits_fit_together() -> None:
    assert 0 < REST_SHARE < 1
    assert RATE_OVER_S_MIN < INTERVAL_S_MIN
    assert NAMES_A_TICK <= NAMES_MAX
