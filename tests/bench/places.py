"""Where the bench writes: a folder, tmpfs, or an ext4 of its own on a loop device over tmpfs."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.bench.load import BenchError

_TMPFS: Final = "/dev/shm"
_IMAGE_BYTES: Final = 2 << 30
_IMAGE_INODES: Final = 400_000


@contextlib.contextmanager
def folder(parent: Path | None) -> Iterator[Path]:
    """A folder of the bench's own below `parent` (None: where temporary files go), then gone."""
    with tempfile.TemporaryDirectory(prefix="mq-bench-", dir=parent) as made:
        yield Path(made)


@contextlib.contextmanager
def tmpfs() -> Iterator[Path]:
    """A folder on tmpfs, then gone."""
    with folder(Path(_TMPFS)) as made:
        yield made


@contextlib.contextmanager
def loop_ext4() -> Iterator[Path]:
    """An ext4 on a loop device whose image lies on tmpfs, then unmounted and gone.

    Its flushes cost system calls and journal commits, but no disk. Raises BenchError.
    """
    if os.geteuid() != 0:
        raise BenchError("--loop mounts a file system: it needs root")
    with tmpfs() as around:
        image, mounted = around / "image", around / "mounted"
        mounted.mkdir()
        with image.open("wb") as file:
            file.truncate(_IMAGE_BYTES)
        # All initialised now, so that the kernel writes nothing of its own while we measure.
        _run(
            "mkfs.ext4", "-q", "-F", "-N", str(_IMAGE_INODES),
            "-E", "lazy_itable_init=0,lazy_journal_init=0", str(image),
        )  # fmt: skip
        _run("mount", "-t", "ext4", "-o", "loop", str(image), str(mounted))
        try:
            yield mounted
        finally:
            _unmount(mounted)


@contextlib.contextmanager
def synchronous(mounted: Path) -> Iterator[None]:
    """While it lasts, each write to what loop_ext4() mounted is on the disk before it returns."""
    _run("mount", "-o", "remount,sync", str(mounted))
    try:
        yield
    finally:
        _run("mount", "-o", "remount,async", str(mounted))


def clear(made: Path) -> None:
    """Removes what one measurement left, and waits until that is on the disk."""
    shutil.rmtree(made, ignore_errors=True)
    os.sync()


def _unmount(mounted: Path) -> None:
    if subprocess.run(["umount", str(mounted)], capture_output=True).returncode != 0:
        _run("umount", "--lazy", str(mounted))


def _run(*command: str) -> None:
    if shutil.which(command[0]) is None:
        raise BenchError(f"--loop needs {command[0]}")
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise BenchError(f"{command[0]} failed: {done.stderr.strip()}")
