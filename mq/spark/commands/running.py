"""What every job's command has: --root, where Spark runs, --json, a bar, and how it ends.

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
from pathlib import Path
from types import FrameType
from typing import Any

import click
from pyspark.sql import SparkSession
from rich.console import Console

from mq.model.errors import MqError, StartupError
from mq.spark.commands.bar import Bar
from mq.spark.java import NoJava
from mq.spark.jobs.watching import Watcher
from mq.spark.sessions import batch_session
from mq.tools.mqctl.exits import ExitCode, Failed
from mq.tools.mqctl.options import json_option

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
    """A job's command: where it runs, and how it tells."""

    master: str | None
    remote: str | None
    conf: Mapping[str, str]
    as_json: bool
    is_quiet: bool
    failure: int = ExitCode.REFUSED
    """The exit code of a job that could not run."""

    @contextmanager
    def running(self) -> Iterator[tuple[SparkSession, Watcher]]:
        """A session, and whom to tell how far the job is. What mq or Spark raises in the block
        becomes Failed. SIGTERM ends the block as Ctrl-C does.
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
            if isinstance(error, MqError):  # the job's own word, of how it goes on
                raise Failed(ExitCode.INTERRUPTED, str(error), as_json=self.as_json) from error
            # py4j trips over an interrupt, and raises an error of its own in its place.
            raise KeyboardInterrupt from error

    def failed(self, message: str, facts: Mapping[str, Any] | None = None) -> Failed:
        """How a job ends that could not do its work."""
        return Failed(self.failure, message, facts, as_json=self.as_json)

    def tell(self, facts: Mapping[str, Any], lines: Iterable[str]) -> None:
        """Prints what was done: `facts` as one JSON document with --json, else the lines."""
        if self.as_json:
            click.echo(json.dumps(facts, ensure_ascii=False))
            return
        for line in lines:
            click.echo(line)

    def _failure_of(self, error: Exception) -> Failed:
        if isinstance(error, MqError | StartupError | NoJava | OSError | ValueError):
            return self.failed(str(error))
        logging.getLogger("mq.spark").debug("a job failed", exc_info=error)
        return self.failed(f"Spark: {_first_line(error)}")

    def _session(self) -> SparkSession:
        # A server's own settings are not a client's to change.
        quiet: dict[str, Any] = {"spark.log.level": "ERROR", "spark.ui.showConsoleProgress": False}
        conf = {**({} if self.remote else quiet), **self.conf}
        return batch_session("mq pipeline", master=self.master, remote=self.remote, **conf)


def job_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a command --master, --remote, --conf, --quiet and --json, and calls it with a `job`."""

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
            help="Configuration of Spark's own; may be said again.",
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
    """Whether a signal has interrupted the block. What py4j logs of it from then on, with a
    traceback, is dropped.
    """

    is_set = False

    def filter(self, record: logging.LogRecord) -> bool:
        return not self.is_set or record.exc_info is None

    @contextmanager
    def noticing(self) -> Iterator[None]:
        """Around the handlers that are there: Spark has put its own where Ctrl-C's was."""
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

        # py4j logs it to the root logger itself.
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
