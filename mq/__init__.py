"""mq: a durable HTTP message queue whose broker is a file system."""

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from mq.client.client import AsyncClient
    from mq.client.sync import Client
    from mq.client.worker.messages import AsyncWorkerMessage, WorkerMessage
    from mq.client.worker.worker import Worker

__version__ = "0.1.0"
__all__ = ["AsyncClient", "AsyncWorkerMessage", "Client", "Worker", "WorkerMessage", "__version__"]

# Imported when first used: a program that uses a part of mq does not load the client.
_MODULES: Final = {
    "AsyncClient": "mq.client.client",
    "AsyncWorkerMessage": "mq.client.worker.messages",
    "Client": "mq.client.sync",
    "Worker": "mq.client.worker.worker",
    "WorkerMessage": "mq.client.worker.messages",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'mq' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
