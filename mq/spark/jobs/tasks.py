"""Runs a job on Spark: numbered tasks, progress, and readable errors."""

import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeVar

import pyarrow as pa

from mq.model.errors import BadName, MqError, QueueNotFound
from mq.model.names import QueueName
from mq.store.core.root import Root
from mq.store.core.standing import queue_exists

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")
Batches = Iterator[pa.RecordBatch]

# How often the driver checks Spark's progress.
LOOK_S: Final = 0.2

# The last line of a Python traceback, in an error's text that Java's frames follow.
_RAISED: Final = re.compile(r"^(?:[A-Za-z_][\w.]*\.)?([A-Z]\w*): (.+)$", re.MULTILINE)
_TRACEBACK: Final = "Traceback (most recent call last):"
_JAVA: Final = "\n\tat "


def by_numbers(
    spark: "SparkSession", count: int, task: Callable[[int], Batches], columns: str
) -> "DataFrame":
    """The rows of `count` tasks, a partition each, in order. Each task gets its number, from 0 on,
    and yields batches with these columns, in Spark SQL's syntax.
    """

    def tasks(numbers: Batches) -> Batches:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from task(number)

    return spark.range(0, count, 1, count).mapInArrow(tasks, columns)


Amount: TypeAlias = int | Callable[[], int] | None


class Watcher(Protocol):
    """Gets a job's progress, on the thread that runs the job."""

    def began(self, what: str, of: Amount = None) -> None:
        """A step of the job began. `what`: a few words in the present ("lists", "archives batch
        3"); `of`: its number of messages (or names), if known, or a function that counts them,
        which is called only to show the number.
        """

    def advanced(self, by: int) -> None:
        """The job has finished `by` more of the step's messages."""

    def noted(self, text: str) -> None:
        """A line for a person; the job goes on."""


class Unwatched:
    """A watcher that ignores what it gets."""

    def began(self, what: str, of: Amount = None) -> None: ...

    def advanced(self, by: int) -> None: ...

    def noted(self, text: str) -> None: ...


def named_bytes(facts: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A report's fields for JSON, in order; the field of this name becomes `bytes`."""
    return {"bytes" if each == name else each: value for each, value in facts.items()}


def watched(action: Callable[[], T], look: Callable[[], None] = lambda: None) -> T:
    """Runs an action in a thread, while this thread calls `look` now and then. Raises what the
    action raises. An exception in this thread abandons the action, which ends with its session.
    """
    threads = ThreadPoolExecutor(1, thread_name_prefix="mq-spark")
    try:
        running = threads.submit(action)
        while not running.done():
            try:
                return running.result(LOOK_S)
            except TimeoutError:
                look()
        return running.result()
    finally:
        threads.shutdown(wait=False)


@dataclass(eq=False)
class TaskFailed(MqError):
    """Spark gave up the job; the message is that of the failed task."""

    detail: str

    def __str__(self) -> str:
        return self.detail


def said_by_task(error: Exception) -> str:
    """The message of the exception that a Python task raised; else the error's first line."""
    text = str(error)
    _, found, traceback = text.rpartition(_TRACEBACK)
    if found:
        raised = _RAISED.findall(traceback.partition(_JAVA)[0])
        if raised:
            return str(raised[-1][1])
    lines = text.strip().splitlines()
    return lines[0] if lines else type(error).__name__


@dataclass(eq=False)
class NoQueueName(BadName):
    """The text is not a queue name."""

    said: str = ""

    def __str__(self) -> str:
        return f"{self.said!r} is not a queue name: {self.expected}"


def queue_named(said: str) -> QueueName:
    """The queue of this name, which need not exist. Raises NoQueueName."""
    try:
        return QueueName.parse(said)
    except BadName as error:
        raise NoQueueName(error.parameter, error.expected, said) from None


def check_queue_exists(root: Root, queue: QueueName) -> None:
    """Raises QueueNotFound."""
    if not queue_exists(root, queue):
        raise QueueNotFound(queue.text)
