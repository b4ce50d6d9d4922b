"""The command `mqctl pipeline archive`."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from mq.model.bulk_limits import (
    ARCHIVE_BATCH_MESSAGES_DEFAULT,
    ARCHIVE_BATCH_MESSAGES_MAX,
    ARCHIVE_EVERY_S_MAX,
    READ_THREADS_DEFAULT,
    READ_THREADS_MAX,
)
from mq.model.errors import MqError, StartupError
from mq.spark.commands.running import Job, job_options, root_option
from mq.spark.jobs.archive import Archived, Wanted, end_archiving
from mq.spark.jobs.archive import archive as run_archive


@click.command("archive", context_settings={"show_default": True})
@root_option
@click.option(
    "--to",
    type=click.Path(path_type=Path, file_okay=False),
    help="The archive's folder, of its own; the same on every machine of the job. Made where it "
    "is missing.",
)
@click.option(
    "--batch",
    type=click.IntRange(1, ARCHIVE_BATCH_MESSAGES_MAX),
    default=ARCHIVE_BATCH_MESSAGES_DEFAULT,
    help="Messages that are stored at a time.",
)
@click.option(
    "--every",
    type=click.IntRange(1, ARCHIVE_EVERY_S_MAX),
    default=None,
    help="Go on, looking again so many seconds after each pass, until a signal ends it.",
)
@click.option(
    "--read-threads",
    type=click.IntRange(1, READ_THREADS_MAX),
    default=READ_THREADS_DEFAULT,
    help="Messages that a task reads at a time: more for a disk that lets one wait.",
)
@click.option("--compact/--no-compact", default=True, help="Make few files of many small ones.")
@click.option("--disable", is_flag=True, help="End archiving for the root, and do nothing else.")
@job_options
def archive(
    job: Job,
    root: Path,
    to: Path | None,
    batch: int,
    every: int | None,
    read_threads: int,
    compact: bool,
    disable: bool,
) -> None:
    """Keep removed messages as Parquet, before mq-reaper takes them.

    The first run enables the root's archive: from then on mq-reaper unlinks no message that is not
    stored there. It may be killed at any point, and run again.
    """
    if disable:
        _disable(job, root)
        return
    if to is None:
        raise click.UsageError("--to: say the archive's folder.")
    wanted = Wanted(batch, read_threads, compact, every)
    with job.running() as (spark, watcher), ending_by_signal() as ending:
        done = run_archive(spark, root, to, wanted, ending=ending, watcher=watcher)
    job.tell(done.facts(), _lines(done))


def _disable(job: Job, root: Path) -> None:
    try:
        was_enabled = end_archiving(root)
    except (MqError, StartupError, OSError) as error:
        raise job.failed(str(error)) from error
    said = "is no longer archived" if was_enabled else "was not archived"
    job.tell({"disabled": was_enabled}, [f"{root} {said}"])


def _lines(done: Archived) -> Iterator[str]:
    yield f"{done.messages} messages archived to {done.to}, in {done.batches} batches"
    if done.gone:
        yield f"{done.gone} were gone before"
    if done.damaged:
        yield f"{done.damaged} are damaged, and archived as they are"
    if done.compacted:
        yield f"{done.compacted} small files became {done.compacted_to}"


@contextmanager
def ending_by_signal() -> Iterator[threading.Event]:
    """Set by the first signal, so that the job ends after its batch; the next one ends it at once.
    It goes on later where it ended.
    """
    ending = threading.Event()

    def end(number: int, frame: Any) -> None:
        if ending.is_set():
            handler = before[number]  # the job's own notice of it
            if callable(handler):
                handler(number, frame)
            raise KeyboardInterrupt
        ending.set()

    if threading.current_thread() is not threading.main_thread():
        yield ending
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before: dict[int, Any] = {number: signal.getsignal(number) for number in numbers}
    for each in numbers:
        signal.signal(each, end)
    try:
        yield ending
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
