"""RabbitMQ with its STOMP plugin: persistent messages, a receipt for each (a publisher confirm)."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from subprocess import Popen
from typing import Final

from deploy.bench.load import load
from deploy.bench.others.rival import Rival, Serving, free_port, process

# Not /usr/sbin/rabbitmq-server, which becomes another user and looks elsewhere for its data.
PROGRAM: Final = "/usr/lib/rabbitmq/bin/rabbitmq-server"
_ACKS: Final = (
    "An ACK's receipt does not wait for the disk, and who has a message is not written: after a "
    "restart it is sent again."
)


@contextlib.contextmanager
def _epmd(folder: Path) -> Iterator[int]:
    """Erlang's port mapper, on a port of its own: RabbitMQ would start one and leave it."""
    port = free_port()
    place = folder / "epmd"
    place.mkdir()
    with process(place, port, "epmd", "-port", str(port), "-address", "127.0.0.1"):
        yield port


def _queue(port: int, name: str, headers: str) -> str:
    """Declared by one connection that uses it: of many at once some are refused."""
    url = f"stomp://127.0.0.1:{port}/{name}{headers}"
    load("cycle", url, connections=1, messages=1)
    return url


@contextlib.contextmanager
def rabbitmq(folder: Path, port: int, conf: str, plugins: str) -> "Iterator[Popen[bytes]]":
    """Runs one with this configuration until the port answers; all that it has is in the folder.

    Raises BenchError.
    """
    (folder / "rabbitmq.conf").write_text(conf)
    (folder / "enabled_plugins").write_text(f"[{plugins}].\n")
    with _epmd(folder) as epmd_port:
        env = {
            "HOME": str(folder),
            "ERL_EPMD_PORT": str(epmd_port),
            "RABBITMQ_NODENAME": "bench@localhost",
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
        }
        with process(folder, port, PROGRAM, env=env) as popen:
            yield popen


@contextlib.contextmanager
def _serving(folder: Path, headers: str) -> Iterator[Serving]:
    port = free_port()
    conf = f"listeners.tcp = none\nstomp.listeners.tcp.1 = 127.0.0.1:{port}\n"
    with rabbitmq(folder, port, conf, "rabbitmq_stomp") as popen:
        yield Serving(lambda name: _queue(port, name, headers), popen)


def _rabbitmq(kind: str, headers: str, publishes: str) -> Rival:
    return Rival(
        name=f"RabbitMQ, {kind} queue",
        program=PROGRAM,
        packages=("rabbitmq-server",),
        version=("dpkg-query", "--show", "rabbitmq-server"),
        publish_on_disk="yes",
        cycle_on_disk="publish",
        as_much_as_mq=False,
        promise=f"{publishes} {_ACKS}",
        serve=lambda folder: _serving(folder, headers),
    )


RABBITMQ_CLASSIC = _rabbitmq(
    "classic",
    "",
    "A persistent SEND is in the durable queue's files and fsynced before its receipt, which is "
    "sent at once where a consumer was faster.",
)
RABBITMQ_QUORUM = _rabbitmq(
    "quorum",
    "?x-queue-type:quorum",
    "A SEND is in the log of a quorum of one and fdatasynced before its receipt.",
)
