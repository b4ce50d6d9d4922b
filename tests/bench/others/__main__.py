"""`python -m tests.bench.others`: mq beside other queues, on the same disk and in the same run.

Rounds are interleaved: each measures every server once. A server is started for its turn, with an
empty data folder, warmed up, measured and stopped, so nothing else runs beside it. One load tool
asks all of them, with the same connections and bodies.
"""

import contextlib
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import click

from mq.settings import CommitMode
from tests.bench.load import CONNECTIONS, BenchError, compiled
from tests.bench.machine import heading
from tests.bench.others.activemq import ACTIVEMQ
from tests.bench.others.beanstalkd import BEANSTALKD
from tests.bench.others.measure import MODES, Asked, Samples, measure
from tests.bench.others.mq import rivals as mq_rivals
from tests.bench.others.nats import nats
from tests.bench.others.picture import picture
from tests.bench.others.rabbitmq import RABBITMQ_CLASSIC, RABBITMQ_QUORUM
from tests.bench.others.redis import REDIS
from tests.bench.others.rival import Rival, install
from tests.bench.others.table import TITLES, promises, table
from tests.bench.places import clear, folder, loop_ext4


@click.command("python -m tests.bench.others", context_settings={"show_default": True})
@click.option(
    "--root",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="A folder to make the bench's own in.  [default: an ext4 of its own on a loop device "
    "over tmpfs, which needs root]",
)
@click.option("--seconds", type=click.IntRange(1), default=3, help="Of each measurement.")
@click.option("--warm", "warm_s", type=click.IntRange(0), default=2, help="Seconds before each.")
@click.option("--rounds", type=click.IntRange(1), default=3, help="Interleaved.")
@click.option("--connections", type=click.IntRange(1), default=CONNECTIONS, help="Kept open.")
@click.option(
    "--commit",
    type=click.Choice(get_args(CommitMode)),
    help="As mq's --commit.  [default: syncfs on the loop device, which is its own; else auto]",
)
@click.option("--only", multiple=True, help="Those with this in their name, and mq; repeatable.")
@click.option("--install", "installs", is_flag=True, help="What is missing, by apt-get, as root.")
@click.option(
    "--picture",
    "picture_path",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path(__file__).parents[1] / "others.svg",
    help="Where the picture goes.",
)
def main(
    root: Path | None,
    seconds: int,
    warm_s: int,
    rounds: int,
    connections: int,
    commit: CommitMode | None,
    only: tuple[str, ...],
    installs: bool,
    picture_path: Path,
) -> None:
    """Measures publish, and publish + fetch + delete, of mq and of other queues."""
    signal.signal(signal.SIGTERM, _end)
    asked = Asked(connections, seconds, warm_s)
    commit = commit or ("syncfs" if root is None else "auto")
    try:
        compiled()
        if installs:
            install(_chosen(only, commit))
        rivals = _chosen(only, commit)
        left_out = {rival.name: why for rival in rivals if (why := _why_not(rival, root))}
        there = [rival for rival in rivals if rival.name not in left_out]
        with loop_ext4() if root is None else folder(root) as where:
            click.echo(heading(where, commit, connections))
            for rival in there:
                click.echo(f"{rival.name}: {rival.version_told()}")
            measured = _measure(there, where, asked, rounds)
    except BenchError as error:
        raise click.ClickException(str(error)) from error
    rhythm = f"medians of {rounds} interleaved rounds of {seconds} s, after {warm_s} s of warm-up"
    click.echo(f"{rhythm}\n\n{table(measured)}\n\n{promises(measured)}")
    for name, why in left_out.items():
        click.echo(f"- **{name}** is left out: {why}")
    subtitle = f"{connections} connections, bodies of 300 bytes, one disk; {rhythm}"
    picture_path.write_text(picture(measured, subtitle), encoding="utf-8")


def _why_not(rival: Rival, root: Path | None) -> str | None:
    """Why it cannot be measured here."""
    if not rival.is_installed():
        return f"not installed (apt-get install {' '.join(rival.packages)}, or --install)"
    if rival.mounted_sync and root is not None:
        return "needs a mount of the bench's own, so no --root"
    return None


def _chosen(only: Sequence[str], commit: CommitMode) -> list[Rival]:
    others = [BEANSTALKD, REDIS, ACTIVEMQ, RABBITMQ_CLASSIC, RABBITMQ_QUORUM, *nats()]
    words = [word.lower() for word in only]
    return mq_rivals(commit) + [
        rival for rival in others if not words or any(word in rival.name.lower() for word in words)
    ]


def _measure(rivals: Sequence[Rival], where: Path, asked: Asked, rounds: int) -> Sequence[Samples]:
    all_samples = [Samples(rival) for rival in rivals]
    for number in range(1, rounds + 1):
        for place, samples in enumerate(all_samples):
            made = where / f"{number}-{place}"
            try:
                measured = measure(samples.rival, made, asked)
            except BenchError as error:
                raise BenchError(f"{samples.rival.name}: {error}") from error
            finally:
                with contextlib.suppress(OSError):
                    clear(made)
            for mode in MODES:
                samples.by_mode.setdefault(mode, []).append(measured[mode])
                rate = measured[mode].run.rate
                name = samples.rival.name
                click.echo(f"round {number}: {name}: {TITLES[mode]}: {rate:,.0f}/s", err=True)
    return all_samples


def _end(number: int, frame: object) -> None:
    """SIGTERM ends like Ctrl-C: what is mounted is unmounted, what was started is ended."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
