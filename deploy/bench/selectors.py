"""`python -m deploy.bench.selectors`: what selections cost behind a backlog that is none of theirs.

A queue with a million messages, and one with fewer that each have a header block that must be read,
are written straight to disk. A round takes each selection of which nothing is there: its first
fetch, which looks through all, its next one, and, once some are published behind the backlog, how
fast those are fetched, beside plain fetches of the backlog itself.
"""

import time
import urllib.request
from typing import Final

import click

from deploy.bench.ceiling import BODY, Commit
from deploy.bench.connection import Connection, request
from deploy.bench.load import BODY_BYTES, CONNECTIONS, compiled, load
from deploy.bench.machine import cpu_s, resident_mib
from deploy.bench.places import Place, commit_flag, loop_ext4, rounds_flag, running
from deploy.bench.servers import MESSAGES
from deploy.bench.sizes import PER_S, Filled, ext4_for, fill
from deploy.bench.table import Comparison
from tests.harness.processes import Process, processes

PLAIN: Final = "none"
# Each with what makes a message be of it.
SELECTIONS: Final = {
    "priority:9": ("&priority=9", {}),
    "content-type:text/*": ("", {"Content-Type": "text/plain"}),
    "header:ce-type=paid": ("", {"ce-type": "paid"}),
}
_BLOCK: Final = b"ce-type: made\nce-id: 7\n"


@click.command("python -m deploy.bench.selectors", context_settings={"show_default": True})
@click.option("--size", type=int, default=1_000_000, help="Messages without a header block.")
@click.option("--blocks", type=int, default=100_000, help="Messages with one, in another queue.")
@click.option("--matching", type=int, default=2000, help="Messages that are published and fetched.")
@click.option("--connections", type=click.IntRange(1), default=CONNECTIONS, help="Kept open.")
@rounds_flag(3)
@commit_flag
def main(
    size: int, blocks: int, matching: int, connections: int, rounds: int, commit: Commit | None
) -> None:
    """Measures looks and fetches by selections."""
    with running():
        compiled()
        with loop_ext4(ext4_for((size, blocks))) as made:
            place = made.committing(commit)
            said = f"{connections} connections, bodies of {BODY_BYTES} bytes, in their inodes"
            click.echo(place.heading(said))
            click.echo(f"median (min-max) of {rounds} rounds; published at {PER_S} a second\n")
            filled = {
                f"{size:,} in front": fill(place, size),
                f"{blocks:,} with header blocks in front": fill(place, blocks, _BLOCK),
            }
            for what, root in filled.items():
                comparison = Comparison(what)
                for number in range(rounds):
                    _measure(place, root, connections, matching, comparison)
                    click.echo(f"round {number + 1}: {what} done", err=True)
                click.echo(f"{comparison.table()}\n")


def _measure(
    place: Place, filled: Filled, connections: int, matching: int, comparison: Comparison
) -> None:
    with processes() as started:
        server = started.mq(filled.path, *place.flags)
        for selection in (PLAIN, *SELECTIONS):
            query, headers = SELECTIONS.get(selection, ("", {}))
            wanted = "" if selection == PLAIN else f"?select={selection}"
            if wanted:
                _look(server, wanted, selection, comparison)
                _publish(server, matching, query, headers)
            url = f"{server.url}{MESSAGES}{wanted}"
            before_s = cpu_s(server.popen.pid)
            run = load("fetch", url, connections=connections, messages=matching)
            used_us = (cpu_s(server.popen.pid) - before_s) / run.messages * 1e6
            comparison.add("fetch, us of a core each", selection, used_us)
            comparison.add("fetch, a second", selection, run.rate, rate=True)
            comparison.add("fetch, p50 ms", selection, run.whole.p50_us / 1000, ",.2f")
            comparison.add("fetch, p99 ms", selection, run.whole.p99_us / 1000, ",.2f")
        for row, mib in zip(
            ("resident memory, MiB", "at most, MiB"), resident_mib(server.popen.pid), strict=True
        ):
            comparison.add(row, PLAIN, mib, ",.1f")
        server.terminate()


def _look(server: Process, wanted: str, selection: str, comparison: Comparison) -> None:
    with Connection(server.port) as client:
        for row in ("first fetch, nothing there", "next fetch, nothing there"):
            began, before_s = time.perf_counter(), cpu_s(server.popen.pid)
            client.ask(request("GET", f"{MESSAGES}{wanted}"), 204)
            comparison.add(f"{row}, ms", selection, 1000 * (time.perf_counter() - began), ",.1f")
            used_s = cpu_s(server.popen.pid) - before_s
            comparison.add(f"{row}, ms of a core", selection, 1000 * used_s, ",.1f")


def _publish(server: Process, count: int, query: str, headers: dict[str, str]) -> None:
    lines = b"\n".join([BODY.replace(b"\n", b" ")] * count)
    asked = urllib.request.Request(
        f"{server.url}{MESSAGES}?split=lines{query}", lines, headers, method="POST"
    )
    with urllib.request.urlopen(asked, timeout=120) as answer:
        answer.read()


if __name__ == "__main__":
    main()
