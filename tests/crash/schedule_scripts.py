"""Schedules: put, replaced, taken away and fired, each in a script like those of `scripts.py`."""

import contextlib
import itertools
import os
from collections.abc import Callable
from dataclasses import replace

from crash.recovery import FIRES_EVERY_S
from crash.registry import script
from crash.stage import HOURS_S, ORDERS, Stage
from harness.faults import CrashingFiles, Died
from harness.messages import make_body, new_id

from mq.model.errors import ScheduleNotFound
from mq.model.limits import MESSAGE_TTL_S_MAX
from mq.model.message import Stamp
from mq.model.names import Group, Key, QueueName, ScheduleName, UuidSource
from mq.model.recurrence import Every
from mq.model.schedule import After, Armed, Schedule
from mq.store.core.root import Root
from mq.store.disk.files import Files
from mq.store.disk.flush import FsyncFlusher
from mq.store.disk.group import run_alone, run_group
from mq.store.disk.steps import Steps
from mq.store.opening import root_of
from mq.store.schedules.firing import Firing, fire, rearm
from mq.store.schedules.line import print_schedule
from mq.store.schedules.schedules import delete_schedule, put_schedule
from mq_mover.scheduler import Scheduler

QUEUE, NAME = QueueName(ORDERS), ScheduleName("nightly")
# No message that clients publish has such a number.
_NUMBERS = itertools.count(1000)


def _fire(root: Root) -> Steps[Firing]:
    return fire(root, UuidSource(root.clock), QUEUE, NAME)


def schedule(number: int, count: int = 1, key: Key | None = None, after: After = "due") -> Schedule:
    body = make_body(number, 100)
    return Schedule(Every(FIRES_EVERY_S), count=count, body=body, key=key, after=after)


async def _put(
    on: Stage, count: int = 1, key: str = "", after: After = "due", tag: str = ""
) -> int:
    """By a client; the number of its body."""
    number = next(_NUMBERS)
    on.disk.mark("schedule_asked", queue=ORDERS, name=NAME.text, number=number, count=count)
    said = schedule(number, count, Key.parse(key) if key else None, after)
    if tag:
        said = replace(said, ttl_s=MESSAGE_TTL_S_MAX, group=Group(tag), tags=(Key.parse(tag),))
    await on.other(lambda root, flusher: run_alone(put_schedule(root, QUEUE, NAME, said), flusher))
    on.disk.mark("schedule_told", queue=ORDERS, name=NAME.text, number=number, count=count)
    return number


async def _taken_away(on: Stage, work: Callable[[Root, FsyncFlusher], object]) -> None:
    on.disk.mark("schedule_asked", queue=ORDERS, name=NAME.text, number=None)
    await on.other(work)
    on.disk.mark("schedule_told", queue=ORDERS, name=NAME.text, number=None)


async def _fired(on: Stage) -> None:
    """What is due, by an mq-mover."""
    on.disk.pass_time(FIRES_EVERY_S)
    await on.other(lambda root, flusher: Scheduler(root, flusher).run_once())


def _dies(on: Stage, root: Root, begin: Callable[[Root], Steps[object]], flushes: int) -> None:
    """Another begins it: so many of its flushes are made, and it dies while it waits for one."""
    files = CrashingFiles()
    flusher = FsyncFlusher(files, 1)
    steps = begin(root_of(root.layout, files, root.clock, folder_max=on.folder_max))
    session = flusher.session()
    for _ in range(flushes):
        session.begin()
        assert not session.flush({0: next(steps)})
    next(steps)
    files.is_dead = True
    steps.close()
    session.rest()
    flusher.close()


@script()
async def put(on: Stage) -> None:
    """Made, replaced, and said again."""
    await on.begin(ORDERS)
    await _put(on)
    number = await _put(on)
    said = schedule(number)
    await on.other(lambda root, flusher: run_alone(put_schedule(root, QUEUE, NAME, said), flusher))


@script()
async def put_in_what_another_made(on: Stage) -> None:
    """The queue, and died before it flushed that."""
    await on.start()
    on.known()

    def work(root: Root, flusher: FsyncFlusher) -> None:
        (on.root / "queues" / ORDERS).mkdir(mode=0o700)
        run_alone(put_schedule(root, QUEUE, NAME, schedule(number)), flusher)

    number = next(_NUMBERS)
    on.disk.mark("make_asked", queue=ORDERS)
    on.disk.mark("schedule_asked", queue=ORDERS, name=NAME.text, number=number, count=1)
    await on.other(work)
    on.disk.mark("schedule_told", queue=ORDERS, name=NAME.text, number=number, count=1)


@script()
async def put_what_another_put(on: Stage) -> None:
    """Which died before it flushed that: the same again is answered once it is."""
    await on.begin(ORDERS)
    number = next(_NUMBERS)

    def work(root: Root, flusher: FsyncFlusher) -> None:
        path = on.root / "schedules" / f"{ORDERS}:{NAME.text}"
        written = path.with_name(".written")
        descriptor = os.open(written, os.O_CREAT | os.O_WRONLY, 0o600)
        os.write(descriptor, print_schedule(Armed(schedule(number), None)))
        due_ms = root.now_ms() + round(FIRES_EVERY_S * 1000)
        os.utime(descriptor, ns=(Stamp(due_ms).mtime_ns(),) * 2)
        os.fsync(descriptor)
        os.close(descriptor)
        written.rename(path)
        run_alone(put_schedule(root, QUEUE, NAME, schedule(number)), flusher)

    on.disk.mark("schedule_asked", queue=ORDERS, name=NAME.text, number=number, count=1)
    await on.other(work)
    on.disk.mark("schedule_told", queue=ORDERS, name=NAME.text, number=number, count=1)


@script()
async def take_away(on: Stage) -> None:
    await on.begin(ORDERS)
    await _put(on)
    await _taken_away(
        on, lambda root, flusher: run_alone(delete_schedule(root, QUEUE, NAME), flusher)
    )


@script()
async def take_away_what_another_took(on: Stage) -> None:
    """Which died before it flushed that: not found is an answer too."""
    await on.begin(ORDERS)
    await _put(on)

    def work(root: Root, flusher: FsyncFlusher) -> None:
        (on.root / "schedules" / f"{ORDERS}:{NAME.text}").unlink()
        try:
            run_alone(delete_schedule(root, QUEUE, NAME), flusher)
        except ScheduleNotFound:
            return

    await _taken_away(on, work)


@script()
async def fire_twice(on: Stage) -> None:
    await on.begin(ORDERS)
    await _put(on, count=2)
    await _fired(on)
    on.known()
    await _fired(on)


@script()
async def fire_after_the_last_message(on: Stage) -> None:
    """Which a client has deleted."""
    await on.begin(ORDERS)
    number = await _put(on, count=2, after="done")
    await _fired(on)
    message_id = await on.fetched()
    on.disk.mark("published", queue=ORDERS, id=message_id, number=number)
    await on.clients.delete(message_id)
    on.known()
    await _fired(on)
    await _fired(on)


@script()
async def fire_with_a_key(on: Stage) -> None:
    """Which a living message has at first: it is skipped."""
    await on.begin(ORDERS)
    await on.clients.publish_keyed(300, "night")
    await _put(on, key="night")
    on.known()
    await _fired(on)


@script()
async def fire_with_a_tag(on: Stage) -> None:
    """Its entries are there before its link, and go with what is not fired."""
    await on.begin(ORDERS)
    await _put(on, tag="late")
    on.known()
    await _fired(on)


@script()
async def fire_by_two(on: Stage) -> None:
    """At a time: each has seen it due, and none has made its link; both write what is next."""
    await on.begin(ORDERS)
    await _put(on)
    on.known()
    on.disk.pass_time(FIRES_EVERY_S)

    def work(root: Root, flusher: FsyncFlusher) -> None:
        fired = run_group([_fire(root), _fire(root)], flusher)
        firings: list[Firing] = [outcome.value for outcome in fired]
        assert firings[0].message == firings[1].message
        run_group([rearm(root, [each]) for each in firings], flusher)

    await on.other(work)


def _fire_after_one_who_died(flushes: int) -> None:
    async def fire_late(on: Stage) -> None:
        await on.begin(ORDERS)
        await _put(on)
        on.known()
        on.disk.pass_time(FIRES_EVERY_S)

        def work(root: Root, flusher: FsyncFlusher) -> None:
            _dies(on, root, _fire, flushes)
            Scheduler(root, flusher).run_once()

        await on.other(work)

    fire_late.__name__ = f"fire_after_one_who_died_before_flush_{flushes + 1}"
    script()(fire_late)


_fire_after_one_who_died(1)


def _rearm_after_one_who_died(flushes: int) -> None:
    async def rearm_late(on: Stage) -> None:
        await on.begin(ORDERS)
        await _put(on)
        on.disk.pass_time(FIRES_EVERY_S)

        def work(root: Root, flusher: FsyncFlusher) -> None:
            fired = run_alone(_fire(root), flusher)
            on.known()
            _dies(on, root, lambda other: rearm(other, [fired]), flushes)
            Scheduler(root, flusher).run_once()

        await on.other(work)

    rearm_late.__name__ = f"rearm_after_one_who_died_before_flush_{flushes + 1}"
    script()(rearm_late)


for _flushes in range(2):
    _rearm_after_one_who_died(_flushes)


@script()
async def sweep_a_firing(on: Stage) -> None:
    """Of a schedule that another has let go on, and died before it flushed that."""
    await on.begin(ORDERS)
    await _put(on, count=2)
    on.disk.pass_time(FIRES_EVERY_S)

    def work(root: Root, flusher: FsyncFlusher) -> None:
        fired = run_alone(_fire(root), flusher)
        _dies(on, root, lambda other: rearm(other, [fired]), 1)

    await on.other(work)
    on.known()
    on.disk.pass_time(HOURS_S)
    await on.sweep()
    assert not [path for path in (on.root / "queues").glob("*/.firings/*/*") if path.is_symlink()]


@script()
async def forget_a_firing(on: Stage) -> None:
    """By one that died once it had made its link: that goes before the message."""
    await on.begin(ORDERS)
    await _put(on)
    on.disk.pass_time(FIRES_EVERY_S)

    def work(root: Root, flusher: FsyncFlusher) -> None:
        files = CrashingFiles()
        rename = files.rename

        def dies(source: str, target: str) -> None:
            files.changes_left = 0
            rename(source, target)

        files.rename = dies  # type: ignore[method-assign]
        other = root_of(root.layout, files, root.clock, folder_max=on.folder_max)
        with contextlib.suppress(Died):
            run_alone(_fire(other), flusher)

    await on.other(work)
    assert list((on.root / "queues").glob("*/.firings/*/*[0-9]")), "it has no link"
    on.known()
    on.disk.pass_time(HOURS_S)
    await on.sweep()


@script()
async def drop_with_schedules(on: Stage) -> None:
    """And make it again, with another."""
    await on.begin(ORDERS)
    await _put(on, count=2)
    await _fired(on)
    on.known()
    await on.clients.drop(ORDERS)
    await on.clients.make(ORDERS)
    await _put(on)


@script()
async def make_anew_where_schedules_were_left(on: Stage) -> None:
    """By one that died in the middle of the queue's deletion."""
    await on.begin(ORDERS)
    number = await _put(on)
    path = on.root / "schedules" / f"{ORDERS}:{NAME.text}"
    on.disk.mark("schedule_asked", queue=ORDERS, name=NAME.text, number=None)
    aside = path.rename(on.root.parent / "aside")
    await on.clients.drop(ORDERS)
    on.disk.mark("drop_asked", queue=ORDERS)
    on.disk.mark("schedule_asked", queue=ORDERS, name=NAME.text, number=number, count=1)
    aside.rename(path)
    Files().sync_folder(str(path.parent))
    await on.clients.make(ORDERS)


@script()
async def make_anew_where_another_took_schedules_away(on: Stage) -> None:
    """Which died before it flushed that."""
    await on.begin(ORDERS)
    await _put(on)
    path = on.root / "schedules" / f"{ORDERS}:{NAME.text}"
    on.disk.mark("drop_asked", queue=ORDERS)
    tombstone = on.root / "deleted" / ORDERS
    tombstone.touch()
    os.rename(on.root / "queues" / ORDERS, on.root / "remove" / f"{ORDERS}:{new_id().uuid}.d")
    for folder in ("deleted", "remove", "queues"):
        Files().sync_folder(str(on.root / folder))
    path.unlink()
    await on.clients.make(ORDERS)
