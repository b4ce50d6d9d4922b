"""A port that several processes of one machine share, and that their supervisor holds.

Each process listens with SO_REUSEPORT, and the kernel gives each new connection to one of them.
SO_REUSEPORT alone lets in any process of the same user. The held port keeps other programs off,
also while no process listens.
"""

import asyncio
import errno
import socket
import ssl
from collections.abc import Iterable, Sequence
from typing import Any, Final

from mq.http.connection import Server
from mq.runtime.activation import cannot_listen
from mq.runtime.server_settings import ServerSettings

# A free port of one address may be taken on another: tries to find one that is free on all.
_FREE_PORT_TRIES: Final = 32

_Place = tuple[socket.AddressFamily, tuple[Any, ...]]


class HeldPort:
    """A bound port without a listener, until `release` or the end of this process."""

    def __init__(self, sockets: Sequence[socket.socket]) -> None:
        self._sockets = sockets
        self.number: int = sockets[0].getsockname()[1]

    @property
    def flags(self) -> tuple[str, ...]:
        """The flags that tell a process where to listen."""
        return ("--port", str(self.number))

    @property
    def facts(self) -> dict[str, object]:
        """What a log has beside the number: nothing."""
        return {}

    def release(self) -> None:
        """Closes the port; listening processes continue."""
        for each in self._sockets:
            each.close()


def hold_port(address: str, port: int) -> HeldPort:
    """Holds the port on every address of the name; 0: one that is free on all of them. Raises
    StartupError, also when another process listens on the port or holds it, even a shared one.
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
        raise cannot_listen(address, port, error) from error


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
    """A bound socket, beside which sockets with SO_REUSEPORT may bind afterwards."""
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
    """The same while connections of an earlier server are still closing. SO_REUSEADDR ignores them,
    but also any bound socket that does not listen. Only one socket can listen, so listening for a
    moment shows whether the port is free.
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
            # From here on it blocks sockets with SO_REUSEADDR alone.
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


# Connections that wait while a socket outlives the process. The system has its own limit
# (net.core.somaxconn).
BACKLOG_CONNECTIONS_MAX: Final = 4096
# How long a client may take to end TLS after the server has.
TLS_END_S: Final = 2.0


class Sites:
    """Where a server listens: a port, or sockets that are already open; with TLS if configured."""

    def __init__(self, server: Server, context: ssl.SSLContext | None, handshake_s: float) -> None:
        self._server = server
        self._listening: list[asyncio.Server] = []
        self._more: dict[str, Any] = {"ssl": context, "backlog": BACKLOG_CONNECTIONS_MAX}
        if context is not None:
            self._more["ssl_handshake_timeout"] = handshake_s
            self._more["ssl_shutdown_timeout"] = TLS_END_S

    async def listen(self, settings: ServerSettings) -> int:
        """Listens on a port of an address; its number. Raises OSError."""
        # Peers on one machine may share a port.
        shares_port = settings.is_supervised or settings.peers > 0 or None
        listening = await asyncio.get_running_loop().create_server(
            self._server, settings.address, settings.port, reuse_port=shares_port, **self._more
        )
        self._listening.append(listening)
        return int(listening.sockets[0].getsockname()[1])

    async def take(self, held: Iterable[socket.socket]) -> None:
        """Listens on sockets that are already open."""
        for each in held:
            listening = await asyncio.get_running_loop().create_server(
                self._server, sock=each, **self._more
            )
            self._listening.append(listening)

    def stop(self) -> None:
        while self._listening:
            self._listening.pop().close()
