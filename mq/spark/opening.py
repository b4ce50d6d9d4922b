"""Opens a root for a Spark job, and explains why a publish to it is refused. No Spark here."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mq.model.clock import SystemClock
from mq.model.errors import (
    KeyTaken,
    MqError,
    PublishPurged,
    QueueExpired,
    QueueFull,
    QueueNotFound,
    QueuePaused,
)
from mq.model.names import QueueName
from mq.store.core.clocks import ClockFollower
from mq.store.core.root import Root
from mq.store.core.standing import queue_exists
from mq.store.core.unserved import refuse_publish
from mq.store.disk.files import Files
from mq.store.disk.flush import Flusher
from mq.store.disk.mounts import choose_flusher
from mq.store.opening import attach_root
from mq.store.totals.writing import write_totals

_FLUSH_THREADS: Final = 4


def attached(path: Path | str, files: Files | None = None) -> Root:
    """Opens the root for reading. Raises StartupError if there is none."""
    return attach_root(os.fspath(path), files or Files(), SystemClock())


def following(path: Path | str, files: Files | None = None) -> Root:
    """Opens the root for changes; on a mount, with its server's clock. Raises StartupError if there
    is none.
    """
    clock = SystemClock()
    root = attach_root(os.fspath(path), files or Files(), clock)
    ClockFollower(root, clock).follow()
    return root


def open_for_leases(path: Path) -> tuple[Root, Flusher]:
    """Opens the root, and a flusher for changes. Raises StartupError if there is none."""
    root = following(path)
    return root, choose_flusher(root.layout.root, root.files, _FLUSH_THREADS)


@contextmanager
def opened_root(path: Path) -> Iterator[tuple[Root, Flusher]]:
    """The same for a block of code."""
    root, flusher = open_for_leases(path)
    try:
        yield root, flusher
    finally:
        write_totals(root, at_end=True)
        flusher.close()


@dataclass(eq=False)
class PublishFailed(MqError):
    """A publish that cannot be committed; none of it is published."""

    detail: str

    def __str__(self) -> str:
        return f"mq: nothing was published: {self.detail}"


def check_queue(root: Root, queue: QueueName | None) -> None:
    """Raises PublishFailed if a named queue does not exist, has expired, or is paused."""
    if queue is None:
        return
    if not queue_exists(root, queue):
        raise explained(QueueNotFound(queue.text))
    try:
        refuse_publish(root, queue, root.facts.settings(queue))
    except (QueueExpired, QueuePaused) as error:
        raise explained(error) from error


def explained(error: MqError) -> MqError:
    """Turns an error of a publish into PublishFailed, in plain words; returns other errors as they
    are.
    """
    match error:
        case QueueNotFound():
            detail = f"there is no queue {error.queue}"
        case QueueExpired():
            detail = f"the queue {error.queue} has expired at {error.expired_at}"
        case QueuePaused():
            detail = f"the setting paused of the queue {error.queue} refuses publishes"
        case QueueFull():
            detail = (
                f"the queue {error.queue} has no room for all messages: its settings messages_max "
                f"and bytes_max are {error.messages_max} and {error.bytes_max} (0: no limit)"
            )
        case KeyTaken():
            taken = f"key {error.key!r} is taken by message {error.id}"
            detail = f"{taken} (onKeyTaken=skip passes such rows by)"
        case PublishPurged():
            detail = "a queue was purged since its messages were written; publish again"
        case _:
            return error
    return PublishFailed(detail)
