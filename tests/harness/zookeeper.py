"""A real ZooKeeper server, and ways to it that a test can cut."""

import contextlib
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from kazoo.client import KazooClient

from harness.needs import cannot_run, program
from harness.processes import eventually

JAR = Path("/usr/share/java/zookeeper.jar")
TICK_MS = 200
"""A session lasts 2 to 20 of them, whatever is asked for."""
SESSION_S = 2.5

_CONFIGURATION = """
tickTime={tick}
dataDir={data}
clientPort={port}
clientPortAddress=127.0.0.1
admin.enableServer=false
maxClientCnxns=0
"""


@dataclass
class ZooKeeper:
    """A server, on a port and with data of its own; it can be stopped and started again."""

    work: Path
    port: int = 0
    configuration: str = _CONFIGURATION
    _popen: "subprocess.Popen[bytes] | None" = None

    def start(self) -> None:
        """Starts it, and waits until it answers. The data are as they were left."""
        command = program("java")
        if not JAR.exists():
            cannot_run("needs ZooKeeper: apt-get install libzookeeper-java")
        data = self.work / "data"
        data.mkdir(parents=True, exist_ok=True)
        if not self.port:
            with socket.create_server(("127.0.0.1", 0)) as free:
                self.port = free.getsockname()[1]
        path = self.work / "zoo.cfg"
        path.write_text(self.configuration.format(tick=TICK_MS, data=data, port=self.port))
        flags = ("-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", str(JAR))
        with (self.work / "log").open("ab") as log:
            self._popen = subprocess.Popen(
                [command, *flags, "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(path)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        eventually(self._answers, "ZooKeeper")

    def stop(self) -> None:
        """Ends it, with no farewell to anybody."""
        if self._popen is not None:
            self._popen.kill()
            self._popen.wait()
            self._popen = None

    def signal(self, number: signal.Signals) -> None:
        """Sends it a signal: SIGSTOP and it answers nobody, until SIGCONT."""
        assert self._popen is not None
        self._popen.send_signal(number)

    @contextlib.contextmanager
    def client(self) -> Iterator[KazooClient]:
        """A client of the test's own."""
        client = KazooClient(f"127.0.0.1:{self.port}", timeout=SESSION_S)
        client.start()
        try:
            yield client
        finally:
            client.stop()
            client.close()

    def _answers(self) -> bool:
        assert self._popen is not None
        assert self._popen.poll() is None, (self.work / "log").read_text()
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection,
        ):
            connection.sendall(b"srvr")
            return b"Mode:" in connection.recv(4096)
        return False


@contextlib.contextmanager
def zookeeper(work: Path, configuration: str = _CONFIGURATION) -> Iterator[ZooKeeper]:
    """A server that runs; `work` is a folder of its own, made where it is missing."""
    server = ZooKeeper(work, configuration=configuration)
    try:
        server.start()
        yield server
    finally:
        server.stop()


@dataclass
class Way:
    """A way to a server, by a port of its own, that can be cut: what goes by it ends, and who comes
    meanwhile is sent away; or that can hang: nothing goes by it, and nobody is told.
    """

    upstream: int
    is_cut: bool = False
    _flows: threading.Event = field(default_factory=threading.Event)
    _listening: socket.socket = field(init=False)
    _pairs: list[tuple[socket.socket, socket.socket]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._flows.set()
        self._listening = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def port(self) -> int:
        return int(self._listening.getsockname()[1])

    def cut(self) -> None:
        """Nothing goes by it any more."""
        self.is_cut = True
        while self._pairs:
            for end in self._pairs.pop():
                _close(end)

    def hang(self) -> None:
        """Nothing goes by it for now."""
        self._flows.clear()

    def mend(self) -> None:
        """All goes by it again."""
        self.is_cut = False
        self._flows.set()

    def close(self) -> None:
        """Cuts it for good."""
        self.cut()
        self._flows.set()
        _close(self._listening)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                self._join(near)

    def _join(self, near: socket.socket) -> None:
        try:
            if self.is_cut:
                raise ConnectionError("the way is cut")
            far = socket.create_connection(("127.0.0.1", self.upstream))
        except OSError:
            _close(near)
            return
        self._pairs.append((near, far))
        for source, target in ((near, far), (far, near)):
            threading.Thread(target=self._pass_on, args=(source, target), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                self._flows.wait()
                target.sendall(data)
        _close(source)
        _close(target)


def _close(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
