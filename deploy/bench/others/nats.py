"""NATS JetStream with file storage: a work queue, pulled from, each acknowledgement confirmed."""

import contextlib
import functools
import json
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from deploy.bench.load import BenchError
from deploy.bench.others.rival import Rival, Serving, free_port, process

_CONFIGURATION: Final = """\
listen: "127.0.0.1:{port}"
jetstream {{ store_dir: "{folder}/jetstream"{sync} }}
"""
_SYNCED: Final = ", sync_interval: always"
_ACK_WAIT_NS: Final = 60_000_000_000
_CLAIMED_MAX: Final = 100_000
"""Consumers wait when this many are not acknowledged: more than any bench has connections."""

_CONSUMER: Final = "Who has a message and what was acknowledged is written a little later."
_SYNCED_PROMISE: Final = (
    f"A message is in the stream's file and synced before its answer. {_CONSUMER}"
)
_UNSYNCED_PROMISE: Final = (
    "This version cannot sync on each write: an answer means that the message is in the page "
    "cache. It is flushed minutes later: a kill loses nothing, a power cut what came since."
)
_MOUNTED_PROMISE: Final = (
    "As it cannot sync by itself, its file system does so on each of its writes (mount -o sync): a "
    f"message is in the stream's file and on the disk before its answer. {_CONSUMER}"
)


@functools.cache
def _can_sync() -> bool:
    """Whether this version knows `sync_interval: always`: those from 2.10 on do."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "nats.conf"
        path.write_text(_CONFIGURATION.format(port=free_port(), folder=folder, sync=_SYNCED))
        done = subprocess.run(["nats-server", "-t", "-c", str(path)], capture_output=True)
        return done.returncode == 0


def _ask(port: int, subject: str, what: dict[str, Any]) -> None:
    """One request of JetStream's API. Raises BenchError when it is refused."""
    payload = json.dumps(what).encode()
    with socket.create_connection(("127.0.0.1", port)) as connection:
        stream = connection.makefile("rwb")
        stream.write(b'CONNECT {"verbose":false}\r\nSUB _INBOX 1\r\n')
        stream.write(b"PUB %s _INBOX %d\r\n%s\r\n" % (subject.encode(), len(payload), payload))
        stream.flush()
        while (line := stream.readline()) and not line.startswith((b"MSG", b"-ERR")):
            pass
        if not line.startswith(b"MSG"):
            raise BenchError(f"{subject}: {line!r}")
        answer = json.loads(stream.read(int(line.split()[-1])))
    if "error" in answer:
        raise BenchError(f"{subject}: {answer['error']}")


def _queue(port: int, name: str) -> str:
    stream = {"name": name, "subjects": [name], "retention": "workqueue", "storage": "file"}
    consumer = {
        "durable_name": "mq", "ack_policy": "explicit", "deliver_policy": "all",
        "replay_policy": "instant", "ack_wait": _ACK_WAIT_NS, "max_ack_pending": _CLAIMED_MAX,
    }  # fmt: skip
    _ask(port, f"$JS.API.STREAM.CREATE.{name}", stream)
    told = {"stream_name": name, "config": consumer}
    _ask(port, f"$JS.API.CONSUMER.DURABLE.CREATE.{name}.mq", told)
    return f"nats://127.0.0.1:{port}/{name}"


@contextlib.contextmanager
def _serving(folder: Path) -> Iterator[Serving]:
    port = free_port()
    path = folder / "nats.conf"
    sync = _SYNCED if _can_sync() else ""
    path.write_text(_CONFIGURATION.format(port=port, folder=folder, sync=sync))
    with process(folder, port, "nats-server", "-c", str(path)) as popen:
        yield Serving(functools.partial(_queue, port), popen)


def nats() -> list[Rival]:
    """Synced on each write where its version can; else as it is, and on a disk that does so."""
    if shutil.which("nats-server") is not None and _can_sync():
        return [_nats("synced", "yes", "publish", _SYNCED_PROMISE)]
    return [
        _nats("not synced", "no: page cache", "nothing", _UNSYNCED_PROMISE),
        _nats("disk mounted sync", "yes", "publish", _MOUNTED_PROMISE, mounted_sync=True),
    ]


def _nats(how: str, publish: str, cycle: str, promise: str, mounted_sync: bool = False) -> Rival:
    return Rival(
        name=f"NATS JetStream, {how}",
        program="nats-server",
        packages=("nats-server",),
        version=("nats-server", "--version"),
        publish_on_disk=publish,
        cycle_on_disk=cycle,
        as_much_as_mq=False,
        promise=promise,
        serve=_serving,
        mounted_sync=mounted_sync,
    )
