"""An mq that serves in the test's event loop."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from mq.daemon import Daemon


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
