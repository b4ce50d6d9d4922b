"""`python -m deploy.bench.lone`: what one client waits for who asks one thing at a time.

In turn, one of each: an empty POST to aiohttp, a publish through mq, the same by the bare serial
protocol beside it on the same file system, flushed by fsync and by syncfs, and so with fetch and
delete. So what else the machine does hits all alike. The aim is mq's latency within 1.2 times of
the better bare protocol's plus the empty request's.
"""

import contextlib
import itertools
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final, cast

import click

from deploy.bench.ceiling import BODY, Commit
from deploy.bench.connection import Connection, request
from deploy.bench.places import PLACES, Place, commit_flag, rounds_flag, running, seconds_flag
from deploy.bench.serial import Serial
from deploy.bench.servers import MESSAGES, start_empty_server
from deploy.bench.table import drawn, percentile, spread
from tests.harness.processes import processes

_EMPTY: Final = "aiohttp, empty POST"
_OPERATIONS: Final = ("publish", "fetch", "delete")
_TURNS_BEFORE: Final = 20


@dataclass(slots=True)
class Times:
    """How long each thing took, seconds, and how often the device was flushed by all of it."""

    count: Callable[[], int] | None
    seconds: dict[str, list[float]] = field(default_factory=dict)
    flushes: dict[str, int] = field(default_factory=dict)

    @contextlib.contextmanager
    def of(self, what: str) -> Iterator[None]:
        """Takes the time of the block."""
        before = 0 if self.count is None else self.count()
        began = time.perf_counter()
        yield
        self.seconds.setdefault(what, []).append(time.perf_counter() - began)
        if self.count is not None:
            self.flushes[what] = self.flushes.get(what, 0) + self.count() - before


@click.command("python -m deploy.bench.lone", context_settings={"show_default": True})
@click.option(
    "--place",
    "places",
    type=click.Choice(tuple(PLACES)),
    multiple=True,
    default=("loop", "slow", "tmpfs"),
)
@seconds_flag(5)
@rounds_flag(3)
@commit_flag
def main(places: tuple[str, ...], seconds: int, rounds: int, commit: Commit | None) -> None:
    """Measures a lone client's latency, beside that of the same file operations alone."""
    with running():
        for name in places:
            with PLACES[name]() as made:
                place = made.committing(commit)
                click.echo(place.heading(f"1 connection, bodies of {len(BODY)} bytes"))
                click.echo(f"{rounds} rounds of {seconds} s, everything in turn\n")
                click.echo(_table(_measure(place, seconds, rounds)) + "\n")


def _measure(place: Place, seconds: float, rounds: int) -> list[Times]:
    """The times of each round."""
    found = []
    for number in range(rounds):
        with _ready(place, number) as turn:
            for _ in range(_TURNS_BEFORE):
                turn(Times(None))
            times = Times(place.flushes)
            end = time.perf_counter() + seconds
            while time.perf_counter() < end:
                turn(times)
        found.append(times)
        place.clear(*place.path.glob(f"{number}-*"))
    return found


@contextlib.contextmanager
def _ready(place: Place, number: int) -> Iterator[Callable[[Times], None]]:
    """A turn of all that is measured. What is bare flushes in each way that mq could choose."""
    ways = cast(Sequence[Commit], ("none",) if place.commit == "none" else ("fsync", "syncfs"))
    bare = {way: Serial(place.path / f"{number}-{way}", way) for way in ways}
    names = (f"{count:08x}{str(uuid.uuid4())[8:]}" for count in itertools.count())
    with processes() as started, place.mq(place.path / f"{number}-mq") as server:
        empty = start_empty_server(started)
        with Connection(server.port) as to_mq, Connection(empty.port) as to_empty:
            yield lambda times: _turn(times, next(names), to_mq, to_empty, bare)


def _turn(
    times: Times, name: str, to_mq: Connection, to_empty: Connection, bare: Mapping[Commit, Serial]
) -> None:
    """Everything once."""
    with times.of(_EMPTY):
        to_empty.ask(request("POST", "/"), 200)
    with times.of("publish, mq"):
        to_mq.ask(request("POST", MESSAGES, BODY), 201)
    for way, serial in bare.items():
        with times.of(f"publish, bare, {way}"):
            serial.publish(name)
    with times.of("fetch, mq"):
        fetched = to_mq.ask(request("GET", MESSAGES), 200)
    for way, serial in bare.items():
        with times.of(f"fetch, bare, {way}"):
            serial.fetch(name)
    with times.of("delete, mq"):
        to_mq.ask(request("DELETE", f"{MESSAGES}/{fetched.id}"), 202)
    for way, serial in bare.items():
        with times.of(f"delete, bare, {way}"):
            serial.delete(name)


def _table(rounds: Sequence[Times]) -> str:
    """p50: the median of the rounds' (min-max); p99 and p99.9: of all rounds together."""
    head = ["what, ms", "times", "p50", "p99", "p99.9", "p50 to best bare + empty"]
    rows = [(*head, "flushes") if rounds[0].flushes else tuple(head)]
    whats = list(rounds[0].seconds)
    p50 = {what: median(_p50_ms(times, what) for times in rounds) for what in whats}
    for what in sorted(whats, key=_place_in_table):
        together = sorted(1000 * each for times in rounds for each in times.seconds[what])
        ratio = ""
        if what.endswith(", mq"):
            its = what.removesuffix("mq") + "bare"
            best = min(p50[other] for other in whats if other.startswith(its))
            ratio = f"{p50[what] / (best + p50[_EMPTY]):.2f}"
        row = [
            what,
            f"{len(together):,}",
            spread([_p50_ms(times, what) for times in rounds], ".3f"),
            f"{percentile(together, 0.99):.3f}",
            f"{percentile(together, 0.999):.3f}",
            ratio,
        ]
        if rounds[0].flushes:
            row.append(f"{sum(times.flushes[what] for times in rounds) / len(together):.2f}")
        rows.append(tuple(row))
    return drawn(rows)


def _p50_ms(times: Times, what: str) -> float:
    return 1000 * percentile(sorted(times.seconds[what]), 0.5)


def _place_in_table(what: str) -> tuple[int, bool]:
    operation, _, who = what.partition(", ")
    return (_OPERATIONS.index(operation) if operation in _OPERATIONS else -1, who == "mq")


if __name__ == "__main__":
    main()
