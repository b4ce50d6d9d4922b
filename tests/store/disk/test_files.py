"""The seam's own word on what the system answers."""

import contextlib
import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from mq.store.disk.files import Files


def test_what_close_says_of_the_storage_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As NFS and quotas may answer; the descriptor is given back all the same."""
    files, close = Files(), os.close
    descriptor = files.create(str(tmp_path / "file"))

    def failing(closed: int) -> None:
        close(closed)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    # Below the seam, since what is tried is how the seam takes it.
    monkeypatch.setattr(os, "close", failing)
    files.close(descriptor)
    monkeypatch.undo()
    with pytest.raises(OSError, match="Bad file descriptor"):
        files.close(descriptor)


def test_what_a_syncfs_fails_with_is_told() -> None:
    with pytest.raises(OSError, match="Bad file descriptor"):
        Files().sync_file_system(-1)


@pytest.mark.parametrize(
    "opens",
    [
        Files.create,
        Files.open_kept,
        Files.open_append,
        Files.open_claimed,
        Files.open_read,
        Files.open_folder,
    ],
)
@pytest.mark.parametrize("target", ["file", "folder", "away"])
def test_no_open_follows_a_symbolic_link(
    tmp_path: Path, opens: Callable[[Files, str], int], target: str
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / target)
    with pytest.raises(OSError, match=r"symbolic link|File exists|Not a directory"):
        opens(Files(), str(link))
    assert not (tmp_path / "away").exists()


def test_no_change_of_permissions_or_owner_follows_a_symbolic_link(tmp_path: Path) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    file.touch(mode=0o644)
    link.symlink_to(file)
    with contextlib.suppress(OSError):
        Files().set_mode(str(link), 0o600)
    assert file.stat().st_mode & 0o777 == 0o644
    if os.geteuid() == 0:
        Files().set_owner(str(link), 12345)
        assert (file.stat().st_uid, link.lstat().st_uid) == (0, 12345)


def test_a_look_at_a_symbolic_link_is_at_the_link(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "away")
    status = Files().status(str(link))
    assert status is not None
    assert stat.S_ISLNK(status.st_mode)
    assert Files().is_there(str(link))


def test_a_new_file_takes_no_name_that_is_taken(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"whole")
    with pytest.raises(FileExistsError):
        Files().create(str(tmp_path / "file"))
    assert (tmp_path / "file").read_bytes() == b"whole"


def test_what_is_appended_goes_behind_what_another_has_appended(tmp_path: Path) -> None:
    files, path = Files(), str(tmp_path / "file")
    one, other = files.open_append(path), files.open_append(path)
    files.write(one, b"one ")
    files.write(other, b"other ")
    files.write(one, b"one")
    files.close(one)
    files.close(other)
    assert (tmp_path / "file").read_bytes() == b"one other one"


def test_only_a_folder_is_opened_as_one(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        Files().open_folder(str(tmp_path / "file"))


@pytest.mark.timeout(20)
def test_a_fifo_under_a_name_keeps_no_reader_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    files = Files()
    for opens in (files.open_claimed, files.open_read):
        files.close(opens(str(tmp_path / "fifo")))
