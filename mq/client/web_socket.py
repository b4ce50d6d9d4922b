"""A WebSocket over aiohttp."""

import asyncio
import contextlib

import aiohttp

from mq.client.errors import ConnectionLost
from mq.client.limits import CLOSE_S


class HttpSocket:
    """A WebSocket that was begun. aiohttp answers pings, and asks the other side whether it is
    there when it has said nothing for a while.
    """

    def __init__(self, found: "aiohttp.ClientWebSocketResponse[bool]") -> None:
        self._found = found

    async def send(self, text: str) -> None:
        """Sends a text frame. Raises ConnectionLost; waits while the other side does not read."""
        try:
            await self._found.send_str(text)
        except (aiohttp.ClientError, OSError) as error:
            raise ConnectionLost(f"the WebSocket has ended: {error}") from error

    async def receive(self) -> str | bytes:
        """What comes next. Raises ConnectionLost when the connection has ended, however."""
        try:
            message = await self._found.receive()
        except (aiohttp.ClientError, OSError) as error:
            raise ConnectionLost(f"the WebSocket has ended: {error}") from error
        if message.type is aiohttp.WSMsgType.TEXT or message.type is aiohttp.WSMsgType.BINARY:
            found: str | bytes = message.data
            return found
        code = self._found.close_code
        raise ConnectionLost(f"the WebSocket has ended with code {code}")

    async def close(self) -> None:
        """Ends the connection, within a bounded time. Raises nothing; may be called again."""
        with contextlib.suppress(TimeoutError, aiohttp.ClientError, OSError):
            async with asyncio.timeout(CLOSE_S):
                await self._found.close()
