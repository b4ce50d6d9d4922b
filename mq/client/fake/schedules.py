"""Schedules: made, read, fired at their times. Pure."""

from mq.client.fake.limits import FIRING_AGAIN_MS
from mq.client.fake.publishing import deliver
from mq.client.fake.queue import Queue
from mq.client.fake.world import World
from mq.model.errors import KeyTaken, MqError, ScheduleNotFound, TooManySchedules
from mq.model.headers import print_block
from mq.model.limits import SCHEDULES_PER_QUEUE_MAX
from mq.model.names import MessageId, ScheduleName
from mq.model.schedule import Armed, Schedule


def put(world: World, queue: Queue, name: ScheduleName, schedule: Schedule) -> tuple[Armed, bool]:
    """Has the queue have this schedule; as it is now, and whether there was none of that name. One
    that says the same is left as it is. Raises TooManySchedules.
    """
    known = queue.schedules.get(name.text)
    if known is not None and known.schedule == schedule:
        return known, False
    if known is None and len(queue.schedules) >= SCHEDULES_PER_QUEUE_MAX:
        raise TooManySchedules(SCHEDULES_PER_QUEUE_MAX)
    armed = schedule.armed(world.now_ms())
    _arm(world, queue, name, armed)
    return armed, known is None


def read(queue: Queue, name: ScheduleName) -> Armed:
    """A schedule as it is now. Raises ScheduleNotFound."""
    armed = queue.schedules.get(name.text)
    if armed is None:
        raise ScheduleNotFound(name.text)
    return armed


def delete(queue: Queue, name: ScheduleName) -> None:
    """Takes a schedule away. Raises ScheduleNotFound."""
    read(queue, name)
    del queue.schedules[name.text]


def _arm(world: World, queue: Queue, name: ScheduleName, armed: Armed) -> None:
    queue.schedules[name.text] = armed
    if armed.next_ms is not None:
        _watch(world, queue, name, armed, armed.next_ms)


def _watch(world: World, queue: Queue, name: ScheduleName, armed: Armed, ms: int) -> None:
    world.timers.set(
        ms,
        lambda: not queue.is_gone and queue.schedules.get(name.text) is armed,
        lambda: _fire(world, queue, name, armed),
    )


def _fire(world: World, queue: Queue, name: ScheduleName, armed: Armed) -> None:
    schedule, now_ms = armed.schedule, world.now_ms()
    if schedule.overlap == "skip" and armed.last is not None:
        last = queue.messages.get(armed.last.text)
        if last is not None and last.lives:
            _arm(world, queue, name, armed.skipped_at(now_ms))
            return
    try:
        queue.check_life(now_ms)
        message_id = _id(world, queue, schedule)
        deliver(world, queue, message_id, schedule.body, schedule.headers, None)
    except KeyTaken:
        _arm(world, queue, name, armed.skipped_at(now_ms))
    except MqError:
        # The queue has expired, or there is no room: it waits, and is late then.
        _watch(world, queue, name, armed, now_ms + FIRING_AGAIN_MS)
    else:
        _arm(world, queue, name, armed.fired_at(now_ms, message_id))


def _id(world: World, queue: Queue, schedule: Schedule) -> MessageId:
    priority = schedule.priority
    return MessageId(
        world.uuids.next(),
        queue.settings.priority_default if priority is None else priority,
        schedule.key,
        schedule.visibility_s,
        len(print_block(schedule.headers)),
        schedule.extension,
    )
