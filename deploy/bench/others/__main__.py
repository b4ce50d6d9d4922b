"""`python -m deploy.bench.others`: mq beside other queues, on the same disk and in the same run.

Rounds are interleaved: each measures every server once. A server is started for its turn, with an
empty data folder, warmed up, measured and stopped, so nothing else runs beside it. One load tool
asks all of them, with the same connections and bodies.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import click

from deploy.bench.ceiling import Commit
from deploy.bench.load import BODY_BYTES, CONNECTIONS, BenchError, compiled
from deploy.bench.others.measure import MODES, TITLES, Asked, Samples, measure, promises, table
from deploy.bench.others.nats import nats
from deploy.bench.others.picture import picture
from deploy.bench.others.queues import ACTIVEMQ, BEANSTALKD, REDIS, mq
from deploy.bench.others.rabbitmq import RABBITMQ_CLASSIC, RABBITMQ_QUORUM
from deploy.bench.others.rival import Rival, install
from deploy.bench.places import Place, on_place, rounds_flag, seconds_flag


@click.command("python -m deploy.bench.others", context_settings={"show_default": True})
@partial(on_place, default="loop")
@seconds_flag(3)
@rounds_flag(3)
@click.option("--warm", "warm_s", type=click.IntRange(0), default=2, help="Seconds before each.")
@click.option("--connections", type=click.IntRange(1), default=CONNECTIONS, help="Kept open.")
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
    place: Place,
    seconds: int,
    rounds: int,
    warm_s: int,
    connections: int,
    only: tuple[str, ...],
    installs: bool,
    picture_path: Path,
) -> None:
    """Measures publish, and publish + fetch + delete, of mq and of other queues.

    Prints a table and draws a picture. Without a flag for the place it writes as with --loop.
    """
    compiled()
    if place.in_memory:
        raise BenchError("nothing is durable on tmpfs: there is nothing to compare")
    if installs:
        install(_chosen(only, place.commit))
    rivals = _chosen(only, place.commit)
    left_out = {rival.name: why for rival in rivals if (why := _why_not(rival, place))}
    there = [rival for rival in rivals if rival.name not in left_out]
    said = f"{connections} connections, bodies of {BODY_BYTES} bytes"
    click.echo(place.heading(said))
    for rival in there:
        click.echo(f"{rival.name}: {rival.version_told()}")
    measured = _measure(there, place, Asked(connections, seconds, warm_s), rounds)
    rhythm = f"medians of {rounds} interleaved rounds of {seconds} s, {warm_s} s of warm-up"
    click.echo(f"{rhythm}\n\n{table(measured)}\n\n{promises(measured)}")
    for name, why in left_out.items():
        click.echo(f"- **{name}** is left out: {why}")
    picture_path.write_text(picture(measured, (f"{said}; {place.about}", rhythm)), encoding="utf-8")


def _why_not(rival: Rival, place: Place) -> str | None:
    """Why it cannot be measured here."""
    if not rival.is_installed():
        return f"not installed (apt-get install {' '.join(rival.packages)}, or --install)"
    if rival.mounted_sync and not place.path.is_mount():
        return "its disk must be mounted otherwise, and here is no mount of the bench's own"
    return None


def _chosen(only: Sequence[str], commit: Commit) -> list[Rival]:
    others = [BEANSTALKD, REDIS, ACTIVEMQ, RABBITMQ_CLASSIC, RABBITMQ_QUORUM, *nats()]
    words = [word.lower() for word in only]
    return mq(commit) + [
        rival for rival in others if not words or any(word in rival.name.lower() for word in words)
    ]


def _measure(rivals: Sequence[Rival], place: Place, asked: Asked, rounds: int) -> Sequence[Samples]:
    all_samples = [Samples(rival) for rival in rivals]
    for number in range(1, rounds + 1):
        for turn, samples in enumerate(all_samples):
            name, made = samples.rival.name, place.path / f"{number}-{turn}"
            try:
                measured = measure(samples.rival, made, asked)
            except BenchError as error:
                raise BenchError(f"{name}: {error}") from error
            place.clear(made)
            for mode in MODES:
                samples.by_mode.setdefault(mode, []).append(measured[mode])
                rate = measured[mode].run.rate
                click.echo(f"round {number}: {name}: {TITLES[mode]}: {rate:,.0f}/s", err=True)
    return all_samples


if __name__ == "__main__":
    main()
