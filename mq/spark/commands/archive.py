"""The command `mqctl pipeline archive`."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import click

from mq.spark.commands.running import Job, dry_run_option, job_options, root_option
from mq.spark.jobs.archive import Archived, archivable, end_archiving
from mq.spark.jobs.archive import archive as run_archive
from mq.spark.jobs.archive_task import Wanted
from mq.spark.jobs.tables import TABLES
from mq.spark.options import READ_THREADS_DEFAULT, READ_THREADS_MAX
from mq.store.archive.archiving import ARCHIVE_BATCH_MESSAGES_DEFAULT

ARCHIVE_EVERY_S_MAX: Final = 7 * 24 * 3600
ARCHIVE_BATCH_MESSAGES_MAX: Final = 10_000_000


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
    "batch_messages",
    type=click.IntRange(1, ARCHIVE_BATCH_MESSAGES_MAX),
    default=ARCHIVE_BATCH_MESSAGES_DEFAULT,
    help="Messages that are stored at a time.",
)
@click.option(
    "--every",
    "every_s",
    type=click.IntRange(1, ARCHIVE_EVERY_S_MAX),
    default=None,
    help="Repeat this many seconds after each pass, until a signal ends it.",
)
@click.option(
    "--read-threads",
    "threads",
    type=click.IntRange(1, READ_THREADS_MAX),
    default=READ_THREADS_DEFAULT,
    help="Messages that a task reads at a time: more for a slow disk.",
)
@click.option(
    "--format",
    type=click.Choice(["parquet", *TABLES]),
    default="parquet",
    help="Of the archive: plain Parquet, or a table of Parquet files.",
)
@click.option(
    "--table",
    metavar="CATALOG.NAMESPACE.TABLE",
    help="The Iceberg table, of a catalog that pyiceberg's configuration names.",
)
@click.option("--compact/--no-compact", default=True, help="Make few files of many small ones.")
@click.option("--disable", is_flag=True, help="End archiving for the root, and do nothing else.")
@dry_run_option
@job_options
def archive(
    job: Job, root: Path, to: Path | None, disable: bool, dry_run: bool, **options: Any
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
    if (options["format"] == "iceberg") is (options["table"] is None):
        raise click.UsageError("--table and --format iceberg go together.")
    wanted = Wanted(**options)
    if dry_run:
        _tell_archivable(job, root, to, wanted)
        return
    with job.running() as (spark, watcher), ending_by_signal() as ending:
        done = run_archive(spark, root, to, wanted, ending=ending, watcher=watcher)
    job.tell(done.facts(), _lines(done))


def _tell_archivable(job: Job, root: Path, to: Path, wanted: Wanted) -> None:
    with job.failing():
        found = archivable(root, to, wanted.kind)
    lines = [f"{found.messages} messages would be archived to {found.to}"]
    if found.oldest is not None:
        lines.append(f"oldest removed: {found.oldest}")
    if not found.is_enabled:
        lines.append(f"{root} would be archived from then on")
    job.tell({"dry_run": True, **found.facts()}, lines)


def _disable(job: Job, root: Path) -> None:
    with job.failing():
        was_enabled = end_archiving(root)
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
    """Within the block the first signal sets the event, so that the job ends after its batch; the
    next signal ends it at once. A later run continues.
    """
    ending = threading.Event()

    def end(number: int, frame: Any) -> None:
        if ending.is_set():
            handler = before[number]  # The job's own signal handler.
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
