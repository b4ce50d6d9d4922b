"""Errors of jobs in words for people: of a task, out of the error that the driver gets, and of
queues.
"""

import re
from dataclasses import dataclass
from typing import Final

from mq.model.errors import BadName, MqError, QueueNotFound
from mq.model.names import QueueName

# The last line of a traceback, in the text of an error that has Java's own behind it.
_RAISED: Final = re.compile(r"^(?:[A-Za-z_][\w.]*\.)?([A-Z]\w*): (.+)$", re.MULTILINE)
_TRACEBACK: Final = "Traceback (most recent call last):"
_JAVA: Final = "\n\tat "


@dataclass(eq=False)
class TaskFailed(MqError):
    """A job that Spark gave up, in the words of the task that failed."""

    detail: str

    def __str__(self) -> str:
        return self.detail


def said_by_task(error: Exception) -> str:
    """The message of the exception that a Python task raised; else the error's first line."""
    text = str(error)
    _, found, told = text.rpartition(_TRACEBACK)
    if found:
        raised = _RAISED.findall(told.partition(_JAVA)[0])
        if raised:
            return str(raised[-1][1])
    lines = text.strip().splitlines()
    return lines[0] if lines else type(error).__name__


@dataclass(eq=False)
class NoSuchQueue(QueueNotFound):
    """A queue that is not there."""

    def __str__(self) -> str:
        return f"there is no queue {self.queue}"


@dataclass(eq=False)
class NoQueueName(BadName):
    """What was said to be a queue's name, and is none."""

    said: str = ""

    def __str__(self) -> str:
        return f"{self.said!r} is no queue's name: {self.expected}"


def queue_named(said: str) -> QueueName:
    """The queue of this name, which may be there or not. Raises NoQueueName."""
    try:
        return QueueName.parse(said)
    except BadName as error:
        raise NoQueueName(error.parameter, error.expected, said) from None
