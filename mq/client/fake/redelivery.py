"""What time does to messages and queues: they come back, expire, and end. Pure."""

from mq.client.fake.message import Message
from mq.client.fake.queue import Queue
from mq.client.fake.settling import is_at_its_limit, move_to_sideline, take_away
from mq.client.fake.world import World
from mq.model.errors import QueueExpired, SidelinePurged
from mq.model.expiry import Life, has_expired, life_of, next_change_ms
from mq.model.history import Event
from mq.model.lifecycle import State
from mq.model.limits import PURGE_MARK_KEPT_S
from mq.model.message import Reason
from mq.model.settings import SIDELINE
from mq.model.upkeep_limits import QUEUE_EXPIRY_EVERY_S


def redeliver(world: World, message: Message) -> None:
    """A delayed message is due: it comes back, but where it has expired, or was received as often
    as its queue allows.
    """
    queue = world.queues[message.queue.text]
    ttl_s, now_ms = queue.settings.message_ttl_s, world.now_ms()
    if has_expired(message.id.published_ms, ttl_s, now_ms):
        expire(world, message)
        return
    if is_at_its_limit(queue, message.stamp.attempts):
        _sideline(world, queue, message, Reason.RECEIVES)
        return
    world.move(queue, message, State.READY, message.stamp)
    world.record(queue, message, Event.REDELIVERED)


def expire(world: World, message: Message) -> None:
    """A message may have lived as long as its queue's messages do: then it is taken away."""
    queue = world.queues[message.queue.text]
    settings = queue.settings
    if not has_expired(message.id.published_ms, settings.message_ttl_s, world.now_ms()):
        return
    if settings.expired_to == SIDELINE and not queue.name.is_sideline:
        _sideline(world, queue, message, Reason.EXPIRED)
        return
    take_away(world, queue, message)


def _sideline(world: World, queue: Queue, message: Message, reason: Reason) -> None:
    """Where the sideline was purged since, it waits until that is forgotten."""
    try:
        move_to_sideline(world, queue, message, reason)
    except SidelinePurged:
        state, stamp = message.state, message.stamp
        act = redeliver if state is State.DELAYED else expire
        world.timers.set(
            world.now_ms() + round(PURGE_MARK_KEPT_S * 1000),
            lambda: queue.has(message, state) and message.stamp == stamp,
            lambda: act(world, message),
        )


def watch_life(world: World, queue: Queue) -> None:
    """A queue that has an end is to be looked at when that is."""
    change_ms = next_change_ms(queue.settings, world.now_ms())
    settings = queue.settings
    if change_ms is not None:
        world.timers.set(
            change_ms,
            lambda: not queue.is_gone and queue.settings is settings,
            lambda: look_at_life(world, queue),
        )


def look_at_life(world: World, queue: Queue) -> None:
    """A queue's time may be over: who waits there hears it, and after its grace it is deleted."""
    settings, now_ms = queue.settings, world.now_ms()
    life = life_of(settings, now_ms)
    if life is not Life.LIVES:
        queue.takers.fail_all(QueueExpired(queue.name.text, settings.expires_at or ""))
    if life is Life.OVER:
        # What was over before its settings said so goes at the next turn of who looks for it.
        ends_ms = next_change_ms(settings, now_ms - 1)
        world.timers.set(
            now_ms + (0 if ends_ms == now_ms else round(QUEUE_EXPIRY_EVERY_S * 1000)),
            lambda: not queue.is_gone and queue.settings is settings,
            lambda: world.forget(queue),
        )
    watch_life(world, queue)
