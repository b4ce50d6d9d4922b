"""Workers: handlers of messages, several at a time, in an event loop and in threads. See WORKER.md.

Down from here: `worker`, what programs use; `running`, one run of it; `polling`, `calling`,
`settling` and `leases`, which act; and what they decide by, pure: `verdicts`, `backoff`,
`dispatching`, `scaling`, `supply`, `lease`.
"""

from mq.client.worker.backoff import Backoff
from mq.client.worker.calling import CallNext, Exited, Middleware, TimeLimitReached
from mq.client.worker.dispatching import NoHandler
from mq.client.worker.logged import logged
from mq.client.worker.messages import AsyncWorkerMessage, WorkerMessage
from mq.client.worker.worker import Worker

__all__ = [
    "AsyncWorkerMessage",
    "Backoff",
    "CallNext",
    "Exited",
    "Middleware",
    "NoHandler",
    "TimeLimitReached",
    "Worker",
    "WorkerMessage",
    "logged",
]
