"""Which file system a root is on, and the flush policy that goes with it."""

import errno
import os
from pathlib import Path

import pytest
from harness.faults import FaultyFiles

from mq.model.clock import SystemClock
from mq.model.errors import StartupError
from mq.model.settings import CommitMode, Durability
from mq.store.core.clocks import ClockFollower
from mq.store.disk.files import Files
from mq.store.disk.flush import is_kernel_with_syncfs_errors
from mq.store.disk.mounts import FileSystem, choose_flusher, file_system_of, promise
from mq.store.disk.steps import Flush
from mq.store.opening import open_root

MOUNTINFO = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:25 / /mnt rw - tmpfs tmpfs rw
31 30 0:26 / /mnt/a\\040b rw - xfs /dev/b rw
32 30 0:27 / /mnt/q rw - nfs4 server:/q rw
33 32 0:28 / /mnt/q rw - btrfs /dev/c rw
"""


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/var/lib/mq", FileSystem("ext4", "/", "254:0")),
        ("/mnt/x", FileSystem("tmpfs", "/mnt", "0:25")),
        ("/mnt/a b/c", FileSystem("xfs", "/mnt/a b", "0:26")),
        ("/mnt/q", FileSystem("btrfs", "/mnt/q", "0:28")),
        ("/mntx", FileSystem("ext4", "/", "254:0")),
    ],
)
def test_the_longest_mount_point_above_mounted_last(
    path: str, expected: FileSystem, tmp_path: Path
) -> None:
    mountinfo = tmp_path / "mountinfo"
    mountinfo.write_text(MOUNTINFO)
    assert file_system_of(path, str(mountinfo)) == expected


def test_without_mountinfo_nothing_is_assumed(tmp_path: Path) -> None:
    assert file_system_of("/x", str(tmp_path / "missing")).kind == "unknown"


@pytest.mark.parametrize(
    ("commit", "durability", "force", "name"),
    [
        ("auto", "media", False, "fsync"),
        ("fsync", "media", False, "fsync"),
        ("syncfs", "media", False, "syncfs"),
        ("auto", "none", True, "none"),
    ],
)
def test_the_policy_for_a_folder_of_a_shared_disk(
    tmp_path: Path, commit: CommitMode, durability: Durability, force: bool, name: str
) -> None:
    flusher = choose_flusher(str(tmp_path), Files(), 2, commit, durability, force)
    assert flusher.name == name
    flusher.close()


def test_over_nfs_bytes_alone_are_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mq.store.disk.mounts.file_system_of", lambda _: FileSystem("nfs4", "/"))
    files = FaultyFiles()
    flusher = choose_flusher(str(tmp_path), files, 1)
    with (
        Path(tmp_path, "written").open("wb") as written,
        Path(tmp_path, "moved").open("wb") as moved,
    ):
        asked = {
            0: Flush(files=(written.fileno(),)),
            1: Flush(folders=(str(tmp_path),), stamps=(moved.fileno(),)),
            2: Flush(folders=(str(tmp_path / "gone"),)),
        }
        assert flusher.session().flush(asked) == {}
    assert [call for call, _ in files.calls if call.startswith("sync")] == ["sync"]
    flusher.close()


def test_no_durability_is_refused_off_memory(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match="durability=none"):
        choose_flusher(str(tmp_path), Files(), 2, durability="none")


@pytest.mark.parametrize(
    ("release", "tells"),
    [("5.7.19", False), ("5.8.0-generic", True), ("6.18.44", True), ("4.19", False)],
)
def test_kernels_whose_syncfs_tells_of_errors(release: str, tells: bool) -> None:
    assert is_kernel_with_syncfs_errors(release) is tells


def test_what_is_promised() -> None:
    files = Files()
    flusher = choose_flusher("/dev/shm", files, 2)
    assert promise(flusher, FileSystem("tmpfs", "/"), files) == "memory"
    for kept in (FileSystem("xfs", "/"), FileSystem("nfs4", "/"), FileSystem("btrfs", "/")):
        assert promise(flusher, kept, files) == "media"
    for unknown in (FileSystem("ext4", "/"), FileSystem("xfs", "/", "", ("nobarrier",))):
        assert promise(flusher, unknown, files) == "media, if it keeps the order of changes"
    files.folder_fsync_missing = True
    assert promise(flusher, FileSystem("vfat", "/"), files) == "media, but for folders"
    flusher.close()


def test_a_clock_that_could_not_be_measured_stops_nothing(tmp_path: Path) -> None:
    files, clock = FaultyFiles(), SystemClock()
    root = open_root(str(tmp_path), files, clock)
    follower = ClockFollower(root, clock, every_s=0)
    follower.needed = True  # As on a mount over the network.
    files.fail("open_kept", errno.ENOSPC, "/.probe")
    follower.follow()
    assert clock.offset_ms == 0
    files.heal()
    follower.follow()
    assert abs(clock.offset_ms) < 10_000


def test_a_mounts_clock_is_read_once_the_server_has_set_it(tmp_path: Path) -> None:
    """Before the fsync a client has only its own idea of the mtime."""

    class MountedFiles(Files):
        """A server whose clock is an hour ahead of ours."""

        ahead = synced = False

        def write(self, descriptor: int, data: bytes | bytearray | memoryview) -> None:
            super().write(descriptor, data)
            self.synced = False

        def sync(self, descriptor: int) -> None:
            super().sync(descriptor)
            self.synced = True

        def descriptor_status(self, descriptor: int) -> os.stat_result:
            if self.ahead and self.synced:
                os.utime(descriptor, ns=(0, SystemClock().now_ms() * 1_000_000 + 3_600 * 10**9))
            return super().descriptor_status(descriptor)

    files, clock = MountedFiles(), SystemClock()
    root = open_root(str(tmp_path), files, clock)
    files.ahead, files.synced = True, False
    follower = ClockFollower(root, clock)
    follower.needed = True
    follower.follow()
    assert 3_590_000 < clock.offset_ms < 3_610_000


def test_a_local_file_system_has_our_clock(tmp_path: Path) -> None:
    files, clock = FaultyFiles(), SystemClock()
    root = open_root(str(tmp_path), files, clock)
    before = len(files.calls)
    ClockFollower(root, clock).follow()
    assert len(files.calls) == before
