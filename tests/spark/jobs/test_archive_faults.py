"""An archive whose process dies, whose disk fails, and whose machine loses its power: each message
is there once in the end, and the root never believes what is not on stable media.
"""

import contextlib
import errno
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from crash.calls import Log
from crash.changes import Tree
from crash.images import Mark
from crash.legal_states import Disk, Model
from crash.trees import fingerprint, trees
from harness.archiving import archive_here, data_files, numbers_in, put_removed, rows_of
from harness.faults import CrashingFiles, Died, FaultyFiles
from harness.folders import make_root
from harness.logged_files import LoggedFiles

from mq.model.errors import MqError
from mq.spark.jobs.archive_folder import ArchiveFolder, newest_batch
from mq.spark.jobs.archive_task import Wanted
from mq.store.disk.files import Files

# Two batches, whose small files are made one.
MESSAGES = 4
SMALL = Wanted(batch_messages=3, small_files_max=1)


def made(top: Path) -> tuple[Path, Path]:
    """A root with messages, and where its archive goes."""
    root = make_root(top / "root")
    put_removed(root, MESSAGES)
    return root, top / "archives" / "archive"


def assert_all_there(root: Path, to: Path) -> None:
    """After another run: each message once, nothing staged, and all of it told to the root."""
    archive_here(root, to, SMALL)
    assert numbers_in(to) == list(range(MESSAGES))
    assert list((to / "_staging").iterdir()) == []
    assert not list((to / "_mq").glob("*.commit"))
    assert not list((root / "archive").glob("*.names"))


@pytest.mark.certificate
def test_a_death_before_any_change(tmp_path: Path) -> None:
    """Of the root or of the archive: the same process makes both."""
    dies_at = 0
    is_over = False
    while not is_over:
        top = tmp_path / str(dies_at)
        (top / "archives").mkdir(parents=True)
        root, to = made(top)
        files = CrashingFiles(dies_at)
        try:
            archive_here(root, to, SMALL, files=files, folder_files=files)
            is_over = True
        except Died:
            assert_told_no_more_than_there_is(root, to)
        assert_all_there(root, to)
        shutil.rmtree(top)
        dies_at += 1
    assert dies_at > 60


def assert_told_no_more_than_there_is(root: Path, to: Path) -> None:
    told = [
        line.partition(":")[2]
        for ledger in (root / "archive").glob("*.stored")
        for line in ledger.read_text().splitlines()[1:]
    ]
    there = [row["id"] for row in rows_of(to)] if told else []
    assert set(told) <= set(there) | ids_of_commits(to)
    assert len(there) == len(set(there))


def ids_of_commits(to: Path) -> set[str]:
    """What is of a batch that the root knows, whose commit is not forgotten yet."""
    commits = [int(path.stem) for path in (to / "_mq").glob("[0-9]*.commit")]
    names = [path for path in data_files(to) for seq in commits if path.name[:9] == f"{seq:09d}"]
    return {row["id"] for path in names for row in _rows(path)}


def _rows(path: Path) -> list[dict[str, str]]:
    found: list[dict[str, str]] = pq.ParquetFile(path).read().to_pylist()
    return found


CALLS = ("create", "open_kept", "write", "sync", "sync_folder", "rename", "mkdir", "unlink")


@pytest.mark.certificate
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("where", ["root/archive", "archives/"])
def test_a_disk_that_fails(tmp_path: Path, call: str, where: str) -> None:
    """Full, or broken, at every such call once: the run ends with what happened, or needs not
    know; the next one has all.
    """
    code = errno.EIO if call.startswith(("sync", "unlink")) else errno.ENOSPC
    fails_at, hits = 0, 1
    while hits:
        top = tmp_path / str(fails_at)
        (top / "archives").mkdir(parents=True)
        root, to = made(top)
        files = FaultyFiles()
        fault = files.fail(call, code, f"/{where}", times=1, after=fails_at)
        with contextlib.suppress(OSError, MqError):
            archive_here(root, to, SMALL, files=files, folder_files=files)
        hits = fault.hits
        assert hits or numbers_in(to) == list(range(MESSAGES))
        assert files.open_paths("/archives/") == []
        assert_all_there(root, to)
        shutil.rmtree(top)
        fails_at += 1
    assert not files.retried


class _Told(Files):
    """Marks in the log of the archive's calls when the root is told that a batch is stored."""

    def __init__(self, log: LoggedFiles) -> None:
        super().__init__()
        self._log = log

    def rename(self, source: str, target: str) -> None:
        if target.endswith(".stored"):
            self._log.mark("stored")
        super().rename(source, target)


EXHAUSTIVE = 16
SAMPLES = 3


@pytest.mark.certificate
@pytest.mark.parametrize("model", Model)
def test_a_power_cut_after_any_call(tmp_path: Path, model: Model) -> None:
    """What the root was told of is there after every cut, once, also while files are swapped; and
    the archive can be read and gone on with.
    """
    archives = tmp_path / "archives"
    archives.mkdir()
    root, to = made(tmp_path)
    log = LoggedFiles(archives)
    archive_here(root, to, SMALL, files=_Told(log), folder_files=log)
    assert len(data_files(to)) == 1, "no files were swapped"
    seen = 0
    for stored, tree in left_behind(log.log, model):
        seen += 1
        shutil.rmtree(archives)
        lay_out(archives, tree)
        numbers = numbers_in(to) if (to / "_mq" / "archive.json").exists() else []
        assert len(set(numbers)) == len(numbers), "a message is there twice"
        newest = newest_batch(ArchiveFolder.of(str(to), Files())) or 0
        assert len(numbers) >= min(newest * 3, MESSAGES), "a reader misses a message"
        if stored:
            # The root has been told of all by then: a run that finds nothing new.
            archive_here(root, to, Wanted(compact=False))
            numbers = numbers_in(to)
            assert len(numbers) >= min(stored * 3, MESSAGES), "a message is lost"
            assert len(set(numbers)) == len(numbers), "a message is there twice"
    assert seen > 40


def left_behind(log: Log, model: Model) -> Iterator[tuple[int, Tree]]:
    """For a cut before each place of the log some legal trees, each once, and of how many batches
    the root was told by then.
    """
    disk, stored, chance = Disk(model), 0, random.Random(model.name)
    known = set()
    for entry in [*log, None]:
        for tree in trees(disk, EXHAUSTIVE, SAMPLES, chance):
            if (key := (stored, fingerprint(tree))) not in known:
                known.add(key)
                yield stored, tree
        if entry is not None:
            stored += isinstance(entry, Mark)
            disk.apply(entry)


def lay_out(top: Path, tree: Tree) -> None:
    """Makes what a power cut has left."""
    top.mkdir()
    for path, file in tree.items():
        place = top / path.lstrip("/")
        if file is None:
            place.mkdir()
        else:
            place.write_bytes(file.data)
