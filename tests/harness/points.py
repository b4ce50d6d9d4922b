"""Named points at which a process of ours stands still until a test lets it go on, or kills it.

A point is a call of Files, before or after it is made, on a path that fits; or one that a job's own
code passes by name. A test arms one at a time in a folder that all processes know; the first to
reach it says so there and stops itself, with SIGSTOP: nobody stops there again.

The processes are those that Spark starts, so `arm` is called from a sitecustomize: the environment
variable MQ_POINTS names the folder.
"""

import contextlib
import functools
import json
import os
import re
import signal
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mq.store.disk.files import Files

VARIABLE = "MQ_POINTS"
CALLS = (
    "create", "open_kept", "write", "stamp", "mkdir", "rename", "unlink", "rmdir", "sync",
    "sync_folder", "sync_file_system", "open_claimed", "lock",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Point:
    """A call of Files (or a name of the job's own), and what its paths, with " -> " between them,
    have in them (a regular expression). `after`: once the call was made. `passes`: in the process
    that stops, so many calls go well first.
    """

    call: str
    where: str = ""
    after: bool = False
    passes: int = 0


class Points:
    """The test's side of one folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._folder = folder
        self._armed = folder / "armed"
        self._reached = folder / "reached"

    def arm(self, point: Point) -> None:
        """The first to come by from now on stops there."""
        self._reached.unlink(missing_ok=True)
        written = self._folder / "arming"
        written.write_text(json.dumps(asdict(point)))
        written.rename(self._armed)

    def disarm(self) -> None:
        self._armed.unlink(missing_ok=True)

    def stopped(self) -> int | None:
        """The process that stands still at the point; None while there is none."""
        try:
            pid = int(self._reached.read_text())
        except FileNotFoundError:
            return None
        return pid if state_of(pid) == "T" else None


def state_of(pid: int) -> str:
    """The letter that the kernel has for what a process does; empty when there is none."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return ""


class _Passing:
    """What a process does at the points that it passes. Threads and forks share it."""

    def __init__(self, folder: str) -> None:
        self._armed = f"{folder}/armed"
        self._reached = f"{folder}/reached"
        self._text = ""
        self._passes = 0
        self._guard = threading.Lock()

    def pass_by(self, call: str, paths: str, after: bool) -> None:
        """Stops this process when this is the point that is armed, and nobody was there."""
        with self._guard:
            try:
                text = Path(self._armed).read_text()
            except FileNotFoundError:
                return
            if text != self._text:
                self._text, self._passes = text, 0
            point = Point(**json.loads(text))
            if (point.call, point.after) != (call, after) or not re.search(point.where, paths):
                return
            self._passes += 1
            if self._passes <= point.passes or not self._is_first():
                return
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)

    def _is_first(self) -> bool:
        """Says who is there, whole or not at all; False where somebody was before."""
        written = f"{self._reached}.{os.getpid()}"
        Path(written).write_text(str(os.getpid()))
        try:
            os.link(written, self._reached)
        except FileExistsError:
            return False
        finally:
            os.unlink(written)
        return True


def _path(argument: object) -> str:
    """A path, or what a descriptor is open on."""
    if isinstance(argument, int):
        with contextlib.suppress(OSError):
            return os.readlink(f"/proc/self/fd/{argument}")
        return ""
    return argument if isinstance(argument, str) else ""


def _with_points(name: str, call: Callable[..., Any], passing: _Passing) -> Callable[..., Any]:
    @functools.wraps(call)
    def wrapper(self: Files, *arguments: Any) -> Any:
        paths = " -> ".join(filter(None, map(_path, arguments[:2])))
        passing.pass_by(name, paths, after=False)
        result = call(self, *arguments)
        passing.pass_by(name, paths, after=True)
        return result

    return wrapper


def arm() -> None:
    """From now on this process stops at the points that are armed in MQ_POINTS."""
    passing = _Passing(os.environ[VARIABLE])
    for name in CALLS:
        setattr(Files, name, _with_points(name, getattr(Files, name), passing))


def pass_by(name: str, where: str = "") -> None:
    """A point of a job's own code."""
    if folder := os.environ.get(VARIABLE):
        _Passing(folder).pass_by(name, where, after=False)
