"""`python -m deploy.bench.latency`: from a publish to its delivery to a waiting client.

By mq, to a long poll and to a WebSocket, in one process and in two over one root where one is
published to and the other waited at, by beanstalkd's reserve and by Redis's BLPOP, each with its
data on the same file system; and an empty request to aiohttp. All wait at once, and then one is
published at each in turn, so what else the machine does hits all alike. The aim is a p50 under two
empty requests.
"""

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final
from urllib.parse import urlsplit

import click

from deploy.bench.ceiling import BODY, Commit
from deploy.bench.connection import Connection, request
from deploy.bench.others.queues import BEANSTALKD, REDIS
from deploy.bench.others.rival import Rival, install
from deploy.bench.places import PLACES, Place, commit_flag, rounds_flag, running, seconds_flag
from deploy.bench.servers import make_queue, start_empty_server
from deploy.bench.table import drawn, percentile, spread
from deploy.bench.waiting import Consume, LongPoll, Pair, Pop, Reserve
from tests.harness.processes import processes

_EMPTY: Final = "aiohttp, empty POST"
_TURNS_BEFORE: Final = 50
_WARM_WAITS_S: Final = 0.01


@dataclass(slots=True)
class Times:
    """How long each took, seconds."""

    seconds: dict[str, list[float]] = field(default_factory=dict)

    @contextlib.contextmanager
    def of(self, what: str) -> Iterator[None]:
        """Takes the time of the block."""
        began = time.perf_counter()
        yield
        self.seconds.setdefault(what, []).append(time.perf_counter() - began)


@click.command("python -m deploy.bench.latency", context_settings={"show_default": True})
@click.option(
    "--place",
    "places",
    type=click.Choice(tuple(PLACES)),
    multiple=True,
    default=("loop", "slow", "tmpfs"),
)
@seconds_flag(5)
@rounds_flag(3)
@click.option("--install", "installs", is_flag=True, help="What is missing, by apt-get, as root.")
@click.option("--mq-flag", "flags", multiple=True, help="For mq, beside its own; repeatable.")
@click.option(
    "--waits",
    "waits_s",
    type=click.FloatRange(0.005),
    default=0.02,
    help="For how many seconds all wait before something is published.",
)
@commit_flag
def main(
    places: tuple[str, ...],
    waits_s: float,
    seconds: int,
    rounds: int,
    installs: bool,
    flags: tuple[str, ...],
    commit: Commit | None,
) -> None:
    """Measures how long a message is on its way to a waiting client."""
    with running():
        if installs:
            install([BEANSTALKD, REDIS])
        rivals = [rival for rival in (BEANSTALKD, REDIS) if rival.is_installed()]
        for name in places:
            with PLACES[name]() as made:
                place = made.committing(commit)
                click.echo(place.heading(f"{len(BODY)} bytes", *flags))
                waits = f"who waits does so for {waits_s:g} s or more"
                click.echo(f"{rounds} rounds of {seconds} s, everything in turn; {waits}")
                for rival in (BEANSTALKD, REDIS):
                    known = rival.version_told() if rival in rivals else "not installed (--install)"
                    click.echo(f"{rival.name}: {known}")
                measured = _measure(place, (seconds, rounds, waits_s), rivals, flags)
                click.echo(f"\n{_table(measured)}\n")


def _measure(
    place: Place, rhythm: tuple[int, int, float], rivals: Sequence[Rival], flags: Sequence[str]
) -> list[Times]:
    """The times of each round."""
    seconds, rounds, waits_s = rhythm
    found = []
    for number in range(rounds):
        with _ready(place, flags, number, rivals) as (pairs, empty):
            for _ in range(_TURNS_BEFORE):
                _turn(Times(), pairs, empty, _WARM_WAITS_S)
            times = Times()
            end = time.perf_counter() + seconds
            while time.perf_counter() < end:
                _turn(times, pairs, empty, waits_s)
        found.append(times)
        place.clear(*place.path.glob(f"{number}-*"))
    return found


@contextlib.contextmanager
def _ready(
    place: Place, flags: Sequence[str], number: int, rivals: Sequence[Rival]
) -> Iterator[tuple[Mapping[str, Pair], Connection]]:
    """All that is measured, and a connection to who answers with nothing."""
    with contextlib.ExitStack() as cleanup:
        started = cleanup.enter_context(processes())
        empty = cleanup.enter_context(Connection(start_empty_server(started).port))
        pairs: dict[str, Pair] = {}
        for way, made in (("long poll", LongPoll), ("WebSocket", Consume)):
            for count, kind in ((1, "one process"), (2, "two processes")):
                root = place.path / f"{number}-{made.__name__}-{count}"
                servers = [started.mq(root, *place.flags, *flags) for _ in range(count)]
                make_queue(servers[0])
                pairs[f"mq, {way}, {kind}"] = made(servers[-1].port, servers[0].port)
        for rival in rivals:
            folder = place.path / f"{number}-{rival.program}"
            folder.mkdir()
            serving = cleanup.enter_context(rival.serve(folder))
            port = urlsplit(serving.queue("bench")).port or 0
            if rival is REDIS:
                pairs["Redis, BLPOP, appendfsync always"] = Pop(port)
            else:
                pairs["beanstalkd -f0, reserve"] = Reserve(port)
        for pair in pairs.values():
            cleanup.callback(pair.close)
        yield pairs, empty


def _turn(times: Times, pairs: Mapping[str, Pair], empty: Connection, waits_s: float) -> None:
    """Everything once."""
    for pair in pairs.values():
        pair.wait()
    time.sleep(waits_s)
    with times.of(_EMPTY):
        empty.ask(request("POST", "/"), 200)
    for what, pair in pairs.items():
        with times.of(what):
            pair.publish(BODY)
            body = pair.delivered()
        if body != BODY:
            raise ValueError(f"{what}: another message was delivered")
        pair.settle()


def _table(rounds: Sequence[Times]) -> str:
    """p50: the median of the rounds' (min-max); p99 and the worst: of all rounds together."""
    rows = [("publish to delivery, ms", "times", "p50", "p99", "worst", "p50 to an empty request")]
    p50 = {what: [_p50_ms(times, what) for times in rounds] for what in rounds[0].seconds}
    for what, of_rounds in p50.items():
        together = sorted(1000 * each for times in rounds for each in times.seconds[what])
        rows.append(
            (
                what,
                f"{len(together):,}",
                spread(of_rounds, ".3f"),
                f"{percentile(together, 0.99):.3f}",
                f"{together[-1]:.3f}",
                f"{median(of_rounds) / median(p50[_EMPTY]):.2f}",
            )
        )
    return drawn(rows)


def _p50_ms(times: Times, what: str) -> float:
    return 1000 * percentile(sorted(times.seconds[what]), 0.5)


if __name__ == "__main__":
    main()
