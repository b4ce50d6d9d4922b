"""What answers hold in memory until their last byte has left the process.

A transport that was written to may keep the bytes for as long as the client does not read. What
holds them stays with the connection until its buffer is empty, or the client is gone.
"""

import asyncio
from typing import Any


class Departures:
    """One connection's answers on their way out. `look` is to be called when it may write again,
    `forget` when it is lost.
    """

    __slots__ = ("_holding", "_is_narrowed", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._holding: list[Any] = []
        self._is_narrowed = False

    def add(self, transport: asyncio.WriteTransport, held: object) -> None:
        """Holds this until all that was written until now has left."""
        self._holding.append(held)
        if len(self._holding) == 1:
            # Mostly the socket takes all of it at the end of this turn of the loop.
            self._loop.call_soon(self.look, transport)

    def look(self, transport: asyncio.WriteTransport) -> None:
        """Lets go of what has left."""
        if not self._holding or transport.is_closing():
            return  # What is left of one that closes goes when it is lost.
        if not transport.get_write_buffer_size():
            self.forget()
            if self._is_narrowed:
                self._is_narrowed = False
                transport.set_write_buffer_limits()
        else:
            # So that the protocol is told to go on only when nothing is left; until then whoever
            # writes waits, for a client that does not read.
            self._is_narrowed = True
            transport.set_write_buffer_limits(high=0)

    def forget(self) -> None:
        """Nobody is there for any of it."""
        self._holding.clear()
