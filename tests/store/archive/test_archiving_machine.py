"""Messages that are removed in every way while an archive is enabled and disabled, a job that dies
at any call, and reapers: nothing is unlinked that no stored ledger has, all that is stored goes in
the end, and no message is in two ledgers.
"""

import errno
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from harness.archives import OTHER, ArchivingRoot
from harness.chance import examples
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from mq.store.archive import archiving
from mq.store.archive.archiving import begin_batch, disable, stored, unfinished_batch
from mq.store.disk.files import Files
from mq.store.disk.steps import Flush
from mq.store.operations import reap
from mq.store.operations.queues import retire_delayed
from mq_reaper.reaper import Reaper

KEEP_S = 30.0
numbers = st.integers(0, 1000)


class Died(BaseException):
    """The process was killed."""


class CrashingFiles(Files):
    """Files of a process that dies before one of the calls that change the disk, or flush it. What
    cleans up after that finds that it cannot.
    """

    left: int | None = None
    is_dead = False

    def _call(self) -> None:
        if self.is_dead:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if self.left is not None:
            if self.left == 0:
                self.is_dead = True
                raise Died
            self.left -= 1

    def create(self, path: str) -> int:
        self._call()
        return super().create(path)

    def write(self, descriptor: int, data: bytes | bytearray | memoryview) -> None:
        self._call()
        super().write(descriptor, data)

    def rename(self, source: str, target: str) -> None:
        self._call()
        super().rename(source, target)

    def unlink(self, path: str) -> None:
        self._call()
        super().unlink(path)

    def rmdir(self, path: str) -> None:
        self._call()
        super().rmdir(path)

    def sync(self, descriptor: int) -> None:
        self._call()

    def sync_folder(self, path: str) -> None:
        self._call()

    def sync_file_system(self, descriptor: int) -> None:
        self._call()


class Session:
    """Flushes, each a call of the process."""

    name = "crashing"

    def __init__(self, files: CrashingFiles) -> None:
        self._files = files

    def session(self) -> "Session":
        return self

    def begin(self) -> int:
        return 0

    def flush(self, asked: dict[int, Flush]) -> dict[int, OSError]:
        for each in asked.values():
            for folder in each.folders:
                self._files.sync_folder(folder)
        return {}

    def rest(self) -> None:
        return

    def close(self) -> None:
        return


class Archiving(RuleBasedStateMachine):
    """What the job has stored is known by the names alone, as its archive would have them."""

    def __init__(self) -> None:
        super().__init__()
        self.patched = (reap.REAPED_NAMES_PER_LOOK, archiving.ARCHIVE_LEDGERS_MAX)
        reap.REAPED_NAMES_PER_LOOK, archiving.ARCHIVE_LEDGERS_MAX = 2, 3  # type: ignore[misc]
        self.top = Path(tempfile.mkdtemp(prefix="mq-archiving-", dir="/dev/shm"))
        self.files = CrashingFiles()
        flusher = Session(self.files)
        self.place = ArchivingRoot(self.top / "root", 2, self.files, flusher)  # type: ignore[arg-type]
        self.place.make_queue(OTHER)
        self.root, self.flusher = self.place.root, self.place.flusher
        self.reapers = self._new_reapers()
        self.enabled = False
        self.stored: set[str] = set()
        """The ids that the archive has; of the one that is enabled."""
        self.begun: dict[int, list[str]] = {}
        """The names of each batch that was begun, by its number."""
        self.batches: dict[int, set[str]] = {}
        """The ids of those that are stored since the archive was enabled."""
        self.present = self._present()

    def teardown(self) -> None:
        try:
            self._comes_to_its_end()
        finally:
            reap.REAPED_NAMES_PER_LOOK, archiving.ARCHIVE_LEDGERS_MAX = self.patched  # type: ignore[misc]
            shutil.rmtree(self.top)

    def _comes_to_its_end(self) -> None:
        self.enable()
        for name in self._removed():
            assert name in self.present
        while (batch := self.place.begin(4)) is not None:
            self._put(batch.seq, self.place.names(batch))
            stored(self.root, self.flusher, batch)
        self.reapers = self._new_reapers()
        for _ in range(2):  # Keys, and folders that emptied.
            self.place.pass_s(KEEP_S + 60)
            self.place.reap(self.reapers[0])
        self.only_stored_is_unlinked()
        assert self._removed() == []

    # What daemons do

    @rule(count=st.integers(1, 5))
    def remove(self, count: int) -> None:
        self.place.remove(count)

    @rule(count=st.integers(0, 4))
    def delete_a_queue(self, count: int) -> None:
        self.place.publish(count, OTHER)
        self.place.delete(OTHER)
        retire_delayed(self.root, OTHER)
        self.place.make_queue(OTHER)

    @rule(count=st.integers(1, 4))
    def acknowledge(self, count: int) -> None:
        self.place.publish(count)
        self.place.acknowledge()

    @rule()
    def time_passes(self) -> None:
        self.place.pass_s(KEEP_S + 1)

    # What the job does

    @rule()
    def enable(self) -> None:
        self._until_a_crash(None, lambda: self.place.enable(self._to()))
        if not self.enabled:
            self._anew()
        self.enabled = True

    @rule(dies=st.none() | st.integers(0, 12))
    def enable_and_die(self, dies: int | None) -> None:
        was = self.enabled
        self._until_a_crash(dies, lambda: self.place.enable(self._to()))
        self.enabled = archiving.is_archived(self.root)
        if self.enabled and not was:
            self._anew()

    @precondition(lambda self: self.enabled)
    @rule(dies=st.none() | st.integers(0, 12))
    def disable(self, dies: int | None) -> None:
        self._until_a_crash(dies, lambda: disable(self.root, self.flusher))
        self.enabled = archiving.is_archived(self.root)

    @precondition(lambda self: self.enabled)
    @rule(limit=st.integers(1, 6), dies=st.none() | st.integers(0, 12))
    def begin(self, limit: int, dies: int | None) -> None:
        self._until_a_crash(dies, lambda: begin_batch(self.root, self.flusher, limit))
        batch = unfinished_batch(self.root)
        if batch is not None:
            names = self.place.names(batch)
            assert self.begun.setdefault(batch.seq, names) == names, "a number came twice"

    @precondition(lambda self: self.enabled)
    @rule(dies=st.none() | st.integers(0, 2))
    def store(self, dies: int | None) -> None:
        batch = unfinished_batch(self.root)
        if batch is not None:
            self._put(batch.seq, self.place.names(batch))
            self._until_a_crash(dies, lambda: stored(self.root, self.flusher, batch))

    # What reapers do

    @rule(number=numbers, dies=st.none() | st.integers(0, 8))
    def reap(self, number: int, dies: int | None) -> None:
        reaper = self.reapers[number % len(self.reapers)]
        self._until_a_crash(dies, reaper.run_once)
        if dies is not None:
            self.reapers = self._new_reapers()

    @rule(number=numbers)
    def reap_while_one_enables(self, number: int) -> None:
        """In the middle of a listing: what was listed before may go, what comes after may not."""
        if self.enabled:
            return
        late = self.place.publish(2)
        listed, looks = self.files.entries, Counter[str]()

        def entries(folder: str):  # type: ignore[no-untyped-def]
            looks["listed"] += 1
            if looks["listed"] == 1 + number % 4:
                self.files.entries = listed  # type: ignore[method-assign]
                self.enable()
                for message_id in late:
                    self.place.take(message_id)
                self.late = {message_id.text for message_id in late}
            yield from listed(folder)

        self.late: set[str] = set()
        self.files.entries = entries  # type: ignore[method-assign]
        try:
            self.reapers[0].run_once()
        finally:
            self.files.entries = listed  # type: ignore[method-assign]
        assert self.late <= self._present()
        self.present = self._present()

    @invariant()
    def only_stored_is_unlinked(self) -> None:
        present = self._present()
        if self.enabled:
            assert self.present - present <= self.stored
        self.present = present

    # Below

    def _put(self, seq: int, names: list[str]) -> None:
        """The archive has these on stable media. A batch that comes again is the same one."""
        if self.begun.get(seq) is None:
            self.begun[seq] = names
        ids = {_id(name) for name in names}
        assert len(ids) == len(names)
        others = (each for other, each in self.batches.items() if other != seq)
        assert not any(ids & each for each in others), "in two batches"
        self.batches[seq] = ids
        self.stored |= ids

    def _anew(self) -> None:
        """An archive was enabled, and has nothing."""
        self.stored.clear()
        self.batches.clear()

    def _until_a_crash(self, dies: int | None, work: Callable[[], object]) -> None:
        self.files.left = dies
        try:
            work()
        except Died:
            pass
        finally:
            self.files.left, self.files.is_dead = None, False

    def _new_reapers(self) -> list[Reaper]:
        return [self.place.reaper(keep_s) for keep_s in (0, 0, KEEP_S)]

    def _to(self) -> str:
        return "/srv/archive"

    def _removed(self) -> list[str]:
        return [_id(name) for name in self.place.removed()]

    def _present(self) -> set[str]:
        """The ids of all messages that are anywhere."""
        found = [path.name for path in self.place.top.rglob("*") if path.is_file()]
        ids = Counter(_id(name) for name in found if "-7" in name and "archive" not in name)
        return set(ids)


def _id(name: str) -> str:
    return name.rpartition("/")[2].rpartition(":")[2]


Archiving.TestCase.settings = settings(
    max_examples=examples(20), stateful_step_count=30, deadline=None
)
TestArchiving = Archiving.TestCase
