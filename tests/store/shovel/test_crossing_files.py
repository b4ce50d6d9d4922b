"""Taking chosen messages from one queue to another: what is written down, what moves, who looks out
for it, and what is left of a run.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.audits import audit
from harness.faults import Met
from harness.leases import QUEUE, LeasingRoot, stamp_of
from hypothesis import given
from hypothesis import strategies as st

from mq.model.errors import BadName, Busy
from mq.model.lifecycle import State
from mq.model.limits import FORGOTTEN_AFTER_S
from mq.model.message import Reason, Stamp
from mq.model.names import MessageId, QueueName, ReplayId
from mq.model.shovel import ALL, Why
from mq.store.core.find import whereabouts
from mq.store.disk.flush import FsyncFlusher
from mq.store.format.crossings import Crossing, parse_lock, parse_over
from mq.store.format.pipeline import LEDGER_KEPT_S
from mq.store.operations.fetch import fetch
from mq.store.operations.reschedule import reschedule
from mq.store.operations.sideline import sideline
from mq.store.shovel.crossing_files import (
    Chosen,
    Damaged,
    candidate_of,
    chosen_of,
    find_crossing,
    finish,
    held,
    read_over,
    record_chosen,
    said_of,
    sweep_crossings,
)
from mq.store.shovel.shovel import Aim, Shovelled, shovel_many

OTHER = QueueName.parse("other")
RUN = Crossing(ReplayId.parse("run-1"), QUEUE, OTHER)
WORDS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}", fullmatch=True)


@pytest.fixture
def files() -> Met:
    return Met()


@pytest.fixture(params=[10_000, 1], ids=["flat", "buckets"])
def place(tmp_path: Path, files: Met, request: pytest.FixtureRequest) -> LeasingRoot:
    made = LeasingRoot(tmp_path / "root", request.param, files, FsyncFlusher(files, 1))
    made.make_queue(OTHER)
    return made


def choose(place: LeasingRoot, ids: list[MessageId], run: Crossing = RUN) -> None:
    with held(place.root, run.id):
        chosen = [Chosen(each, stamp_of(place.root, each, run.source)) for each in ids]
        place.run(record_chosen(place.root, run, {"where": "true"}, chosen))


def move(place: LeasingRoot, run: Crossing = RUN) -> Shovelled:
    chosen = list(chosen_of(place.root, run))
    stamps = {each.id.text: each.stamp for each in chosen}
    aim = Aim(run.target, ALL, place.clock.now_ms(), run.source, stamps)
    found = [candidate_of(place.root, run, each.id) for each in chosen]
    there = [each for each in found if each is not None]
    return shovel_many(place.root, place.flusher, aim, there)


def names(place: LeasingRoot) -> list[str]:
    return sorted(os.listdir(place.top / "crossings"))


def test_what_was_chosen_goes_with_its_receives(place: LeasingRoot) -> None:
    ids = place.publish(3)
    assert place.run(fetch(place.root, QUEUE, ids[0], 60)) is not None
    place.run(reschedule(place.root, QUEUE, ids[0], 0))
    place.pass_s(1)
    choose(place, ids[:2])
    became = move(place)
    assert (became.error, dict(became.stayed)) == (None, {})
    assert set(became.moved) == set(ids[:2])
    assert stamp_of(place.root, ids[0], OTHER) == Stamp(place.clock.now_ms(), 1)
    assert [whereabouts(place.root, QUEUE, each) for each in ids] == [None, None, State.READY]
    place.run(finish(place.root, RUN, {"moved": 2}))
    assert names(place) == ["run-1.json", "run-1.lock"]
    assert read_over(place.root, RUN.id) == {"moved": 2}
    assert audit(place.root).is_clean


def test_all_that_was_chosen_is_written_before_it_is_flushed(
    place: LeasingRoot, files: Met
) -> None:
    choose(place, place.publish(3))
    top = f"{place.top}/crossings/.run-1"
    did = [call for call, path in files.calls if path.startswith(top)]
    assert [call for call in did if call in ("write", "sync", "rename")] == [
        "write",
        "sync",
        "rename",
    ]


def test_another_delivery_stays(place: LeasingRoot) -> None:
    ids = place.publish(2)
    choose(place, ids)
    assert place.run(fetch(place.root, QUEUE, ids[0], 60)) is not None
    place.run(reschedule(place.root, QUEUE, ids[0], 0))
    became = move(place)
    assert (became.moved, dict(became.stayed)) == ((ids[1],), {Why.CHANGED: 1})


def test_a_reason_goes_from_sideline_to_sideline(place: LeasingRoot) -> None:
    for queue in (QUEUE, OTHER):
        place.make_queue(queue.sideline())
    (message_id,) = place.publish(1)
    place.run(sideline(place.root, QUEUE, message_id, Reason.EXCEPTION))
    run = Crossing(RUN.id, QUEUE.sideline(), OTHER.sideline())
    choose(place, [message_id], run)
    assert move(place, run).moved == (message_id,)
    assert stamp_of(place.root, message_id, OTHER.sideline()).reason == Reason.EXCEPTION


def test_one_process_has_an_id(place: LeasingRoot) -> None:
    with held(place.root, RUN.id), pytest.raises(Busy), held(place.root, RUN.id):
        pytest.fail("two have it")


def test_what_is_being_chosen_is_not_swept_however_long_that_takes(place: LeasingRoot) -> None:
    (message_id,) = place.publish()

    def slowly() -> Iterator[Chosen]:
        for name in names(place):
            at_s = place.clock.now_ms() / 1000
            os.utime(place.top / "crossings" / name, (at_s, at_s))
        place.pass_s(FORGOTTEN_AFTER_S + 1)
        assert sweep_crossings(place.root, place.flusher) == 0
        yield Chosen(message_id, stamp_of(place.root, message_id))

    with held(place.root, RUN.id):
        assert place.run(record_chosen(place.root, RUN, {}, slowly())) == 1
    assert names(place) == ["run-1.lock", "run-1:q:other"]


def test_what_began_after_a_step_ahead_is_swept_in_its_own_time(place: LeasingRoot) -> None:
    place.clock.set_ms(place.clock.now_ms() + 2 * round(FORGOTTEN_AFTER_S) * 1000)
    assert sweep_crossings(place.root, place.flusher) == 0
    unfinished = place.top / "crossings" / ".run-9.0123456789abcdef"
    unfinished.parent.mkdir(exist_ok=True)
    unfinished.touch()
    at_s = place.clock.now_ms() / 1000 + 1
    os.utime(unfinished, (at_s, at_s))
    # The root sees the step.
    place.root.aged_ms(FORGOTTEN_AFTER_S)
    place.pass_s(FORGOTTEN_AFTER_S + 2)
    assert sweep_crossings(place.root, place.flusher) == 1


def test_what_nobody_goes_on_with_is_swept(place: LeasingRoot) -> None:
    ids = place.publish(2)
    choose(place, ids)
    (place.top / "crossings" / ".run-9.0123456789abcdef").touch()
    (place.top / "crossings" / "foreign").touch()
    stamps = {"run-1:q:other", "run-1.lock", ".run-9.0123456789abcdef", "foreign"}
    assert set(names(place)) == stamps
    at_s = place.clock.now_ms() / 1000
    for name in stamps:
        os.utime(place.top / "crossings" / name, (at_s, at_s))
    place.pass_s(LEDGER_KEPT_S - 1)
    assert sweep_crossings(place.root, place.flusher) == 1
    place.pass_s(2)
    with held(place.root, RUN.id):
        assert sweep_crossings(place.root, place.flusher) == 0
    assert sweep_crossings(place.root, place.flusher) == 1
    assert find_crossing(place.root, RUN.id) is None
    assert read_over(place.root, RUN.id) == {"state": "given up"}
    place.pass_s(LEDGER_KEPT_S + 1)
    while sweep_crossings(place.root, place.flusher):
        pass
    assert names(place) == ["foreign"]
    assert whereabouts(place.root, QUEUE, ids[0]) is State.READY


@pytest.mark.parametrize("cut", [1, 20, 70])
def test_what_cannot_be_understood_moves_nothing(place: LeasingRoot, cut: int) -> None:
    choose(place, place.publish(2))
    path = place.top / "crossings" / RUN.text
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(Damaged):
        list(chosen_of(place.root, RUN))
    path.write_bytes(b"[]\n")
    with pytest.raises(Damaged):
        said_of(place.root, RUN)


@given(WORDS, WORDS, WORDS)
def test_names_are_read_as_they_are_written(replay: str, source: str, target: str) -> None:
    crossing = Crossing(ReplayId.parse(replay), QueueName.parse(source), QueueName.parse(target))
    assert Crossing.parse(crossing.text) == crossing
    assert parse_over(f"{replay}.json") == parse_lock(f"{replay}.lock") == crossing.id


@given(st.text(max_size=60))
def test_other_names_are_foreign(text: str) -> None:
    for parse in (Crossing.parse, parse_over, parse_lock, ReplayId.parse):
        try:
            found = parse(text)
        except BadName:
            continue
        assert found.text in text
