"""Start-up: what is made, tried and refused."""

import errno
import os
from pathlib import Path

import pytest
from harness.clock import FakeClock
from harness.faults import FaultyFiles

from mq.model.errors import AcrossFileSystems, NoInodes, NoSpace, StartupError
from mq.model.lifecycle import State
from mq.store.core.clocks import measure_clock_offset_ms
from mq.store.core.root import probe_write
from mq.store.disk.files import Files
from mq.store.disk.space import Space
from mq.store.format.layout import Layout
from mq.store.opening import open_root

FOLDERS = (
    "new", "queues", "delay", "remove", "deleted", "settings", "purged",
    "leases", "journal", "schedules", "members", "shovels",
)  # fmt: skip


def test_a_root_is_made_with_all_its_parents(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b"
    open_root(str(path), Files(), FakeClock())
    names = {entry.name for entry in path.iterdir()}
    assert names == {"format", *FOLDERS}
    assert (path / "format").read_text() == "mq 3\n"
    assert all(not list((path / name).iterdir()) for name in ("new", "queues", "delay", "remove"))
    assert (path / "new").stat().st_mode & 0o777 == 0o700


def test_what_was_there_stays(tmp_path: Path) -> None:
    open_root(str(tmp_path), Files(), FakeClock())
    (tmp_path / "queues" / "q").mkdir()
    Path(Layout.of(tmp_path).probe(State.NEW)).write_text("left by a crash")
    open_root(str(tmp_path), Files(), FakeClock())
    assert (tmp_path / "queues" / "q").is_dir()
    assert not list((tmp_path / "new").iterdir())


@pytest.mark.parametrize("line", ["", "m", "mq 3", "mq\0\0\0", "\0\0\0\0\0"])
def test_a_format_line_that_a_power_cut_left_unfinished_is_written_again(
    tmp_path: Path, line: str
) -> None:
    (tmp_path / "format").write_text(line)
    open_root(str(tmp_path), Files(), FakeClock())
    assert (tmp_path / "format").read_text() == "mq 3\n"


@pytest.mark.parametrize("line", ["mq 4\n", "mq 3\nmore", "\0\0\0\0\0\0", "something else"])
def test_another_format_is_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / "format").write_text(line)
    with pytest.raises(StartupError, match="format"):
        open_root(str(tmp_path), Files(), FakeClock())
    assert (tmp_path / "format").read_text() == line


def test_a_root_below_a_symbolic_link_has_the_folders_flushed_that_lead_to_it(
    tmp_path: Path,
) -> None:
    (tmp_path / "disk" / "apps").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    files = FaultyFiles()
    open_root(str(tmp_path / "link" / "apps" / "mq"), files, FakeClock())
    for folder in (tmp_path / "disk" / "apps", tmp_path / "disk", tmp_path):
        assert ("sync_folder", str(folder)) in files.calls


def test_a_folder_that_leads_to_the_root_and_was_not_flushed_is_told(tmp_path: Path) -> None:
    files = FaultyFiles()
    files.fail("sync_folder", errno.EIO, str(tmp_path), times=1)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        open_root(str(tmp_path / "root"), files, FakeClock())


def test_a_folder_of_others_need_not_be_flushed_unless_the_root_was_made_there(
    tmp_path: Path,
) -> None:
    files = FaultyFiles()

    def open_again() -> None:
        files.fail("sync_folder", errno.EACCES, str(tmp_path), times=1)
        open_root(str(tmp_path / "root"), files, FakeClock())

    with pytest.raises(PermissionError):
        open_again()
    open_again()


def test_a_symbolic_link_for_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    root = tmp_path / "root"
    root.mkdir()
    (root / "delay").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StartupError, match="symbolic"):
        open_root(str(root), Files(), FakeClock())


def test_folders_on_two_file_systems_are_named(tmp_path: Path) -> None:
    class Divided(Files):
        def rename(self, source: str, target: str) -> None:
            if f"{os.sep}delay{os.sep}" in target:
                raise OSError(errno.EXDEV, "divided")
            super().rename(source, target)

    with pytest.raises(AcrossFileSystems) as raised:
        open_root(str(tmp_path), Divided(), FakeClock())
    assert raised.value.source == tmp_path / "queues"
    assert raised.value.destination == tmp_path / "delay"
    assert not list((tmp_path / "queues").iterdir())


def test_a_file_system_that_rounds_mtimes_is_refused(tmp_path: Path) -> None:
    class Coarse(Files):
        def stamp(self, descriptor: int, mtime_ns: int) -> None:
            super().stamp(descriptor, mtime_ns // 1_000_000_000 * 1_000_000_000)

    with pytest.raises(StartupError, match="microseconds"):
        open_root(str(tmp_path), Coarse(), FakeClock())


def test_a_probe_writes_and_leaves_nothing(tmp_path: Path) -> None:
    root = open_root(str(tmp_path), Files(), FakeClock())
    probe_write(root)
    assert not list((tmp_path / "new").iterdir())


def test_the_mount_s_clock_is_measured_against_ours(tmp_path: Path) -> None:
    clock = FakeClock()
    root = open_root(str(tmp_path), Files(), clock)
    clock.advance(100)
    assert abs(measure_clock_offset_ms(root) + 100_000) < 50_000


def test_publishing_stops_at_the_reserve(tmp_path: Path) -> None:
    clock = FakeClock()
    free = os.statvfs(tmp_path)
    free_bytes = free.f_bavail * free.f_frsize
    Space(Files(), clock, str(tmp_path), 0).claim(1)
    with pytest.raises(NoSpace):
        Space(Files(), clock, str(tmp_path), reserve_bytes=2 * free_bytes).claim(0)


def test_claims_add_up_between_two_looks_at_the_file_system(tmp_path: Path) -> None:
    class Small(Files):
        def free(self, path: str) -> os.statvfs_result:
            values = list(os.statvfs(path))
            values[0:2] = [1, 1]  # f_bsize, f_frsize
            values[2:5] = [1000, 1000, 1000]  # blocks: all, free, available
            values[5:8] = [100, 3, 3]  # inodes: all, free, available
            return os.statvfs_result(values)

    clock = FakeClock()
    space = Space(Small(), clock, str(tmp_path), reserve_bytes=500)
    space.claim(300, inodes=0)
    with pytest.raises(NoSpace):
        space.claim(300, inodes=0)
    clock.advance(1)
    space.claim(300, inodes=0)
    with pytest.raises(NoInodes):
        space.claim(0, inodes=1)
