"""Publishing many messages in one request. A batch is processed in groups, so that it uses bounded
memory, and each of its messages gets a result of its own.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from mq.broker.broker import Broker
from mq.broker.queue import Queue
from mq.model.errors import (
    BadParameter,
    BodyTooLarge,
    MqError,
    NotPacked,
    QueueExpired,
    QueueFull,
    QueueNotFound,
    QueuePaused,
    Unavailable,
)
from mq.model.headers import print_block
from mq.model.limits import PACK_MESSAGES_MIN, ROW_BYTES_MAX
from mq.model.message import Envelope, Posted
from mq.model.names import MessageId, QueueName
from mq.model.packs import cut

# A batch is published in groups of this many messages: each group is one operation that has all its
# files open.
BATCH_GROUP_MESSAGES: Final = 128
# Rows that may share files are parsed and published in groups of this many.
PACKED_GROUP_MESSAGES: Final = 1000

Published: TypeAlias = MessageId | Exception
"""The result of one message: its id, or the error."""

_UNSENT: Final = Unavailable("not published yet")
# If all messages of a request fail with one of these, the request does.
_OF_THE_QUEUE: Final = (QueueNotFound, QueueExpired, QueuePaused, QueueFull)


async def publish_many(
    broker: Broker,
    name: QueueName,
    bodies: Sequence[bytes],
    envelope: Envelope,
    in_packs: bool = False,
) -> list[Published]:
    """Publishes the messages in their order. Returns the result of each. A message that is too
    large for the queue fails alone. Raises QueueNotFound when the queue is gone before the first
    publish. Durable on return: each message with an id. `in_packs`: messages share files, as far as
    the queue allows.

    A cancelled caller stops the batch between two groups.
    """
    queue = await broker.queue(name)
    bytes_max = broker.refresher.usable(queue).body_bytes_max
    ends: list[Published] = [BodyTooLarge(bytes_max)] * len(bodies)
    fit = [number for number, body in enumerate(bodies) if len(body) <= bytes_max]
    pack_max = _pack_max(queue, envelope) if in_packs else 0
    first = 0
    for files in _files([len(bodies[number]) for number in fit], envelope, pack_max):
        numbers = fit[first : first + sum(files)]
        first += len(numbers)
        group = [bodies[number] for number in numbers]
        found = await _group(broker, queue, group, envelope, files)
        for number, end in zip(numbers, found, strict=True):
            ends[number] = end
    _raise_without_queue(ends)
    return ends


async def publish_pack(
    broker: Broker, name: QueueName, bodies: Sequence[bytes], envelope: Envelope
) -> list[MessageId]:
    """Publishes the messages, which have an idempotency key together, as one pack: all or none.
    Returns their ids, also those of an earlier publish with the same key.

    Raises BodyTooLarge, BadParameter for more than a pack, and NotPacked where the queue takes no
    packs, unless there was an earlier publish; PublishDiffers if that was of another number of
    messages; and what a publish does. Durable on return: yes.
    """
    queue = await broker.queue(name)
    settings = broker.refresher.usable(queue)
    refusal: MqError | None = None
    if max(map(len, bodies)) > settings.body_bytes_max:
        refusal = BodyTooLarge(settings.body_bytes_max)
    elif len(bodies) > 1 and _pack_max(queue, envelope) < PACK_MESSAGES_MIN:
        refusal = NotPacked(name.text)
    elif len(next(_files(list(map(len, bodies)), envelope, _pack_max(queue, envelope)))) > 1:
        refusal = BadParameter(
            "pack", "given with an Idempotency-Key only where the messages are one pack"
        )
    return await broker.publisher.pack(queue, bodies, envelope, refusal)


def _pack_max(queue: Queue, envelope: Envelope) -> int:
    """How many messages of this envelope may share a file of the queue; below 2: none."""
    may_share = _may_share(envelope) and queue.settings.takes_packs
    return queue.settings.pack_messages_max if may_share else 0


def _may_share(envelope: Envelope) -> bool:
    """Whether messages of this envelope may share a file: they differ in their bodies alone."""
    has_own = envelope.key or envelope.group or envelope.ttl_s or envelope.tags
    return not has_own


def _files(sizes: Sequence[int], envelope: Envelope, pack_max: int) -> Iterator[list[int]]:
    """How many messages each next file has, in groups of files that are published together, which
    bounds the memory of a batch.
    """
    if pack_max < PACK_MESSAGES_MIN:
        for first in range(0, len(sizes), BATCH_GROUP_MESSAGES):
            yield [1] * min(BATCH_GROUP_MESSAGES, len(sizes) - first)
        return
    runs = cut(sizes, len(print_block(envelope.headers)) if envelope.headers else 0, pack_max)
    for first in range(0, len(runs), BATCH_GROUP_MESSAGES):
        yield runs[first : first + BATCH_GROUP_MESSAGES]


async def publish_rows(
    broker: Broker,
    name: QueueName,
    lines: Sequence[bytes],
    read: Callable[[bytes], Posted],
    in_packs: bool = False,
) -> list[Published]:
    """Like `publish_many`, for messages with an envelope each. `read` parses a line; an MqError
    that it raises concerns that line alone. Durable on return: each message with an id. `in_packs`:
    neighbours of one envelope share files, as far as the queue allows.
    """
    queue = await broker.queue(name)
    bytes_max = broker.refresher.usable(queue).body_bytes_max
    ends: list[Published] = []
    for group in _groups(lines, PACKED_GROUP_MESSAGES if in_packs else BATCH_GROUP_MESSAGES):
        fit: list[Posted] = []
        numbers = []
        for line in group:
            try:
                posted = read(line)
                if len(posted.body) > bytes_max:
                    raise BodyTooLarge(bytes_max)
            except MqError as error:
                ends.append(error)
            else:
                numbers.append(len(ends))
                ends.append(_UNSENT)
                fit.append(posted)
        if fit and in_packs:
            found: Sequence[Published] = await _packed_rows(broker, queue, fit)
        else:
            found = await _rows(broker, queue, fit) if fit else ()
        for number, end in zip(numbers, found, strict=True):
            ends[number] = end
    _raise_without_queue(ends)
    return ends


async def _packed_rows(broker: Broker, queue: Queue, rows: Sequence[Posted]) -> list[Published]:
    """Publishes rows in their order: neighbours of one envelope in packs, others as rows."""
    ends: list[Published] = []
    for envelope, alike in itertools.groupby(rows, key=_envelope_of_packs):
        run = list(alike)
        pack_max = 0 if envelope is None else _pack_max(queue, envelope)
        if envelope is None or pack_max < PACK_MESSAGES_MIN or len(run) < PACK_MESSAGES_MIN:
            for first in range(0, len(run), BATCH_GROUP_MESSAGES):
                ends += await _rows(broker, queue, run[first : first + BATCH_GROUP_MESSAGES])
            continue
        bodies = [each.body for each in run]
        for files in _files(list(map(len, bodies)), envelope, pack_max):
            part, bodies = bodies[: sum(files)], bodies[sum(files) :]
            ends += await _group(broker, queue, part, envelope, files)
    return ends


def _envelope_of_packs(row: Posted) -> Envelope | None:
    """The row's envelope; None: it needs a file of its own."""
    envelope = row.envelope
    return envelope if _may_share(envelope) and envelope.idempotency is None else None


def _groups(lines: Sequence[bytes], most: int) -> Iterator[Sequence[bytes]]:
    """Splits the lines into groups of at most `most` that are parsed and published together, which
    bounds the memory of a batch.
    """
    group: list[bytes] = []
    size = 0
    for line in lines:
        if group and (len(group) == most or size + len(line) > ROW_BYTES_MAX):
            yield group
            group, size = [], 0
        group.append(line)
        size += len(line)
    if group:
        yield group


async def _rows(broker: Broker, queue: Queue, rows: Sequence[Posted]) -> Sequence[Published]:
    try:
        return await broker.publisher.rows(queue, rows)
    except Exception as error:
        return [error] * len(rows)


async def _group(
    broker: Broker, queue: Queue, bodies: Sequence[bytes], envelope: Envelope, files: Sequence[int]
) -> Sequence[Published]:
    try:
        if len(files) < len(bodies):
            return await broker.publisher.packs(queue, bodies, envelope, files)
        return await broker.publisher.group(queue, bodies, envelope)
    except Exception as error:
        return [error] * len(bodies)


def _raise_without_queue(ends: Iterable[object]) -> None:
    """Raises the error if it concerns the queue and all messages ended with it."""
    error = None
    for error in ends:
        if not isinstance(error, _OF_THE_QUEUE):
            return
    if isinstance(error, _OF_THE_QUEUE):
        raise error
