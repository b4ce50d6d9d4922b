"""An mq that serves in the test's event loop, and what it is tried with: both ways to commit, and
bodies that are held and streamed.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from mq.daemon.daemon import Daemon


@dataclass
class Server:
    """An mq that serves in this event loop, and a client session for it."""

    daemon: Daemon
    root: Path
    url: str
    port: int
    session: aiohttp.ClientSession

    def request(self, method: str, path: str, **more: Any) -> Any:
        """A request; `async with` it, or await it."""
        return self.session.request(method, self.url + path, **more)


Serve = Callable[..., Awaitable[Server]]


KIB = 1024
MIB = 1024 * KIB

STREAMED_BYTES = 3 * MIB // 2

commit_modes = pytest.mark.parametrize("commit", ["fsync", "syncfs"])
body_sizes = pytest.mark.parametrize("size", [5, STREAMED_BYTES], ids=["held", "streamed"])
