"""The command: what it prints, its exit codes, and a check beside daemons that work."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result
from harness.clock import FakeClock
from harness.damage.each_breach import Place, symlink, with_mode, with_settings
from harness.messages import new_id, put_file
from harness.processes import eventually

from mq.tools.doctor.command import doctor
from mq.tools.fsck.command import fsck


@pytest.fixture
def place(root: Path) -> Place:
    return Place(root)


def run(*arguments: object) -> Result:
    """At once: nobody else uses the root."""
    return CliRunner().invoke(fsck, [*map(str, arguments), "--again-after", "0"])


def test_a_clean_root(place: Place) -> None:
    place.ready()
    place.entry("remove")
    done = run(place.top)
    assert done.exit_code == 0
    assert done.output.splitlines()[-1] == f"{place.top}: clean"
    (of_queue,) = (line for line in done.output.splitlines() if line.startswith("orders"))
    assert of_queue.split() == ["orders", "0", "1", "0", "0", "1"]


def test_what_is_broken_is_told_and_nothing_is_changed(place: Place) -> None:
    path = with_mode(place.ready(), 0o640)
    done = run(place.top)
    assert done.exit_code == 5
    assert f"remains: a mode that is not mq's (0640): {path}" in done.output
    dry = run(place.top, "--dry-run")
    assert dry.exit_code == 5
    assert "would give it the permissions that mq gives" in dry.output
    assert path.stat().st_mode & 0o777 == 0o640


def test_what_is_put_right_is_told_once(place: Place) -> None:
    path = with_mode(place.ready(), 0o640)
    done = run(place.top, "--repair")
    assert done.exit_code == 0
    assert f"put right: a mode that is not mq's (0640): {path}: made 0600" in done.output
    assert run(place.top, "--repair").output.splitlines()[-1] == f"{place.top}: clean"


def test_json(place: Place) -> None:
    path = with_mode(place.ready(), 0o640)
    unread = put_file(place.top / "settings/orders.json", b"{")
    done = run(place.top, "--repair", "--json")
    assert done.exit_code == 5
    said = json.loads(done.stdout)
    assert said["outcome"] == "broken"
    assert said["messages_by_queue"] == {"orders": {"ready": 1}}
    (righted,), (remains,) = said["put_right"]["examples"], said["remaining"]["examples"]
    assert (righted["breach"], righted["path"]) == ("mode", str(path))
    assert (remains["breach"], remains["path"]) == ("settings", str(unread))
    assert remains["what"]
    unread.unlink()
    assert json.loads(run(place.top, "--json").stdout)["outcome"] == "clean"


def test_a_queue_is_looked_at_alone(place: Place) -> None:
    others = place.folder("queues/others")
    for queue in (place.queue, others):
        put_file(queue / new_id().text, b"x", FakeClock().now_ms()).chmod(0o640)
    said = json.loads(run(place.top, "--queue", "others", "--json").stdout)
    assert said["remaining"]["count"] == 1


def test_wrong_usage(place: Place) -> None:
    assert run(place.top, "--repair", "--dry-run").exit_code == 2
    assert run(place.top, "--queue", "no name").exit_code == 2


@pytest.mark.parametrize("damage", ["nothing", "no-format", "another", "a-folder", "a-file"])
def test_what_is_no_root_is_refused(place: Place, damage: str) -> None:
    top, line = place.top, place.top / "format"
    if damage == "nothing":
        top = place.top / "nowhere"
    elif damage == "a-file":
        top = line
    else:
        line.unlink()
        if damage == "another":
            line.write_text("mq 4\n")
        elif damage == "a-folder":
            line.mkdir()
    before = sorted(place.top.rglob("*"))
    done = run(top, "--repair")
    assert done.exit_code == 1
    assert "mq root" in done.output or "this mq knows 'mq 3'" in done.output
    assert sorted(place.top.rglob("*")) == before


def test_a_folder_that_is_away_is_told(place: Place) -> None:
    (place.top / "delay").rmdir()
    done = run(place.top)
    assert done.exit_code == 5
    assert "a folder of the root is missing" in done.output


@pytest.mark.certificate
def test_an_interrupt_ends_it_with_a_sound_root(place: Place) -> None:
    with_mode(place.ready(), 0o640)
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "mq.tools.mqctl",
            "fsck",
            str(place.top),
            "--repair",
            "--again-after",
            "3000",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # So that whoever looks sees when the command has an answer of its own.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),  # noqa: PLW1509
    )
    eventually(lambda: catches_interrupts(process.pid), "it can be interrupted")
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert output.startswith("interrupted")
    assert output.splitlines()[-1] == f"{place.top}: not all was looked at; 0 put right"
    assert run(place.top, "--repair").exit_code == 0


def catches_interrupts(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    (caught,) = (line.split()[1] for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(int(caught, 16) & 1 << (signal.SIGINT - 1))


@pytest.mark.certificate
def test_a_name_that_is_no_text(place: Place) -> None:
    for name in (b"\xff", b"a\x1b[31m\nb"):
        os.symlink(b"x", os.fsencode(place.top / "delay") + b"/" + name)
    command = [sys.executable, "-m", "mq.tools.mqctl", "fsck"]
    command += [str(place.top), "--again-after", "0"]
    env = {**os.environ, "PYTHONIOENCODING": "utf-8:strict"}
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 5, done.stderr
    assert {line.rpartition("/")[2] for line in done.stdout.splitlines()[:2]} == {
        r"\udcff",
        r"a\x1b[31m\nb",
    }


MQ = 12345


def give(top: Path) -> None:
    """As if mq ran as another user."""
    for path in (top, *top.rglob("*")):
        os.chown(path, MQ, -1, follow_symlinks=False)


def owners(top: Path) -> set[int]:
    return {path.lstat().st_uid for path in top.rglob("*")}


@pytest.mark.needs_root
@pytest.mark.usefixtures("needs_root")
def test_what_is_made_is_for_who_mq_runs_as(place: Place) -> None:
    """A repair as root beside daemons of another user leaves nothing that they cannot open."""
    place.ready(b"1", ",h=9")
    for _ in range(2):
        place.ready(more=",k=night")
    with_settings(place, "orders", '{"history": true}').chmod(0o600)
    put_file(place.top / "schedules/orders:bad", b"nonsense")
    (place.top / "shovels").rmdir()
    give(place.top)
    done = run(place.top, "--repair")
    assert done.exit_code == 0, done.output
    assert "an owner" not in done.output
    for path in ("deleted/.lock", "schedules/.lock", "queues/orders_SIDELINE", "lost", "history"):
        assert (place.top / path).exists(), path
    assert owners(place.top) == {MQ}


@pytest.mark.needs_root
@pytest.mark.usefixtures("needs_root")
@pytest.mark.parametrize("mode", [0o755, 0o700])
@pytest.mark.parametrize("command", [fsck, doctor])
def test_a_root_that_may_not_be_read(command: click.Command, mode: int) -> None:
    """Nor, of a folder that keeps others out, be looked for."""
    with tempfile.TemporaryDirectory() as above:
        Path(above).chmod(mode)
        (Path(above) / "root").mkdir(mode=0o700)
        child = os.fork()
        if not child:
            os.setresuid(MQ, MQ, MQ)
            os._exit(CliRunner().invoke(command, [f"{above}/root"]).exit_code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1


@pytest.mark.needs_root
@pytest.mark.usefixtures("needs_root")
def test_a_volume_that_is_anothers(place: Place) -> None:
    """The folder above mq's, and a link that leads to it, may be of another user than mq."""
    place.ready()
    give(place.top)
    os.chown(place.top, 0, -1)
    link = symlink(place.top.with_name("link"), str(place.top))
    for top in (place.top, link):
        done = run(top, "--repair")
        assert done.exit_code == 0, done.output
        assert "put right" not in done.output
    assert owners(place.top) == {MQ}
