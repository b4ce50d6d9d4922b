"""`python -m deploy.bench.descriptions`: what a description costs by the size of the backlog.

Queues of each size are written straight to disk, as for `deploy.bench.sizes`. A round starts mq and
asks for the description: the first one lists all; then again when no folder has changed, and again
while messages are published. Between two of them passes what mq lets pass.
"""

import json
import threading
import time
from statistics import median
from typing import Final

import click

from deploy.bench.ceiling import Commit
from deploy.bench.connection import Connection, request
from deploy.bench.load import BODY_BYTES, BenchError, compiled, load
from deploy.bench.machine import resident_mib
from deploy.bench.places import Place, commit_flag, loop_ext4, rounds_flag, running
from deploy.bench.servers import MESSAGES, QUEUE
from deploy.bench.sizes import SIZES, Filled, ext4_for, fill
from deploy.bench.table import Comparison, interleaved
from tests.harness.processes import Process, processes

_ASKED: Final = request("GET", f"/{QUEUE}")
_ASKED_TIMES: Final = 3
_PUBLISHERS: Final = 16
_ASK_AGAIN_S: Final = 0.05
_PATIENCE_S: Final = 60.0
# So long that each folder's mtime is believed.
_SETTLED_S: Final = 3.0


@click.command("python -m deploy.bench.descriptions", context_settings={"show_default": True})
@click.option("--size", "sizes", type=int, multiple=True, default=SIZES, help="Messages ready.")
@rounds_flag(3)
@commit_flag
def main(sizes: tuple[int, ...], rounds: int, commit: Commit | None) -> None:
    """Measures the first description, the next one, and one while messages are published."""
    sizes = tuple(sorted(sizes))
    with running():
        compiled()
        with loop_ext4(ext4_for(sizes)) as made:
            place = made.committing(commit)
            click.echo(place.heading(f"bodies of {BODY_BYTES} bytes, in their inodes"))
            click.echo(f"median (min-max) of {rounds} rounds\n")
            filled = [fill(place, size) for size in sizes]
            comparison = Comparison("ready messages")
            for number, root in interleaved(rounds, filled):
                _measure(place, root, comparison)
                click.echo(f"round {number}: {root.column} done", err=True)
    click.echo(comparison.table())


def _measure(place: Place, filled: Filled, comparison: Comparison) -> None:
    column = filled.column
    time.sleep(_SETTLED_S)
    with processes() as started:
        server = started.mq(filled.path, *place.flags)
        with Connection(server.port) as client:
            before_mib, _ = resident_mib(server.popen.pid)
            first = _Described(client)
            comparison.add("first, ms", column, first.took_ms, ",.1f")
            if first.ready < filled.size:
                raise BenchError(f"{first.ready} of {filled.size} messages were counted")
            after_mib, _ = resident_mib(server.popen.pid)
            comparison.add("remembered and left over, MiB", column, after_mib - before_mib, ",.1f")
            comparison.add("next, ms", column, _next_ms(client, first), ",.1f")
            with _Publishing(server):
                busy_ms = _next_ms(client, _Described(client))
            comparison.add("next while others publish, ms", column, busy_ms, ",.1f")
        server.terminate()


class _Described:
    """One description, and how long it took."""

    def __init__(self, client: Connection) -> None:
        began = time.perf_counter()
        said = json.loads(client.ask(_ASKED, 200).body)
        self.took_ms = 1000 * (time.perf_counter() - began)
        self.ready: int = said["ready"]
        self.of: str = said["as_of"]["removed"]


def _next_ms(client: Connection, before: _Described) -> float:
    """What a few further descriptions took that are not the one before."""
    took_ms: list[float] = []
    end = time.monotonic() + _PATIENCE_S
    while len(took_ms) < _ASKED_TIMES:
        time.sleep(_ASK_AGAIN_S)
        each = _Described(client)
        if each.of != before.of:
            took_ms.append(each.took_ms)
        elif time.monotonic() > end:
            raise BenchError("a description stays the same")
        before = each
    return median(took_ms)


class _Publishing:
    """Publishes until it is left."""

    def __init__(self, server: Process) -> None:
        self._url = f"{server.url}{MESSAGES}"
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *error: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_over.is_set():
            load("publish", self._url, connections=_PUBLISHERS, seconds=1)


if __name__ == "__main__":
    main()
