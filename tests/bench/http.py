"""HTTP by wrk against real processes: mq's publish, fetch, delete and cycle; aiohttp's empty POST.

The three operations follow one another on one root: what was published is fetched, what was
fetched is deleted. The cycle has a root of its own.
"""

import contextlib
import json
import os
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.bench.ceiling import Commit
from tests.harness.processes import Process, processes

EMPTY_POST: Final = "aiohttp, empty POST"
PUBLISH: Final = "mq, publish"
FETCH: Final = "mq, fetch"
DELETE: Final = "mq, delete"
CYCLE: Final = "mq, publish + fetch + delete"

_HERE: Final = Path(__file__).parent
_QUEUE: Final = "bench"
# wrk waits so long for an answer before it counts an error, seconds.
_ANSWER_WAIT_S: Final = 30


class BenchError(Exception):
    """A figure that would mean nothing, or a tool that is missing: says what and why."""


@dataclass(frozen=True, slots=True)
class Load:
    """What wrk is told: connections, seconds a run, and how mq commits."""

    connections: int
    seconds: int
    commit: Commit
    forced: bool = False
    """Whether --durability=none must be forced, as on anything but tmpfs."""

    def mq_flags(self) -> tuple[str, ...]:
        """The commit mode as flags of mq."""
        if self.commit != "none":
            return ("--commit", self.commit)
        return ("--durability", "none", *(("--force",) if self.forced else ()))


def find_wrk() -> str:
    """wrk's path. Raises BenchError, saying which package it is in."""
    found = shutil.which("wrk")
    if found is None:
        raise BenchError(
            "wrk is missing: it is the package wrk of Debian, Ubuntu, Alpine, Arch and Homebrew "
            "(apt-get install wrk)"
        )
    return found


def wrk_version() -> str:
    """What wrk says of itself, such as `wrk 4.1.0`. Raises BenchError when it is missing."""
    said = subprocess.run([find_wrk(), "-v"], capture_output=True, text=True).stdout
    match = re.search(r"wrk \S*?([0-9]+(?:\.[0-9]+)+)", said)
    return f"wrk {match.group(1)}" if match else "wrk"


def measure_empty_post(load: Load) -> dict[str, float]:
    """Requests a second that aiohttp answers with an empty 200."""
    with processes() as started:
        server = started.start("tests.bench.empty_server")
        server.port = int(server.wait_for_log(r"listening port=(\d+)").group(1))
        return {EMPTY_POST: _wrk(load, "empty", f"{server.url}/").rate}


def measure_operations(load: Load, root: Path) -> dict[str, float]:
    """Messages a second for publish, then fetch, then delete, on a root not there yet."""
    with _mq(load, root) as url:
        published = _wrk(load, "publish", url)
        _check(published.messages, _names(root / "queues" / _QUEUE, ""), "published")
        fetched = _wrk(load, "fetch", url)
        claimed = _names(root / "delay", f"{_QUEUE}:")
        _check(fetched.messages, claimed, "fetched")
        ids = root.with_name(f"{root.name}.ids")
        ids.write_text("".join(f"{name}\n" for name in claimed))
        deleted = _wrk(load, "delete", url, str(ids))
        _check(deleted.messages, _names(root / "remove", f"{_QUEUE}:"), "deleted")
        ids.unlink()
    return {PUBLISH: published.rate, FETCH: fetched.rate, DELETE: deleted.rate}


def measure_cycle(load: Load, root: Path) -> dict[str, float]:
    """Messages a second through their whole life, on a root not there yet."""
    with _mq(load, root) as url:
        cycled = _wrk(load, "cycle", url)
        _check(cycled.messages, _names(root / "remove", f"{_QUEUE}:"), "deleted")
    return {CYCLE: cycled.rate}


@dataclass(frozen=True, slots=True)
class _Run:
    messages: int
    seconds: float

    @property
    def rate(self) -> float:
        return self.messages / self.seconds


@contextlib.contextmanager
def _mq(load: Load, root: Path) -> Iterator[str]:
    """A real mq with one queue; the URL of its messages."""
    with processes() as started:
        server: Process = started.mq(root, *load.mq_flags())
        queue = f"{server.url}/{_QUEUE}"
        with urllib.request.urlopen(urllib.request.Request(queue, method="PUT")) as answer:
            answer.read()
        yield f"{queue}/messages"
        server.terminate()


def _wrk(load: Load, script: str, url: str, *arguments: str) -> _Run:
    """One run of wrk, in one thread. Raises BenchError when any request failed."""
    command = [
        find_wrk(), "--threads=1", f"--connections={load.connections}",
        f"--duration={load.seconds}s", f"--timeout={_ANSWER_WAIT_S}s",
        f"--script={_HERE / script}.lua", url, "--", *arguments,
    ]  # fmt: skip
    env = os.environ | {"LUA_PATH": f"{_HERE}/?.lua;;"}
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    match = re.search(r"^report (\{.*\})$", done.stdout, re.MULTILINE)
    if match is None:
        raise BenchError(f"wrk {script} told no figures: {done.stdout}{done.stderr}")
    told = json.loads(match.group(1))
    if told["errors"] or not told["messages"]:
        raise BenchError(f"wrk {script}: {told}")
    return _Run(int(told["messages"]), float(told["seconds"]))


def _names(folder: Path, prefix: str) -> list[str]:
    return sorted(
        entry.name.removeprefix(prefix)
        for entry in os.scandir(folder)
        if entry.name.startswith(prefix) and not entry.name.startswith(".")
    )


def _check(answered: int, there: list[str], what: str) -> None:
    if len(there) < answered:
        raise BenchError(f"{answered} were {what} by the answers, {len(there)} by the files")
