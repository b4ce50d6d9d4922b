"""Requests for queues' schedules. mq keeps them; mq-mover fires them."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from mq.broker.broker import Broker
from mq.broker.turns import Turns
from mq.model.names import QueueName, ScheduleName
from mq.model.schedule import Armed, Schedule
from mq.store.schedules.schedules import (
    Listed,
    delete_schedule,
    list_schedules,
    put_schedule,
    read_schedule,
)

T = TypeVar("T")


class Timetable:
    """The schedules of a broker's queues. Create and use it on the event loop's thread."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._root = broker.root
        self._committer = broker.committer
        self._turns = Turns()

    async def put(
        self, queue: QueueName, name: ScheduleName, schedule: Schedule
    ) -> tuple[Armed, bool]:
        """Creates or changes a schedule. Returns its state, and whether it is new. Raises
        QueueNotFound, TooManySchedules, DueTooFar, Unavailable. Durable on return: yes.
        """
        return await self._to_the_end(
            lambda: self._committer.commit_alone(put_schedule(self._root, queue, name, schedule))
        )

    async def delete(self, queue: QueueName, name: ScheduleName) -> None:
        """Deletes a schedule; its messages stay. Raises QueueNotFound, ScheduleNotFound,
        Unavailable. Durable on return: yes.
        """
        await self._to_the_end(
            lambda: self._committer.commit_alone(delete_schedule(self._root, queue, name))
        )

    async def read(self, queue: QueueName, name: ScheduleName) -> Armed:
        """A schedule and its state. Raises QueueNotFound, ScheduleNotFound, Unavailable."""
        return await self._committer.call(read_schedule, self._root, queue, name)

    async def all_of(self, queue: QueueName) -> list[Listed]:
        """The queue's schedules, by name. Raises QueueNotFound, Unavailable."""
        return await self._committer.call(list_schedules, self._root, queue)

    async def _to_the_end(self, operation: Callable[[], Awaitable[T]]) -> T:
        """Completes the operation when the caller is cancelled."""
        return await asyncio.shield(self._broker.begin(self._turns.take(operation)))
