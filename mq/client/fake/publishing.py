"""Publishing: pure."""

from mq.client.fake.limits import ONCES_MAX
from mq.client.fake.message import Message
from mq.client.fake.queue import Once, Queue
from mq.client.fake.world import World
from mq.model.errors import BodyTooLarge, KeyTaken
from mq.model.headers import Headers, print_block
from mq.model.history import Event
from mq.model.lifecycle import State
from mq.model.message import Envelope, Stamp
from mq.model.names import Key, MessageId


def publish(world: World, queue: Queue, body: bytes, envelope: Envelope) -> MessageId:
    """Publishes a message, or finds that it was before, by its idempotency key. Raises
    QueueExpired, KeyTaken, NoMemory.
    """
    now_ms = world.now_ms()
    queue.check_life(now_ms)
    once = envelope.idempotency
    if once is not None and (first := _first(queue, once, now_ms)) is not None:
        return first
    message_id = _id(world, queue, envelope)
    due_ms = envelope.due_ms
    due_ms = due_ms if due_ms is not None and due_ms > now_ms else None
    deliver(world, queue, message_id, body, envelope.headers, due_ms)
    if once is not None:
        queue.onces[once] = Once(message_id, now_ms)
        if len(queue.onces) > ONCES_MAX:
            del queue.onces[next(iter(queue.onces))]
    queue.totals.published += 1
    return message_id


def publish_each(
    world: World, queue: Queue, bodies: list[bytes], envelope: Envelope
) -> list[MessageId | BodyTooLarge]:
    """Publishes several, in their order; one that is too large is refused by itself. Raises
    QueueExpired, NoMemory.
    """
    bytes_max = queue.settings.body_bytes_max
    return [
        publish(world, queue, body, envelope) if len(body) <= bytes_max else BodyTooLarge(bytes_max)
        for body in bodies
    ]


def deliver(
    world: World,
    queue: Queue,
    message_id: MessageId,
    body: bytes,
    headers: Headers,
    due_ms: int | None,
) -> None:
    """A message comes to its queue, ready, or when it is due. Raises KeyTaken, NoMemory."""
    key = message_id.key
    if key is not None and (holder := queue.keys.get(key)) is not None:
        raise KeyTaken(key.text, holder.id.text)
    world.admit()
    state = State.READY if due_ms is None else State.DELAYED
    stamp = Stamp(message_id.published_ms if due_ms is None else due_ms)
    message = Message(queue.name, message_id, body, headers, state, stamp)
    world.arrive(queue, message)
    world.record(queue, message, Event.PUBLISHED, due_ms)


def _first(queue: Queue, key: Key, now_ms: int) -> MessageId | None:
    """The first publish of the key, where that is not too long ago."""
    first = queue.onces.get(key)
    if first is None:
        return None
    if now_ms - first.at_ms < queue.settings.idempotency_s * 1000:
        return first.id
    del queue.onces[key]
    return None


def _id(world: World, queue: Queue, envelope: Envelope) -> MessageId:
    priority = envelope.priority
    return MessageId(
        world.uuids.next(),
        queue.settings.priority_default if priority is None else priority,
        envelope.key,
        envelope.visibility_s,
        len(print_block(envelope.headers)),
        envelope.extension,
    )
