"""Listening sockets that somebody else holds: systemd's socket activation, sd_listen_fds(3).

Whoever holds them goes on holding them while this process is started again, and what
connects meanwhile waits there.
"""

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
    """The sockets that process `pid` was started with, none where they are another's; the variables
    are taken out of the environment. Raises StartupError for what mq cannot listen on.
    """
    count, whose = environment.pop(_COUNT, ""), environment.pop(_WHOSE, "")
    environment.pop(_NAMES, None)
    if not count or whose != str(pid):
        return ()
    if not count.isascii() or not count.isdigit() or not 0 < int(count) <= _SOCKETS_MAX:
        raise StartupError(f"{_COUNT} is no number from 1 to {_SOCKETS_MAX}: {count!r}")
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
        raise StartupError(f"descriptor {descriptor} is no socket: {error.strerror}") from error
    family, kind = given.family, given.type
    listens = given.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    given.detach()
    if family not in _FAMILIES:
        raise StartupError(f"socket {descriptor} is neither TCP nor of a path: family {family}")
    if kind != socket.SOCK_STREAM:
        raise StartupError(f"socket {descriptor} is no stream; say ListenStream= in its unit")
    if not listens:
        raise StartupError(f"socket {descriptor} does not listen; say Accept=no in its unit")


def open_sockets(descriptors: Sequence[int]) -> list[socket.socket]:
    """Sockets of these descriptors' own copies, to be closed by whoever listens on them. Raises
    StartupError.
    """
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
    """Where it listens, for people: `::1 port 8080`, `/run/mq/mq.sock`, `@name`."""
    name = given.getsockname()
    if isinstance(name, bytes):
        return "@" + name[1:].decode(errors="replace")
    if isinstance(name, str):
        return name
    return f"{name[0]} port {name[1]}"


class GivenSockets:
    """Sockets of these descriptors, for several processes that are handed them."""

    def __init__(self, descriptors: Sequence[int]) -> None:
        """Raises StartupError."""
        self._descriptors = descriptors
        opened = open_sockets(descriptors)
        self.number: int = max(map(port_of, opened))
        """A TCP port of theirs, 0 where they have none."""
        self.facts: dict[str, object] = {"sockets": ", ".join(map(place_of, opened))}
        """What a log has beside the number."""
        for each in opened:
            each.close()

    @property
    def flags(self) -> tuple[str, ...]:
        """What says to a process where to listen."""
        return ("--descriptors", ",".join(map(str, self._descriptors)))

    def release(self) -> None:
        """Lets go of them; whoever gave them goes on listening."""
        for descriptor in self._descriptors:
            os.close(descriptor)
