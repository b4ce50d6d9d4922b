"""`python -m tests.bench.lone`: what one client waits for who asks one thing at a time.

In turn, one of each: an empty POST to aiohttp, a publish through mq, the same by the bare serial
protocol beside it on the same file system, and so with fetch and delete. So what else the machine
does hits all alike. The aim is mq's latency within 1.2 times of the bare protocol's plus the
empty request's.
"""

import contextlib
import itertools
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Final

import click

from tests.bench.ceiling import BODY, Commit
from tests.bench.comparison import percentile, spread
from tests.bench.connection import Connection, request
from tests.bench.machine import heading
from tests.bench.places import PLACES, Place
from tests.bench.running import commit_flag, rounds_flag, running, seconds_flag
from tests.bench.serial import Serial
from tests.bench.servers import MESSAGES, commit_flags, make_queue, start_empty_server
from tests.bench.table import drawn
from tests.harness.processes import processes

_EMPTY: Final = "aiohttp, empty POST"
_OPERATIONS: Final = ("publish", "fetch", "delete")
_TURNS_BEFORE: Final = 20

Turn = Callable[[], dict[str, float]]
"""Each thing once: its seconds."""


@click.command("python -m tests.bench.lone", context_settings={"show_default": True})
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
            with PLACES[name]() as place:
                mode = place.commit(commit)
                said = f"1 connection, bodies of {len(BODY)} bytes"
                click.echo(heading(place.path, mode, place.about, said))
                click.echo(f"{rounds} rounds of {seconds} s, everything in turn\n")
                click.echo(_table(_measure(place, mode, seconds, rounds)) + "\n")


def _measure(
    place: Place, commit: Commit, seconds: float, rounds: int
) -> dict[str, list[list[float]]]:
    """The latencies, seconds, of everything, by round."""
    found: dict[str, list[list[float]]] = {}
    for number in range(rounds):
        with _turn(place, commit, number) as turn:
            for _ in range(_TURNS_BEFORE):
                turn()
            end = time.perf_counter() + seconds
            measured: dict[str, list[float]] = {}
            while time.perf_counter() < end:
                for what, took in turn().items():
                    measured.setdefault(what, []).append(took)
        for what, all_took in measured.items():
            found.setdefault(what, []).append(sorted(all_took))
        place.clear(_root(place, number), _root(place, number, "bare"))
    return found


@contextlib.contextmanager
def _turn(place: Place, commit: Commit, number: int) -> Iterator[Turn]:
    """All that is measured, ready."""
    serial = Serial(_root(place, number, "bare"), commit)
    with processes() as started:
        empty = start_empty_server(started)
        server = started.mq(_root(place, number), *commit_flags(commit, place.in_memory))
        make_queue(server)
        with Connection(server.port) as to_mq, Connection(empty.port) as to_empty:
            names = (f"{count:08x}{str(uuid.uuid4())[8:]}" for count in itertools.count())
            yield lambda: _one_turn(next(names), to_mq, to_empty, serial)
        server.terminate()


def _one_turn(
    name: str, to_mq: Connection, to_empty: Connection, serial: Serial
) -> dict[str, float]:
    took: dict[str, float] = {}
    empty, publish, fetch = (
        request("POST", "/"), request("POST", MESSAGES, BODY), request("GET", MESSAGES)
    )  # fmt: skip
    with _timed(took, _EMPTY):
        to_empty.ask(empty, 200)
    with _timed(took, "publish, mq"):
        to_mq.ask(publish, 201)
    with _timed(took, "publish, bare"):
        serial.publish(name)
    with _timed(took, "fetch, mq"):
        fetched = to_mq.ask(fetch, 200)
    with _timed(took, "fetch, bare"):
        serial.fetch(name)
    delete = request("DELETE", f"{MESSAGES}/{fetched.id}")
    with _timed(took, "delete, mq"):
        to_mq.ask(delete, 202)
    with _timed(took, "delete, bare"):
        serial.delete(name)
    return took


@contextlib.contextmanager
def _timed(took: dict[str, float], what: str) -> Iterator[None]:
    began = time.perf_counter()
    yield
    took[what] = time.perf_counter() - began


def _table(found: dict[str, list[list[float]]]) -> str:
    """p50: the median of the rounds' (min-max); p99 and p99.9: of all rounds together."""
    rows = [("what, ms", "times", "p50", "p99", "p99.9", "p50 to bare + empty")]
    p50 = {what: median(percentile(each, 0.5) for each in found[what]) for what in found}
    for what in (_EMPTY, *(f"{o}, {who}" for o in _OPERATIONS for who in ("bare", "mq"))):
        rounds_ms = [[1000 * took for took in each] for each in found[what]]
        together = sorted(itertools.chain(*rounds_ms))
        operation, _, who = what.partition(", ")
        ratio = p50[what] / (p50[f"{operation}, bare"] + p50[_EMPTY]) if who == "mq" else None
        rows.append(
            (
                what,
                f"{len(together):,}",
                spread([percentile(each, 0.5) for each in rounds_ms], ".3f"),
                f"{percentile(together, 0.99):.3f}",
                f"{percentile(together, 0.999):.3f}",
                "" if ratio is None else f"{ratio:.2f}",
            )
        )
    return drawn(rows)


def _root(place: Place, number: int, who: str = "mq") -> Path:
    return place.path / f"{who}-{number}"


if __name__ == "__main__":
    main()
