"""The seam's own word on what the system answers."""

import errno
import os
from pathlib import Path

import pytest

from mq.store.files import Files


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
