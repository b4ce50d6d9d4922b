"""The history checker itself: histories made by hand that break one rule each, and good ones."""

import random
from pathlib import Path

import pytest
from harness.history import (
    Create,
    Delete,
    Drop,
    Fetch,
    History,
    Operation,
    Publish,
    Reschedule,
    Stall,
)
from harness.process_faults import Kind, schedule
from harness.queue_rules import QUEUES
from harness.rules import ALWAYS, WITHOUT_FAULTS, check, report
from harness.stopping import CALLS_OF_A_START, Itinerary, stalls
from harness.stopping import Stall as DaemonStall

VISIBILITY_US = 1000
EVERY_RULE = (*WITHOUT_FAULTS, *QUEUES)


def published(
    number: int, began: int, ended: int, status: int | None = 201, message_id: str | None = None
) -> Publish:
    known = (message_id or f"id-{number}") if status == 201 else None
    return Publish(number, "mq-0", began, ended, status, known)


def delivered(
    number: int | None,
    began: int,
    ended: int,
    receives: int = 1,
    message_id: str | None = None,
    due: int | None = None,
) -> Fetch:
    due_us = ended - 1 + VISIBILITY_US if due is None else due
    return Fetch("mq-1", began, ended, 200, message_id or f"id-{number}", number, receives, due_us)


def empty(began: int, ended: int) -> Fetch:
    return Fetch("mq-1", began, ended, 204)


def deleted(
    number: int, began: int, ended: int, status: int | None = 202, receives: int | None = None
) -> Delete:
    return Delete(f"id-{number}", "mq-2", began, ended, status, receives)


def put_off(
    began: int, ended: int, due_in: int, status: int | None = 200, receives: int = 1
) -> Reschedule:
    """What asks for another due time of the first message."""
    due = ended + due_in if status == 200 else 0
    return Reschedule("id-1", "mq-2", began, ended, status, receives, due_in, due)


def made(began: int, ended: int, status: int | None = 201) -> Create:
    return Create("mq-0", began, ended, status)


def dropped(began: int, ended: int, status: int | None = 200) -> Drop:
    return Drop("mq-1", began, ended, status)


def history(*operations: Operation, alive: tuple[str, ...] = ()) -> History:
    return History(list(operations), frozenset(alive), VISIBILITY_US)


ONCE = (published(1, 0, 10), delivered(1, 20, 30), deleted(1, 40, 50))

BAD = {
    "lost": [
        history(published(1, 0, 10)),
        history(published(1, 0, 10), deleted(1, 20, 30, 404)),
    ],
    "vanished": [
        history(published(1, 0, 10), delivered(1, 20, 30)),
        history(published(1, 0, 10), delivered(1, 20, 30), deleted(1, 40, 50, 412, 1)),
        # Nobody knows whether it was published, but it was delivered.
        history(published(1, 0, 10, None), delivered(1, 20, 30)),
    ],
    "torn": [
        history(
            published(1, 0, 10), delivered(None, 20, 30, message_id="id-1"), deleted(1, 40, 50)
        )
    ],
    "invented": [
        history(*ONCE, delivered(7, 60, 70), deleted(7, 80, 90)),
        # One publish, two messages.
        history(*ONCE, delivered(1, 60, 70, message_id="x"), Delete("x", "mq-0", 80, 90, 202)),
        # One id, the bodies of two.
        history(
            published(1, 0, 10),
            published(2, 0, 10, 503),
            delivered(1, 20, 30),
            delivered(2, 2000, 2010, 2, "id-1"),
            deleted(1, 2040, 2050),
        ),
        history(published(1, 0, 10, message_id="x"), published(2, 0, 10, message_id="x"),
                delivered(1, 20, 30, message_id="x"), Delete("x", "mq-0", 40, 50, 202)),
    ],
    "resurrected": [
        history(*ONCE, delivered(1, 2000, 2010, 2)),
        history(*ONCE, alive=("id-1",)),
        # A second delete changes nothing about the first.
        history(*ONCE, delivered(1, 2000, 2010, 2), deleted(1, 2020, 2030)),
    ],
    "shared": [
        history(
            published(1, 0, 10), delivered(1, 20, 30), delivered(1, 40, 1020, 2, due=2040),
            deleted(1, 3000, 3001),
        ),
        # The delete was asked for by then, and not answered.
        history(
            published(1, 0, 10), delivered(1, 20, 30), delivered(1, 25, 45, 2, due=1100),
            deleted(1, 40, 50),
        ),
        # That a release is refused has no drop behind it.
        history(
            made(0, 5), published(1, 10, 15), delivered(1, 20, 30), put_off(40, 90, 0, 404),
            delivered(1, 45, 60, 2), dropped(100, 150),
        ),
    ],
    "claimed_early": [
        history(
            published(1, 0, 10), delivered(1, 20, 30, due=1020),
            delivered(1, 40, 1021, 2, due=2019), deleted(1, 3000, 3001),
        )
    ],
    "hastened": [
        history(
            published(1, 0, 10), delivered(1, 20, 30), put_off(40, 50, 5000),
            delivered(1, 1100, 1110, 2), deleted(1, 3000, 3001),
        ),
        # What was refused has put nothing off.
        history(
            published(1, 0, 10), delivered(1, 20, 30), put_off(40, 50, 5000),
            put_off(60, 70, 0, 412), delivered(1, 1100, 1110, 2), deleted(1, 3000, 3001),
        ),
    ],
    "recounted": [
        history(
            published(1, 0, 10), delivered(1, 20, 30, 3), delivered(1, 2000, 2010, 3),
            deleted(1, 3000, 3001),
        ),
        history(
            published(1, 0, 10), delivered(1, 20, 30, 2), delivered(1, 2000, 2010, 1),
            deleted(1, 3000, 3001),
        ),
        history(published(1, 0, 10), delivered(1, 20, 30, 0), deleted(1, 40, 50)),
    ],
    "overcounted": [
        # Nobody else asked for it.
        history(
            published(1, 0, 10), delivered(1, 20, 30, 3), deleted(1, 40, 50), empty(60, 70),
        )
    ],
    "refused": [
        history(
            published(1, 0, 10), delivered(1, 20, 30), deleted(1, 40, 50, 412, 1),
            deleted(1, 60, 70),
        ),
        history(
            published(1, 0, 10), delivered(1, 20, 30), put_off(40, 50, 0, 412), deleted(1, 60, 70),
        ),
    ],
    "stale": [
        # It stood still in the middle of the claim until 3000, and its claim ended at 1025.
        History(
            [published(1, 0, 10), delivered(1, 20, 3010, due=1025), deleted(1, 3020, 3030)],
            visibility_us=VISIBILITY_US,
            stalls=[Stall("mq-1", "fetch after stamp", "id-1", 25, 3000)],
        )
    ],
    "denied": [
        history(
            published(1, 0, 10), delivered(1, 20, 30), put_off(40, 50, 5000, 404),
            delivered(1, 2000, 2010, 2), deleted(1, 3000, 3001),
        ),
        history(
            published(1, 0, 10), delivered(1, 20, 30), deleted(1, 40, 50, 404),
            delivered(1, 2000, 2010, 2), deleted(1, 3000, 3001),
        ),
        history(
            published(1, 0, 10), delivered(1, 20, 30), deleted(1, 40, 50, 404), alive=("id-1",)
        ),
    ],
    "overruled": [
        history(
            published(1, 0, 10), delivered(1, 20, 30), delivered(1, 2000, 2010, 2),
            deleted(1, 2020, 2030, receives=1),
        )
    ],
    "unexpected": [
        history(*ONCE, Fetch("mq-0", 0, 1, 500)),
        history(*ONCE, published(2, 0, 1, 404)),
        history(*ONCE, deleted(1, 60, 61, 400)),
        history(*ONCE, Fetch("mq-0", 0, 1, 404)),
    ],
    "reborn": [
        history(
            made(0, 5), published(1, 10, 20), dropped(30, 40), made(50, 60), delivered(1, 70, 80),
        ),
        # Nobody heard of its publish, but it was delivered.
        history(
            made(0, 5), published(1, 10, 20, None), delivered(1, 22, 28), dropped(30, 40),
            made(50, 60), delivered(1, 2000, 2010, 2),
        ),
        history(
            made(0, 5), published(1, 10, 20), dropped(30, 40), made(50, 60), alive=("id-1",)
        ),
    ],
    "haunted": [
        history(made(0, 5), dropped(10, 20), published(1, 30, 40), made(50, 60)),
        history(made(0, 5), dropped(10, 20), empty(30, 40)),
        history(made(0, 5), dropped(10, 20), dropped(22, 28, 404), empty(30, 40)),
    ],
    "unmade": [
        history(made(0, 5), Fetch("mq-1", 10, 20, 404), dropped(30, 40)),
        history(made(0, 5, 200), published(1, 10, 20, 404)),
    ],
    "miscalled": [
        history(made(0, 5), made(10, 20)),
        history(made(0, 5), dropped(10, 20, 404)),
        history(made(0, 5), dropped(10, 20), made(30, 40, 200)),
        history(made(0, 5), dropped(10, 20), dropped(30, 40)),
    ],
    "overtaken": [
        history(
            published(1, 0, 10), published(2, 11, 20), delivered(2, 30, 40),
            delivered(1, 50, 60), deleted(1, 70, 80), deleted(2, 70, 80),
        ),
        # Also when others were published and delivered in between.
        history(
            published(1, 0, 10), published(2, 11, 20), published(3, 5, 30),
            delivered(2, 30, 40), delivered(3, 31, 45), delivered(1, 50, 60),
            deleted(1, 70, 80), deleted(2, 70, 80), deleted(3, 70, 80),
        ),
    ],
    "overlooked": [
        history(published(1, 0, 10), empty(11, 15), *ONCE[1:]),
        history(published(1, 0, 10), empty(11, 15), alive=("id-1",)),
    ],
}  # fmt: skip

GOOD = {
    "once": history(*ONCE),
    "alive": history(published(1, 0, 10), alive=("id-1",)),
    "a publish that nobody answered": history(published(1, 0, 10, None)),
    "a publish that was refused and came all the same": history(
        published(1, 0, 10, 503), delivered(1, 20, 30), deleted(1, 40, 50)
    ),
    "deleted by an operation that nobody answered": history(
        published(1, 0, 10), delivered(1, 20, 30), deleted(1, 40, 50, None)
    ),
    "a delete that was answered while a fetch was in hand": history(
        published(1, 0, 10), delivered(1, 20, 30), delivered(1, 1035, 1060, 2),
        deleted(1, 1040, 1050),
    ),
    "delivered again when it was due": history(
        published(1, 0, 10), delivered(1, 20, 30), delivered(1, 1031, 1040, 2, due=2031),
        deleted(1, 1045, 1050),
    ),
    "an answer that came after its due time": history(
        published(1, 0, 10), delivered(1, 20, 3000, due=1025),
        delivered(1, 1030, 1040, 2, due=2031), deleted(1, 4000, 4010),
    ),
    "counted on by a fetch that nobody answered": history(
        published(1, 0, 10), delivered(1, 20, 30), Fetch("mq-0", 1100, 1200, None),
        delivered(1, 4000, 4010, 3), deleted(1, 4020, 4030),
    ),
    "deleted twice, the second time after it was reaped": history(*ONCE, deleted(1, 60, 70, 404)),
    "a stale delete that is refused": history(
        published(1, 0, 10), delivered(1, 20, 30), delivered(1, 2000, 2010, 2),
        deleted(1, 2020, 2030, 412, 1), deleted(1, 2040, 2050, receives=2),
    ),
    "released, and delivered again at once": history(
        published(1, 0, 10), delivered(1, 20, 30), put_off(40, 50, 0), delivered(1, 45, 60, 2),
        deleted(1, 70, 80),
    ),
    "released, perhaps": history(
        published(1, 0, 10), delivered(1, 20, 30), put_off(40, 50, 0, None),
        delivered(1, 60, 70, 2), deleted(1, 80, 90),
    ),
    "released, and its queue dropped before that was answered": history(
        made(0, 5), published(1, 10, 15), delivered(1, 20, 30), put_off(40, 200, 0, 404),
        delivered(1, 45, 60, 2), dropped(100, 150),
    ),
    "put off, and then brought forward": history(
        published(1, 0, 10), delivered(1, 20, 30), put_off(40, 50, 5000), put_off(60, 70, 100),
        delivered(1, 180, 190, 2, due=1185), deleted(1, 1200, 1210),
    ),
    "put off, and delivered when it was due": history(
        published(1, 0, 10), delivered(1, 20, 30), put_off(40, 50, 5000),
        delivered(1, 5050, 5060, 2), deleted(1, 5070, 5080),
    ),
    "a stale delete of what was gone": history(
        published(1, 0, 10), delivered(1, 20, 30), delivered(1, 2000, 2010, 2),
        deleted(1, 2020, 2030, None), deleted(1, 2040, 2050, receives=1),
    ),
    "a claim that came to nothing, of a fetch that was long": history(
        published(1, 0, 10), Fetch("mq-0", 5, 1200, 204), delivered(1, 1300, 1310, 2),
        deleted(1, 1320, 1330),
    ),
    "a stale delete that is refused once the message is due": history(
        published(1, 0, 10), delivered(1, 20, 30, due=1025), deleted(1, 1020, 1030, 412, 1),
        deleted(1, 2040, 2050),
    ),
    "daemons that measure the server's clock by themselves": History(
        [published(1, 0, 10), delivered(1, 20, 30, due=1025), put_off(40, 50, 5000),
         delivered(1, 4700, 4900, 2, due=5800), deleted(1, 5900, 5910)],
        visibility_us=VISIBILITY_US,
        clocks_apart_us=300,
    ),
    "a process that stood still, and claimed again": History(
        [published(1, 0, 10), delivered(1, 20, 3010, 2, due=4001), deleted(1, 3020, 3030),
         Fetch("mq-0", 5, 15, None)],
        visibility_us=VISIBILITY_US,
        stalls=[Stall("mq-1", "fetch after rename", "id-1", 25, 3000)],
    ),
    "a queue that went with its messages, and came again": history(
        made(0, 5), published(1, 10, 20), dropped(30, 40), Fetch("mq-0", 50, 60, 404),
        made(70, 80), published(2, 90, 100), delivered(2, 110, 120), deleted(2, 130, 140),
    ),
    "a message that was published while its queue went": history(
        made(0, 5), published(1, 10, 35), dropped(30, 40), made(41, 45), delivered(1, 50, 60),
        deleted(1, 70, 80),
    ),
    "a queue that nobody knows of": history(
        made(0, 5), dropped(10, 20, None), empty(30, 40), Fetch("mq-1", 42, 48, 404),
        made(50, 60, 200), dropped(70, 80, 503), made(90, 100),
    ),
    "two who make and delete it at a time": history(
        made(0, 5), dropped(10, 30), made(15, 40, 200), empty(50, 60), dropped(70, 80, 404),
    ),
    "published side by side": history(
        published(1, 0, 10), published(2, 9, 20), delivered(2, 30, 40), delivered(1, 50, 60),
        deleted(1, 70, 80), deleted(2, 70, 80),
    ),
    "nothing there, by a fetch that began before the acknowledgement": history(
        published(1, 0, 10), empty(9, 15), *ONCE[1:]
    ),
    "nothing there, as another had it": history(
        published(1, 0, 10), delivered(1, 12, 30), empty(11, 15), deleted(1, 40, 50)
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "bad"), [(rule, bad) for rule, histories in BAD.items() for bad in histories]
)
def test_a_bad_history_is_found_out(rule: str, bad: History) -> None:
    found = check(bad, EVERY_RULE)
    assert rule in {breach.rule for breach in found}
    assert rule in report(bad, found)


@pytest.mark.parametrize("name", GOOD)
def test_a_good_history_passes(name: str) -> None:
    assert check(GOOD[name], EVERY_RULE) == []


def test_every_rule_is_shown_to_fire() -> None:
    assert {rule.__name__ for rule in EVERY_RULE} == BAD.keys()
    assert set(ALWAYS) < set(WITHOUT_FAULTS)


def test_a_seed_replays_its_schedule() -> None:
    members = ["mq-0", "mq-1", "mover"]
    first, second = (schedule(7, 12, members, (1.0, 2.0), (10, 20)) for _ in range(2))
    assert first == second
    assert first != schedule(8, 12, members, (1.0, 2.0), (10, 20))
    assert {fault.kind for fault in first} == set(Kind)
    assert all(1.0 <= fault.lasts_s <= 2.0 and 10 <= fault.after <= 20 for fault in first)


def test_a_daemon_says_where_it_stood_still() -> None:
    line = "stopped: 1000 to 3000 us, fetch after stamp, at /srv/mq/delay/orders:id-1"
    assert stalls(["listening", line, "draining"]) == [
        DaemonStall("fetch after stamp", "/srv/mq/delay/orders:id-1", 1000, 3000)
    ]


def test_a_daemon_that_stops_itself_passes_every_place_in_time(tmp_path: Path) -> None:
    """An itinerary goes on to the next place when nobody passes one; none is before its start."""
    stops: list[str] = []
    armed = tmp_path / "armed"
    armed.touch()
    places = ("fetch after stamp", "fetch after rename", "nobody passes here")
    itinerary = Itinerary(places, random.Random(1), 10, 0, str(armed), lambda _: stops.append("s"))
    for _ in range(CALLS_OF_A_START // 2 - 1):
        itinerary.pass_by(places[0], "")
        itinerary.pass_by(places[1], "")
    assert not stops
    for _ in range(5000):
        itinerary.pass_by(places[0], "")
        itinerary.pass_by(places[1], "")
    assert len(stops) > 10
    so_far = len(stops)
    armed.unlink()
    for _ in range(5000):
        itinerary.pass_by(places[0], "")
    assert len(stops) == so_far
