"""The command `mq`: flags and environment into frozen settings, then the daemon."""
# ruff: noqa: E402

import asyncio
import contextlib
import gc
import resource
import sys
from pathlib import Path
from typing import Any, Final, get_args

# A sixth of a start was the collector's, which finds nothing while modules are imported.
gc.disable()

import click
import uvloop

from mq.broker.ready import BACKLOG_IDS_MAX
from mq.daemon.caller_options import caller_options
from mq.daemon.children import Children, upkeep
from mq.daemon.process import serve, supervise, supervisor_notifier
from mq.daemon.serving_options import serving_options
from mq.daemon.supervisor import Supervisor
from mq.model.errors import StartupError
from mq.model.limits import (
    BODY_BYTES_MAX_DEFAULT,
    MEMORY_BYTES_DEFAULT,
    MIB,
    PROCESSES_MAX,
    REFRESH_EVERY_S,
    VISIBILITY_S_MAX,
)
from mq.model.settings import CommitMode, Durability, QueueSettings
from mq.runtime.cores import PROCESSES_AUTO_MAX
from mq.runtime.logs import LogFormat
from mq.runtime.options import (
    Number,
    Port,
    Processes,
    Whole,
    attach_option,
    begin_logs,
    context,
    daemon_options,
    fail,
    folder_max_option,
    given_descriptors,
    root_option,
    service_manager,
    size,
)
from mq.runtime.server_settings import (
    BODY_IDLE_S_DEFAULT,
    DRAIN_S_DEFAULT,
    PEERS_DEFAULT,
    QUEUES_NAMED_DEFAULT,
    JwtSettings,
    ServerSettings,
)

gc.enable()

PEERS_MAX: Final = BACKLOG_IDS_MAX - 1


def _descriptors(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[int, ...]:
    """The numbers of `3,4`."""
    try:
        return tuple(map(int, value.split(","))) if value else ()
    except ValueError:
        raise click.BadParameter(f"{value!r} is not a list of numbers; use 3 or 3,4") from None


@click.command("mq", context_settings=context("MQ"))
@root_option("The folder of the queues. It is made if it is missing and its parent exists.")
@click.option(
    "--require-root",
    is_flag=True,
    show_envvar=True,
    help="Do not make the root: end where there is none, as before its file system is mounted.",
)
@click.option("--address", default="127.0.0.1", show_envvar=True, help="The address to listen on.")
@click.option(
    "--port",
    type=Port(0, 65535),
    default=8080,
    show_envvar=True,
    help="The port to listen on; 0 takes a free one and logs it.",
)
@click.option(
    "--processes",
    type=Processes(),
    default="1",
    show_envvar=True,
    help="How many processes serve on the port; auto: one for each core, at most "
    f"{PROCESSES_AUTO_MAX}. With more than one, another process supervises them.",
)
@click.option(
    "--process-index",
    type=Whole(0, PROCESSES_MAX - 1),
    default=None,
    hidden=True,
    allow_from_autoenv=False,
    help="Which of several this is: what their supervisor says to each.",
)
@click.option(
    "--descriptors",
    callback=_descriptors,
    default=None,
    hidden=True,
    allow_from_autoenv=False,
    help="Sockets that listen already: what a supervisor hands on.",
)
@click.option(
    "--speak-within",
    type=Number(0, min_open=True),
    default=None,
    hidden=True,
    allow_from_autoenv=False,
    help="Seconds within which a supervisor wants to hear that this process lives.",
)
@click.option(
    "--peers",
    type=Whole(0, PEERS_MAX),
    default=PEERS_DEFAULT,
    show_envvar=True,
    help=(
        "Other mq processes on this root. A fetch then begins with messages of "
        "its own share of the ids: fewer lost races, looser order."
    ),
)
@click.option(
    "--peer-index",
    type=Whole(0, PEERS_MAX),
    default=None,
    show_default="drawn by chance; 0 with --processes",
    show_envvar=True,
    help=(
        "The number of this process among the N+1, so that no two begin with "
        "the same share; with --processes, the number of the first."
    ),
)
@click.option(
    "--visibility",
    type=Number(0.001, VISIBILITY_S_MAX),
    default=30.0,
    show_envvar=True,
    help=(
        "The visibility timeout: seconds after which a fetched message that was "
        "not deleted is delivered again."
    ),
)
@click.option(
    "--max-body",
    metavar="SIZE",
    callback=size,
    default=f"{BODY_BYTES_MAX_DEFAULT // MIB}MiB",
    show_envvar=True,
    help="The largest body that a publish may have.",
)
@click.option(
    "--body-timeout",
    type=Number(0.01),
    default=BODY_IDLE_S_DEFAULT,
    show_envvar=True,
    help=(
        "Seconds without a byte of the body, or behind 1 KiB a second, after "
        "which the request is answered 408."
    ),
)
@click.option(
    "--commit",
    type=click.Choice(get_args(CommitMode)),
    default="auto",
    show_envvar=True,
    help="How groups are flushed: an fsync a file, or one syncfs where the root is a file "
    "system of its own (auto knows).",
)
@click.option(
    "--durability",
    type=click.Choice(get_args(Durability)),
    default="media",
    show_envvar=True,
    help=(
        "What a success response promises. media: the change is on stable "
        "media. none: nothing is flushed; for tmpfs."
    ),
)
@click.option("--force", is_flag=True, show_envvar=True, help="Allow --durability=none anywhere.")
@click.option(
    "--reserve",
    metavar="SIZE",
    callback=size,
    default=None,
    show_default="5 %, at most 64MiB",
    show_envvar=True,
    help="Free bytes that publishing leaves, so that fetch and delete work on a full disk.",
)
@click.option(
    "--memory",
    metavar="SIZE",
    callback=size,
    default=f"{MEMORY_BYTES_DEFAULT // MIB}MiB",
    show_envvar=True,
    help="The most bytes of bodies in memory, in all processes together. 0 caches none.",
)
@click.option(
    "--drain-timeout",
    type=Number(0),
    default=DRAIN_S_DEFAULT,
    show_envvar=True,
    help="Seconds that requests have to end after SIGTERM or SIGINT.",
)
@click.option(
    "--standalone",
    is_flag=True,
    show_envvar=True,
    help="Run mq-mover and mq-reaper too, as children that end with mq.",
)
@click.option(
    "--inotify/--no-inotify",
    default=True,
    show_envvar=True,
    help=(
        "Learn from inotify what other processes publish to queues with waiting "
        "consumers, or scan twice a second."
    ),
)
@click.option(
    "--traces",
    is_flag=True,
    show_envvar=True,
    help=(
        "Make a span of each request, and send it by OTLP as configured by "
        "OpenTelemetry's variables (OTEL_EXPORTER_OTLP_ENDPOINT ...). Needs the "
        "extra mq[tracing]."
    ),
)
@click.option(
    "--refresh",
    type=Number(min=0, min_open=True),
    default=REFRESH_EVERY_S,
    show_envvar=True,
    help=(
        "Seconds between two looks at all queues, which other processes may "
        "have changed or deleted; the first one after a minute. POST /-/refresh "
        "starts one at once."
    ),
)
@click.option(
    "--tokens",
    type=click.Path(path_type=Path, dir_okay=False),
    default=None,
    show_envvar=True,
    help=(
        "A file of tokens and their rights, made by mqctl token. Each request "
        "must have a token. Read again on SIGHUP."
    ),
)
@click.option(
    "--allow-anonymous",
    is_flag=True,
    show_envvar=True,
    help="Listen beyond loopback without authentication.",
)
@click.option(
    "--metrics-queues",
    type=Whole(0, 100_000),
    default=QUEUES_NAMED_DEFAULT,
    show_envvar=True,
    help=(
        "The number of queues, the first by name, that have samples of their "
        "own at /-/metrics; all others are summed."
    ),
)
@click.option(
    "--timings/--no-timings",
    default=True,
    show_envvar=True,
    help="Measure for /-/metrics how long requests and flushes take.",
)
@click.option(
    "--board",
    type=Whole(0),
    default=None,
    hidden=True,
    allow_from_autoenv=False,
    help="Memory in which all of several count: what a supervisor hands on.",
)
@click.option(
    "--exchange",
    callback=_descriptors,
    default=None,
    hidden=True,
    allow_from_autoenv=False,
    help="Sockets by which all of several ask each other: what a supervisor hands on.",
)
@caller_options
@serving_options
@folder_max_option
@attach_option
@daemon_options
def main(
    root: Path,
    require_root: bool,
    attach: str | None,
    address: str,
    port: int,
    processes: int,
    process_index: int | None,
    descriptors: tuple[int, ...],
    speak_within: float | None,
    peers: int,
    peer_index: int | None,
    visibility: float,
    max_body: int,
    body_timeout: float,
    commit: CommitMode,
    durability: Durability,
    force: bool,
    reserve: int | None,
    memory: int,
    drain_timeout: float,
    standalone: bool,
    inotify: bool,
    traces: bool,
    refresh: float,
    tokens: Path | None,
    jwt: JwtSettings | None,
    tls_clients: Path | None,
    allow_anonymous: bool,
    metrics_queues: int,
    timings: bool,
    board: int | None,
    exchange: tuple[int, ...],
    folder_max: int,
    serving: dict[str, Any],
    log_format: LogFormat,
    log_level: str,
) -> None:
    """Serve durable message queues over HTTP from a folder.

    A message is one file, its folder is its state, and a success response means that the change
    is on stable media.
    """
    is_one_of_several = process_index is not None
    begin_logs(log_format, log_level, {"process": process_index} if is_one_of_several else None)
    try:
        notifier, given = service_manager(), given_descriptors()
    except StartupError as error:
        raise fail("mq", error) from error
    if is_one_of_several:
        notifier = supervisor_notifier(speak_within)
    settings = ServerSettings(
        root=root.absolute(),
        makes_root=not require_root and attach is None,
        known_root=attach,
        address=address,
        port=port,
        processes=processes,
        process_index=process_index or 0,
        peers=peers,
        peer_index=peer_index,
        commit=commit,
        durability=durability,
        force=force,
        reserve_bytes=reserve,
        memory_bytes=memory,
        body_idle_s=body_timeout,
        drain_s=drain_timeout,
        folder_max=folder_max,
        inotify=inotify,
        descriptors=descriptors or given,
        traces=traces,
        refresh_s=refresh,
        tokens=None if tokens is None else tokens.absolute(),
        jwt=jwt,
        tls_clients=None if tls_clients is None else tls_clients.absolute(),
        allow_anonymous=allow_anonymous,
        **serving,
        metrics_queues=metrics_queues,
        timings=timings,
        board=board,
        exchange=exchange,
        queue=QueueSettings(visibility_s=visibility, body_bytes_max=max_body),
    )
    children = Children()
    if standalone and not is_one_of_several:
        children = upkeep(settings, log_format, log_level)
    _raise_descriptor_limit()
    try:
        if processes == 1 or is_one_of_several:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(serve(settings, children, notifier))
        else:
            with asyncio.Runner() as runner:
                supervisor = Supervisor(settings, sys.argv[1:], children, notifier)
                status = runner.run(supervise(supervisor))
            raise click.exceptions.Exit(status)
    except StartupError as error:
        raise fail("mq", error) from error


def _raise_descriptor_limit() -> None:
    """A connection, and a message in a commit group, is a descriptor each."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
