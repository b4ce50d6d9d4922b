"""A root that another user may change: no daemon keeps messages there, and fsck and the doctor say
so.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from harness.commands import run_command
from harness.processes import Processes

from mq.tools.doctor.command import doctor
from mq.tools.fsck.command import fsck

STRANGER = 12345
DAEMONS = ("mq", "mq-mover", "mq-reaper")

Refused = Callable[[str, Path], str]


def cannot_make(name: str, root: Path, why: str) -> str:
    """What a daemon says where mq cannot make a root: it alone would."""
    return why if name == "mq" else f"there is no root at {root};"


@pytest.fixture
def refused() -> Refused:
    """What a daemon says that does not start on a root."""

    def start(name: str, root: Path) -> str:
        flags = ["--port", "0"] if name == "mq" else ["--exit-with-stdin"]
        command = [Path(sys.executable).parent / name, "--root", root, *flags]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=30)
        assert done.returncode == 1, done.stderr
        return done.stderr.decode()

    return start


@pytest.fixture
def used(root: Path, daemons: Processes) -> Path:
    """A root that mq has made."""
    daemons.mq(root).terminate()
    return root


@pytest.mark.parametrize("name", DAEMONS)
def test_no_daemon_starts_on_a_root_that_every_user_may_change(
    used: Path, refused: Refused, name: str
) -> None:
    used.chmod(0o777)
    says = refused(name, used)
    assert f"{used} has mode 0777: every user may change it; chmod 700 {used}" in says


@pytest.mark.parametrize("name", DAEMONS)
def test_no_daemon_starts_on_a_root_of_another_user(
    needs_root: None, used: Path, refused: Refused, name: str
) -> None:
    os.chown(used, STRANGER, -1)
    assert f"{used} belongs to user {STRANGER}, and this process runs as user 0" in refused(
        name, used
    )


@pytest.mark.parametrize("name", DAEMONS)
def test_no_daemon_starts_where_a_folder_of_the_root_is_another_users(
    needs_root: None, used: Path, refused: Refused, name: str
) -> None:
    os.chown(used / "queues", STRANGER, -1)
    assert f"{used}/queues belongs to user {STRANGER}" in refused(name, used)


@pytest.mark.parametrize("name", DAEMONS)
def test_no_daemon_starts_below_a_folder_that_lets_every_user_rename_the_root(
    tmp_path: Path, refused: Refused, name: str
) -> None:
    above = tmp_path / "above"
    above.mkdir()
    above.chmod(0o777)
    root = above / "root"
    why = cannot_make(name, root, f"every user may rename files in {above}")
    assert why in refused(name, root)
    assert not root.exists()


def test_no_daemon_follows_a_link_that_another_user_made(
    needs_root: None, tmp_path: Path, refused: Refused
) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    os.chown(link, STRANGER, -1, follow_symlinks=False)
    says = refused("mq", link / "root")
    assert f"{link} is a symbolic link of user {STRANGER}; use the path without it" in says


def test_a_root_in_a_sticky_folder_is_made_for_its_user_alone(
    tmp_path: Path, daemons: Processes
) -> None:
    above = tmp_path / "above"
    above.mkdir()
    above.chmod(0o1777)
    root = above / "root"
    before = os.umask(0)
    try:
        process = daemons.mq(root)
    finally:
        os.umask(before)
    assert root.stat().st_mode & 0o7777 == 0o700
    assert process.terminate() == 0
    assert process.logged("may change|may rename") is None


@pytest.mark.parametrize("name", DAEMONS)
def test_no_daemon_makes_a_root_below_a_folder_that_is_not_there(
    tmp_path: Path, refused: Refused, name: str
) -> None:
    root = tmp_path / "vra" / "mq"
    why = f"there is no folder {root.parent}; correct --root (MQ_ROOT)"
    assert cannot_make(name, root, why) in refused(name, root)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", DAEMONS)
def test_a_daemon_says_why_it_cannot_see_the_folder_above(
    tmp_path: Path, refused: Refused, name: str
) -> None:
    assert "File name too long" in refused(name, tmp_path / ("x" * 256) / "mq")


@pytest.mark.parametrize("name", DAEMONS)
def test_no_daemon_makes_a_root_below_a_file(tmp_path: Path, refused: Refused, name: str) -> None:
    (tmp_path / "file").touch()
    for above in (tmp_path / "file", tmp_path / "file" / "folder"):
        why = cannot_make(name, above / "mq", f"there is no folder {above}; correct --root")
        assert why in refused(name, above / "mq")


@pytest.mark.parametrize("name", DAEMONS)
def test_no_daemon_starts_on_a_root_that_is_a_file(
    tmp_path: Path, refused: Refused, name: str
) -> None:
    root = tmp_path / "root"
    root.touch()
    assert cannot_make(name, root, f"{root} is not a folder") in refused(name, root)


def test_mq_says_that_it_makes_a_root(tmp_path: Path, daemons: Processes) -> None:
    root = tmp_path / "root"
    # An empty folder too: a volume, or what systemd made.
    for is_there in (False, True):
        if is_there:
            root.mkdir(mode=0o700)
        for is_new in (True, False):
            # The log has the path that was meant.
            process = daemons.mq(tmp_path / ".." / tmp_path.name / "root")
            assert process.terminate() == 0
            says = rf"INFO +mq.root: made a new root root={root}\b"
            assert (process.logged(says) is not None) is is_new
        shutil.rmtree(root)


def test_a_group_that_may_change_the_root_is_a_warning(
    needs_root: None, used: Path, daemons: Processes
) -> None:
    used.chmod(0o770)
    os.chown(used, -1, STRANGER)
    process = daemons.mq(used)
    process.wait_for_log(f"mode 0770: group {STRANGER} may change it")
    done = CliRunner().invoke(doctor, [str(used)])
    assert done.exit_code == 0
    assert any(
        line.startswith("warn") and "rights" in line and "mode 0770" in line
        for line in done.output.splitlines()
    )
    checked = CliRunner().invoke(fsck, [str(used), "--again-after", "0"])
    assert checked.exit_code == 0
    assert "mode 0770" in checked.stderr


def test_fsck_refuses_a_root_that_every_user_may_change_and_the_doctor_says_so(used: Path) -> None:
    used.chmod(0o777)
    checked = CliRunner().invoke(fsck, [str(used), "--repair", "--again-after", "0"])
    assert checked.exit_code == 1
    assert f"{used} has mode 0777: every user may change it" in checked.output
    done = CliRunner().invoke(doctor, [str(used)])
    assert done.exit_code == 5
    assert any(
        line.startswith("wrong") and "rights" in line and "mode 0777" in line
        for line in done.output.splitlines()
    )


def test_the_superuser_checks_the_root_of_any_user(needs_root: None, used: Path) -> None:
    for path in (used, *used.rglob("*")):
        os.chown(path, STRANGER, STRANGER, follow_symlinks=False)
    checked = CliRunner().invoke(fsck, [str(used), "--again-after", "0"])
    assert checked.exit_code == 0, checked.output


def test_folders_that_are_named_one_by_one_are_looked_at_too(tmp_path: Path) -> None:
    source, destination = tmp_path / "waiting", tmp_path / "queues"
    for folder in (source, destination):
        folder.mkdir()
    source.chmod(0o777)
    for module, flags in (
        ("mq_mover", ("--source", str(source), "--destination", str(destination))),
        ("mq_reaper", ("--source", str(source))),
    ):
        done = run_command(module, *flags, "--exit-with-stdin")
        assert done.returncode == 1, done.stderr
        assert f"{source} has mode 0777: every user may change it" in done.stderr
