"""The container image as buildah builds it, with no daemon and no container engine beside it.

Its base comes from a registry of images, which not every machine reaches. In its place stands what
it is made of: `python:3.13-slim-trixie` is Debian trixie with a Python of its own making; here it
is Debian trixie with Debian's Python, of the same version.
"""

import ast
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.apart import apart
from harness.needs import cannot_run, program

TOP = Path(__file__).parents[2]
DOCKERFILE = TOP / "deploy" / "container" / "Dockerfile"
_BASE = re.compile(r"^FROM (\S+/python:(3\.\d+)-slim-(\w+))", re.MULTILINE)
_TOOLS = ("buildah", "mmdebstrap", "unshare", "nsenter", "setpriv")
# What the base has and the image's steps use.
_PACKAGES = "ca-certificates,passwd,python-is-python3,python3-venv"
_LEFT_OUT = ("doc", "locale", "man")
_PATIENCE_S = 500.0


@dataclass
class Image:
    """An image that was built, and its files."""

    rootfs: Path
    config: dict[str, Any] = field(default_factory=dict)
    """As the OCI has it: Cmd, Env, User, Volumes, ExposedPorts ..., and Docker's Healthcheck."""

    @property
    def environment(self) -> dict[str, str]:
        return dict(each.split("=", 1) for each in self.config["Env"])


@contextlib.contextmanager
def image(work: Path) -> Iterator[Image]:
    """The image of this checkout, built in `work`. Root alone can."""
    if os.geteuid() != 0:
        cannot_run("needs root, to build an image")
    for tool in _TOOLS:
        program(tool)
    tag = "localhost/mq:test"
    try:
        for base, python, debian in set(_BASE.findall(DOCKERFILE.read_text())):
            _take_base(work, base, python, debian)
        _buildah(
            work, "build", "--layers=false", "--pull-never", *_pip_volumes(work),
            "--format", "docker", "--file", str(DOCKERFILE), "--tag", tag, str(TOP),
        )  # fmt: skip
        config = json.loads(_buildah(work, "inspect", "--type", "image", tag))["Docker"]["config"]
        container = _buildah(work, "from", "--pull-never", tag).strip()
        yield Image(Path(_buildah(work, "mount", container).strip()), config)
    finally:
        _buildah(work, "rm", "--all")
        # Some hundred megabytes, and nothing of them is mounted.
        shutil.rmtree(work / "storage")


def _take_base(work: Path, name: str, python: str, debian: str) -> None:
    archive = work / "base.tar"
    left_out = [f"--dpkgopt=path-exclude=/usr/share/{each}/*" for each in _LEFT_OUT]
    _run(
        "mmdebstrap", "--variant=essential", f"--include={_PACKAGES}", *left_out,
        debian, str(archive), *_mirror(),
    )  # fmt: skip
    container = _buildah(work, "from", "scratch").strip()
    _buildah(work, "add", "--quiet", container, str(archive), "/")
    archive.unlink()
    said = _buildah(work, "run", container, "--", "python", "--version")
    assert said.startswith(f"Python {python}."), said
    _buildah(work, "commit", "--quiet", "--rm", container, name)


def _mirror() -> list[str]:
    """Where this machine has its own packages from; nothing where it does not say."""
    for path in sorted(Path("/etc/apt/sources.list.d").glob("*.sources")):
        found = re.search(r"^URIs:\s*(\S+/debian/?)\s*$", path.read_text(), re.MULTILINE)
        if found is not None:
            return [found.group(1)]
    return []


def _pip_volumes(work: Path) -> list[str]:
    """What pip is told on this machine, and the files and folders named there, for the steps that
    run it; nothing of it is in the image.
    """
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"],
        capture_output=True, text=True, check=True, timeout=_PATIENCE_S,
    )  # fmt: skip
    said = {}
    for line in listed.stdout.splitlines():
        name, _, value = line.partition("=")
        said[name.partition(".")[2].lstrip(".")] = ast.literal_eval(value)
    configuration = work / "pip.conf"
    lines = [f"{name} = {value}" for name, value in said.items() if "." not in name]
    configuration.write_text("\n".join(["[global]", *lines, ""]))
    words = {word.removeprefix("file://") for value in said.values() for word in value.split()}
    # Of an index that is a folder: all that lies around it, as its links may lead there.
    named = {Path(word) for word in words if word.startswith("/") and Path(word).exists()}
    shared = {each.parent if each.name == "simple" else each for each in named}
    volumes = [(configuration, Path("/etc/pip.conf")), *((each, each) for each in sorted(shared))]
    return [f"--volume={here}:{there}:ro" for here, there in volumes]


def _buildah(work: Path, *arguments: str) -> str:
    places = ("--root", str(work / "storage"), "--runroot", str(work / "run"))
    return _run("buildah", "--storage-driver", "vfs", *places, *arguments)


def _run(*command: str) -> str:
    done = subprocess.run(
        [*apart(), *command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=os.environ | {"BUILDAH_ISOLATION": "chroot"},
        timeout=_PATIENCE_S,
    )
    assert done.returncode == 0, f"{' '.join(command)}: {done.stdout[-4000:]}{done.stderr[-4000:]}"
    return done.stdout
