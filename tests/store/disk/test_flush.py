"""Flush policies: what they open and when, and what they remember."""

import errno
import subprocess
from pathlib import Path

import pytest
from crash.blocks import LOOP_CONTROL, logged_disk
from crash.images import Flush as DiskFlush
from crash.images import Mark, Write, read_log
from crash.recording import EXT4, make_file_system
from harness.faults import FaultyFiles
from harness.fuse import check_fuse
from harness.mounts import mounted, tmpfs

from mq.store.disk.files import Files
from mq.store.disk.flush import FILES_BEFORE_SYNCFS_MAX, FsyncFlusher, SyncfsFlusher
from mq.store.disk.group import Group, run_alone
from mq.store.disk.mounts import file_system_of
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


@pytest.mark.needs_root
@pytest.mark.usefixtures("needs_root")
@pytest.mark.parametrize(
    ("made", "kind", "whole"),
    [
        (["mkfs.ext4", "-q"], "ext4", True),
        (["mkfs.ext4", "-q", "-O", "^has_journal"], "ext4", False),
        (["mkfs.xfs", "-q"], "xfs", True),
        (["mkfs.btrfs", "-q"], "btrfs", False),
    ],
)
def test_which_file_systems_keep_renames_whole(
    tmp_path: Path, made: list[str], kind: str, whole: bool
) -> None:
    image, point = tmp_path / "image", tmp_path / "mounted"
    with image.open("wb") as file:
        file.truncate(400 << 20)
    point.mkdir()
    subprocess.run([*made, str(image)], check=True)
    with mounted(image, point, "loop"):
        found = file_system_of(str(point))
        assert (found.kind, found.has_whole_renames) == (kind, whole)


@pytest.mark.needs_root
@pytest.mark.usefixtures("needs_root")
@pytest.mark.parametrize("policy", [SyncfsFlusher, FsyncFlusher])
def test_a_flush_reaches_the_disk(
    tmp_path: Path, policy: type[SyncfsFlusher] | type[FsyncFlusher]
) -> None:
    """On return the disk was flushed after it had the body."""
    check_fuse(LOOP_CONTROL)
    files = Files()
    with tmpfs(tmp_path / "memory", "size=200m") as memory:
        image = memory / "image"
        make_file_system(EXT4, image)
        with (
            logged_disk(memory, image, memory / "log") as disk,
            mounted(disk.device, memory / "mounted") as top,
        ):
            flusher = (
                SyncfsFlusher(files, str(top))
                if policy is SyncfsFlusher
                else FsyncFlusher(files, 1)
            )
            files.sync_folder(str(top))
            disk.mark("begin")
            run_alone(write(files, top / "file", FILES_BEFORE_SYNCFS_MAX + 1), flusher)
            disk.mark("end")
            flusher.close()
        with (memory / "log").open("rb") as written:
            log = list(read_log(written))
    begin, end = (place for place, entry in enumerate(log) if isinstance(entry, Mark))
    done = log[begin + 1 : end]
    written_at = next(
        place for place, entry in enumerate(done) if isinstance(entry, Write) and BODY in entry.data
    )
    assert DiskFlush() in done[written_at:]
