"""A port for several processes of one machine, held for them by the one that hands it out.

Each of them listens with SO_REUSEPORT, and the system gives each new connection to one
of them. By itself that lets in anybody of the same user, unasked; holding the port keeps it to
those that were told its number and ask for SO_REUSEPORT, also while none of them listens.
"""

import errno
import socket
from collections.abc import Sequence
from typing import Any, Final

from mq.model.errors import StartupError

# A free port of one address may be taken on another: tries to find one that is free on all.
_FREE_PORT_TRIES: Final = 32

_Place = tuple[socket.AddressFamily, tuple[Any, ...]]


class HeldPort:
    """A port that is bound and never listened on. Until `release`, or this process's end."""

    def __init__(self, sockets: Sequence[socket.socket]) -> None:
        self._sockets = sockets
        self.number: int = sockets[0].getsockname()[1]

    @property
    def flags(self) -> tuple[str, ...]:
        """What says to a process where to listen."""
        return ("--port", str(self.number))

    @property
    def facts(self) -> dict[str, object]:
        """What a log has beside the number: nothing."""
        return {}

    def release(self) -> None:
        """Lets go of the port; those that listen go on."""
        for each in self._sockets:
            each.close()


def hold_port(address: str, port: int) -> HeldPort:
    """Holds the port on every address of that name; 0 for one that is free on all of them.
    Raises StartupError: also when anybody listens there or holds it, whatever they would share.
    """
    try:
        places = _places(address, port)
        for _ in range(_FREE_PORT_TRIES if port == 0 and len(places) > 1 else 1):
            try:
                return HeldPort(_hold_all(places))
            except OSError as error:
                taken = error
        raise taken
    except OSError as error:
        raise StartupError(f"cannot listen on {address} port {port}: {error.strerror}") from error


def _places(address: str, port: int) -> list[_Place]:
    # An empty address is every address, as for a server of asyncio's.
    found = socket.getaddrinfo(
        address or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    return list(dict.fromkeys((family, place) for family, _, _, _, place in found))


def _hold_all(places: Sequence[_Place]) -> list[socket.socket]:
    held: list[socket.socket] = []
    try:
        for family, (host, port, *more) in places:
            number = port or (held[0].getsockname()[1] if held else 0)
            held.append(_hold(family, (host, number, *more)))
    except OSError:
        for each in held:
            each.close()
        raise
    return held


def _hold(family: socket.AddressFamily, place: tuple[Any, ...]) -> socket.socket:
    """A socket that is bound there alone, and from then on lets in who asks for SO_REUSEPORT."""
    held = _socket(family)
    try:
        held.bind(place)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    except OSError as error:
        held.close()
        if error.errno != errno.EADDRINUSE:
            raise
        return _hold_in_spite_of_connections(family, place)
    return held


def _hold_in_spite_of_connections(
    family: socket.AddressFamily, place: tuple[Any, ...]
) -> socket.socket:
    """The same where connections of an earlier server are not quite over. SO_REUSEADDR passes
    them, and with them whatever else is bound and does not listen; so whether the port is free
    is asked by listening, for a moment: only one can.
    """
    with _socket(family) as claim:
        claim.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        claim.bind(place)
        claim.listen()
        claim.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held = _socket(family)
        try:
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            held.bind(place)
            # From here on it is in the way of those that ask for SO_REUSEADDR alone.
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
        except OSError:
            held.close()
            raise
    return held


def _socket(family: socket.AddressFamily) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    if family == socket.AF_INET6:
        # As asyncio's servers: IPv4 has a socket of its own.
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    return made
