"""`mqctl worker`: runs a Worker of the user's module, in this process or in several."""

import asyncio
import importlib
import os
import re
import signal
import sys
from collections.abc import Mapping
from typing import Final, Literal

import click

from mq.client.errors import ClientError
from mq.client.worker import Worker
from mq.client.worker.program import RunsInImport, loading
from mq.runtime import logs
from mq.tools.mqctl.complaints import failed
from mq.tools.mqctl.exits import Failed, of_signal
from mq.tools.mqctl.options import Options, shared_options, was_given
from mq.tools.mqctl.processes import FD, Command, Processes, looked_after

WORKER_PROCESSES_MAX: Final = 64

_FORM: Final = "MODULE:WORKER"


@click.command()
@click.argument("worker", metavar=_FORM)
@click.option(
    "--processes",
    type=click.IntRange(1, WORKER_PROCESSES_MAX),
    default=1,
    show_default=True,
    help="The number of processes. One that dies is restarted.",
)
@click.option(
    "--app-dir",
    type=click.Path(exists=True, file_okay=False),
    default=".",
    show_default=True,
    help="The folder to search for MODULE first.",
)
@click.option(
    "--log-format",
    type=click.Choice(["human", "json"]),
    default="human",
    show_default=True,
    help="The format of the log on stderr.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="The lowest level to log.",
)
@click.option("--supervisor", type=int, hidden=True)
@shared_options
def worker(
    options: Options,
    worker: str,
    processes: int,
    app_dir: str,
    log_format: Literal["human", "json"],
    log_level: str,
    supervisor: int | None,
) -> None:
    """Run MODULE's worker WORKER until SIGTERM or Ctrl-C. Then it finishes its messages; a second
    signal ends it at once.

    --url, --token, --ca-file and --cert override the worker's own values. With --processes the exit
    code is the worst of the processes'.
    """
    logs.configure(log_format, log_level)
    if processes > 1:
        arguments = (
            "worker", worker, "--app-dir", app_dir, "--log-format", log_format,
            "--log-level", log_level, "--supervisor", FD,
        )  # fmt: skip
        # -P: import the installed mq, not a folder mq in this directory.
        command = Command(
            (sys.executable, "-P", "-m", "mq.tools.mqctl", *arguments), _environment(options)
        )
        code = asyncio.run(_look_after(Processes(command, processes)))
        if code:
            raise Failed(code)
        return
    _work(_loaded(worker, app_dir), options, supervisor)


def _work(made: Worker, options: Options, supervisor: int | None) -> None:
    try:
        if was_given("url") or was_given("token") or options.files:
            made.use(
                options.url if was_given("url") else None,
                options.token if was_given("token") else None,
                options.files,
            )
        if supervisor is None:
            made.run()
            return
        with looked_after(supervisor, made):
            asyncio.run(made.run_async())
    except ClientError as error:
        raise failed(error, options) from error


def _loaded(worker: str, folder: str) -> Worker:
    """Imports the worker. Raises click's BadParameter, and the module's own exceptions."""
    # A relative module name has no package to be relative to.
    match = re.fullmatch(r"([^:.][^:]*):([^:]+)", worker)
    if match is None:
        raise click.BadParameter(f"must be of the form {_FORM}", param_hint=_FORM)
    module, path = match.groups()
    sys.path.insert(0, os.path.abspath(folder))
    try:
        with loading():
            found: object = importlib.import_module(module)
    except RunsInImport as error:
        raise click.BadParameter(str(error), param_hint=_FORM) from error
    except ModuleNotFoundError as error:
        # The missing module may be one that this one imports.
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        raise click.BadParameter(
            f"there is no module {module} in {folder}", param_hint=_FORM
        ) from None
    for name in path.split("."):
        found = getattr(found, name, None)
    if not isinstance(found, Worker):
        raise click.BadParameter(f"{module} has no Worker {path}", param_hint=_FORM)
    if not found.queues:
        raise click.BadParameter(f"the worker {path} has no handler", param_hint=_FORM)
    return found


def _environment(options: Options) -> Mapping[str, str]:
    """The processes' environment. It carries the token, which a command line would show."""
    environment = dict(os.environ)
    if was_given("url"):
        environment["MQ_URL"] = options.url
    if was_given("token") and options.token is not None:
        environment.pop("MQ_TOKEN_FILE", None)
        environment["MQ_TOKEN"] = options.token
    of = options.files
    for name, path in (("CA_FILE", of.ca_file), ("CERT", of.certificate), ("CERT_KEY", of.key)):
        if path is not None:
            environment[f"MQ_{name}"] = str(path)
    return environment


async def _look_after(processes: Processes) -> int:
    """Returns the processes' exit code, or that of a second signal, which kills them."""
    asked, insisted = asyncio.Event(), asyncio.Event()
    heard: list[int] = []

    def hear(number: signal.Signals) -> None:
        heard.append(number)
        (insisted if asked.is_set() else asked).set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        if signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, hear, number)
    code = await processes.run(asked, insisted)
    return of_signal(heard[1]) if insisted.is_set() else code
