"""Spark drivers as processes that a test kills: each has a JVM and workers of its own.

A driver is `python -m spark.failures.driver`: it takes jobs, a line of JSON each, on its stdin, and
says how each ended in a file. Whatever it starts is in one session of processes, by which all of it
is killed at once, and by which a test sees that nothing is left.
"""

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from harness.points import VARIABLE, Points
from harness.processes import PATIENCE_S, eventually
from harness.spark_cluster import SHORT_LIVED, SITE

T = TypeVar("T")

# A cold JVM on a machine that has other work.
SPARK_PATIENCE_S = 150.0

_HERE = Path(__file__).parent
_TESTS = _HERE.parent.parent
# Where the workers of a local cluster find what they import.
_IMPORTS = (SITE, _TESTS.parent, _TESTS)


@dataclass(frozen=True)
class Job:
    """One job that a driver was given."""

    driver: "Driver"
    number: int

    @property
    def outcome(self) -> dict[str, Any] | None:
        """How it ended: what it says, or {"error": ...}; None while it runs."""
        try:
            found: dict[str, Any] = json.loads(self.driver.result_path(self.number).read_text())
        except FileNotFoundError:
            assert self.driver.is_running, "the driver ended"
            return None
        return found

    def result(self) -> dict[str, Any]:
        """Waits for its end, which must be good."""
        outcome = self.end()
        assert "error" not in outcome, f"{outcome['error']}\n{self.driver.log()}"
        return outcome

    def error(self) -> str:
        """Waits for its end, which must be bad; what it says."""
        outcome = self.end()
        assert "error" in outcome, outcome
        return str(outcome["error"])

    def end(self) -> dict[str, Any]:
        """Waits for its end; how it was."""
        return self.driver.eventually(lambda: self.outcome, "the end of a job")

    def stopped(self) -> int:
        """Waits until a process stands still at the point that is armed; its pid. The job must not
        end meanwhile.
        """

        def stopped() -> int | None:
            pid = self.driver.points.stopped()
            assert pid or self.outcome is None, f"never passed by: {self.outcome}"
            return pid

        return self.driver.eventually(stopped, "a stop at the point")


class Driver:
    """A driver that runs; `master` as Spark has it."""

    def __init__(self, folder: Path, master: str) -> None:
        folder.mkdir()
        self.points = Points(folder / "points")
        self._folder = folder
        self._log_path = folder / "log"
        self._numbers = itertools.count()
        with self._log_path.open("wb") as log:
            self._popen = subprocess.Popen(
                [sys.executable, "-m", "spark.failures.driver", str(folder), master],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                text=True,
                cwd=folder,
                env=os.environ
                | {
                    VARIABLE: str(folder / "points"),
                    "PYTHONPATH": os.pathsep.join(map(str, _IMPORTS)),
                    "SPARK_LOCAL_IP": "127.0.0.1",
                    # Executors of a cluster inherit it.
                    "JDK_JAVA_OPTIONS": SHORT_LIVED,
                },
                start_new_session=True,
            )

    def start(self, kind: str, **facts: Any) -> Job:
        """Gives it a job: a function of `driver`, by name. Several run side by side."""
        job = Job(self, next(self._numbers))
        assert self._popen.stdin is not None
        self._popen.stdin.write(json.dumps({"number": job.number, "kind": kind, **facts}) + "\n")
        self._popen.stdin.flush()
        return job

    def run(self, kind: str, **facts: Any) -> dict[str, Any]:
        """A job to its good end."""
        return self.start(kind, **facts).result()

    def result_path(self, number: int) -> Path:
        return self._folder / f"result.{number}"

    def eventually(self, condition: Callable[[], T | None], what: str) -> T:
        """Waits until the condition gives something true, and gives that."""
        try:
            found = eventually(condition, what, SPARK_PATIENCE_S)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log()}") from None
        assert found is not None
        return found

    def log(self) -> str:
        """The end of what it, its JVM and its workers said."""
        return self._log_path.read_text(errors="replace")[-8000:]

    @property
    def is_running(self) -> bool:
        return self._popen.poll() is None

    def pids(self, having: str = "") -> list[int]:
        """Its own, its JVMs' and its workers' processes with this in their command lines."""
        return [pid for pid in _session(self._popen.pid) if having in _command(pid)]

    def executor_above(self, pid: int) -> int:
        """The executor's JVM that the worker of this pid works for."""
        while "CoarseGrainedExecutorBackend" not in _command(pid):
            pid = _parent(pid)
            assert pid > 1, "no executor above"
        return pid

    def signal(self, number: signal.Signals) -> None:
        """To all of its processes."""
        for pid in _session(self._popen.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill(self) -> None:
        """It and all that it started, at once; on return none of them is there."""
        # What could start another goes on no more, then all go.
        self.signal(signal.SIGSTOP)

        def none_left() -> bool:
            self.signal(signal.SIGKILL)
            return not _session(self._popen.pid)

        eventually(none_left, "the end of a driver's processes")
        self._popen.wait(PATIENCE_S)
        if self._popen.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._popen.stdin.close()


class Drivers:
    """Drivers, mostly one after the other: a test that kills one leaves a place for the next."""

    def __init__(self, folder: Path, master: str) -> None:
        self._folder = folder
        self._master = master
        self._started: list[Driver] = []

    def get(self) -> Driver:
        """The one that runs, else a new one."""
        for driver in self._started:
            if driver.is_running:
                driver.points.disarm()
                return driver
        return self.another()

    def another(self) -> Driver:
        """A new one, beside those that run, for a test that kills it."""
        self._started.append(Driver(self._folder / str(len(self._started)), self._master))
        return self._started[-1]

    def end_all(self) -> None:
        """Kills what runs; none of any driver's processes is there on return."""
        for driver in self._started:
            driver.kill()


def _stat(pid: int) -> list[str]:
    """From the state on: state, parent, group, session. Empty when there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _parent(pid: int) -> int:
    return int(_stat(pid)[1])


def _session(leader: int) -> list[int]:
    """The processes of a session that are no zombies."""
    pids = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
    found = {pid: stat for pid in pids if (stat := _stat(pid))}
    return [pid for pid, stat in found.items() if int(stat[3]) == leader and stat[0] != "Z"]


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""
