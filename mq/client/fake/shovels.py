"""Shovels: a sideline's messages back to their queue, when asked for or by schedule. Pure.

A run without a rate is over at once; one with a rate goes on as time does.
"""

from collections import Counter, deque
from dataclasses import dataclass

from mq.client.fake.message import Message
from mq.client.fake.queue import Queue
from mq.client.fake.world import World
from mq.model.errors import AlreadySideline, ShovelNotFound, ShovelRunning
from mq.model.history import Event
from mq.model.lifecycle import State
from mq.model.message import Stamp
from mq.model.names import QueueName
from mq.model.shovel import (
    SHOVEL_BATCH_MAX,
    Criteria,
    Found,
    Pacing,
    Progress,
    Record,
    RunState,
    Tally,
    Times,
    Trigger,
    Why,
    due_in_s,
    interval_s,
    why_it_stays,
    why_the_queue_takes_none,
)
from mq.protocol.shovels import Shown, Wanted


@dataclass(slots=True, eq=False)
class Run:
    """A run that goes on."""

    queue: Queue
    criteria: Criteria
    left: deque[Message]
    """What lay in the sideline when it began, and was not looked at yet."""
    tally: Tally
    pacing: Pacing

    @property
    def id(self) -> str:
        """That of its progress."""
        return self.tally.progress.id


def begin(world: World, name: QueueName, wanted: Wanted) -> str:
    """Begins a run; its id. Raises AlreadySideline, QueueNotFound, BadParameter, ShovelRunning."""
    if name.is_sideline:
        raise AlreadySideline(name.text)
    queue = world.queue(name)
    criteria = wanted.criteria(queue.settings)
    return _begin(world, queue, Trigger.REQUEST, criteria, wanted.rate, wanted.dry_run)


def read(world: World, name: QueueName) -> Shown:
    """How a queue's shovel stands. Raises QueueNotFound, ShovelNotFound."""
    queue = world.queue(name)
    run = None if queue.shovel is None else queue.shovel.run
    every_s = None if name.is_sideline else interval_s(queue.settings)
    if run is None and every_s is None:
        raise ShovelNotFound(name.text)
    is_on = run is not None and run.state.is_under_way and run.by is Trigger.SCHEDULED
    if every_s is None or is_on:
        return Shown(run, every_s, None)
    now_ms = world.now_ms()
    next_ms = now_ms + round(due_in_s(every_s, _since_ms(queue), now_ms) * 1000)
    return Shown(run, every_s, next_ms)


def stop(world: World, name: QueueName) -> Shown:
    """Ends the run that goes on; how it is then. Raises QueueNotFound, ShovelNotFound."""
    shown = read(world, name)
    if shown.run is None:
        raise ShovelNotFound(name.text)
    queue = world.queue(name)
    if shown.run.state.is_under_way:
        _end(world, queue, shown.run, RunState.STOPPED)
    return read(world, name)


def watch_schedule(world: World, queue: Queue) -> None:
    """A queue's shovel is to run by itself, where its settings say so."""
    every_s = None if queue.name.is_sideline else interval_s(queue.settings)
    if every_s is None:
        return
    settings, now_ms = queue.settings, world.now_ms()
    world.timers.set(
        now_ms + round(due_in_s(every_s, _since_ms(queue), now_ms) * 1000),
        lambda: not queue.is_gone and queue.settings is settings,
        lambda: _run_scheduled(world, queue),
    )


def _run_scheduled(world: World, queue: Queue) -> None:
    run = None if queue.shovel is None else queue.shovel.run
    is_on = run is not None and run.state.is_under_way
    if not is_on and queue.name.sideline().text in world.queues:
        criteria = Criteria.of(max_receives=queue.settings.shovel_max_receives)
        _begin(world, queue, Trigger.SCHEDULED, criteria, None, False)
        return
    every_s = interval_s(queue.settings) or 0.0
    settings = queue.settings
    world.timers.set(
        world.now_ms() + round(every_s * 1000),
        lambda: not queue.is_gone and queue.settings is settings,
        lambda: _run_scheduled(world, queue),
    )


def _since_ms(queue: Queue) -> int:
    """From when on the schedule counts."""
    record = queue.shovel
    if record is not None and record.scheduled_ms is not None:
        return record.scheduled_ms
    return queue.changed_ms


def _begin(
    world: World,
    queue: Queue,
    by: Trigger,
    criteria: Criteria,
    rate: int | None,
    dry_run: bool,
) -> str:
    record = queue.shovel
    if record is not None and record.run.state.is_under_way:
        raise ShovelRunning(queue.name.text, record.run.id)
    now_ms = world.now_ms()
    progress = Progress(
        world.uuids.next(),
        queue.name.text,
        by,
        now_ms,
        dry_run,
        criteria.as_json(),
        rate,
        queue.settings.shovel_concurrency,
    )
    sideline = world.queues.get(queue.name.sideline().text)
    left = deque(() if sideline is None else sideline.ready)
    tally, pacing = Tally(progress, criteria.limit), Pacing(rate, now_ms / 1000)
    queue.shovel = Record(progress, None if record is None else record.scheduled_ms)
    _go_on(world, Run(queue, criteria, left, tally, pacing))
    return progress.id


def _go_on(world: World, run: Run) -> None:
    """As far as its rate lets it, and again later."""
    now_s = world.now_ms() / 1000
    while run.left:
        if (wait_s := run.pacing.wait_s(now_s)) > 0:
            _tell(run)
            world.timers.set(
                world.now_ms() + max(1, round(wait_s * 1000)),
                lambda: _goes_on(run),
                lambda: _go_on(world, run),
            )
            return
        count = run.tally.room(run.pacing.at_once(SHOVEL_BATCH_MAX))
        if count == 0:
            break
        batch = [run.left.popleft() for _ in range(min(count, len(run.left)))]
        run.tally.takes(len(batch))
        run.pacing.took(len(batch), now_s)
        moved = _move(world, run, batch)
        run.pacing.gave_back(len(batch) - moved)
    _end(world, run.queue, run.tally.progress, RunState.DONE)


def _goes_on(run: Run) -> bool:
    record = run.queue.shovel
    is_it = record is not None and record.run.id == run.id and record.run.state.is_under_way
    return is_it and not run.queue.is_gone


def _tell(run: Run) -> None:
    if run.queue.shovel is not None:
        run.queue.shovel = Record(run.tally.progress, run.queue.shovel.scheduled_ms)


def _end(world: World, queue: Queue, progress: Progress, state: RunState) -> None:
    now_ms = world.now_ms()
    scheduled_ms = None if queue.shovel is None else queue.shovel.scheduled_ms
    is_scheduled = progress.by is Trigger.SCHEDULED
    queue.shovel = Record(progress.ended(state, now_ms), now_ms if is_scheduled else scheduled_ms)
    if is_scheduled:
        watch_schedule(world, queue)


def _move(world: World, run: Run, batch: list[Message]) -> int:
    """How many went, or would have."""
    whys: Counter[Why] = Counter()
    moved, is_dry = 0, run.tally.progress.dry_run
    for message in batch:
        why = _why_not(world, run, message)
        if why is None:
            moved += 1
            if not is_dry:
                _take_back(world, run.queue, message)
        else:
            whys[why] += 1
    lost = whys.pop(Why.GONE, 0)
    run.tally.settles(moved, {why.value: count for why, count in whys.items()}, lost, 0)
    return moved


def _why_not(world: World, run: Run, message: Message) -> Why | None:
    queue, now_ms = run.queue, world.now_ms()
    if (none := why_the_queue_takes_none(queue.settings, now_ms)) is not None:
        return none
    if not run.criteria.selects(message.id.text):
        return Why.NOT_SELECTED
    if message.state is not State.READY or message.queue != queue.name.sideline():
        return Why.GONE
    times = Times(run.tally.progress.began_ms, now_ms)
    found = Found(message.id, message.stamp)
    if (why := why_it_stays(run.criteria, queue.settings, found, times)) is not None:
        return why
    if queue.purge_covers(message.id, now_ms):
        return Why.PURGED
    key = message.id.key
    return Why.KEY_TAKEN if key is not None and key in queue.keys else None


def _take_back(world: World, queue: Queue, message: Message) -> None:
    world.queues[message.queue.text].take_out(message)
    message.stamp = Stamp(world.now_ms(), message.stamp.receives)
    world.settle(queue, message)
    world.record(queue, message, Event.SHOVELLED)
