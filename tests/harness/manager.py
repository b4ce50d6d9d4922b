"""What systemd does for a process, done by a test: it hears of it, and it hands it sockets."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Final

from harness.processes import eventually

# systemd's own process does this between fork and exec: the numbers begin at 3.
_HANDS_ON: Final = """
import os, sys
count = int(sys.argv[1])
given = [int(each) for each in sys.argv[2 : 2 + count]]
kept = [os.dup(each) for each in given]
for each in given:
    os.close(each)
for number, each in enumerate(kept):
    os.dup2(each, 3 + number)
    os.set_inheritable(3 + number, True)
os.environ |= {"LISTEN_FDS": str(count), "LISTEN_PID": str(os.getpid()), "LISTEN_FDNAMES": "mq"}
os.execv(sys.executable, [sys.executable, *sys.argv[2 + count :]])
"""


class Manager:
    """Whoever has a NOTIFY_SOCKET; all that it was told, as fields of one datagram each."""

    def __init__(self, sock: socket.socket, name: str) -> None:
        self.name = name
        self.told: list[dict[str, str]] = []
        self._socket = sock
        threading.Thread(target=self._listen, daemon=True).start()

    def environment(self, watchdog_s: float | None = None) -> dict[str, str]:
        made = {"NOTIFY_SOCKET": self.name}
        return made if watchdog_s is None else made | {"WATCHDOG_USEC": str(int(watchdog_s * 1e6))}

    def values(self, name: str) -> list[str]:
        return [each[name] for each in list(self.told) if name in each]

    @property
    def ticks(self) -> int:
        return len(self.values("WATCHDOG"))

    def hears(self, name: str, part: str = "") -> str:
        """Waits for a value with this part; the first."""

        def found() -> str:
            return next((each for each in self.values(name) if part in each), "")

        return eventually(found, f"{name} with {part!r}")

    def hears_ticks(self, more: int) -> None:
        """Waits for so many more of them."""
        wanted = self.ticks + more
        eventually(lambda: self.ticks >= wanted, f"{more} ticks")

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while message := self._socket.recv(65536):
                lines = message.decode().splitlines()
                self.told.append(dict(line.split("=", 1) for line in lines))


@contextlib.contextmanager
def manager(path: str = "") -> Iterator[Manager]:
    """At this path, or by an abstract name."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        if path:
            sock.bind(path)
            name = path
        else:
            sock.bind("")  # Linux draws a name.
            name = "@" + sock.getsockname()[1:].decode()
        made = Manager(sock, name)
        try:
            yield made
        finally:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RD)


def handing_on(sockets: "list[socket.socket]") -> tuple[str, ...]:
    """What python is to run before a module for it to be given the sockets, which it inherits."""
    numbers = [str(each.fileno()) for each in sockets]
    return ("-P", "-c", _HANDS_ON, str(len(sockets)), *numbers)
