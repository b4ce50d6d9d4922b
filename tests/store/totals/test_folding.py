"""Folding: each count is there once, at any stop and for any reader meanwhile."""

import errno
import itertools
import os
from pathlib import Path

import pytest
from harness.clock import FakeClock
from harness.faults import FaultyFiles

from mq.model.errors import Busy
from mq.model.limits import FORGOTTEN_AFTER_S
from mq.model.names import QueueName
from mq.model.totals import Total
from mq.store.core.root import Root
from mq.store.disk.flush import FsyncFlusher, NoFlusher
from mq.store.disk.group import run_alone
from mq.store.format.totals import new_totals_file, totals_lock
from mq.store.opening import open_root
from mq.store.operations.queues import create_queue, delete_queue
from mq.store.totals.folding import TOTALS_DELETED_KEPT_S, fold_totals
from mq.store.totals.ledger import Ledger
from mq.store.totals.writing import write_totals

QUEUES = [QueueName(f"q{n}") for n in range(4)]
UUID = "0192f3a2-7c4e-7d2a-9b1e-0123456789ab"


class Place:
    """A root and its processes."""

    def __init__(self, top: Path) -> None:
        self.top, self.clock, self.files = top, FakeClock(), FaultyFiles()
        self.counted = 0
        self.root = self.process()

    def process(self) -> Root:
        return open_root(str(self.top), self.files, self.clock)

    def count(self, root: Root) -> None:
        """One message of each queue, written."""
        for queue in QUEUES:
            root.totals.add(queue, Total.FETCHED)
        assert write_totals(root)
        self.counted += 1

    def totals(self) -> set[int]:
        ledger = Ledger(self.root)
        return {ledger.of(queue)[Total.FETCHED] for queue in QUEUES}

    def fold(self) -> int:
        return run_alone(fold_totals(self.root), NoFlusher())

    def names(self, suffix: str) -> list[str]:
        return sorted(path.name for path in (self.top / "totals").glob(f"[!.]*{suffix}"))


@pytest.fixture
def place(root: Path) -> Place:
    return Place(root)


def test_a_fold_that_stops_at_any_call_counts_nothing_twice(place: Place) -> None:
    """The next one ends it. A file is there until all sums have it."""
    another = place.process()
    for call in ("open_kept", "create", "write", "rename", "unlink"):
        for after in itertools.count():
            place.count(place.root)
            place.count(another)
            fault = place.files.fail(call, errno.EIO, "totals/", after=after)
            try:
                place.fold()
            except Exception:
                stopped = True
            else:
                stopped = False
            place.files.heal()
            assert place.totals() == {place.counted}, (call, after)
            if not fault.hits:
                break
            assert stopped
            if after % 2:
                assert place.fold()  # Else with those of the next round.
                assert place.names(".counts") == []
                assert place.totals() == {place.counted}
    assert len(place.names(".sums")) == len({name[0] for name in place.names(".sums")}) > 1


def test_the_lock_comes_first_and_the_sums_before_what_they_have(place: Place) -> None:
    assert place.fold() == 0  # Nothing was counted: there is no folder.
    flusher = FsyncFlusher(place.files, 1)
    for _ in range(2):
        place.count(place.root)
        place.files.calls.clear()
        assert run_alone(fold_totals(place.root), flusher) == 1
        calls = [(call, os.path.basename(path)) for call, path in place.files.calls]
        lock = calls.index(("lock", ".lock"))
        written = min(at for at, (call, _) in enumerate(calls) if call == "create")
        gone = min(at for at, (_, name) in enumerate(calls) if name.endswith(".counts"))
        assert lock < min(written, gone)
        assert max(at for at, (call, _) in enumerate(calls) if call == "unlink") > max(
            at for at, (call, _) in enumerate(calls) if call == "rename"
        )
    flusher.close()


def test_one_folds_at_a_time(place: Place) -> None:
    root = place.process()
    place.count(root)
    descriptor = place.files.open_kept(totals_lock(root.layout))
    assert place.files.lock(descriptor)
    with pytest.raises(Busy):
        place.fold()
    place.files.close(descriptor)
    assert (place.fold(), place.fold()) == (1, 0)


def test_what_cannot_be_understood_is_left_out_and_names_of_others_stay(place: Place) -> None:
    root = place.process()
    place.count(root)
    torn, counts = place.top / "totals" / f"{'0' * 16}-1.counts", place.names(".counts")[0]
    whole = (place.top / "totals" / counts).read_bytes()
    torn.write_bytes(whole[: len(whole) // 2] + bytes(20) + b'\n[1]\n{"queue": 7}\n{"queue": "q0"')
    found = Ledger(root).of(QUEUES[0])[Total.FETCHED]
    assert found == 2  # A line that is whole counts.
    foreign = place.top / "totals" / "notes.txt"
    foreign.write_text("mine")
    os.symlink(foreign, place.top / "totals" / f"{'1' * 16}-1.counts")
    assert place.fold() == 2
    assert Ledger(root).of(QUEUES[0])[Total.FETCHED] == found
    assert foreign.read_text() == "mine"
    assert (place.top / "totals" / f"{'1' * 16}-1.counts").is_symlink()


def test_an_unfinished_file_goes_an_hour_later_though_there_is_nothing_to_fold(
    place: Place,
) -> None:
    unfinished = Path(new_totals_file(place.root.layout, "0123456789abcdef-1.counts"))
    unfinished.parent.mkdir()
    unfinished.touch()
    assert (place.fold(), unfinished.exists()) == (0, True)
    place.clock.advance(FORGOTTEN_AFTER_S + 60)
    assert (place.fold(), unfinished.exists()) == (0, False)


def test_another_version_s_counts_are_kept(place: Place) -> None:
    (place.top / "totals").mkdir(parents=True)
    path = place.top / "totals" / f"{'0' * 16}-1.counts"
    path.write_text('{"queue": "q0", "since_ms": 1, "taught": 3, "told": "x", "lost": -1}\n')
    place.fold()
    place.count(place.process())
    place.fold()
    sums = [path.read_text() for path in (place.top / "totals").glob("*.sums")]
    assert sum('"queue": "q0", "taught": 3, "fetched": 1}' in each for each in sums) == 1


def test_the_sums_of_a_deleted_queue_go_and_those_of_one_that_is_there_stay(place: Place) -> None:
    root = place.process()
    gone, stays = QUEUES[:2]
    for queue in (gone, stays):
        run_alone(create_queue(root, queue), NoFlusher())
    place.clock.advance(1)
    place.count(root)
    run_alone(delete_queue(root, gone, UUID), NoFlusher())
    assert Ledger(root).of(gone)[Total.FETCHED] == 0
    for age_s, is_known in ((1.0, True), (TOTALS_DELETED_KEPT_S, False)):
        place.clock.advance(age_s)
        place.count(root)
        place.fold()
        text = "".join(path.read_text() for path in (place.top / "totals").glob("*.sums"))
        assert (f'"{gone.text}"' in text) is is_known
        assert f'"{stays.text}"' in text
    assert Ledger(root).of(stays)[Total.FETCHED] == 3
