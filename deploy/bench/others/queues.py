"""mq, beanstalkd, Redis and ActiveMQ: how each is started, and what its answers promise.

Of Redis it is a stream with a consumer group, its own answer to a reliable queue: who has which
entry is kept and can be claimed from a consumer that is gone, which a list with RPOPLPUSH leaves to
its users. XACK takes an entry out of the group, XDEL out of the stream; both are asked for at once.
"""

import contextlib
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from deploy.bench.ceiling import Commit
from deploy.bench.others.rival import Rival, Serving, free_port, process

_MQ_PROMISE = (
    "Each answer comes after the fsyncs: of a publish the file and its folders, of a fetch the "
    "claim with its due time, of a delete its rename. What cannot be flushed is a 503."
)


@contextlib.contextmanager
def _serving_mq(folder: Path, *flags: str) -> Iterator[Serving]:
    port = free_port()
    url = f"http://127.0.0.1:{port}"

    def queue(name: str) -> str:
        with urllib.request.urlopen(urllib.request.Request(f"{url}/{name}", method="PUT")) as made:
            made.read()
        return f"{url}/{name}/messages"

    told = ("--root", str(folder / "root"), "--port", str(port), *flags)
    with process(folder, port, sys.executable, "-m", "mq", *told) as popen:
        yield Serving(queue, popen)


def _mq(commit: Commit, *flags: str) -> Rival:
    return Rival(
        name=" ".join(("mq", *flags)),
        program=sys.executable,
        packages=(),
        version=(sys.executable, "-m", "mq", "--version"),
        publish_on_disk="yes",
        cycle_on_disk="publish, fetch, delete",
        as_much_as_mq=True,
        promise=_MQ_PROMISE,
        serve=lambda folder: _serving_mq(folder, "--commit", commit, *flags),
    )


def mq(commit: Commit) -> list[Rival]:
    """mq in one process and in two, alone and with mq-mover and mq-reaper (`--standalone`), which
    unlinks on the same cores what was deleted.
    """
    return [
        _mq(commit, *count, *daemons)
        for count in ((), ("--processes=2",))
        for daemons in ((), ("--standalone",))
    ]


@contextlib.contextmanager
def _serving_beanstalkd(folder: Path) -> Iterator[Serving]:
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
    serve=_serving_beanstalkd,
)


@contextlib.contextmanager
def _serving_redis(folder: Path) -> Iterator[Serving]:
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
    serve=_serving_redis,
)


_HOME: Final = "/usr/share/activemq"
_JAR: Final = f"{_HOME}/bin/activemq.jar"

# Two settings that are not its defaults, in its favour. Without tcpNoDelay its answers wait for the
# client's delayed ACKs, 40 ms each. With concurrentStoreAndDispatchQueues one thread stores message
# after message, each with a sync of its own: 200 a second on a disk that takes 2 ms, not 2,000.
_BROKER: Final = """\
<beans xmlns="http://www.springframework.org/schema/beans"
       xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
       xsi:schemaLocation="http://www.springframework.org/schema/beans
                           http://www.springframework.org/schema/beans/spring-beans.xsd
                           http://activemq.apache.org/schema/core
                           http://activemq.apache.org/schema/core/activemq-core.xsd">
  <broker xmlns="http://activemq.apache.org/schema/core" brokerName="bench" useJmx="false"
          persistent="true" dataDirectory="{folder}/data">
    <persistenceAdapter>
      <kahaDB directory="{folder}/data/kahadb" journalDiskSyncStrategy="always"
              concurrentStoreAndDispatchQueues="false"/>
    </persistenceAdapter>
    <transportConnectors>
      <transportConnector name="stomp"
                          uri="stomp://127.0.0.1:{port}?transport.tcpNoDelay=true"/>
    </transportConnectors>
  </broker>
</beans>
"""


@contextlib.contextmanager
def _serving_activemq(folder: Path) -> Iterator[Serving]:
    port = free_port()
    conf = folder / "conf"
    conf.mkdir()
    broker = conf / "activemq.xml"
    broker.write_text(_BROKER.format(folder=folder, port=port))
    command = (
        "java", "-Xms512M", "-Xmx512M", f"-Dactivemq.home={_HOME}", f"-Dactivemq.base={folder}",
        f"-Dactivemq.conf={conf}", "-jar", _JAR, "start", f"xbean:file:{broker}",
    )  # fmt: skip
    with process(folder, port, *command) as popen:
        yield Serving(lambda name: f"stomp://127.0.0.1:{port}/{name}", popen)


ACTIVEMQ = Rival(
    name="ActiveMQ, KahaDB",
    program=_JAR,
    packages=("activemq",),
    version=("dpkg-query", "--show", "activemq"),
    publish_on_disk="yes",
    cycle_on_disk="publish, delete",
    as_much_as_mq=False,
    promise=(
        "A persistent SEND and an ACK are in KahaDB's journal and synced, many together, before "
        "their receipts; who has a message is not written: after a restart it is sent again."
    ),
    serve=_serving_activemq,
)
