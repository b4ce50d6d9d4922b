"""Requests of one kind that come in one turn of the event loop: together they are one operation of
a queue, with one flush, and each has its own result.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic, NamedTuple, TypeVar

from mq.model.names import QueueName
from mq.store.disk.commit import Committer
from mq.store.disk.steps import Steps

A = TypeVar("A")
R = TypeVar("R")


class Gathering(Generic[A, R]):
    """Use it on the event loop's thread. `operation` does all that requests asked of a queue, and
    returns the result or the error of each.
    """

    def __init__(
        self,
        committer: Committer,
        operation: Callable[[QueueName, Sequence[A]], Steps[Sequence[R | Exception]]],
    ) -> None:
        self._committer = committer
        self._operation = operation
        self._asked: dict[QueueName, list[_Asked[A, R]]] = {}

    def add(
        self, queue: QueueName, asked: A, ended: Callable[[R | BaseException], None]
    ) -> "asyncio.Future[R]":
        """Returns the future that has the result. `ended` is called with it before, also when the
        future was cancelled, which does not stop the operation.
        """
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        gathered = self._asked.get(queue)
        if gathered is None:
            gathered = self._asked[queue] = []
            self._committer.at_turn_end(partial(self._submit, queue))
        gathered.append(_Asked(asked, ended, future))
        return future

    def _submit(self, queue: QueueName) -> None:
        gathered = self._asked.pop(queue)
        operation = self._operation(queue, [each.asked for each in gathered])
        self._committer.submit(operation).add_done_callback(partial(_ended, gathered))


class _Asked(NamedTuple, Generic[A, R]):
    asked: A
    ended: Callable[[R | BaseException], None]
    future: "asyncio.Future[R]"


def _ended(
    gathered: Sequence[_Asked[A, R]], operation: "asyncio.Future[Sequence[R | Exception]]"
) -> None:
    error = operation.exception()
    ends = [error] * len(gathered) if error is not None else operation.result()
    for (_, ended, future), end in zip(gathered, ends, strict=True):
        ended(end)
        if future.done():
            continue
        if isinstance(end, BaseException):
            future.set_exception(end)
            # Its client may have gone; the daemon has done its part.
            future.exception()
        else:
            future.set_result(end)
