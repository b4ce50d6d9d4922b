"""What the bench must know of a server: how it starts, what its answers promise, what it costs."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deploy.bench.load import BenchError

_START_WAIT_S: Final = 60.0
_STOP_WAIT_S: Final = 20.0
_LOOK_EVERY_S: Final = 0.02
_LOG_LINES: Final = 20
_TICKS_S: Final = os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class Serving:
    """A server that runs."""

    queue: Callable[[str], str]
    """Makes a queue of that name where it must be made; its URL for the load tool."""
    popen: "subprocess.Popen[bytes]"

    def cpu_s(self) -> float:
        """CPU seconds so far of its processes that run, user and system."""
        return sum(_cpu_ticks_of_session(self.popen.pid)) / _TICKS_S


@dataclass(frozen=True, slots=True)
class Rival:
    """A server, and what is on the disk when it answers."""

    name: str
    program: str
    """Whose absence means that it is not installed: a command or a path."""
    packages: tuple[str, ...]
    """Debian's."""
    version: Sequence[str]
    """A command whose first line tells it."""
    publish_on_disk: str
    """What of a publish is on the disk before its answer, in a few words."""
    cycle_on_disk: str
    """The same of publish, fetch and delete."""
    as_much_as_mq: bool
    """Whether that is all that mq promises: each of the three."""
    promise: str
    """The same in a sentence."""
    serve: Callable[[Path], "contextlib.AbstractContextManager[Serving]"]
    """Starts it with its data in this folder, which is there."""
    mounted_sync: bool = False
    """Whether its disk is mounted so that each write is synced: it cannot do so itself."""

    def is_installed(self) -> bool:
        """Whether its program is there."""
        return shutil.which(self.program) is not None or Path(self.program).exists()

    def version_told(self) -> str:
        """What it says of its version."""
        done = subprocess.run(self.version, capture_output=True, text=True)
        lines = (done.stdout + done.stderr).strip().splitlines()
        return lines[0] if lines else "no version told"


def free_port() -> int:
    """A port of 127.0.0.1 that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextlib.contextmanager
def process(
    folder: Path, port: int, *command: str, env: Mapping[str, str] | None = None
) -> "Iterator[subprocess.Popen[bytes]]":
    """Runs a command in a session of its own until the port answers, and ends all of that session.

    Its output goes to a log in the folder. Raises BenchError with the log's end.
    """
    log = folder / "output.log"
    with log.open("wb") as output:
        popen = subprocess.Popen(
            command, cwd=_working_folder(), stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            env=os.environ | dict(env or {}), start_new_session=True,
        )  # fmt: skip
    try:
        _wait_for(port, popen, log)
        yield popen
    finally:
        _end(popen)


def install(rivals: Sequence[Rival]) -> None:
    """Installs what is missing of these by apt-get, as root, none of it started as a service.

    Raises BenchError.
    """
    missing = [rival for rival in rivals if not rival.is_installed()]
    packages = sorted({package for rival in missing for package in rival.packages})
    if not packages:
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise BenchError(f"--install needs root and apt-get, for {' '.join(packages)}")
    with _no_services():
        for command in (("update",), ("install", "--yes", "--no-install-recommends", *packages)):
            done = subprocess.run(
                ["apt-get", "-qq", *command],
                capture_output=True,
                text=True,
                env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"},
            )
            if done.returncode != 0:
                raise BenchError(f"apt-get {command[0]} failed: {done.stderr.strip()}")


@contextlib.contextmanager
def _no_services() -> Iterator[None]:
    """While it lasts, packages of Debian start no services, unless the machine decides that."""
    policy = Path("/usr/sbin/policy-rc.d")
    if policy.exists():
        yield
        return
    policy.write_text("#!/bin/sh\nexit 101\n")
    policy.chmod(0o755)
    try:
        yield
    finally:
        policy.unlink()


def _working_folder() -> Path:
    """The repository's top: `python -m mq` is found there."""
    return Path(__file__).parents[3]


def _wait_for(port: int, popen: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + _START_WAIT_S
    while time.monotonic() < deadline and popen.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(_LOOK_EVERY_S)
    why = "did not answer in time" if popen.poll() is None else f"ended with {popen.returncode}"
    said = "\n".join(log.read_text(errors="replace").splitlines()[-_LOG_LINES:])
    raise BenchError(f"{popen.args!r} {why}:\n{said}")


def _end(popen: "subprocess.Popen[bytes]") -> None:
    """SIGTERM, and after a while SIGKILL, to all of its group."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(popen.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            popen.wait(_STOP_WAIT_S)
            break
    with contextlib.suppress(ProcessLookupError):
        os.killpg(popen.pid, signal.SIGKILL)  # Those that are still there.


def _cpu_ticks_of_session(session: int) -> Iterator[int]:
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # After the name in brackets: state, parent, group, session, ..., utime, stime.
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[3]) == session:
                yield int(fields[11]) + int(fields[12])
