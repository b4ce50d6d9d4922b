"""The load tool of load_tool/: compiled once a process, run, and its figures as types.

    run = load("cycle", f"{server.url}/bench/messages", seconds=3)
    run.rate, run.whole.p99_us, run.latency["publish"].p50_us, run.stall_us

It is one generator for all servers, in C and one thread, so that it costs little beside them:
HTTP (mq's operations; any server's empty POST, or GET), beanstalkd, Redis streams, NATS JetStream,
STOMP. Each connection has one request at a time. When the time is over, what was begun is still
waited for and counted, so counts agree with what lies on the disk.
"""

import atexit
import functools
import json
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

Mode: TypeAlias = Literal["publish", "fetch", "delete", "cycle", "empty", "get"]

BODY_BYTES: Final = 300
CONNECTIONS: Final = 64

_SOURCES: Final = Path(__file__).parent / "load_tool"
_FLAGS: Final = ("-O2", "-std=c11", "-D_GNU_SOURCE")


class BenchError(Exception):
    """A figure that would mean nothing, or a tool that is missing: says what and why."""


@dataclass(frozen=True, slots=True)
class Latency:
    """Exact percentiles of one kind of operation, in microseconds."""

    count: int
    p50_us: float
    p99_us: float
    p999_us: float
    max_us: float


@dataclass(frozen=True, slots=True)
class Run:
    """What one run of the tool measured."""

    mode: Mode
    messages: int
    """Those that went through all of the mode; of a cycle the deleted ones."""
    seconds: float
    """From the first request to the last answer that counted."""
    errors: int
    """Wrong answers and none; each ended its connection."""
    first_error: str | None
    empty: int
    """Fetches that found nothing. In a cycle they are part of the fetch's latency."""
    stall_us: float
    """The longest time in which no connection was answered."""
    cpu_s: float
    """The tool's own."""
    latency: Mapping[str, Latency]
    """By kind: publish, fetch, delete, cycle (all three), empty, get."""

    @property
    def rate(self) -> float:
        """Messages a second."""
        return self.messages / self.seconds

    @property
    def whole(self) -> Latency:
        """The latency of what is counted."""
        return self.latency[self.mode]


@functools.cache
def compiled() -> Path:
    """The tool, compiled to a folder that goes with this process. Raises BenchError."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise BenchError(
            "cc is missing, to compile the load tool: it is in the packages gcc and libc6-dev of "
            "Debian and Ubuntu (apt-get install gcc libc6-dev), gcc of Fedora and Arch, build-base "
            "of Alpine"
        )
    folder = Path(tempfile.mkdtemp(prefix="mq-load-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    tool = folder / "load"
    command = [compiler, *_FLAGS, "-o", str(tool), *sorted(map(str, _SOURCES.glob("*.c")))]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise BenchError(f"cc could not compile the load tool:\n{done.stderr}")
    return tool


def load(
    mode: Mode,
    *urls: str,
    connections: int = CONNECTIONS,
    seconds: float | None = None,
    messages: int | None = None,
    body_bytes: int = BODY_BYTES,
    ids: Path | None = None,
    ids_out: Path | None = None,
    answer_wait_s: float = 30,
    errors_allowed: bool = False,
) -> Run:
    """Runs the tool against these servers, the connections shared out among them.

    Ends after these seconds or messages, fetch and delete also when there is none left.
    `body_bytes` is what is published and what a fetch must bring. `ids` are what to delete, one
    a line; `ids_out` gets those that were published or fetched. Raises BenchError when any answer
    was wrong or missing, unless errors are allowed, and when nothing was measured.
    """
    flags = {
        "mode": mode, "connections": connections, "seconds": seconds, "messages": messages,
        "body": body_bytes, "ids": ids, "ids-out": ids_out, "answer-wait": answer_wait_s,
    }  # fmt: skip
    told = [f"--{name}={value}" for name, value in flags.items() if value is not None]
    done = subprocess.run([compiled(), *told, *urls], capture_output=True, text=True)
    if done.returncode != 0:
        raise BenchError(f"the load tool failed: {done.stderr.strip()}")
    run = _parsed(json.loads(done.stdout))
    if run.errors and not errors_allowed:
        raise BenchError(f"{mode}: {run.errors} wrong answers, the first to {run.first_error!r}")
    if not run.messages and not run.errors:
        raise BenchError(f"{mode}: nothing was measured: there was no message")
    return run


def _parsed(told: dict[str, Any]) -> Run:
    latency = {
        kind: Latency(each["count"], each["p50"], each["p99"], each["p999"], each["max"])
        for kind, each in told.pop("latency_us").items()
    }
    return Run(**told, latency=latency)
