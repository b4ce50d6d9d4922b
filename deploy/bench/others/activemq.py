"""ActiveMQ Classic with KahaDB, its journal synced always; asked by STOMP with receipts."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from deploy.bench.others.rival import Rival, Serving, free_port, process

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
def _serving(folder: Path) -> Iterator[Serving]:
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
    serve=_serving,
)
