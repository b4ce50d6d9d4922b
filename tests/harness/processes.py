"""The three daemons as processes, and curl's view of them."""

import contextlib
import itertools
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from mq.model.clock import SystemClock
from mq.store.disk.files import Files
from mq.store.opening import open_root

T = TypeVar("T")

PATIENCE_S = 30.0


def eventually(
    condition: Callable[[], T], what: str = "the condition", patience_s: float = PATIENCE_S
) -> T:
    """Waits until the condition gives something true, and gives that."""
    deadline = time.monotonic() + patience_s
    pause = threading.Event()
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} never came true")
        pause.wait(0.01)
    return value


def dwindles(count: Callable[[], int], what: str, patience_s: float = PATIENCE_S) -> None:
    """Waits until nothing is left of it, however long that takes, while it becomes less."""
    left = count()

    def is_less() -> bool:
        nonlocal left
        before, left = left, min(left, count())
        return left < before

    while left:
        eventually(is_less, f"fewer {what}", patience_s)


@dataclass
class Process:
    """A daemon that runs; its log lines are kept."""

    popen: "subprocess.Popen[str]"
    lines: list[str] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def read_log(self) -> None:
        assert self.popen.stderr is not None
        with contextlib.suppress(ValueError):
            for line in self.popen.stderr:
                self.lines.append(line.rstrip("\n"))

    def logged(self, pattern: str) -> "re.Match[str] | None":
        for line in list(self.lines):
            if match := re.search(pattern, line):
                return match
        return None

    def wait_for_log(self, pattern: str) -> "re.Match[str]":
        def found() -> "re.Match[str] | None":
            match = self.logged(pattern)
            if match is None and self.popen.poll() is not None:
                raise AssertionError(f"ended with {self.popen.returncode}: {self.lines}")
            return match

        return eventually(found, f"a log line with {pattern!r}")

    def kill_children(self) -> None:
        """Those it says it started, in case a fault keeps them alive: they hold its log open."""
        for line in list(self.lines):
            match = re.search(r"started daemon=\S+ pid=(\d+)", line)
            if match and _is_daemon(int(match.group(1))):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(match.group(1)), signal.SIGKILL)

    def kill(self) -> None:
        self.popen.kill()
        self.popen.wait(PATIENCE_S)

    def terminate(self) -> int:
        self.popen.send_signal(signal.SIGTERM)
        return self.popen.wait(PATIENCE_S)


# A process tries a root's folders with one name: two threads would be in each other's way.
_MAKING = threading.Lock()


def _is_daemon(pid: int) -> bool:
    try:
        return b"\0-m\0mq" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _make_root(flags: Sequence[str]) -> None:
    root = dict(itertools.pairwise(flags)).get("--root")
    with _MAKING:
        if root is not None and not Path(root).exists():
            open_root(root, Files(), SystemClock())


class Processes:
    """Starts daemons, and ends them all."""

    def __init__(self) -> None:
        self._started: list[Process] = []

    def mq(self, root: Path, *flags: str, port: int = 0) -> Process:
        """An mq on this root, listening (on a port of its own unless told)."""
        process = self.start("mq", "--root", str(root), "--port", str(port), *flags)
        process.port = int(process.wait_for_log(r"listening .*port=(\d+)").group(1))
        return process

    def mover(self, *flags: str) -> Process:
        """Its root is made where it is missing, as mq would have."""
        _make_root(flags)
        process = self.start("mq_mover", *flags)
        process.wait_for_log("moving")
        return process

    def reaper(self, *flags: str) -> Process:
        _make_root(flags)
        process = self.start("mq_reaper", *flags)
        process.wait_for_log("reaping")
        return process

    def start(
        self,
        module: str,
        *flags: str,
        env: dict[str, str] | None = None,
        python: tuple[str, ...] = (),
        own_group: bool = False,
        descriptors: Sequence[int] = (),
        before: tuple[str, ...] = (),
    ) -> Process:
        """`python -m module flags`, without waiting for anything. `own_group`: in a process group
        of its own, as a terminal makes one for a command. `descriptors`: what it inherits.
        `before`: the command that runs it.
        """
        popen = subprocess.Popen(
            [*before, sys.executable, *python, "-m", module, *flags],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            text=True,
            env=os.environ | (env or {}),
            start_new_session=own_group,
            pass_fds=descriptors,
        )
        process = Process(popen)
        threading.Thread(target=process.read_log, daemon=True).start()
        self._started.append(process)
        return process

    def end_all(self) -> None:
        for process in self._started:
            if process.popen.poll() is None:
                process.kill()
            process.kill_children()
            if process.popen.stderr is not None:
                process.popen.stderr.close()


@contextlib.contextmanager
def processes() -> Iterator[Processes]:
    started = Processes()
    try:
        yield started
    finally:
        started.end_all()
