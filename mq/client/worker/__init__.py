"""Workers: call handlers with messages, several at a time, in an event loop and threads. See
WORKER.md.

From the top: `worker`, which programs use, `program`, their signals, and `tasks`, functions that
messages call, with their `results`; `running`, one run of a worker; `polling`, `calling`,
`settling`, `reporting`, `supply` and `leases`, which act; `choices`, `handlers`, `verdicts`,
`typed`, `forms` and `dispatching`, which decide and are pure.
"""

from mq.client.worker.calling import CallNext, Exited, Middleware, TimeLimitReached, logged
from mq.client.worker.dispatching import NoHandler
from mq.client.worker.messages import AsyncWorkerMessage, WorkerMessage
from mq.client.worker.tasks import Handle, Task, TaskFailed
from mq.client.worker.verdicts import Backoff, BadBody, BadResult
from mq.client.worker.worker import Worker
from mq.model.recurrence import Cron, Every

__all__ = [
    "AsyncWorkerMessage",
    "Backoff",
    "BadBody",
    "BadResult",
    "CallNext",
    "Cron",
    "Every",
    "Exited",
    "Handle",
    "Middleware",
    "NoHandler",
    "Task",
    "TaskFailed",
    "TimeLimitReached",
    "Worker",
    "WorkerMessage",
    "logged",
]
