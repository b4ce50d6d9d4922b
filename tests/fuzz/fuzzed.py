"""A server, whoever throws bytes at it, and what has to hold after each throw."""

import logging
import os
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from harness.processes import PATIENCE_S
from harness.server import Server
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.strategies import SearchStrategy

from fuzz import EXAMPLES_VARIABLE

LAST = b"\r\n\r\nGET /-/livez HTTP/1.1\r\nHost: mq\r\nConnection: close\r\n\r\n"
# Whoever else logs here is left over from another test.
_OURS = ("mq", "aiohttp", "asyncio")
_FAILED = re.compile(rb"^HTTP/1\.[01] 500 ", re.MULTILINE)


@dataclass
class Fuzzed:
    """A server whose test's event loop is elsewhere: everything here blocks."""

    server: Server
    log: pytest.LogCaptureFixture

    def talk(self, *parts: bytes, ends: bool | None = True) -> bytes:
        """What comes until the server closes, which it does within our patience. `ends`: nothing
        more comes from here, which it is told; False: a last request says that it is the last;
        None: it has reason enough to close.
        """
        answer = bytearray()
        address = ("127.0.0.1", self.server.port)
        with socket.create_connection(address, timeout=PATIENCE_S) as connection:
            try:
                for part in parts:
                    connection.sendall(part)
                if ends:
                    connection.shutdown(socket.SHUT_WR)
                elif ends is False:
                    connection.sendall(LAST)
                while piece := connection.recv(65536):
                    answer += piece
            except TimeoutError:
                raise AssertionError(f"neither answered nor closed: {bytes(answer)!r}") from None
            except OSError:
                pass  # It had enough of it.
        return bytes(answer)

    def check(self, answer: bytes) -> None:
        """Nothing failed in a way that nobody foresaw, and the server serves."""
        assert not _FAILED.search(answer), answer
        failed = [
            record
            for record in self.log.records
            if record.levelno >= logging.ERROR and record.name.partition(".")[0] in _OURS
        ]
        self.log.clear()
        assert not failed, [(record.getMessage(), record.exc_info) for record in failed]
        assert self.talk(ends=False).startswith(b"HTTP/1.1 200 ")


def fuzz(
    strategy: SearchStrategy[Any], throw: Callable[[Any], None], examples: int
) -> Callable[[], None]:
    """A search for what `throw` does not stand; run in a thread."""
    longer = os.environ.get(EXAMPLES_VARIABLE)

    @settings(
        max_examples=examples if longer is None else int(longer),
        # The same ones each time, but where somebody searches.
        derandomize=longer is None,
        deadline=None,
        database=None,
        phases=(Phase.explicit, Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def search(thrown: Any) -> None:
        throw(thrown)

    return search
