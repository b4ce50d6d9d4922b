"""The wheel and the sdist of this checkout, and the Pythons that they are tried in."""

import functools
import os
import re
import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

TOP = Path(__file__).parents[2]
OLDEST = (3, 11)
# 2026-01-01: a date that a zip can say, and that is nobody's own.
EPOCH = "1767225600"
_PATIENCE_S = 500.0


@dataclass(frozen=True)
class Distributions:
    """What a release uploads."""

    sdist: Path
    wheel: Path


def said_by(*command: str, cwd: Path | None = None, **environment: str) -> str:
    """What the command says on both its outputs; it has to end well."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**outer_environment(), **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_PATIENCE_S,
    )
    assert done.returncode == 0, f"{' '.join(command)}: {done.stdout[-4000:]}"
    return done.stdout


def outer_environment() -> dict[str, str]:
    """This process's, without what leads a Python to this checkout or its venv."""
    leads = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "COVERAGE_PROCESS_START")
    return {name: value for name, value in os.environ.items() if name not in leads}


def checkout(folder: Path) -> Path:
    """A copy of what is under version control here, or would be; all, where nothing is."""
    listed = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "-z", "-co", "--exclude-standard"],
        cwd=TOP,
        capture_output=True,
        text=True,
        timeout=_PATIENCE_S,
    )
    if listed.returncode:
        shutil.copytree(
            TOP, folder, ignore=shutil.ignore_patterns(".venv", "__pycache__", ".*_cache")
        )
        return folder
    for name in filter(None, listed.stdout.split("\0")):
        if (TOP / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(TOP / name, folder / name)
    return folder


def built(source: Path, into: Path) -> Distributions:
    """Both, made of these sources by what pyproject.toml says makes them."""
    said_by(
        sys.executable,
        "-m",
        "hatchling",
        "build",
        "-d",
        str(into),
        cwd=source,
        SOURCE_DATE_EPOCH=EPOCH,
    )
    (sdist,), (wheel,) = into.glob("*.tar.gz"), into.glob("*.whl")
    return Distributions(sdist, wheel)


def unpacked(sdist: Path, into: Path) -> Path:
    """The sdist's one folder."""
    with tarfile.open(sdist) as archive:
        archive.extractall(into, filter="data")
    (folder,) = into.iterdir()
    return folder


@functools.cache
def pythons() -> dict[str, Path]:
    """An interpreter of each supported version that this machine has, by "3.NN"."""
    names = (f"python3.{minor}" for minor in range(OLDEST[1], 20))
    on_path = filter(None, map(shutil.which, names))
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found: dict[str, Path] = {"{}.{}".format(*sys.version_info): Path(sys.executable).resolve()}
    for each in (*map(Path, on_path), *sorted(pyenv.glob("3.*/bin/python3"))):
        # A shim on the path may be of a version that is not chosen.
        asked = subprocess.run(
            [each, "-c", "import sys, venv, ensurepip; print('{}.{}'.format(*sys.version_info))"],
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
        )
        version = asked.stdout.strip()
        if re.fullmatch(r"3\.\d+", version) and tuple(map(int, version.split("."))) >= OLDEST:
            found.setdefault(version, each)
    return dict(sorted(found.items(), key=lambda item: int(item[0].partition(".")[2])))


def fresh_venv(python: Path, folder: Path) -> Path:
    """The folder of the commands of a venv in which nothing is but pip."""
    said_by(str(python), "-m", "venv", str(folder))
    return folder / "bin"
