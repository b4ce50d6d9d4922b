"""Small file systems, mounted for a test and gone after it."""

import contextlib
import ctypes
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from harness.needs import cannot_run
from harness.processes import PATIENCE_S, eventually

# btrfs on a busy machine takes long to let go.
UNMOUNT_PATIENCE_S = 120.0
_MS_RDONLY: Final = 1
_MS_REMOUNT: Final = 32
_libc: Final = ctypes.CDLL(None, use_errno=True)


@contextlib.contextmanager
def tmpfs(where: Path, *options: str) -> Iterator[Path]:
    """A tmpfs at `where`, such as `tmpfs(path, "size=4m")`."""
    where.mkdir(parents=True, exist_ok=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", ",".join((*options, "mode=0700")), "mq-test", str(where)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode != 0:
        cannot_run(f"cannot mount a tmpfs: {mounted.stderr.strip()}")
    try:
        yield where
    finally:
        # Lazily, as a file that is open still must not leave the mount behind.
        subprocess.run(["umount", "--lazy", str(where)], check=True)


def remount(where: Path, option: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{option}", str(where)], check=True)


@contextlib.contextmanager
def mounted(disk: str | Path, where: Path, *options: str) -> Iterator[Path]:
    """A block device, or an image with the option `loop`, mounted at `where`."""
    where.mkdir(exist_ok=True)
    run_tool("mount", "-o", ",".join(("noatime", *options)), str(disk), str(where))
    try:
        yield where
    finally:
        unmount(where)


@contextlib.contextmanager
def loop_device(file: Path) -> Iterator[str]:
    """A loop device over the file, such as `/dev/loop0`."""
    device = run_tool("losetup", "--find", "--show", str(file)).strip()
    try:
        yield device
    finally:
        run_tool("losetup", "--detach", device)


def unmount(where: Path) -> None:
    """Unmounts as soon as nobody has a file open there, and lazily when that never comes."""

    def unmounted() -> bool:
        return subprocess.run(["umount", str(where)], capture_output=True).returncode == 0

    try:
        eventually(unmounted, f"an unmounted {where}", UNMOUNT_PATIENCE_S)
    except AssertionError:
        run_tool("umount", "--lazy", str(where))
        raise


def run_tool(*command: str) -> str:
    """What a command that must succeed says."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}{done.stdout}"
    return done.stdout


@contextlib.contextmanager
def new_disk(where: Path, kind: str, size: str, *options: str) -> Iterator[Path]:
    """A file system of its own on a new image, such as `new_disk(root, "ext4", "32M")`; the
    options are mkfs's. Its image lies beside it.
    """
    image = where.with_name(where.name + ".img")
    try:
        run_tool("truncate", "--size", size, str(image))
        run_tool(f"mkfs.{kind}", "-q", *options, str(image))
        with mounted(image, where, "loop"):
            yield where
    finally:
        image.unlink(missing_ok=True)


@contextlib.contextmanager
def frozen(where: Path) -> Iterator[None]:
    """The file system stands still: whoever writes or fsyncs waits for the end of the block."""
    run_tool("fsfreeze", "--freeze", str(where))
    try:
        yield
    finally:
        run_tool("fsfreeze", "--unfreeze", str(where))


def remounted_read_only(where: Path) -> bool:
    """Whether the file system became read-only; it does not while a file is open for writing."""
    flags = _MS_REMOUNT | _MS_RDONLY
    return _libc.mount(None, os.fsencode(where), None, ctypes.c_ulong(flags), None) == 0


def device_of(where: Path) -> str:
    """The device that is mounted there, such as `loop0`."""
    return run_tool("findmnt", "--noheadings", "--output", "SOURCE", str(where)).strip()[5:]
