"""mq: a durable HTTP message queue whose broker is a file system."""

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from mq.client.client import AsyncClient
    from mq.client.sync.client import Client
    from mq.client.worker.worker import Worker

__version__ = "0.1.0"
__all__ = ["AsyncClient", "Client", "Worker", "__version__"]

# Made when they are first asked for, so that whoever uses a part of mq loads no client with it.
_MODULES: Final = {
    "AsyncClient": "mq.client.client",
    "Client": "mq.client.sync.client",
    "Worker": "mq.client.worker.worker",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'mq' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)
