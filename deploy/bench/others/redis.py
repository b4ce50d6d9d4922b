"""Redis with appendfsync always: a stream, read by a consumer group.

A stream is Redis's own answer to a reliable queue: who has which entry is kept and can be claimed
from a consumer that is gone, which a list with RPOPLPUSH leaves to its users. XACK takes an entry
out of the group, XDEL out of the stream; both are asked for at once.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from deploy.bench.others.rival import Rival, Serving, free_port, process


@contextlib.contextmanager
def _serving(folder: Path) -> Iterator[Serving]:
    port = free_port()
    flags = {
        "port": str(port), "bind": "127.0.0.1", "dir": str(folder), "daemonize": "no",
        "appendonly": "yes", "appendfsync": "always", "save": "",
    }  # fmt: skip
    told = [part for name, value in flags.items() for part in (f"--{name}", value)]
    with process(folder, port, "redis-server", *told) as popen:
        yield Serving(lambda name: f"redis://127.0.0.1:{port}/{name}", popen)


REDIS = Rival(
    name="Redis stream, appendfsync always",
    program="redis-server",
    packages=("redis-server",),
    version=("redis-server", "--version"),
    publish_on_disk="yes",
    cycle_on_disk="publish, fetch, delete",
    as_much_as_mq=True,
    promise=(
        "XADD, XREADGROUP (the claim) and XACK with XDEL are in the append-only file, and that is "
        "fdatasynced once for all clients of a turn, before their answers. A claim has no due "
        "time: consumers look for old ones themselves (XAUTOCLAIM). All messages stay in memory."
    ),
    serve=_serving,
)
