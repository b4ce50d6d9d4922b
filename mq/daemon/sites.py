"""Where a server listens: a port or a socket, by TLS where there is a context.

aiohttp's sites do not say how long a handshake may take. These use private fields of aiohttp,
which is pinned below its next minor version.
"""

import asyncio
import socket
import ssl
from typing import Any, Final

from aiohttp import web

from mq.model.limits import BACKLOG_CONNECTIONS_MAX
from mq.model.serving_limits import TLS_END_S


class PortSite(web.TCPSite):
    """A port of an address."""

    def __init__(
        self,
        runner: web.ServerRunner,
        address: str,
        port: int,
        shares_port: bool | None,
        context: ssl.SSLContext | None,
        handshake_s: float,
    ) -> None:
        super().__init__(runner, address, port, reuse_port=shares_port, ssl_context=context)
        self._more: Final = _times(context, handshake_s)

    async def start(self) -> None:
        """Listens. Raises OSError."""
        await web.BaseSite.start(self)
        self._server = await asyncio.get_running_loop().create_server(
            _protocols(self._runner),
            self._host,
            self._port,
            ssl=self._ssl_context,
            backlog=self._backlog,
            reuse_port=self._reuse_port,
            **self._more,
        )


class SocketSite(web.SockSite):
    """A socket that somebody else holds."""

    def __init__(
        self,
        runner: web.ServerRunner,
        held: socket.socket,
        context: ssl.SSLContext | None,
        handshake_s: float,
    ) -> None:
        super().__init__(runner, held, backlog=BACKLOG_CONNECTIONS_MAX, ssl_context=context)
        self._more: Final = _times(context, handshake_s)

    async def start(self) -> None:
        """Listens. Raises OSError."""
        await web.BaseSite.start(self)
        self._server = await asyncio.get_running_loop().create_server(
            _protocols(self._runner),
            sock=self._sock,
            ssl=self._ssl_context,
            backlog=self._backlog,
            **self._more,
        )


def _times(context: ssl.SSLContext | None, handshake_s: float) -> dict[str, Any]:
    if context is None:
        return {}
    return {"ssl_handshake_timeout": handshake_s, "ssl_shutdown_timeout": TLS_END_S}


def _protocols(runner: Any) -> Any:
    return runner.server
