"""The commit thread: operations that arrive while a flush goes on are served by the next."""

import errno
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.processes import PATIENCE_S, eventually

from mq.model.errors import Unavailable
from mq.store.disk.commit import GATHER_MIN, OPERATIONS_STANDING_MAX, CommitLine, Committer
from mq.store.disk.files import Files
from mq.store.disk.flush import FILES_BEFORE_SYNCFS_MAX, SyncfsFlusher
from mq.store.disk.group import Outcome
from mq.store.disk.steps import LISTS, Flush, Steps


class GatedFiles(Files):
    """Real files, whose syncfs waits for the gate, and fails when told to."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.failing = 0
        self.syncfs_begun = 0
        self.synced: list[str] = []

    def sync_file_system(self, descriptor: int) -> None:
        self.syncfs_begun += 1
        assert self.gate.wait(PATIENCE_S)
        if self.failing:
            self.failing -= 1
            raise OSError(errno.EIO, "syncfs failed")
        super().sync_file_system(descriptor)

    def sync(self, descriptor: int) -> None:
        self.synced.append(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))
        super().sync(descriptor)


@pytest.fixture
def files() -> GatedFiles:
    return GatedFiles()


class Ends:
    """What became of operations, by the names they were put in under."""

    def __init__(self) -> None:
        self.of: dict[str, Outcome] = {}

    def __call__(self, ended: list[tuple[str, Outcome]]) -> None:
        self.of.update(ended)


@pytest.fixture
def ends() -> Ends:
    return Ends()


@pytest.fixture
def line(files: GatedFiles, ends: Ends, tmp_path: Path) -> Iterator[CommitLine[str]]:
    made: CommitLine[str] = CommitLine(SyncfsFlusher(files, str(tmp_path)), ends, time.monotonic)
    yield made
    files.gate.set()
    made.close()


def write(path: Path, acted: list[str]) -> Steps[str]:
    """A file, flushed as if it were several: one alone would be fsynced."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
    try:
        acted.append(path.name)
        yield Flush(files=(descriptor,) * (FILES_BEFORE_SYNCFS_MAX + 1))
    finally:
        os.close(descriptor)
    acted.append(f"{path.name} flushed")
    return path.name


def write_twice(path: Path) -> Steps[str]:
    """Two files, a flush for each."""
    yield from write(path.with_suffix(".first"), [])
    return (yield from write(path, []))


def test_what_arrives_during_a_flush_is_flushed_together_by_the_next(
    line: CommitLine[str], files: GatedFiles, ends: Ends, tmp_path: Path
) -> None:
    acted: list[str] = []
    line.put([(write(tmp_path / "a", acted), "a")])
    eventually(lambda: files.syncfs_begun == 1, "the first flush goes on")
    for name in ("b", "c"):
        line.put([(write(tmp_path / name, acted), name)])
    assert line.arrived == 2
    assert not ends.of
    files.gate.set()
    eventually(lambda: set(ends.of) == {"a", "b", "c"}, "all ended")
    assert files.syncfs_begun == 2
    assert line.arrived == 0
    assert [outcome.value for outcome in ends.of.values()] == ["a", "b", "c"]


def test_operations_at_different_steps_share_a_flush(
    line: CommitLine[str], files: GatedFiles, ends: Ends, tmp_path: Path
) -> None:
    line.put([(write_twice(tmp_path / "a"), "a")])
    eventually(lambda: files.syncfs_begun == 1, "the first flush goes on")
    line.put([(write_twice(tmp_path / "b"), "b")])
    files.gate.set()
    eventually(lambda: set(ends.of) == {"a", "b"}, "both ended")
    assert files.syncfs_begun == 3


def test_after_a_syncfs_that_fails_each_file_of_the_flush_is_flushed_by_itself(
    line: CommitLine[str], files: GatedFiles, ends: Ends, tmp_path: Path
) -> None:
    acted: list[str] = []
    files.failing = 1
    line.put([(write(tmp_path / name, acted), name) for name in ("a", "b")])
    eventually(lambda: files.syncfs_begun == 1, "the first flush goes on")
    line.put([(write(tmp_path / "c", acted), "c")])
    files.gate.set()
    eventually(lambda: set(ends.of) == {"a", "b", "c"}, "all ended")
    assert list(dict.fromkeys(files.synced)) == ["a", "b"]
    assert files.syncfs_begun == 2


def test_no_more_operations_stand_than_descriptors_are_meant_for(
    line: CommitLine[str], files: GatedFiles, ends: Ends, tmp_path: Path
) -> None:
    acted: list[str] = []
    names = [f"{number:04}" for number in range(2 * OPERATIONS_STANDING_MAX)]
    line.put([(write(tmp_path / name, acted), name) for name in names])
    eventually(lambda: files.syncfs_begun == 1, "the first flush goes on")
    assert len(acted) == OPERATIONS_STANDING_MAX
    files.gate.set()
    eventually(lambda: len(ends.of) == len(names), "all ended")


def test_a_fault_of_the_policy_answers_and_the_line_goes_on(
    files: GatedFiles, ends: Ends, tmp_path: Path
) -> None:
    class Broken(SyncfsFlusher):
        def session(self):  # type: ignore[no-untyped-def]
            session = super().session()
            real, broken = session.flush, [True]

            def flush(asked):  # type: ignore[no-untyped-def]
                if broken.pop() if broken else False:
                    raise RuntimeError("no flush today")
                return real(asked)

            session.flush = flush
            return session

    files.gate.set()
    line: CommitLine[str] = CommitLine(Broken(files, str(tmp_path)), ends, time.monotonic)
    acted: list[str] = []
    line.put([(write(tmp_path / "a", acted), "a")])
    eventually(lambda: "a" in ends.of, "the first ended")
    assert "no flush today" in repr(ends.of["a"].error)
    line.put([(write(tmp_path / "b", acted), "b")])
    eventually(lambda: "b" in ends.of, "the next ended")
    assert ends.of["b"].value == "b"
    line.close()


def test_close_lets_all_that_was_taken_in_end(
    line: CommitLine[str], files: GatedFiles, ends: Ends, tmp_path: Path
) -> None:
    acted: list[str] = []
    files.gate.set()
    line.put([(write(tmp_path / str(number), acted), str(number)) for number in range(300)])
    line.close()
    assert len(ends.of) == 300


def test_an_idle_line_keeps_nothing_open(
    line: CommitLine[str], files: GatedFiles, ends: Ends, tmp_path: Path
) -> None:
    """A root that nobody uses can be unmounted."""
    files.gate.set()
    line.put([(write(tmp_path / "a", []), "a")])
    eventually(lambda: "a" in ends.of, "it ended")
    eventually(lambda: not opened_below(tmp_path), "nothing is open")


def test_what_asks_for_no_flush_leaves_nothing_open(
    line: CommitLine[str], ends: Ends, tmp_path: Path
) -> None:
    """A fetch that lost its race, a publish that found no space."""

    def act() -> Steps[str]:
        return "done"
        yield Flush()

    line.put([(act(), "a")])
    eventually(lambda: "a" in ends.of, "it ended")
    eventually(lambda: not opened_below(tmp_path), "nothing is open")


def test_an_operation_that_fails_to_clean_up_keeps_no_other_from_its_answer(
    files: GatedFiles, ends: Ends, tmp_path: Path
) -> None:
    class Broken(SyncfsFlusher):
        def session(self):  # type: ignore[no-untyped-def]
            session = super().session()

            def flush(asked):  # type: ignore[no-untyped-def]
                raise RuntimeError("no flush today")

            session.flush = flush
            return session

    def act() -> Steps[str]:
        try:
            yield Flush(folders=(str(tmp_path),))
        finally:
            raise OSError(errno.EIO, "cleaning up failed")

    line: CommitLine[str] = CommitLine(Broken(files, str(tmp_path)), ends, time.monotonic)
    line.put([(act(), "a"), (act(), "b")])
    eventually(lambda: set(ends.of) == {"a", "b"}, "both ended")
    line.close()


def test_one_who_cannot_be_told_keeps_no_other_from_being_told(
    files: GatedFiles, tmp_path: Path
) -> None:
    told: list[str] = []

    def ended(outcomes: list[tuple[str, Outcome]]) -> None:
        told.extend(name for name, _ in outcomes)
        if told[-1] != "a":
            raise RuntimeError("nobody listens")

    files.gate.set()
    line: CommitLine[str] = CommitLine(SyncfsFlusher(files, str(tmp_path)), ended, time.monotonic)
    for name in ("b", "c", "a"):
        line.put([(write(tmp_path / name, []), name)])
        eventually(lambda name=name: name in told, "it was told")  # type: ignore[misc]
    line.close()


def opened_below(folder: Path) -> list[str]:
    found = []
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{descriptor}")
        except OSError:
            continue
        if target.startswith(str(folder)):
            found.append(target)
    return found


@pytest.mark.parametrize("is_slow", [False, True])
def test_where_flushes_take_long_the_next_waits_for_the_clients_of_the_last(
    files: GatedFiles, tmp_path: Path, is_slow: bool
) -> None:
    """Each of many that end together comes back alone, and yet one flush serves all."""
    now = [0.0]
    back = iter(range(GATHER_MIN))
    ends: list[str] = []

    def ended(outcomes: list[tuple[str, Outcome]]) -> None:
        ends.extend(name for name, _ in outcomes)

    def come_back() -> None:
        for number in back:
            eventually(lambda number=number: is_slow or len(ends) >= GATHER_MIN + number, "alone")  # type: ignore[misc]
            line.put([(write(tmp_path / f"again-{number}", []), f"again-{number}")])

    line: CommitLine[str] = CommitLine(SyncfsFlusher(files, str(tmp_path)), ended, lambda: now[0])
    line.put([(write(tmp_path / str(n), []), str(n)) for n in range(GATHER_MIN)])
    eventually(lambda: files.syncfs_begun == 1, "the first flush goes on")
    now[0] += 1000.0 if is_slow else 0.0
    files.gate.set()
    eventually(lambda: len(ends) >= GATHER_MIN, "all left")
    come_back()
    eventually(lambda: len(ends) == 2 * GATHER_MIN, "all left again")
    assert files.syncfs_begun == 1 + (1 if is_slow else GATHER_MIN)
    line.close()


def test_a_flush_waits_no_longer_than_its_part_of_the_last_one(
    files: GatedFiles, ends: Ends, tmp_path: Path
) -> None:
    now = [0.0]
    line: CommitLine[str] = CommitLine(SyncfsFlusher(files, str(tmp_path)), ends, lambda: now[0])
    line.put([(write(tmp_path / str(n), []), str(n)) for n in range(GATHER_MIN)])
    eventually(lambda: files.syncfs_begun == 1, "the first flush goes on")
    now[0] += 1.0
    files.gate.set()
    eventually(lambda: len(ends.of) == GATHER_MIN, "all left")
    now[0] += 1.0  # They do not come back; somebody else comes, alone.
    line.put([(write(tmp_path / "late", []), "late")])
    eventually(lambda: "late" in ends.of, "it ended")
    line.close()


@pytest.mark.parametrize("on_loop", [False, True])
async def test_others_do_not_wait_for_one_that_lists_folders(tmp_path: Path, on_loop: bool) -> None:
    listed = threading.Event()
    threads = set()

    def lists(name: str) -> Steps[str]:
        yield Flush(folders=(str(tmp_path),))
        yield LISTS
        threads.add(threading.current_thread())
        assert listed.wait(PATIENCE_S)
        yield from write(tmp_path / name, [])
        if name == "refused":
            raise OSError(errno.EIO, name)
        return name

    files = GatedFiles()
    files.gate.set()
    committer = Committer(SyncfsFlusher(files, str(tmp_path)), on_loop)
    those = [committer.submit(lists(name)) for name in ("first", "second", "refused")]
    assert await committer.commit(write(tmp_path / "other", [])) == "other"
    assert not any(each.done() for each in those)
    begun = files.syncfs_begun
    listed.set()
    assert [await each for each in those[:2]] == ["first", "second"]
    with pytest.raises(Unavailable):
        await those[2]
    assert len(threads) == 1
    assert files.syncfs_begun <= begun + 2, "they share their flushes"
    await committer.drain()
