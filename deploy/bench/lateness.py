"""`python -m deploy.bench.lateness`: how late a waiting client gets a message with a delay.

mq-mover brings it back, and mq hears of that. Counted from when it was asked for and its delay:
what its publish took is in it too.
"""

import time
from collections.abc import Sequence
from statistics import median
from typing import Final

import click

from deploy.bench.ceiling import BODY
from deploy.bench.comparison import percentile
from deploy.bench.connection import Connection, request
from deploy.bench.machine import heading
from deploy.bench.places import PLACES, Place
from deploy.bench.running import running
from deploy.bench.servers import MESSAGES, commit_flags, make_queue
from deploy.bench.table import drawn
from tests.harness.processes import processes

_DELAYS_S: Final = (0.05, 0.2, 0.5, 1.5)


@click.command("python -m deploy.bench.lateness", context_settings={"show_default": True})
@click.option("--place", "where", type=click.Choice(tuple(PLACES)), default="loop")
@click.option("--times", type=click.IntRange(1), default=20, help="Of each delay.")
@click.option("--mq-flag", "flags", multiple=True, help="For mq, beside its own; repeatable.")
def main(where: str, times: int, flags: tuple[str, ...]) -> None:
    """Measures milliseconds from the due time to the delivery."""
    with running(), PLACES[where]() as place:
        mode = place.commit(None)
        click.echo(heading(place.path, mode, place.about, *flags) + "\n")
        rows = [("delay s", "late ms: p50", "p99", "worst")]
        for delay_s, late in _measure(place, (*commit_flags(mode, place.in_memory), *flags), times):
            row = (f"{median(late):.1f}", f"{percentile(late, 0.99):.1f}", f"{late[-1]:.1f}")
            rows.append((f"{delay_s:g}", *row))
        click.echo(drawn(rows))


def _measure(place: Place, flags: Sequence[str], times: int) -> list[tuple[float, Sequence[float]]]:
    found = []
    root = place.path / "root"
    with processes() as started:
        server = started.mq(root, *flags)
        started.mover("--root", str(root))
        make_queue(server)
        with Connection(server.port) as waits, Connection(server.port) as publishes:
            for delay_s in _DELAYS_S:
                late = [_late_ms(waits, publishes, delay_s) for _ in range(times)]
                found.append((delay_s, sorted(late)))
    return found


def _late_ms(waits: Connection, publishes: Connection, delay_s: float) -> float:
    """Milliseconds from the end of the delay to the delivery."""
    waits.send(request("GET", f"{MESSAGES}?wait=60"))
    asked = time.perf_counter()
    publishes.ask(request("POST", f"{MESSAGES}?delay={delay_s}", BODY), 201)
    answer = waits.receive(200)
    late_ms = 1000 * (time.perf_counter() - asked - delay_s)
    waits.ask(request("DELETE", f"{MESSAGES}/{answer.id}"), 202)
    return late_ms


if __name__ == "__main__":
    main()
