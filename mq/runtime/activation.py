"""Listening sockets that another process holds: systemd's socket activation, sd_listen_fds(3).

The holder keeps them open while this process restarts, and new connections wait there meanwhile.
"""

import errno
import os
import socket
from collections.abc import MutableMapping, Sequence
from typing import Final

from mq.model.errors import StartupError

_COUNT: Final = "LISTEN_FDS"
_WHOSE: Final = "LISTEN_PID"
_NAMES: Final = "LISTEN_FDNAMES"
_FIRST: Final = 3
_SOCKETS_MAX: Final = 64
_FAMILIES: Final = (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX)


def take_descriptors(environment: MutableMapping[str, str], pid: int) -> tuple[int, ...]:
    """The sockets that process `pid` was started with; none if they are for another process. Takes
    the variables out of the environment. Raises StartupError for a socket that mq cannot use.
    """
    count, whose = environment.pop(_COUNT, ""), environment.pop(_WHOSE, "")
    environment.pop(_NAMES, None)
    if not count or whose != str(pid):
        return ()
    if not count.isascii() or not count.isdigit() or not 0 < int(count) <= _SOCKETS_MAX:
        raise StartupError(
            f"{_COUNT}, which the service manager sets, must be a number from 1 to {_SOCKETS_MAX}, "
            f"not {count!r}; correct the socket's unit, or unset it"
        )
    given = tuple(range(_FIRST, _FIRST + int(count)))
    for descriptor in given:
        check_listening(descriptor)
        os.set_inheritable(descriptor, False)
    return given


def check_listening(descriptor: int) -> None:
    """Raises StartupError unless connections can be accepted from the descriptor."""
    try:
        given = socket.socket(fileno=descriptor)
    except OSError as error:
        raise StartupError(
            f"file descriptor {descriptor} is not a listening socket: {error.strerror}; correct "
            "the socket's unit"
        ) from error
    family, kind = given.family, given.type
    listens = given.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    given.detach()
    if family not in _FAMILIES:
        raise StartupError(
            f"socket {descriptor} is neither TCP nor a Unix socket, but of family {family}; use "
            "ListenStream= in its unit"
        )
    if kind != socket.SOCK_STREAM:
        raise StartupError(
            f"socket {descriptor} is not a stream socket; use ListenStream= in its unit"
        )
    if not listens:
        raise StartupError(f"socket {descriptor} does not listen; use Accept=no in its unit")


def cannot_listen(address: str, port: int, error: Exception, what: str = "listen") -> StartupError:
    """The error of a daemon that cannot listen; `what`: its purpose."""
    number = error.errno if isinstance(error, OSError) and error.errno else 0
    do = {
        errno.EADDRINUSE: "end the process that listens there, or use another port",
        errno.EACCES: "use a port from 1024, or give the process CAP_NET_BIND_SERVICE",
    }.get(number, "correct the address")
    # A name that cannot be resolved has a number below 0, and asyncio puts a text around others.
    why = os.strerror(number) if number > 0 else getattr(error, "strerror", None) or str(error)
    return StartupError(f"cannot {what} on {address} port {port}: {why}; {do}")


def open_sockets(descriptors: Sequence[int]) -> list[socket.socket]:
    """Sockets on copies of these descriptors; the listener closes them. Raises StartupError."""
    for descriptor in descriptors:
        check_listening(descriptor)
    opened = [socket.socket(fileno=os.dup(descriptor)) for descriptor in descriptors]
    for each in opened:
        each.setblocking(False)
    return opened


def port_of(given: socket.socket) -> int:
    """The TCP port; 0 for a socket of a path."""
    return 0 if given.family == socket.AF_UNIX else int(given.getsockname()[1])


def place_of(given: socket.socket) -> str:
    """The address for people: `::1 port 8080`, `/run/mq/mq.sock`, `@name`."""
    name = given.getsockname()
    if isinstance(name, bytes):
        return "@" + name[1:].decode(errors="replace")
    if isinstance(name, str):
        return name
    return f"{name[0]} port {name[1]}"


class GivenSockets:
    """Sockets of these descriptors, to be handed to several processes."""

    def __init__(self, descriptors: Sequence[int]) -> None:
        """Raises StartupError."""
        self._descriptors = descriptors
        opened = open_sockets(descriptors)
        self.number: int = max(map(port_of, opened))
        """The first TCP port; 0 if there is none."""
        self.facts: dict[str, object] = {"sockets": ", ".join(map(place_of, opened))}
        """What a log has beside the number."""
        for each in opened:
            each.close()

    @property
    def flags(self) -> tuple[str, ...]:
        """The flags that tell a process where to listen."""
        return ("--descriptors", ",".join(map(str, self._descriptors)))

    def release(self) -> None:
        """Closes this process's copies; the holder still listens."""
        for descriptor in self._descriptors:
            os.close(descriptor)
