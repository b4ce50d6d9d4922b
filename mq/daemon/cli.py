"""The command `mq`: flags and environment into frozen settings, then the daemon."""

import asyncio
import contextlib
import resource
import sys
from pathlib import Path
from typing import Any, get_args

import click
import uvloop

from mq.access.jwt_settings import JwtSettings
from mq.daemon.caller_options import caller_options
from mq.daemon.children import Children
from mq.daemon.process import serve, supervise, supervisor_notifier
from mq.daemon.serving_options import serving_options
from mq.daemon.standalone import upkeep
from mq.daemon.supervisor import Supervisor
from mq.model.errors import StartupError
from mq.model.limits import (
    BODY_BYTES_MAX_DEFAULT,
    BODY_IDLE_S_DEFAULT,
    DRAIN_S_DEFAULT,
    MEMORY_BYTES_DEFAULT,
    MIB,
    PEERS_DEFAULT,
    PEERS_MAX,
    PROCESSES_MAX,
    VISIBILITY_S_MAX,
    WORKERS_MAX,
)
from mq.model.metrics_limits import QUEUES_NAMED_DEFAULT, QUEUES_NAMED_MAX
from mq.model.settings import CommitMode, Durability, QueueSettings
from mq.model.upkeep_limits import REFRESH_EVERY_S
from mq.runtime.logs import LogFormat
from mq.runtime.options import (
    Number,
    Port,
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
from mq.runtime.server_settings import ServerSettings


def _descriptors(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[int, ...]:
    """The numbers of `3,4`."""
    try:
        return tuple(map(int, value.split(","))) if value else ()
    except ValueError:
        raise click.BadParameter(f"{value!r} is no list of numbers") from None


@click.command("mq", context_settings=context("MQ"))
@root_option("The folder that holds the queues; made when missing, in a folder that is there.")
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
    type=click.IntRange(1, PROCESSES_MAX),
    default=1,
    show_envvar=True,
    help="So many mq processes serve on the port, and one more looks after them.",
)
@click.option(
    "--process-index",
    type=click.IntRange(0, PROCESSES_MAX - 1),
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
    "--workers",
    type=click.IntRange(1, WORKERS_MAX),
    default=8,
    show_envvar=True,
    help="Pairs of threads that flush a commit group's files side by side, each by an fsync; no "
    "effect with syncfs or --durability=none.",
)
@click.option(
    "--peers",
    type=click.IntRange(0, PEERS_MAX),
    default=PEERS_DEFAULT,
    show_envvar=True,
    help="Other mq processes on this root: fetch begins with messages of its own share of the "
    "ids, which trades order for fewer lost races.",
)
@click.option(
    "--peer-index",
    type=click.IntRange(0, PEERS_MAX),
    default=None,
    show_default="drawn by chance; 0 with --processes",
    show_envvar=True,
    help="Which of the N+1 this one is, so that no two begin with the same share; with "
    "--processes, which the first of them is.",
)
@click.option(
    "--visibility",
    type=Number(0.001, VISIBILITY_S_MAX),
    default=30.0,
    show_envvar=True,
    help="Seconds after which a fetched message that was not deleted is due again.",
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
    help="Seconds without a byte of the body, or behind 1 KiB a second, after which it is 408.",
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
    help="What a success promises; none never flushes, and is for tmpfs.",
)
@click.option("--force", is_flag=True, show_envvar=True, help="Allow --durability=none anywhere.")
@click.option(
    "--reserve",
    metavar="SIZE",
    callback=size,
    default=None,
    show_default="5 %, at most 64MiB",
    show_envvar=True,
    help="Free bytes that publishing leaves alone, for fetch and delete on a full disk.",
)
@click.option(
    "--memory",
    metavar="SIZE",
    callback=size,
    default=f"{MEMORY_BYTES_DEFAULT // MIB}MiB",
    show_envvar=True,
    help="Bytes of messages' bodies to hold in memory at most, in all processes together; 0 keeps "
    "none for later.",
)
@click.option(
    "--drain-timeout",
    type=Number(0),
    default=DRAIN_S_DEFAULT,
    show_envvar=True,
    help="Seconds that requests in hand have to end after SIGTERM or SIGINT.",
)
@click.option(
    "--standalone",
    is_flag=True,
    show_envvar=True,
    help="Run mq-mover and mq-reaper too, as children that go when mq goes.",
)
@click.option(
    "--inotify/--no-inotify",
    default=True,
    show_envvar=True,
    help="Have Linux tell what other processes put into queues in which somebody waits, or look "
    "twice a second.",
)
@click.option(
    "--traces",
    is_flag=True,
    show_envvar=True,
    help="Make a span of each request, and send it by OTLP as OpenTelemetry's variables say "
    "(OTEL_EXPORTER_OTLP_ENDPOINT ...); by the extra mq[tracing].",
)
@click.option(
    "--refresh",
    type=Number(min=0, min_open=True),
    default=REFRESH_EVERY_S,
    show_envvar=True,
    help="Every so many seconds look at all queues, which other processes may have changed or "
    "deleted; the first time after a minute. POST /-/refresh has it done at once.",
)
@click.option(
    "--tokens",
    type=click.Path(path_type=Path, dir_okay=False),
    default=None,
    show_envvar=True,
    help="A file of tokens: who may do what with which queues; each request shows one. Read again "
    "on SIGHUP. mqctl token makes it.",
)
@click.option(
    "--allow-anonymous",
    is_flag=True,
    show_envvar=True,
    help="Listen beyond loopback without asking anybody who they are.",
)
@click.option(
    "--metrics-queues",
    type=click.IntRange(0, QUEUES_NAMED_MAX),
    default=QUEUES_NAMED_DEFAULT,
    show_envvar=True,
    help="How many queues, the first by name, have samples of their own at /-/metrics; all others "
    "are summed.",
)
@click.option(
    "--timings/--no-timings",
    default=True,
    show_envvar=True,
    help="Measure for /-/metrics how long requests and flushes take.",
)
@click.option(
    "--board",
    type=click.IntRange(0),
    default=None,
    hidden=True,
    allow_from_autoenv=False,
    help="Memory in which all of several count: what a supervisor hands on.",
)
@caller_options
@serving_options
@folder_max_option
@daemon_options
def main(
    root: Path,
    address: str,
    port: int,
    processes: int,
    process_index: int | None,
    descriptors: tuple[int, ...],
    speak_within: float | None,
    workers: int,
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
        address=address,
        port=port,
        processes=processes,
        process_index=process_index or 0,
        workers=workers,
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
