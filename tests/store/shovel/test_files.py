"""What a root says of shovels: hints, of which what is torn or somebody else's says nothing."""

import os
from pathlib import Path

import pytest
from harness.clock import FakeClock
from hypothesis import given
from hypothesis import strategies as st

from mq.model.limits import TURN_SILENT_S
from mq.model.names import QueueName
from mq.model.shovel import Progress, Record, RunState, Trigger
from mq.store.core.root import Root
from mq.store.disk.files import Files
from mq.store.format.shovels import parse_shovel_file, shovel_paths
from mq.store.opening import open_root
from mq.store.shovel.files import is_running, read_record, take_turn, write_record

ORDERS = QueueName("orders")
RUN_ID = "0192f3a2-7c4e-7d2a-9b1e-0123456789ab"
TIMES = st.integers(0, 253_402_300_799_999)
PROGRESS = st.builds(
    Progress,
    id=st.just(RUN_ID),
    queue=st.just(ORDERS.text),
    by=st.sampled_from(Trigger),
    began_ms=TIMES,
    dry_run=st.booleans(),
    criteria=st.dictionaries(st.sampled_from(["key", "priority"]), st.text()),
    rate=st.none() | st.integers(1, 1000),
    concurrency=st.integers(1, 32),
    state=st.sampled_from(RunState),
    ended_ms=st.none() | TIMES,
    looked_at=st.integers(0),
    moved=st.integers(0),
    stayed=st.dictionaries(st.sampled_from(["receives", "key-taken"]), st.integers(0)),
    failed=st.integers(0),
    error=st.none() | st.sampled_from(["no-space", "storage-failed"]),
    into=st.none() | st.just("other"),
)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def opened(root: Path, clock: FakeClock) -> Root:
    return open_root(str(root), Files(), clock)


@given(PROGRESS, st.none() | TIMES, st.lists(PROGRESS, max_size=9))
def test_what_is_written_is_read(
    progress: Progress, scheduled_ms: int | None, earlier: list[Progress]
) -> None:
    record = Record(progress, scheduled_ms, tuple(earlier))
    assert Record.parse(record.printed()) == record
    is_kept = progress.by is Trigger.REQUEST and not progress.dry_run
    expected = [progress, *earlier] if is_kept else earlier
    assert list(record.before_next) == expected[:9]


@given(PROGRESS, st.data())
def test_what_is_torn_says_nothing(progress: Progress, data: st.DataObject) -> None:
    whole = Record(progress).printed().rstrip(b"\n")
    cut = data.draw(st.integers(0, len(whole) - 1))
    for torn in (whole[:cut], whole[:cut] + bytes(len(whole) - cut)):
        with pytest.raises(ValueError):  # noqa: PT011 - whatever it says
            Record.parse(torn)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", "null", '{"id": 7}', '{"queue": "orders", "state": "running"}']
)
def test_what_is_somebody_elses_says_nothing(opened: Root, root: Path, text: str) -> None:
    (root / "shovels" / "orders.json").write_text(text)
    assert read_record(opened, ORDERS) is None


def test_a_folder_and_a_link_say_nothing(opened: Root, root: Path) -> None:
    path = root / "shovels" / "orders.json"
    path.mkdir()
    assert read_record(opened, ORDERS) is None
    path.rmdir()
    path.symlink_to("/etc/hostname")
    assert read_record(opened, ORDERS) is None


def test_a_run_without_its_turn_was_interrupted(opened: Root, clock: FakeClock) -> None:
    progress = Progress(RUN_ID, ORDERS.text, Trigger.REQUEST, clock.now_ms())
    turn = take_turn(opened, ORDERS)
    assert turn is not None
    write_record(opened, ORDERS, Record(progress))
    found = read_record(opened, ORDERS)
    assert found is not None
    assert found.run == progress
    turn.end()
    found = read_record(opened, ORDERS)
    assert found is not None
    assert found.run.state is RunState.INTERRUPTED


def test_one_has_the_turn_until_it_is_silent(opened: Root, clock: FakeClock) -> None:
    turn = take_turn(opened, ORDERS)
    assert turn is not None
    clock.advance(TURN_SILENT_S - 1)
    assert turn.keep()
    clock.advance(TURN_SILENT_S - 1)
    assert is_running(opened, ORDERS)
    assert take_turn(opened, ORDERS) is None
    clock.advance(1)
    assert not is_running(opened, ORDERS)
    taken = take_turn(opened, ORDERS)
    assert taken is not None
    assert not turn.keep()
    turn.end()
    assert is_running(opened, ORDERS)
    taken.end()
    # Also when the other is done, it was its turn since.
    assert not turn_again(opened, clock)


def turn_again(opened: Root, clock: FakeClock) -> bool:
    """Whether one that was silent has its turn still, after another has had it."""
    turn = take_turn(opened, ORDERS)
    assert turn is not None
    clock.advance(TURN_SILENT_S)
    taken = take_turn(opened, ORDERS)
    assert taken is not None
    taken.end()
    try:
        return turn.keep()
    finally:
        turn.end()


def test_one_whose_file_was_taken_for_an_older_one_takes_its_turn_again(
    opened: Root, root: Path
) -> None:
    turn = take_turn(opened, ORDERS)
    assert turn is not None
    os.unlink(root / "shovels" / "orders.lock")
    assert turn.keep()
    assert take_turn(opened, ORDERS) is None
    turn.end()


@pytest.mark.parametrize("name", ["orders", "a.json", "b.lock", "c.stop.json", "orders_SIDELINE"])
def test_names_are_read_back(opened: Root, name: str) -> None:
    for path in shovel_paths(opened.layout, QueueName(name)):
        assert parse_shovel_file(os.path.basename(path)).text == name
