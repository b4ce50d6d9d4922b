"""The units, as systemd's own tools see them once they are installed as the page says."""

import functools
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from harness.commands import COMMANDS, variables
from harness.manager import manager
from harness.needs import program
from harness.pages import section
from harness.processes import PATIENCE_S, eventually

from mq.daemon.cli import main as mq
from mq.store.disk.mounts import FileSystem, file_system_of
from mq.tools.doctor.findings import Level
from mq.tools.doctor.options import judge_mount
from mq_mover.cli import main as mq_mover
from mq_reaper.cli import main as mq_reaper

TOP = Path(__file__).parents[2]
UNITS = TOP / "deploy" / "systemd"
PAGE = section("deploy/OPERATE.md", "systemd")
BLOCKS = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
SERVICES = ("mq.service", "mq@8081.service", "mq-mover.service", "mq-reaper.service")
EXPOSURE_MAX = 1.5
# A process that may not make memory it has written executable, as MemoryDenyWriteExecute= has it.
DENIED = """
import ctypes, os, sys
if ctypes.CDLL(None).prctl(65, 1, 0, 0, 0) != 0:
    sys.exit("no PR_SET_MDWE")
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


def run(*command: str) -> str:
    """What it says, on both its outputs; it has to end well."""
    program(command[0])
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=TOP, timeout=60
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another machine's file system, with all that the page says is to be put there."""
    program("systemd-analyze")
    root = tmp_path_factory.mktemp("machine")
    # Of a machine with systemd: its own units, and what pip or pipx has made.
    shutil.copytree("/usr/lib/systemd/system", root / "usr/lib/systemd/system", symlinks=True)
    (root / "lib").symlink_to("usr/lib")
    bin_folder = root / "opt/mq/bin"
    bin_folder.mkdir(parents=True)
    for command in COMMANDS:
        (bin_folder / command).write_text("#!/bin/sh\n")
        (bin_folder / command).chmod(0o755)
    (root / "bin").mkdir()
    (root / "bin/kill").write_text("#!/bin/sh\n")
    (root / "bin/kill").chmod(0o755)
    assert BLOCKS[0].startswith("root=\n")
    said = run("bash", "-euc", "".join(BLOCKS).replace("root=\n", f"root={root}\n", 1))
    # Whatever verify has to say of a unit, it says with the unit's name.
    assert not re.search(r"^(.*/)?(var-lib-)?(system-)?mq[^ ]*: ", said, re.MULTILINE), said
    return root


def settings(unit: Path | str) -> list[tuple[str, str]]:
    """Each setting of a unit, and what it is set to, in order."""
    lines = (UNITS / unit).read_text(encoding="utf-8").splitlines()
    pairs = (line.split("=", 1) for line in lines if re.match(r"[A-Za-z]+=", line))
    return [(name, value) for name, value in pairs]


def values(unit: Path | str, name: str) -> list[str]:
    return [value for each, value in settings(unit) if each == name]


# As installed.


def test_they_are_installed_and_verified_as_the_page_says(installed: Path) -> None:
    assert re.search("^mq:", (installed / "etc/passwd").read_text(), re.MULTILINE)
    assert (installed / "etc/mq").stat().st_mode & 0o777 == 0o750
    assert (installed / "run/mq").is_dir()
    there = {path.name for path in (installed / "etc/systemd/system").iterdir()}
    assert {path.name for path in UNITS.iterdir() if path.suffix in (".service", ".socket")} < there


@pytest.mark.parametrize("service", SERVICES)
def test_no_service_is_exposed(installed: Path, service: str) -> None:
    said = run(
        "systemd-analyze", "security", "--offline=true", "--no-pager",
        f"--root={installed}", service.replace("8081", ""),
    )  # fmt: skip
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", said)
    assert found is not None, said
    assert float(found.group(1)) <= EXPOSURE_MAX


def test_a_setting_that_is_none_would_be_seen(installed: Path) -> None:
    unit = installed / "etc/systemd/system/mq-reaper.service"
    good = unit.read_text()
    try:
        unit.write_text(good.replace("PrivateTmp=", "PrivatTmp="))
        assert "PrivatTmp" in run("systemd-analyze", "verify", f"--root={installed}", str(unit))
    finally:
        unit.write_text(good)


@pytest.mark.parametrize("daemon", ["mq-mover", "mq-reaper"])
def test_with_what_shows_metrics_a_unit_is_one_and_hardly_more_exposed(
    installed: Path, daemon: str
) -> None:
    conf = UNITS / "metrics" / f"{daemon}.conf"
    assert {each.split("=")[0] for each in values(conf, "Environment")} <= variables(
        COMMANDS[daemon]
    )
    folder = installed / f"etc/systemd/system/{daemon}.service.d"
    folder.mkdir(exist_ok=True)
    copy = Path(shutil.copy(conf, folder / "metrics.conf"))
    try:
        unit = str(folder.with_suffix(""))
        said = run("systemd-analyze", "verify", f"--root={installed}", unit)
        assert not re.search(rf"^(.*/)?{daemon}[^ ]*: |metrics\.conf", said, re.MULTILINE), said
        test_no_service_is_exposed(installed, f"{daemon}.service")
    finally:
        copy.unlink()


# What they say is what the daemons know.


@pytest.mark.parametrize("unit", sorted(UNITS.glob("*.service")), ids=lambda unit: str(unit.name))
def test_every_flag_and_variable_of_a_unit_is_one(unit: Path) -> None:
    (command,) = values(unit, "ExecStart")
    program, *arguments = command.split()
    main = COMMANDS[Path(program).name]
    filled = [each.replace("${STATE_DIRECTORY}", "/var/lib/mq") for each in arguments]
    said = main.make_context("x", [each.replace("%i", "8081") for each in filled]).params
    assert said["root"] == Path("/var/lib") / values(unit, "StateDirectory")[0]
    own = {each.split("=")[0] for line in values(unit, "Environment") for each in line.split()}
    assert {name for name in own if name.startswith("MQ_")} <= variables(main)


def test_every_variable_of_the_settings_is_one() -> None:
    known = set().union(*map(variables, COMMANDS.values()))
    lines = (UNITS / "mq.env").read_text(encoding="utf-8").splitlines()
    named = [match for line in lines if (match := re.match(r"#?([A-Z][A-Z_]+)=(.+)", line))]
    assert len(named) > 10
    for match in named:
        assert match.group(1) in known
        # And its value is one: as an operator who takes the mark away would have it.
        for prefix, main in (("MQ_MOVER", mq_mover), ("MQ_REAPER", mq_reaper), ("MQ", mq)):
            if match.group(1).startswith(prefix):
                flag = match.group(1).removeprefix(prefix + "_").lower().replace("_", "-")
                main.make_context("x", [f"--{flag}", match.group(2)])
                break


def test_every_unit_of_the_page_is_one() -> None:
    named = set(re.findall(r"[\w@-]+\.(?:service|socket|target|slice|mount)\b", PAGE))
    there = {path.name for path in UNITS.rglob("*")}
    assert named - {"timers.target"} <= there
    assert {name for name in there if re.search(r"\.(service|socket|target|slice)$", name)} <= named


# Mounts.


def test_the_options_over_nfs_are_as_mq_wants_them() -> None:
    (options,) = values("nfs/var-lib-mq.mount", "Options")
    (kind,) = values("nfs/var-lib-mq.mount", "Type")
    mount = FileSystem(kind, "/var/lib/mq", "0:1", tuple(options.split(",")))
    finding, broken = judge_mount(mount)
    assert finding.level is Level.OK, finding.says
    assert not broken


@pytest.mark.needs_root
def test_the_options_in_memory_are_what_the_kernel_takes(needs_root: None, tmp_path: Path) -> None:
    (options,) = values("tmpfs/var-lib-mq.mount", "Options")
    run("mount", "-t", "tmpfs", "-o", options, "mq", str(tmp_path))
    try:
        found = file_system_of(str(tmp_path))
        assert found.in_memory
        assert {"noexec", "nosuid", "nodev", "noatime", "mode=700"} <= set(found.options)
    finally:
        run("umount", str(tmp_path))


# What they forbid, the daemons do not need.


def test_the_daemons_make_no_call_that_the_units_forbid(root: Path, tmp_path: Path) -> None:
    program("strace")
    trace = tmp_path / "trace"
    command = (
        "strace", "-f", "-qq", "-o", str(trace), sys.executable, "-c", DENIED,
        "-m", "mq", "--root", str(root), "--port", "0", "--standalone",
    )  # fmt: skip
    with (
        manager() as told,
        subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, env=_environment(told.environment(60))
        ) as traced,
    ):
        try:
            port = told.hears("STATUS").rpartition(" ")[2]
            url = f"http://127.0.0.1:{port}"
            for method, path in (("PUT", "orders"), ("POST", "orders/messages")):
                request = urllib.request.Request(f"{url}/{path}", method=method, data=b"")
                urllib.request.urlopen(request, timeout=PATIENCE_S).close()
            eventually(lambda: (root / "members").is_dir() and any((root / "members").iterdir()))
        finally:
            # strace itself does not heed it.
            children = Path(f"/proc/{traced.pid}/task/{traced.pid}/children").read_text()
            os.kill(int(children.split()[0]), signal.SIGTERM)
        _, said = traced.communicate(timeout=PATIENCE_S)
    assert "Traceback" not in said
    used = set(re.findall(r"^\d+ +([a-z_0-9]+)\(", trace.read_text(), re.MULTILINE))
    assert {"openat", "fsync", "inotify_init1", "accept4"} <= used
    for unit in UNITS.glob("*.service"):
        assert used <= allowed(values(unit, "SystemCallFilter"))


def _environment(more: dict[str, str]) -> dict[str, str]:
    return os.environ | more


def allowed(filters: list[str]) -> set[str]:
    """The calls that filters leave, in order."""
    left: set[str] = set()
    for each in filters:
        calls = set().union(*(members(group) for group in each.removeprefix("~").split()))
        left = left - calls if each.startswith("~") else left | calls
    return left


@functools.cache
def members(group: str) -> frozenset[str]:
    """The calls of a group of systemd's, with those of its groups."""
    found: set[str] = set()
    for line in run("systemd-analyze", "--no-pager", "syscall-filter", group).splitlines()[1:]:
        name = line.strip()
        if name.startswith("@"):
            found |= members(name)
        elif name and not name.startswith("#"):
            found.add(name)
    return frozenset(found)
