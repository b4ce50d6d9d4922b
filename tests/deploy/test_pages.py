"""The operators' pages: what they point to is there; mounts and threats: their commands work."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from harness.pages import section
from harness.processes import Processes

from mq.store.disk.mounts import FileSystem
from mq.tools.doctor.findings import Level
from mq.tools.doctor.options import NFS_GOOD, judge_mount

TOP = Path(__file__).parents[2]
NAMES = ("OPERATE.md", "SECURE.md", "OBSERVE.md", "MIGRATE.md")
PAGES = {name: (TOP / "deploy" / name).read_text(encoding="utf-8") for name in NAMES}
MOUNTS = section("deploy/OPERATE.md", "Mounts")
THREATS = section("deploy/SECURE.md", "Threat model")


def commands(page: str) -> list[str]:
    return re.findall(r"```sh\n(.*?)```", page, re.DOTALL)


@pytest.mark.parametrize("name", PAGES)
def test_what_a_page_points_to_is_there(name: str) -> None:
    page = PAGES[name]
    modules = re.findall(r"`((?:mq|mq_mover|mq_reaper|tests)/[\w/]+\.py)`(?: \(`(\w+)`\))?", page)
    for path, symbol in modules:
        content = (TOP / path).read_text(encoding="utf-8")
        assert re.search(rf"^(?:def|class) {symbol}\b", content, re.MULTILINE) or not symbol, path
    for linked in re.findall(r"\]\(([^)#]+)\)", page):
        assert (TOP / "deploy" / linked).exists(), linked


def test_the_options_over_nfs_are_those_that_the_doctor_wants() -> None:
    (mounted,) = [each for each in commands(MOUNTS) if each.startswith("mount ")]
    arguments = shlex.split(mounted)
    options = arguments[arguments.index("-o") + 1]
    assert options == NFS_GOOD
    finding, broken = judge_mount(FileSystem("nfs4", "/x", "0:1", tuple(options.split(","))))
    assert finding.level is Level.OK
    assert not broken


@pytest.mark.parametrize("options", ["soft", "nolock", "local_lock=all", "nocto", "vers=3"])
def test_what_the_page_warns_of_the_doctor_calls_wrong(options: str) -> None:
    name = options.partition("=")[0]
    good = tuple(each for each in NFS_GOOD.split(",") if each.partition("=")[0] != name)
    finding, broken = judge_mount(FileSystem("nfs4", "/x", "0:1", (*good, options)))
    assert finding.level is Level.WRONG
    assert broken
    assert options.replace("vers=3", "NFS 3") in MOUNTS


@pytest.mark.certificate
def test_the_doctor_s_commands_are_as_the_page_says(tmp_path: Path) -> None:
    root, second = tmp_path / "mq", tmp_path / "again"
    root.mkdir(mode=0o700)
    second.symlink_to(root)
    (script,) = [each for each in commands(MOUNTS) if "mqctl doctor" in each]
    mqctl = f'mqctl() {{ {sys.executable} -m mq.tools.mqctl "$@"; }}'
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", f"{mqctl}\nroot={root} second={second}\n{script}"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "locks across mounts" in done.stdout


@pytest.mark.certificate
def test_the_checklist_s_commands_work_on_a_root(daemons: Processes, root: Path) -> None:
    daemons.mq(root)
    (script,) = [each for each in commands(THREATS) if "stat -c" in each]
    mqctl = f'mqctl() {{ {sys.executable} -m mq.tools.mqctl "$@"; }}'
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", f"{mqctl}\nroot={root}\n{script}"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    modes = done.stdout.splitlines()[-5:]
    assert [line.split()[0] for line in modes] == ["700"] * 5


def test_the_longer_search_is_a_command() -> None:
    (said,) = [each for each in commands(THREATS) if "tests.fuzz" in each]
    arguments = shlex.split(said)[3:]
    ran = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", *arguments, "--help"],
        cwd=TOP,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    assert "--examples" in ran.stdout
