"""An ext4 in memory for what the certificate writes: a file system of its own, unlike tmpfs, which
mq serves in another way.
"""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.mounts import loop_device, mounted, run_tool, tmpfs

_GIB = 1 << 30
_NEEDED_BYTES = 12 * _GIB
# Without a journal, as the steps that tests expect are those that need none. For each file that it
# makes, such an ext4 passes by all inodes of a group that were free for less than minutes: in small
# groups those are few. In groups of the usual size, files take ten times as long to make once many
# have been removed.
_MAKE = ("mkfs.ext4", "-q", "-O", "^has_journal", "-g", "2048", "-G", "1")
_ZRAM = Path("/sys/class/zram-control")


@contextlib.contextmanager
def memory_disk(where: Path) -> Iterator[Path]:
    """A folder of it below `where`; one on the disk where memory is short or nothing is mounted."""
    plain = where / "files"
    plain.mkdir()
    cleanup = contextlib.ExitStack()
    made = plain
    try:
        if _available_bytes() >= _NEEDED_BYTES:
            made = cleanup.enter_context(_mounted(where))
    except (AssertionError, OSError, pytest.fail.Exception, pytest.skip.Exception) as error:
        print(f"tests write to the disk, not to an ext4 in memory: {error}", file=sys.stderr)
    try:
        yield made
    finally:
        try:
            cleanup.close()
        except AssertionError as error:
            # What a test has left there; it is unmounted lazily.
            print(error, file=sys.stderr)


@contextlib.contextmanager
def _mounted(where: Path) -> Iterator[Path]:
    with contextlib.ExitStack() as cleanup:
        device = _zram(cleanup)
        if device is None:
            image = cleanup.enter_context(tmpfs(where / "memory", "size=9g")) / "image"
            with image.open("wb") as file:
                file.truncate(8 * _GIB)
            device = cleanup.enter_context(loop_device(image))
        run_tool(*_MAKE, device)
        yield cleanup.enter_context(mounted(device, where / "disk", "discard"))


def _zram(cleanup: contextlib.ExitStack) -> str | None:
    """A flush to zram waits for no other thread; behind a loop device a thread of the kernel's does
    it, which on a busy machine has to get its turn.
    """
    try:
        number = (_ZRAM / "hot_add").read_text().strip()
    except OSError:
        return None
    # It has this number even where it cannot be used.
    cleanup.callback(_remove_zram, number)
    try:
        block = Path(f"/sys/block/zram{number}")
        with contextlib.suppress(OSError):
            (block / "comp_algorithm").write_text("lz4")
        (block / "mem_limit").write_text(str(9 * _GIB))
        (block / "disksize").write_text(str(8 * _GIB))
    except OSError:
        return None
    device = Path(f"/dev/zram{number}")
    return str(device) if device.is_block_device() else None


def _remove_zram(number: str) -> None:
    with contextlib.suppress(OSError):
        (_ZRAM / "hot_remove").write_text(number)


def _available_bytes() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0
