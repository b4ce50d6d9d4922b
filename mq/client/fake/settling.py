"""What becomes of a message that somebody has, or knows by its id: pure."""

from collections.abc import Callable
from typing import TypeAlias

from mq.client.fake.message import Message
from mq.client.fake.queue import Queue
from mq.client.fake.queues import made_sideline
from mq.client.fake.world import World
from mq.model.errors import (
    AlreadySideline,
    DeliveredAgain,
    KeyNotFound,
    MessageNotFound,
    SidelinePurged,
)
from mq.model.history import Event
from mq.model.lifecycle import State
from mq.model.message import Delivery, GivenBack, Reason, Stamp
from mq.model.names import Key, MessageId, QueueName

Precondition: TypeAlias = Callable[[int], bool]


def remove(
    world: World, queue: Queue, message_id: MessageId, if_receives: Precondition | None = None
) -> bool:
    """Deletes a message; false when it was before. Raises MessageNotFound, DeliveredAgain."""
    message = queue.find(message_id)
    if not message.lives:
        return False
    _check(message, if_receives)
    take_away(world, queue, message)
    queue.totals.deleted += 1
    return True


def remove_by_key(
    world: World, queue: Queue, key: Key, if_receives: Precondition | None = None
) -> None:
    """Deletes the message that has the key. Raises KeyNotFound, DeliveredAgain."""
    holder = queue.keys.get(key)
    if holder is None:
        raise KeyNotFound(key.text)
    remove(world, queue, holder.id, if_receives)


def take_away(world: World, queue: Queue, message: Message) -> None:
    """A message that lives is removed."""
    world.move(queue, message, State.REMOVED, message.stamp)
    world.record(queue, message, Event.REMOVED)


def reschedule(
    world: World,
    queue: Queue,
    message_id: MessageId,
    due_in_s: float,
    if_receives: Precondition | None = None,
    given: GivenBack = GivenBack.NO,
) -> Stamp:
    """Has a message be due in so many seconds, 0: ready at once; its new stamp. What was tried as
    often as its queue allows does not come back. `given`: whether its delivery ends with that, and
    is no attempt. Raises MessageNotFound, DeliveredAgain.
    """
    message = _living(queue, message_id)
    _check(message, if_receives)
    now_ms = world.now_ms()
    is_held = message.state is State.DELAYED
    unhandled = given is GivenBack.UNHANDLED
    is_returned = unhandled and is_held and message.stamp.can_return(now_ms)
    is_at_limit = not is_returned and is_at_its_limit(queue, message.stamp.attempts)
    if given is GivenBack.NO and (due_in_s > 0 or is_at_limit):
        queue.totals.extended += 1
    else:
        queue.totals.released += 1
    is_given = is_held and given is not GivenBack.NO
    if is_given and is_at_limit:
        due_in_s = 0.0  # It is to be sidelined, and nothing is waited for.
    if message.state is State.READY and due_in_s <= 0:
        return message.stamp
    stays = due_in_s > 0 or is_at_limit
    stamp = message.stamp.given_back(now_ms + round(due_in_s * 1000), is_returned)
    world.move(queue, message, State.DELAYED if stays else State.READY, stamp)
    event = Event.EXTENDED if stays and not is_given else Event.RELEASED
    world.record(queue, message, event, stamp.due_ms)
    return stamp


def give_back(world: World, delivery: Delivery, unhandled: bool) -> None:
    """What somebody had who is gone is ready again at once, unless something else became of it.
    `unhandled`: no program had it.
    """
    queue = world.queues.get(delivery.queue.text)
    message = None if queue is None else queue.messages.get(delivery.id.text)
    if queue is None or message is None or message.state is not State.DELAYED:
        return
    if message.stamp != delivery.stamp:
        return
    is_returned = unhandled and message.stamp.can_return(world.now_ms())
    is_at_limit = not is_returned and is_at_its_limit(queue, message.stamp.attempts)
    stamp = message.stamp.given_back(world.now_ms(), is_returned)
    world.move(queue, message, State.DELAYED if is_at_limit else State.READY, stamp)
    world.record(queue, message, Event.RELEASED, stamp.due_ms)
    if not is_at_limit:
        queue.totals.released += 1


def sideline(
    world: World,
    name: QueueName,
    message_id: MessageId,
    reason: Reason,
    if_receives: Precondition | None = None,
) -> Stamp:
    """Moves a message to its queue's sideline; its stamp there, also where it was there before.
    Raises AlreadySideline, QueueNotFound, MessageNotFound, DeliveredAgain, SidelinePurged.
    """
    if name.is_sideline:
        raise AlreadySideline(name.text)
    queue = world.queue(name)
    message = queue.messages.get(message_id.text)
    if message is not None and message.lives:
        made_sideline(world, name)  # Also where it is refused then, as the server does.
        _check(message, if_receives)
        stamp = move_to_sideline(world, queue, message, reason)
    else:
        there = world.queues.get(name.sideline().text)
        found = None if there is None else there.messages.get(message_id.text)
        if found is None or not found.lives:
            raise MessageNotFound(message_id.text)
        stamp = found.stamp
    queue.totals.sidelined += 1
    return stamp


def move_to_sideline(world: World, queue: Queue, message: Message, reason: Reason) -> Stamp:
    """A message of the queue that lives is ready in its sideline; its stamp there. Raises
    SidelinePurged: it stays.
    """
    into = made_sideline(world, queue.name)
    now_ms = world.now_ms()
    if into.purge_covers(message.id, now_ms):
        raise SidelinePurged(into.name.text)
    queue.take_out(message)
    message.stamp = Stamp(now_ms, message.stamp.receives, reason)
    message.state = State.READY
    world.settle(into, message)
    world.record(queue, message, Event.SIDELINED, reason=reason.name.lower())
    return message.stamp


def is_at_its_limit(queue: Queue, attempts: int) -> bool:
    """Whether a message was tried as often as its queue allows."""
    return not queue.name.is_sideline and 0 < queue.settings.max_receives <= attempts


def _living(queue: Queue, message_id: MessageId) -> Message:
    message = queue.find(message_id)
    if not message.lives:
        raise MessageNotFound(message_id.text)
    return message


def _check(message: Message, if_receives: Precondition | None) -> None:
    if if_receives is not None and not if_receives(message.stamp.receives):
        raise DeliveredAgain(message.stamp.receives)
