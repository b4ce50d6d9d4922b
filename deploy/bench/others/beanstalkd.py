"""beanstalkd with a binlog that is fsynced on every write."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from deploy.bench.others.rival import Rival, Serving, free_port, process


@contextlib.contextmanager
def _serving(folder: Path) -> Iterator[Serving]:
    port = free_port()
    binlog = folder / "binlog"
    binlog.mkdir()
    command = ("beanstalkd", "-l", "127.0.0.1", "-p", str(port), "-b", str(binlog), "-f0")
    with process(folder, port, *command) as popen:
        yield Serving(lambda name: f"beanstalkd://127.0.0.1:{port}/{name}", popen)


BEANSTALKD = Rival(
    name="beanstalkd -f0",
    program="beanstalkd",
    packages=("beanstalkd",),
    version=("beanstalkd", "-v"),
    publish_on_disk="yes",
    cycle_on_disk="publish, delete",
    as_much_as_mq=False,
    promise=(
        "A put and a delete are written to the binlog and fsynced, each by itself, before their "
        "answers; a reserve is not written at all: who has a job is forgotten with the process. A "
        "failed fsync is a line on stderr, and the answer a success all the same."
    ),
    serve=_serving,
)
