"""Flush policies: what they open and when, and what they remember."""

import errno
from pathlib import Path

import pytest
from harness.faults import FaultyFiles

from mq.store.disk.files import Files
from mq.store.disk.flush import FILES_BEFORE_SYNCFS_MAX, FsyncFlusher, SyncfsFlusher
from mq.store.disk.group import Group, run_alone
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


def use(folder: Path) -> Steps[None]:
    """Relies on the folder's being there."""
    yield Flush(entries=(str(folder),))


def test_a_group_s_descriptor_is_open_before_its_first_write(tmp_path: Path) -> None:
    """The kernel tells each descriptor only of errors that came after it was opened."""
    files = FaultyFiles()
    many = FILES_BEFORE_SYNCFS_MAX + 1
    run_alone(write(files, tmp_path / "file", many), SyncfsFlusher(files, str(tmp_path)))
    made = [call for call, _ in files.calls]
    assert made == ["open_folder", "create", "write", "sync_file_system"]
    assert files.open_paths() == []


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


def test_a_folder_that_was_made_anew_has_its_entry_flushed_again(tmp_path: Path) -> None:
    files = FaultyFiles()
    flusher = FsyncFlusher(files, 1)
    folder = tmp_path / "folder"
    for generation in range(2):
        folder.mkdir()
        for _ in range(2):
            run_alone(use(folder), flusher)
        assert files.count("sync_folder", str(tmp_path)) == generation + 1
        folder.rename(tmp_path / f"old-{generation}")
    flusher.close()


def rename(folders: tuple[str, ...], covered: int) -> Steps[None]:
    """What a rename, or several, asks to be flushed."""
    yield Flush(folders=folders, covered=covered)


@pytest.mark.parametrize("whole_renames", [False, True])
@pytest.mark.parametrize("covered", [0, 1])
def test_a_rename_s_source_is_left_out_only_where_a_journal_keeps_renames_whole(
    tmp_path: Path, whole_renames: bool, covered: int
) -> None:
    folders = tuple(str(tmp_path / name) for name in ("target", "source"))
    for folder in folders:
        Path(folder).mkdir()
    files = FaultyFiles()
    flusher = FsyncFlusher(files, 1, whole_renames=whole_renames)
    run_alone(rename(folders, covered), flusher)
    flusher.close()
    synced = [path for call, path in files.calls if call == "sync_folder"]
    assert synced == list(folders[:1] if whole_renames and covered else folders)
