"""The doctor on real file systems of their own."""

from pathlib import Path

import pytest
from harness.mounts import new_disk, remount, run_tool, tmpfs, unmount
from tools.doctor.examining import examined, finding, levels, run

from mq.model.clock import SystemClock
from mq.store.disk.files import Files
from mq.store.opening import open_root
from mq.tools.doctor.findings import COULD_NOT_PROBE, Level, exit_code

pytestmark = [pytest.mark.needs_root, pytest.mark.usefixtures("needs_root")]


def test_a_tmpfs_is_memory(root: Path) -> None:
    with tmpfs(root, "size=64m"):
        found = examined(root)
        assert found.conclusion.durability == "memory"
        assert any("--durability=none" in setting for setting in found.conclusion.settings)
        assert levels(found)["mount"] is Level.WARN
        assert exit_code(found.findings) == 0


def test_an_ext4_of_its_own_is_flushed_as_a_whole(root: Path) -> None:
    with new_disk(root, "ext4", "64M"):
        found = examined(root)
        assert found.conclusion.durability == "media"
        assert finding(found, "syncfs").facts["commit"] == "syncfs"
        assert finding(found, "mount").facts["kind"] == "ext4"
        assert finding(found, "names").level is Level.OK


def test_an_ext4_of_small_inodes_keeps_no_receives(root: Path) -> None:
    with new_disk(root, "ext4", "64M", "-I", "128"):
        found = examined(root)
        assert finding(found, "mtimes").facts["kept_to_ns"] == 10**9
        assert levels(found)["mtimes"] is Level.WRONG
        assert found.conclusion.clustering == "none"


def test_a_folder_of_the_root_that_is_mounted_by_itself(root: Path, tmp_path: Path) -> None:
    """Of the same file system even: no rename goes from one mount to another."""
    open_root(str(root), Files(), SystemClock())
    (tmp_path / "elsewhere").mkdir()
    run_tool("mount", "--bind", str(tmp_path / "elsewhere"), str(root / "delay"))
    try:
        found = examined(root)
        assert levels(found)["folders of the root"] is Level.WRONG
        assert "queues to delay" in finding(found, "folders of the root").says
        assert not list(root.rglob(".doctor*"))
    finally:
        unmount(root / "delay")


def test_another_folder_of_the_root_that_is_mounted_by_itself(root: Path) -> None:
    open_root(str(root), Files(), SystemClock())
    with tmpfs(root / "settings", "size=1m"):
        found = examined(root)
        assert "settings" in finding(found, "folders of the root").says
        assert levels(found)["folders of the root"] is Level.WRONG


def test_two_bind_mounts_say_nothing_of_machines(root: Path, tmp_path: Path) -> None:
    root.mkdir()
    second = tmp_path / "second"
    second.mkdir()
    run_tool("mount", "--bind", str(root), str(second))
    try:
        found = examined(root, second)
        assert finding(found, "same storage").facts["one_mount"] is True
        assert finding(found, "claims across mounts").level is not Level.WRONG
        assert found.conclusion.clustering == "many processes on one machine"
    finally:
        unmount(second)


def test_a_disk_that_cannot_be_written_could_not_be_tried(root: Path) -> None:
    with tmpfs(root, "size=1m"):
        remount(root, "ro")
        done = run(root)
        assert done.exit_code == 1
        assert "cannot be tried" in done.output


def test_what_a_full_disk_keeps_from_being_tried_is_unknown(root: Path) -> None:
    with new_disk(root, "ext4", "16M", "-N", "64"):
        found = examined(root)
        assert levels(found)["claims"] is Level.UNKNOWN
        assert "No space" in finding(found, "claims").says
        assert Level.WRONG not in levels(found).values()
        assert exit_code(found.findings) == COULD_NOT_PROBE
