"""HTTP against real processes: mq's publish, fetch, delete and cycle; aiohttp's empty POST.

The three operations follow one another on one root: what was published is fetched, what was
fetched is deleted. The cycle has a root of its own.
"""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deploy.bench.ceiling import Commit
from deploy.bench.load import BenchError, Mode, Run, load
from deploy.bench.servers import MESSAGES, QUEUE, commit_flags, make_queue, start_empty_server
from tests.harness.processes import processes

EMPTY_POST: Final = "aiohttp, empty POST"
PUBLISH: Final = "mq, publish"
FETCH: Final = "mq, fetch"
DELETE: Final = "mq, delete"
CYCLE: Final = "mq, publish + fetch + delete"


@dataclass(frozen=True, slots=True)
class Load:
    """What is asked for: connections, seconds a run, and how mq commits."""

    connections: int
    seconds: int
    commit: Commit
    forced: bool = False
    """Whether --durability=none must be forced, as on anything but tmpfs."""

    def mq_flags(self) -> tuple[str, ...]:
        """The commit mode as flags of mq."""
        return commit_flags(self.commit, not self.forced)

    def run(self, mode: Mode, url: str, ids: Path | None = None) -> Run:
        """One run of the load tool."""
        return load(mode, url, connections=self.connections, seconds=self.seconds, ids=ids)


def measure_empty_post(asked: Load) -> dict[str, Run]:
    """aiohttp, answering each request with an empty 200."""
    with processes() as started:
        return {EMPTY_POST: asked.run("empty", f"{start_empty_server(started).url}/")}


def measure_operations(asked: Load, root: Path) -> dict[str, Run]:
    """Publish, then fetch, then delete, on a root not there yet."""
    with _mq(asked, root) as url:
        published = asked.run("publish", url)
        _check(published.messages, _names(root / "queues" / QUEUE, ""), "published")
        fetched = asked.run("fetch", url)
        claimed = _names(root / "delay", f"{QUEUE}:")
        _check(fetched.messages, claimed, "fetched")
        ids = root.with_name(f"{root.name}.ids")
        ids.write_text("".join(f"{name}\n" for name in claimed))
        deleted = asked.run("delete", url, ids)
        _check(deleted.messages, _names(root / "remove", f"{QUEUE}:"), "deleted")
        ids.unlink()
    return {PUBLISH: published, FETCH: fetched, DELETE: deleted}


def measure_cycle(asked: Load, root: Path) -> dict[str, Run]:
    """Messages through their whole life, on a root not there yet."""
    with _mq(asked, root) as url:
        cycled = asked.run("cycle", url)
        _check(cycled.messages, _names(root / "remove", f"{QUEUE}:"), "deleted")
    return {CYCLE: cycled}


@contextlib.contextmanager
def _mq(asked: Load, root: Path) -> Iterator[str]:
    """A real mq with one queue; the URL of its messages."""
    with processes() as started:
        server = started.mq(root, *asked.mq_flags())
        make_queue(server)
        yield f"{server.url}{MESSAGES}"
        server.terminate()


def _names(top: Path, prefix: str) -> list[str]:
    """What begins so in a folder, and in those of its shards."""
    return sorted(
        name.removeprefix(prefix)
        for _, _, names in os.walk(top)
        for name in names
        if name.startswith(prefix) and not name.startswith(".")
    )


def _check(answered: int, there: list[str], what: str) -> None:
    if len(there) != answered:
        raise BenchError(f"{answered} were {what} by the answers, {len(there)} by the files")
