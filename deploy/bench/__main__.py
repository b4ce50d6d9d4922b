"""`python -m deploy.bench`: mq against the bare loop and against aiohttp, in the same run.

Rounds are interleaved: each measures everything once, so that what else the machine does hits
all of it alike; medians are reported. Everything written is removed at the end.

Publish, fetch and delete follow one another on one root: what was published is fetched, what was
fetched is deleted. The cycle has a root of its own.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import click

from deploy.bench.ceiling import BareLoop, bare_loops
from deploy.bench.load import BODY_BYTES, CONNECTIONS, BenchError, Mode, Run, compiled, load
from deploy.bench.places import Place, on_place, rounds_flag, seconds_flag
from deploy.bench.servers import MESSAGES, QUEUE, start_empty_server
from deploy.bench.table import Figures, Measured, drawn, spread
from tests.harness.processes import processes

EMPTY_POST: Final = "aiohttp, empty POST"
PUBLISH: Final = "mq, publish"
FETCH: Final = "mq, fetch"
DELETE: Final = "mq, delete"
CYCLE: Final = "mq, publish + fetch + delete"


@click.command("python -m deploy.bench", context_settings={"show_default": True})
@on_place
@seconds_flag(3)
@rounds_flag(3)
@click.option("--connections", type=click.IntRange(1), default=CONNECTIONS, help="Kept open.")
def main(place: Place, seconds: int, rounds: int, connections: int) -> None:
    """Measures messages a second: the bare loop, aiohttp's empty POST, and mq over HTTP.

    With --slow also how often the device is flushed for each message.
    """
    compiled()
    click.echo(place.heading(f"{connections} connections, bodies of {BODY_BYTES} bytes"))
    click.echo(f"median (min-max) of {rounds} interleaved rounds of {seconds} s each\n")
    loops, asked = bare_loops(place.commit), Load(place, connections, seconds)
    steps: list[Callable[[Path], Measured]] = [
        *(partial(asked.bare, loop) for loop in loops),
        asked.empty_post,
        asked.operations,
        asked.cycle,
    ]
    figures = Figures()
    for number in range(1, rounds + 1):
        for turn, step in enumerate(steps):
            made = place.path / f"{number}-{turn}"
            measured = step(made)
            place.clear(made)
            figures.add(measured, number)
    click.echo(figures.table([loop.name for loop in loops], EMPTY_POST))
    if asked.flushes:
        rows = [("what", "flushes of the device a message")]
        rows += [(what, spread(counts, ".3f")) for what, counts in asked.flushes.items()]
        click.echo(f"\n{drawn(rows)}")


@dataclass(frozen=True, slots=True)
class Load:
    """What each is asked, and how often it flushed the device for each message, once a round, where
    the place counts that.
    """

    place: Place
    connections: int
    seconds: int
    flushes: dict[str, list[float]] = field(default_factory=dict)

    def bare(self, loop: BareLoop, made: Path) -> Measured:
        """A bare loop."""
        before, began = self._flushed(), time.monotonic()
        rate = loop.measure(made, self.seconds)
        self._count(loop.name, before, rate * (time.monotonic() - began))
        return {loop.name: rate}

    def empty_post(self, made: Path) -> Measured:
        """aiohttp, answering each request with an empty 200."""
        with processes() as started:
            return {EMPTY_POST: self._run("empty", f"{start_empty_server(started).url}/")}

    def operations(self, made: Path) -> Measured:
        """Publish, then fetch, then delete."""
        with self.place.mq(made) as server:
            url = f"{server.url}{MESSAGES}"
            published = self._run("publish", url)
            _check(published.messages, _names(made / "queues" / QUEUE, ""), "published")
            fetched = self._run("fetch", url)
            claimed = _names(made / "delay", f"{QUEUE}:")
            _check(fetched.messages, claimed, "fetched")
            ids = made.with_name(f"{made.name}.ids")
            ids.write_text("".join(f"{name}\n" for name in claimed))
            deleted = self._run("delete", url, ids)
            _check(deleted.messages, _names(made / "remove", f"{QUEUE}:"), "deleted")
            ids.unlink()
        return {PUBLISH: published, FETCH: fetched, DELETE: deleted}

    def cycle(self, made: Path) -> Measured:
        """Messages through their whole life."""
        with self.place.mq(made) as server:
            cycled = self._run("cycle", f"{server.url}{MESSAGES}")
            _check(cycled.messages, _names(made / "remove", f"{QUEUE}:"), "deleted")
        return {CYCLE: cycled}

    def _run(self, mode: Mode, url: str, ids: Path | None = None) -> Run:
        before = self._flushed()
        run = load(mode, url, connections=self.connections, seconds=self.seconds, ids=ids)
        if mode != "empty":
            self._count(f"mq, {mode}", before, run.messages)
        return run

    def _flushed(self) -> int:
        return 0 if self.place.flushes is None else self.place.flushes()

    def _count(self, what: str, before: int, messages: float) -> None:
        if self.place.flushes is not None:
            self.flushes.setdefault(what, []).append((self._flushed() - before) / messages)


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


if __name__ == "__main__":
    main()
