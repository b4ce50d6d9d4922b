"""The doctor on real folders: what it says, what it leaves, and what it leaves alone."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.api import fetch, make_queue, publish
from harness.audits import assert_audits_clean
from harness.processes import PATIENCE_S, Processes, eventually
from harness.server import Server
from tools.doctor.examining import examined, finding, levels, run

from mq.model.clock import SystemClock
from mq.store.disk.files import Files
from mq.store.opening import open_root
from mq.tools.doctor.findings import Level
from mq.tools.doctor.ground import staked_out, sweep

HOUR_S = 3600


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "folder"
    made.mkdir()
    return made


@pytest.mark.certificate
def test_a_folder_that_is_to_become_a_root(folder: Path) -> None:
    found = examined(folder)
    bad = {probe for probe, level in levels(found).items() if level is Level.WRONG}
    assert not bad
    assert finding(found, "fsync of files").facts["median_s"] != 0
    assert found.conclusion.clustering == "many processes on one machine"
    assert list(folder.iterdir()) == []


@pytest.mark.certificate
@pytest.mark.usefixtures("curl")
def test_a_root_that_is_served_loses_nothing_and_is_none_the_worse(
    daemons: Processes, root: Path
) -> None:
    mq = daemons.mq(root, "--standalone")
    told = [mq.url + "/orders", "-X", "PUT"], [mq.url + "/orders/messages", "-d", "one"]
    for arguments in told:
        subprocess.run(["curl", "-fsS", *arguments], check=True, capture_output=True)
    before = sorted(path.name for path in (root / "queues" / "orders").iterdir())
    done = run(root, "--json")
    said = json.loads(done.stdout)
    assert said["exit_code"] == done.exit_code == 0
    assert "a root" in {each["probe"]: each["found"] for each in said["findings"]}["format"]
    assert sorted(path.name for path in (root / "queues" / "orders").iterdir()) == before
    assert not list(root.rglob(".doctor*"))
    assert mq.terminate() == 0
    told = [line for line in mq.lines if "WARNING" in line or "ERROR" in line]
    assert [line for line in told if "a power cut may lose" not in line] == []


async def test_what_a_killed_doctor_left_stops_no_mq(server: Server, root: Path) -> None:
    leave_behind(root, b"locked\n")
    await make_queue(server)
    await publish(server, b"body")
    assert (await fetch(server)).body == b"body"
    assert_audits_clean(root)


@pytest.mark.certificate
def test_two_folders_are_not_one_storage(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    done = run(folder, tmp_path / "other", "--patience", "0.1")
    assert done.exit_code == 5
    assert "another storage" in done.output
    assert list((tmp_path / "other").iterdir()) == []


@pytest.mark.certificate
def test_a_symbolic_link_in_place_of_a_folder_is_told(root: Path, tmp_path: Path) -> None:
    open_root(str(root), Files(), SystemClock())
    (root / "delay").rmdir()
    (root / "delay").symlink_to(tmp_path)
    found = examined(root)
    assert levels(found)["folders of the root"] is Level.WRONG
    assert "delay" in finding(found, "folders of the root").says
    assert found.conclusion.clustering == "none"


@pytest.mark.certificate
def test_a_root_of_another_format_is_told(root: Path) -> None:
    open_root(str(root), Files(), SystemClock())
    (root / "format").write_text("mq 4\n")
    done = run(root)
    assert done.exit_code == 5
    assert "mq 4" in done.output


@pytest.mark.parametrize("arguments", [(), ("/nowhere/at/all",), ("/etc/passwd",), ("/", "/nope")])
def test_wrong_usage(arguments: tuple[str, ...]) -> None:
    assert run(*arguments).exit_code == 2


# What is left behind.


def leave_behind(root: Path, alive: bytes, age_s: float = 0) -> Path:
    """As a doctor that was killed leaves it; `alive`: what it had written there."""
    left = root / ".doctor.00112233aabbccdd"
    (left / "folder").mkdir(parents=True)
    (left / "folder" / "inner").touch()
    (left / "alive").write_bytes(alive)
    at_s = SystemClock().now_ms() / 1000 - age_s
    os.utime(left / "alive", (at_s, at_s))
    if (root / "delay").is_dir():
        (root / "delay" / left.name).touch()
    return left


@pytest.mark.certificate
def test_the_next_doctor_sweeps_what_a_killed_one_left(root: Path) -> None:
    open_root(str(root), Files(), SystemClock())
    left = leave_behind(root, b"locked\n")
    (root / ".doctor.notes").touch()  # Nobody's leftover.
    done = run(root)
    assert "swept: 1" in done.output
    assert not left.exists()
    assert not (root / "delay" / left.name).exists()
    assert (root / ".doctor.notes").exists()


@pytest.mark.parametrize(
    ("alive", "age_s", "locks_tell", "goes"),
    [
        (b"locked\n", 0, True, True),
        (b"locked\n", 0, False, False),
        (b"", 0, True, False),
        (b"", HOUR_S + 60, True, True),
        (b"locked\n", HOUR_S + 60, False, True),
    ],
)
def test_a_leftover_goes_once_nobody_can_be_there(
    folder: Path, alive: bytes, age_s: float, locks_tell: bool, goes: bool
) -> None:
    left = leave_behind(folder, alive, age_s)
    with staked_out(str(folder), Files(), SystemClock()) as ground:
        assert sweep(ground, locks_tell) == goes
    assert left.exists() is not goes


def test_a_doctor_at_work_is_not_swept(folder: Path) -> None:
    files, clock = Files(), SystemClock()
    with staked_out(str(folder), files, clock) as one, staked_out(str(folder), files, clock) as two:
        assert sweep(two, locks_tell=True) == 0
        assert Path(one.folder).is_dir()


@pytest.fixture
def waiting(folder: Path, tmp_path: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A doctor that waits for what never comes: its second folder is none of the first."""
    (tmp_path / "other").mkdir()
    command = [
        sys.executable,
        "-m",
        "mq.tools.mqctl",
        "doctor",
        str(folder),
        str(tmp_path / "other"),
    ]
    started = subprocess.Popen(
        [*command, "--patience", "600"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        eventually(lambda: list(folder.glob(".doctor.*/nonce-left")), "the second mount's turn")
        yield started
    finally:
        started.kill()
        started.communicate()


def partners_of(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in children]


@pytest.mark.certificate
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_an_interruption_leaves_nothing(
    waiting: "subprocess.Popen[bytes]", folder: Path, number: signal.Signals
) -> None:
    waiting.send_signal(number)
    assert waiting.wait(PATIENCE_S) == 128 + number
    assert list(folder.iterdir()) == []


@pytest.mark.certificate
def test_after_a_kill_its_processes_end_and_the_next_doctor_sweeps(
    waiting: "subprocess.Popen[bytes]", folder: Path
) -> None:
    partners = partners_of(waiting.pid)
    assert partners
    waiting.kill()
    waiting.wait(PATIENCE_S)
    assert list(folder.glob(".doctor.*"))

    def are_gone() -> bool:
        return not any(
            b"mq.tools.doctor.partner" in Path(f"/proc/{pid}/cmdline").read_bytes()
            for pid in partners
            if Path(f"/proc/{pid}").exists()
        )

    eventually(are_gone, "the end of its processes")
    assert "swept: 1" in run(folder).output
    assert list(folder.iterdir()) == []
