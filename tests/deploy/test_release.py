"""What a release is made of: built, compared, looked at, and used on each Python that is here.

CONTRIBUTING.md, "Make a release", has the steps.
"""

import contextlib
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from email import message_from_bytes, message_from_string
from email.message import Message
from pathlib import Path

import pytest
from harness.distributions import (
    OLDEST,
    TOP,
    Distributions,
    built,
    checkout,
    fresh_venv,
    outer_environment,
    pythons,
    said_by,
    unpacked,
)
from harness.processes import PATIENCE_S, eventually

from mq import __version__

pytestmark = [pytest.mark.certificate, pytest.mark.timeout(600)]
COMMANDS = ("mq", "mq-mover", "mq-reaper", "mqctl")
PINS = TOP / "deploy" / "requirements.txt"
PIN = re.compile(r"[a-z0-9-]+==\S+( ; .+)? \\|    --hash=sha256:[0-9a-f]{64}( \\)?")
# What a plain install leaves out: each needs an extra.
EXTRAS = (
    "mq.access.jwt", "mq.access.keys", "mq.access.key_url", "mq.client.worker.traced",
    "mq.coordination.zookeeper", "mq.daemon.traces", "mq.http.traces", "mq.pytest_plugin",
    "mq.spark", "pyspark_mq",
)  # fmt: skip
IMPORT_ALL = """
import importlib, json, pkgutil, sys
import mq, mq_mover, mq_reaper
missing, places = {}, set()
for package in (mq, mq_mover, mq_reaper):
    for each in pkgutil.walk_packages(package.__path__, package.__name__ + ".", lambda name: None):
        if each.name.endswith("__main__") or ".toplevel" in each.name:
            continue
        try:
            places.add(importlib.import_module(each.name).__file__)
        except ImportError as error:
            missing[each.name] = str(error)
print(json.dumps({"missing": missing, "places": sorted(filter(None, places)), "path": sys.path}))
"""
ROUND_TRIP = """
import sys
from mq import Client
with Client(sys.argv[1]) as client:
    orders = client.queue("orders")
    orders.create()
    orders.publish(json={"table": 7})
    with orders.fetch(wait_s=20) as order:
        assert order.json() == {"table": 7}
    assert orders.fetch() is None
print("done")
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkout(tmp_path_factory.mktemp("checkout") / "mq")


@pytest.fixture(scope="module")
def release(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Distributions:
    return built(source, tmp_path_factory.mktemp("dist"))


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def wheel_s_files(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def metadata(release: Distributions) -> Message:
    (name,) = (each for each in wheel_s_files(release.wheel) if each.endswith("/METADATA"))
    return message_from_bytes(wheel_s_files(release.wheel)[name])


# What is built.


def test_another_build_elsewhere_is_the_same_to_the_byte(
    release: Distributions, tmp_path: Path
) -> None:
    again = built(checkout(tmp_path / "elsewhere"), tmp_path / "dist")
    assert digest(again.sdist) == digest(release.sdist)
    assert digest(again.wheel) == digest(release.wheel)


def test_the_sdist_makes_the_same_wheel_and_the_same_sdist(
    release: Distributions, tmp_path: Path
) -> None:
    again = built(unpacked(release.sdist, tmp_path / "unpacked"), tmp_path / "dist")
    assert wheel_s_files(again.wheel) == wheel_s_files(release.wheel)
    assert digest(again.wheel) == digest(release.wheel)
    with tarfile.open(release.sdist) as first, tarfile.open(again.sdist) as second:
        assert first.getnames() == second.getnames()


def test_the_wheel_has_all_of_the_packages_and_nothing_else(
    release: Distributions, source: Path
) -> None:
    packages = ("mq", "mq_mover", "mq_reaper")
    there = {
        str(path.relative_to(source))
        for package in packages
        for path in (source / package).rglob("*")
        if path.is_file()
    }
    moved = "mq/spark/toplevel/pyspark_mq.py"
    assert moved in there
    files = {name for name in wheel_s_files(release.wheel) if ".dist-info/" not in name}
    assert files == there - {moved} | {"pyspark_mq.py"}
    assert {f"{package}/py.typed" for package in packages} <= files


def test_the_sdist_has_what_the_tests_and_the_pages_need(release: Distributions) -> None:
    with tarfile.open(release.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
        owners = {(each.uid, each.uname) for each in archive.getmembers()}
    assert {"pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE", "deploy/check"} <= names
    assert {"tests/conftest.py", "deploy/requirements.txt", "deploy/CONTRIBUTING.md"} <= names
    assert owners == {(0, "")}


def test_its_metadata_says_what_it_is(release: Distributions) -> None:
    said = metadata(release)
    assert (said["Name"], said["Version"]) == ("mq", __version__)
    assert said["Requires-Python"] == ">={}.{}".format(*OLDEST)
    assert said["License-Expression"] == "MIT"
    assert said.get_all("License-File") == ["LICENSE"]
    assert said["Description-Content-Type"] == "text/markdown"
    assert "# mq" in str(said.get_payload())
    (entries,) = (
        content.decode()
        for name, content in wheel_s_files(release.wheel).items()
        if name.endswith("/entry_points.txt")
    )
    assert set(re.findall(r"^([\w-]+) = ", entries, re.MULTILINE)) == set(COMMANDS)


def test_a_registry_takes_both(release: Distributions) -> None:
    said = said_by(
        sys.executable, "-m", "twine", "check", "--strict", str(release.sdist), str(release.wheel)
    )
    assert said.count("PASSED") == 2, said


def test_the_pythons_that_it_names_are_those_that_it_runs_on(release: Distributions) -> None:
    named = {
        each.rpartition(" ")[2]
        for each in metadata(release).get_all("Classifier", [])
        if re.search(r"Python :: 3\.\d+$", each)
    }
    assert "{}.{}".format(*OLDEST) in named
    assert set(pythons()) <= named


# What is installed.


@contextlib.contextmanager
def standalone(mq: Path, root: Path) -> Iterator[str]:
    """The address of an installed mq, all three daemons of it."""
    log = root.with_suffix(".log")
    with log.open("w") as stderr:
        popen = subprocess.Popen(
            [mq, "--standalone", "--root", root, "--port", "0"],
            stdin=subprocess.DEVNULL,
            stderr=stderr,
            env=outer_environment(),
            cwd=root.parent,
        )
    try:

        def port() -> str | None:
            assert popen.poll() is None, log.read_text()
            found = re.search(r"listening .*port=(\d+)", log.read_text())
            return found and found.group(1)

        yield f"http://127.0.0.1:{eventually(port, 'a port', 2 * PATIENCE_S)}"
        popen.send_signal(signal.SIGTERM)
        assert popen.wait(2 * PATIENCE_S) == 0, log.read_text()
        assert "Traceback" not in log.read_text()
    finally:
        if popen.poll() is None:
            popen.kill()
            popen.wait()


@pytest.mark.parametrize("version", pythons())
def test_it_is_installed_and_used_on(version: str, release: Distributions, tmp_path: Path) -> None:
    commands = fresh_venv(pythons()[version], tmp_path / "venv")
    python = str(commands / "python")
    said_by(str(commands / "pip"), "install", "-q", str(release.wheel), cwd=tmp_path)
    said_by(str(commands / "pip"), "check", cwd=tmp_path)
    for command in COMMANDS:
        said = said_by(str(commands / command), "--version", cwd=tmp_path)
        assert said.endswith(f" {__version__}\n")
        assert "Usage" in said_by(str(commands / command), "--help", cwd=tmp_path)

    imported = json.loads(said_by(python, "-W", "error", "-c", IMPORT_ALL, cwd=tmp_path))
    beyond = {name for name in imported["missing"] if not name.startswith(EXTRAS)}
    assert not beyond, {name: imported["missing"][name] for name in beyond}
    here = os.path.realpath(tmp_path)
    assert all(os.path.realpath(each).startswith(here) for each in imported["places"])
    assert str(TOP) not in imported["path"]

    with standalone(commands / "mq", tmp_path / "root") as url:
        assert said_by(python, "-W", "error", "-c", ROUND_TRIP, url, cwd=tmp_path) == "done\n"
        mqctl = (str(commands / "mqctl"), "--url", url)
        said_by(*mqctl, "send", "orders", "two pizzas", cwd=tmp_path)
        assert "two pizzas" in said_by(*mqctl, "receive", "orders", "--ack", cwd=tmp_path)


# What is pinned.


def pins(path: Path) -> dict[str, str]:
    found = re.findall(r"^([a-z0-9-]+)==(\S+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    return dict(found)


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-spark.txt"])
def test_the_pins_are_by_hash_and_name_no_place(name: str) -> None:
    text = (TOP / "deploy" / name).read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    assert all(PIN.fullmatch(line) for line in lines)
    blocks = re.split(r"^(?=[a-z])", "\n".join(lines), flags=re.MULTILINE)
    assert all("--hash" in block for block in blocks if block)
    # Not in what made them, either.
    assert not re.search(r"://|--(extra-)?index|--find-links", text)
    assert pins(PINS).items() <= pins(TOP / "deploy" / name).items()


def test_what_is_pinned_is_installed_by_hash_and_is_all_that_mq_needs(
    release: Distributions, tmp_path: Path
) -> None:
    commands = fresh_venv(Path(sys.executable).resolve(), tmp_path / "venv")
    pip = (str(commands / "pip"),)
    said_by(*pip, "install", "-q", "--require-hashes", "-r", str(PINS), cwd=tmp_path)
    said_by(*pip, "install", "-q", "--no-deps", str(release.wheel), cwd=tmp_path)
    # Its ranges too: pip looks whether each that is needed is there, and of a version that will do.
    assert "No broken requirements" in said_by(*pip, "check", cwd=tmp_path)
    for extra in ("mq.access.jwt", "mq.daemon.traces", "mq.coordination.zookeeper"):
        said_by(str(commands / "python"), "-c", f"import {extra}", cwd=tmp_path)
    listed = json.loads(said_by(*pip, "list", "--format", "json", cwd=tmp_path))
    installed = {each["name"].lower().replace("_", "-") for each in listed}
    assert installed - set(pins(PINS)) <= {"mq", "pip", "setuptools"}


def test_the_metadata_can_be_read_back(release: Distributions) -> None:
    with tarfile.open(release.sdist) as archive:
        (name,) = (each for each in archive.getnames() if each.endswith("/PKG-INFO"))
        member = archive.extractfile(name)
        assert member is not None
        said = message_from_string(member.read().decode())
    assert said.items() == metadata(release).items()
