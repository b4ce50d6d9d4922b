"""Renames of folders, where the file system has none: in a lower layer of overlayfs."""

import errno
from pathlib import Path

import pytest
from harness.faults import FaultyFiles

from mq.model.errors import Busy
from mq.store.core.root import MOVES_MAX, rename_folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "queue"
    (made / "bucket").mkdir(parents=True)
    for name in ("a", "b", "bucket/c"):
        (made / name).write_text(name)
    return made


def test_a_folder_that_cannot_be_renamed_goes_file_by_file(folder: Path, tmp_path: Path) -> None:
    files = FaultyFiles()
    files.fail("rename", errno.EXDEV, times=1)
    target = tmp_path / "removed"
    rename_folder(files, str(folder), str(target))
    assert not folder.exists()
    assert {str(path.relative_to(target)) for path in target.rglob("*")} == {
        "a", "b", "bucket", "bucket/c",
    }  # fmt: skip
    # Each folder is flushed once all of it is there, and before the old one goes.
    for name, count in (("", 2), ("/bucket", 1)):
        begin = f"{folder}{name}/"
        of = [
            (call, path)
            for call, path in files.calls
            if (call == "rename" and path.startswith(begin) and "/" not in path[len(begin) :])
            or (call == "sync_folder" and path == f"{target}{name}")
            or (call == "rmdir" and path == f"{folder}{name}")
        ]
        assert [call for call, _ in of] == ["rename"] * count + ["sync_folder", "rmdir"]


def test_messages_go_before_their_links(folder: Path, tmp_path: Path) -> None:
    """So a crash between leaves no living message without its key."""
    files = FaultyFiles()
    for kind in (".keys", ".groups"):
        (folder / kind).mkdir()
        (folder / kind / "link").symlink_to("a")
    files.fail("rename", errno.EXDEV, times=1)
    rename_folder(files, str(folder), str(tmp_path / "removed"))
    sources = [
        path for call, path in files.calls if call == "rename" and path.startswith(str(folder))
    ]
    kinds = ["link" if path.endswith("/link") else "message" for path in sources[1:]]
    assert kinds == ["message"] * 3 + ["link"] * 2


def test_a_folder_that_can_be_renamed_is(folder: Path, tmp_path: Path) -> None:
    files = FaultyFiles()
    rename_folder(files, str(folder), str(tmp_path / "removed"))
    assert [call for call, _ in files.calls] == ["rename"]


def test_one_that_never_becomes_empty_is_busy(folder: Path, tmp_path: Path) -> None:
    files = FaultyFiles()
    files.fail("rename", errno.EXDEV, times=1)
    files.fail("rmdir", errno.ENOTEMPTY)
    with pytest.raises(Busy):
        rename_folder(files, str(folder), str(tmp_path / "removed"))
    assert files.count("rmdir") == MOVES_MAX
