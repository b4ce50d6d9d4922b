"""The common parts of the jobs' commands: --root, where Spark runs, --json, a bar, exit codes.

@click.command("drain")
@root_option
@job_options
def drain(job: Job, root: Path, ...) -> None:
    with job.running() as (spark, watcher):
        done = jobs.drain(spark, root, ..., watcher=watcher)
    job.tell(done.facts(), [f"{done.messages} messages drained"])
"""

import functools
import json
import logging
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any, Self

import click
from pyspark.sql import SparkSession
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

from mq.model.errors import MqError, StartupError
from mq.spark.java import NoJava
from mq.spark.jobs.choosing import BadCondition
from mq.spark.jobs.tasks import Amount, Watcher
from mq.spark.sessions import batch_session
from mq.tools.mqctl.exits import ExitCode, Failed
from mq.tools.mqctl.options import json_option


def pace(done: float, of: float | None, elapsed_s: float) -> str:
    """A step's speed, and the time that it still needs if its amount is known."""
    if done <= 0 or elapsed_s <= 0:
        return ""
    speed = done / elapsed_s
    said = f"{speed:,.0f}/s"
    if of is None or of < done:
        return said
    left = timedelta(seconds=round((of - done) / speed))
    return f"{said}, {left} left"


class _Pace(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(pace(task.completed, task.total, task.elapsed or 0))


class Bar:
    """A Watcher that shows the job's step on stderr, if that is a terminal."""

    def __init__(self, console: Console, *, is_quiet: bool) -> None:
        self._is_quiet = is_quiet
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            _Pace(),
            console=console,
            transient=True,
            disable=is_quiet or not console.is_terminal,
        )
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._progress.stop()

    def began(self, what: str, of: Amount = None) -> None:
        if self._task is not None:
            self._progress.remove_task(self._task)
        self._task = self._progress.add_task(escape(what), total=None)
        if not self._progress.disable:
            self._progress.update(self._task, total=of() if callable(of) else of)

    def advanced(self, by: int) -> None:
        if self._task is not None:
            self._progress.advance(self._task, by)

    def noted(self, text: str) -> None:
        if not self._is_quiet:
            self._progress.console.print(text, markup=False, highlight=False, soft_wrap=True)


root_option = click.option(
    "--root",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    required=True,
    envvar="MQ_ROOT",
    show_envvar=True,
    help="The root, a folder that is the same on every machine of the job.",
)


@dataclass(frozen=True, slots=True)
class Job:
    """A job's command: where Spark runs, and how the job reports."""

    master: str | None
    remote: str | None
    conf: Mapping[str, str]
    as_json: bool
    is_quiet: bool
    failure: int = ExitCode.REFUSED
    """The exit code of a job that cannot run."""

    @contextmanager
    def running(self) -> Iterator[tuple[SparkSession, Watcher]]:
        """A session, and the watcher of the job's progress, for the block. Errors of mq and Spark
        in the block become Failed. SIGTERM ends the block as Ctrl-C does.
        """
        _on_terminate()
        interrupted = _Interrupted()
        try:
            with Bar(Console(stderr=True), is_quiet=self.is_quiet) as bar:
                spark = self._session()
                try:
                    with interrupted.noticing():
                        yield spark, bar
                finally:
                    spark.stop()
        except Failed:
            raise
        except Exception as error:
            if not interrupted.is_set:
                raise self._failure_of(error) from error
            if isinstance(error, MqError):  # The job's own error, which says how to continue.
                raise Failed(ExitCode.INTERRUPTED, str(error), as_json=self.as_json) from error
            # py4j fails at an interrupt, and raises another error in its place.
            raise KeyboardInterrupt from error

    @contextmanager
    def failing(self) -> Iterator[None]:
        """The errors of a block that needs no Spark become Failed."""
        try:
            yield
        except (MqError, StartupError, OSError) as error:
            raise self._failure_of(error) from error

    def failed(self, message: str, facts: Mapping[str, Any] | None = None) -> Failed:
        """The error of a job that could not do its work."""
        return Failed(self.failure, message, facts, as_json=self.as_json)

    def tell(self, facts: Mapping[str, Any], lines: Iterable[str]) -> None:
        """Prints the result: `facts` as one JSON document with --json, else the lines."""
        if self.as_json:
            click.echo(json.dumps(facts, ensure_ascii=False))
            return
        for line in lines:
            click.echo(line)

    def _failure_of(self, error: Exception) -> Failed:
        if isinstance(error, BadCondition):
            return Failed(ExitCode.USAGE, str(error), as_json=self.as_json)
        if isinstance(error, MqError | StartupError | NoJava | OSError | ValueError):
            return self.failed(str(error))
        logging.getLogger("mq.spark").debug("a job failed", exc_info=error)
        return self.failed(f"Spark: {_first_line(error)}")

    def _session(self) -> SparkSession:
        # A client cannot change a server's own settings.
        quiet: dict[str, Any] = {"spark.log.level": "ERROR", "spark.ui.showConsoleProgress": False}
        conf = {**({} if self.remote else quiet), **self.conf}
        return batch_session("mq pipeline", master=self.master, remote=self.remote, **conf)


dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Count the messages, and change nothing."
)


def job_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --master, --remote, --conf, --quiet and --json to a command, and calls it with a
    `job`.
    """

    @functools.wraps(command)
    def with_job(
        master: str | None,
        remote: str | None,
        conf: tuple[tuple[str, str], ...],
        quiet: bool,
        as_json: bool,
        **given: Any,
    ) -> Any:
        if master is not None and remote is not None:
            raise click.UsageError("--master and --remote: say one of them.")
        return command(job=Job(master, remote, dict(conf), as_json, quiet), **given)

    for option in (
        click.option("-q", "--quiet", is_flag=True, help="No bar, and no notes."),
        click.option(
            "--conf",
            metavar="NAME=VALUE",
            multiple=True,
            callback=_conf,
            help="Configuration of Spark's own; may be repeated.",
        ),
        click.option(
            "--remote",
            metavar="sc://HOST:PORT",
            help="A Spark Connect server, whose machines have mq and the root.",
        ),
        click.option(
            "--master",
            metavar="URL",
            help="Where Spark runs: local[N], spark://HOST:PORT, yarn, k8s://... "
            "[default: all cores of this machine, or what spark-submit says]",
        ),
    ):
        with_job = option(with_job)
    return json_option(with_job)


def counted_by(name: str, counts: Mapping[str, int]) -> Iterator[str]:
    """A line of counts, such as "by priority: 0: 12, 9: 3"; none without counts."""
    if counts:
        listed = ", ".join(f"{each}: {count}" for each, count in counts.items())
        yield f"by {name}: {listed}"


def _conf(
    context: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    found = []
    for value in values:
        name, equals, said = value.partition("=")
        if not name or not equals:
            raise click.BadParameter(f"{value!r} is no NAME=VALUE")
        found.append((name, said))
    return tuple(found)


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


class _Interrupted(logging.Filter):
    """Notes whether a signal has interrupted the block. From then on it drops py4j's log records,
    which have tracebacks.
    """

    is_set = False

    def filter(self, record: logging.LogRecord) -> bool:
        return not self.is_set or record.exc_info is None

    @contextmanager
    def noticing(self) -> Iterator[None]:
        """Wraps the signal handlers: Spark has replaced Ctrl-C's with its own."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        numbers = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.getsignal(number) for number in numbers}

        def notice(number: int, frame: FrameType | None) -> None:
            self.is_set = True
            handler = before[signal.Signals(number)]
            if callable(handler):
                handler(number, frame)

        # py4j logs to the root logger.
        logging.getLogger().addFilter(self)
        for number in numbers:
            if callable(before[number]):
                signal.signal(number, notice)
        try:
            yield
        finally:
            for number, handler in before.items():
                if callable(handler):
                    signal.signal(number, handler)


def _on_terminate() -> None:
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.default_int_handler)
