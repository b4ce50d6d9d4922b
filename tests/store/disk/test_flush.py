"""Flush policies: what they open and when, and what they remember."""

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.faults import FaultyFiles

from mq.model.errors import StorageFailed
from mq.store.disk.files import Files
from mq.store.disk.flush import FILES_BEFORE_SYNCFS_MAX, FsyncFlusher, OrderedFolders, SyncfsFlusher
from mq.store.disk.group import Group, run_alone, run_group
from mq.store.disk.steps import Flush, Steps

BODY = b"a body that no file system has by itself"


def write(files: Files, path: Path, times: int = 1) -> Steps[None]:
    """A file, flushed; as if it were so many."""
    descriptor = files.create(str(path))
    try:
        files.write(descriptor, BODY)
        yield Flush(files=(descriptor,) * times)
    finally:
        files.close(descriptor)


def test_a_group_s_descriptor_is_open_before_its_first_write(tmp_path: Path) -> None:
    """The kernel tells each descriptor only of errors that came after it was opened."""
    files = FaultyFiles()
    many = FILES_BEFORE_SYNCFS_MAX + 1
    run_alone(write(files, tmp_path / "file", many), SyncfsFlusher(files, str(tmp_path)))
    made = [call for call, _ in files.calls]
    assert made == ["open_folder", "create", "write", "sync_file_system"]
    assert files.open_paths() == []


def test_where_a_commit_is_one_moment_of_all_a_small_flush_is_a_syncfs(tmp_path: Path) -> None:
    files = FaultyFiles()
    files.flushes_whole = True
    flusher = SyncfsFlusher(files, str(tmp_path))
    run_alone(write(files, tmp_path / "file"), flusher)
    run_alone(asked(folders=(str(tmp_path),)), flusher)
    assert files.count("sync_file_system") == 2
    assert files.count("sync") == files.count("sync_folder") == 0
    files.fail("sync_file_system", errno.EIO)
    with pytest.raises(StorageFailed):
        run_alone(asked(folders=(str(tmp_path),)), flusher)


def test_what_was_written_without_a_descriptor_is_flushed_file_by_file(tmp_path: Path) -> None:
    """A syncfs by a descriptor that was opened afterwards would not tell of an error of it."""
    files = FaultyFiles()
    group: Group[None] = Group(SyncfsFlusher(files, str(tmp_path)))
    many = FILES_BEFORE_SYNCFS_MAX + 1
    files.fail("open_folder", errno.EMFILE, times=1)
    group.join([(write(files, tmp_path / "blind", many), None)])
    group.join([(write(files, tmp_path / "seen", many), None)])
    assert len(group.flush()) == 2
    assert files.count("sync_file_system") == 0
    assert files.count("sync", "blind") == many
    group.join([(write(files, tmp_path / "next", many), None)])
    group.flush()
    assert files.count("sync_file_system") == 1
    group.session.rest()


def asked(**flush: Any) -> Steps[None]:
    """An operation that has acted, and asks for this flush."""
    yield Flush(**flush)


class Ordered:
    """A group of operations on a file system that keeps the order of changes, and its flushes."""

    def __init__(self, top: Path) -> None:
        self.top = top
        for name in ("root", "target", "other", "source"):
            (top / name).mkdir()
        self.files = FaultyFiles()
        self._flusher = FsyncFlusher(
            self.files, 1, OrderedFolders(self.files, lambda: None, str(top / "root"))
        )
        self.open = self.files.create(str(top / "file"))

    def moved(self, to: str) -> Steps[None]:
        return asked(folders=(str(self.top / to), str(self.top / "source")), covered=1)

    def stamped(self, *folders: str) -> Steps[None]:
        return asked(stamps=(self.open,), folders=tuple(str(self.top / each) for each in folders))

    def looked(self, at: str) -> Steps[None]:
        return asked(folders=(str(self.top / at),))

    def flush(self, *operations: Steps[None]) -> list[bool]:
        """Whether each is durable."""
        return [each.error is None for each in run_group(operations, self._flusher)]

    @property
    def flushed(self) -> list[str]:
        """What was changed for a flush, and flushed, in order."""
        wanted = {"sync": "", "sync_folder": "", "touch": "touch "}
        return [wanted[call] + Path(path).name for call, path in self.files.calls if call in wanted]


@pytest.fixture
def ordered(tmp_path: Path) -> Iterator[Ordered]:
    made = Ordered(tmp_path)
    yield made
    made.files.close(made.open)


def test_the_last_change_is_flushed_for_all_before_it(ordered: Ordered) -> None:
    moves = [ordered.moved("target"), ordered.looked("source"), ordered.moved("other")]
    assert ordered.flush(*moves) == [True] * 3
    assert ordered.flushed == ["other"]
    ordered.files.calls.clear()
    assert ordered.flush(ordered.moved("other"), ordered.stamped()) == [True] * 2
    assert ordered.flushed == ["file"]


def test_what_depends_on_others_after_the_last_change_has_a_change_of_its_own(
    ordered: Ordered,
) -> None:
    """An fsync of what is unchanged may do nothing for what others have changed elsewhere."""
    later = [ordered.looked("source"), ordered.stamped("other")]
    assert ordered.flush(ordered.moved("target"), *later) == [True] * 3
    assert ordered.flushed == ["target", "touch root", "root"]


def test_where_the_last_change_is_gone_or_fails_the_one_before_is_flushed(ordered: Ordered) -> None:
    (ordered.top / "other").rmdir()
    gone = [ordered.moved("target"), ordered.moved("other")]
    assert ordered.flush(*gone) == [True, False]
    assert ordered.flushed == ["other", "target"]
    ordered.files.calls.clear()
    ordered.files.fail("sync", errno.EIO, times=1)
    assert ordered.flush(ordered.moved("target"), ordered.stamped()) == [True, False]
    assert ordered.flushed == ["file", "target"]
    ordered.files.fail("sync_folder", errno.EIO)
    assert ordered.flush(ordered.moved("target"), ordered.looked("target")) == [False] * 2


def test_elsewhere_each_folder_of_a_rename_is_flushed_the_target_first(tmp_path: Path) -> None:
    folders = tuple(str(tmp_path / name) for name in ("target", "source"))
    for folder in folders:
        Path(folder).mkdir()
    files = FaultyFiles()
    flusher = FsyncFlusher(files, 1)
    run_alone(asked(folders=folders, covered=1), flusher)
    flusher.close()
    assert [path for call, path in files.calls if call == "sync_folder"] == list(folders)
