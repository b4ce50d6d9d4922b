"""Many messages in one request: parted into what is done at a time, so that what they hold is
bounded, with an end for each.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

from mq.broker.broker import Broker
from mq.broker.queue import Queue
from mq.model.errors import BodyTooLarge, MqError, QueueExpired, QueueNotFound
from mq.model.limits import (
    BATCH_BYTES_MAX,
    BATCH_GROUP_MESSAGES,
    BODY_HELD_BYTES_MAX,
    COHORT_FIRST,
    COHORT_MAX,
)
from mq.model.message import Delivery, Envelope
from mq.model.names import MessageId, QueueName
from mq.model.selection import Selection

Published: TypeAlias = MessageId | Exception
"""What became of one message: its id, or why it was not published."""

_LEAST_BYTES: Final = 1


async def publish_many(
    broker: Broker, name: QueueName, bodies: Sequence[bytes], envelope: Envelope
) -> list[Published]:
    """Publishes the messages, in their order; what became of each. One that is larger than the
    queue takes is refused by itself. Raises QueueNotFound when it is gone before any was
    published. Durable: each that has an id.

    A caller that is cancelled stops it between two groups.
    """
    queue = await broker.queue(name)
    bytes_max = broker.keeper.usable(queue).body_bytes_max
    ends: list[Published] = [BodyTooLarge(bytes_max)] * len(bodies)
    fit = [number for number, body in enumerate(bodies) if len(body) <= bytes_max]
    for first in range(0, len(fit), BATCH_GROUP_MESSAGES):
        numbers = fit[first : first + BATCH_GROUP_MESSAGES]
        group = [bodies[number] for number in numbers]
        found = await _group(broker, queue, group, envelope)
        for number, end in zip(numbers, found, strict=True):
            ends[number] = end
    _raise_without_queue(ends)
    return ends


async def _group(
    broker: Broker, queue: Queue, bodies: Sequence[bytes], envelope: Envelope
) -> Sequence[Published]:
    try:
        return await broker.publisher.group(queue, bodies, envelope)
    except Exception as error:
        return [error] * len(bodies)


async def fetch_many(
    broker: Broker,
    name: QueueName,
    count: int,
    visibility_s: float | None = None,
    wait_s: float = 0,
    selection: Selection | None = None,
) -> list[Delivery]:
    """Claims the queue's next messages (None: of whatever selection), at most `count` and not many
    more than BATCH_BYTES_MAX of bodies, nor than there is room for in memory, in their order; none
    when nothing is ready, nor becomes so within `wait_s`.

    Raises what `Consuming.fetch` does, but once something was claimed ends with that. A caller that
    is cancelled gets nothing, and what was claimed is released. Durable: yes.
    """
    queue = await broker.queue(name)
    found: list[Delivery] = []
    try:
        if await _claim(queue, found, count, visibility_s, selection) or found or not wait_s:
            return found
        delivery = await broker.consuming.fetch(name, visibility_s, wait_s, selection)
        if delivery is not None:
            found.append(delivery)
            await _claim(await broker.queue(name), found, count, visibility_s, selection)
    except MqError:
        if not found:
            raise
    except BaseException:
        give_back(queue, found)
        raise
    return found


def give_back(queue: Queue, deliveries: Sequence[Delivery]) -> None:
    """Releases, in the background, what nobody took."""
    for delivery in deliveries:
        queue.give_back(delivery)


async def _claim(
    queue: Queue,
    found: list[Delivery],
    count: int,
    visibility_s: float | None,
    selection: Selection | None,
) -> bool:
    """Claims what is there, a cohort at a time, no more of them than what was found so far says
    that there is room for; false when there was no more.
    """
    size, largest, wanted = 0, 0, COHORT_FIRST
    for delivery in found:
        size, largest = size + delivery.size, max(largest, delivery.size)
    while len(found) < count and size < BATCH_BYTES_MAX:
        wanted = min(wanted, count - len(found))
        claimed = await _cohort(queue, wanted, visibility_s, selection, found)
        if claimed < wanted:
            return False
        if any(_passes_through(delivery) for delivery in found[-claimed:]):
            return True  # Each has its file open: nobody is to have many.
        for delivery in found[-claimed:]:
            size, largest = size + delivery.size, max(largest, delivery.size)
        fitting = (BATCH_BYTES_MAX - size) // max(largest, _LEAST_BYTES)
        wanted = max(1, min(COHORT_MAX, fitting))
    return True


def _passes_through(delivery: Delivery) -> bool:
    """Whether there was no room in memory for a body that might be held."""
    return delivery.body is None and delivery.size <= BODY_HELD_BYTES_MAX


async def _cohort(
    queue: Queue,
    wanted: int,
    visibility_s: float | None,
    selection: Selection | None,
    found: list[Delivery],
) -> int:
    """Claims so many at once, adds them to `found` in their order; how many there were. Raises
    what a claim failed with, the others being among those that were found.
    """
    futures = [queue.begin_fetch(visibility_s, selection) for _ in range(wanted)]
    try:
        await asyncio.wait(futures)
    except asyncio.CancelledError:
        for future in futures:
            queue.abandon(future)
        raise
    before = len(found)
    errors = [error for future in futures if (error := future.exception()) is not None]
    found += [
        delivery
        for future in futures
        if future.exception() is None and (delivery := future.result()) is not None
    ]
    if errors:
        raise errors[0]
    return len(found) - before


async def remove_many(
    broker: Broker, name: QueueName, ids: Sequence[MessageId]
) -> dict[MessageId, BaseException | None]:
    """Deletes the messages together, each once; what each ended with, None when it is gone.
    Raises QueueNotFound when the queue is. Durable: each that is gone.
    """
    await broker.queue(name)
    futures = {message_id: broker.begin_remove(name, message_id) for message_id in ids}
    await asyncio.wait(futures.values())
    ends = {message_id: future.exception() for message_id, future in futures.items()}
    _raise_without_queue(ends.values())
    return ends


def _raise_without_queue(ends: Iterable[object]) -> None:
    """Raises QueueNotFound, or QueueExpired, when that is what all of them ended with."""
    error = None
    for error in ends:
        if not isinstance(error, QueueNotFound | QueueExpired):
            return
    if isinstance(error, QueueNotFound | QueueExpired):
        raise error
