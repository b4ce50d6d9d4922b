"""Queues: made, changed, purged, described and deleted. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import asdict

from mq.client.fake.limits import QUEUES_MAX
from mq.client.fake.queue import Queue, Shape
from mq.client.fake.world import World
from mq.model.clock import rfc3339
from mq.model.errors import NoMemory, SettingsChanged, ShapeFixed
from mq.model.expiry import is_expired
from mq.model.history import Event
from mq.model.lifecycle import State
from mq.model.names import QueueName
from mq.model.settings import (
    DIGITS_SETTING,
    FIXED_SETTINGS,
    SHARDS_SETTING,
    check_patch,
    merged,
    tag_of,
)

_FIGURES = (
    "ready", "delayed", "in_flight", "leased", "overdue", "removed", "sidelined", "foreign",
    "oldest_ready_age_s", "totals",
)  # fmt: skip
"""Those of a description that tell of when they are."""


def create(world: World, name: QueueName, digits: int | None, shards: int | None) -> bool:
    """Makes a queue; false when it was there. Raises ShapeFixed, QueueExpired, NoMemory."""
    queue = world.queues.get(name.text)
    if queue is None:
        if len(world.queues) >= QUEUES_MAX:
            raise NoMemory
        made = Shape()
        shape = Shape(digits or made.digits, shards or made.shards)
        world.queues[name.text] = Queue(name, shape, world.defaults, world.now_ms())
        return True
    if digits not in (None, queue.shape.digits) or shards not in (None, queue.shape.shards):
        raise ShapeFixed(name.text)
    queue.check_life(world.now_ms())
    return False


def made_sideline(world: World, name: QueueName) -> Queue:
    """The queue's sideline, made where it is missing."""
    into = name.sideline()
    if into.text not in world.queues:
        create(world, into, None, None)
    return world.queues[into.text]


def change(
    world: World,
    queue: Queue,
    patch: Mapping[str, object],
    if_match: Callable[[str], bool] | None,
) -> None:
    """Merges a patch into a queue's settings. Raises UnknownSetting, BadSetting, SettingsChanged,
    ShapeFixed; nothing is changed then.
    """
    check_patch(patch)
    before = queue.effective()
    if if_match is not None and not if_match(tag_of(before)):
        raise SettingsChanged
    default = {DIGITS_SETTING: Shape().digits, SHARDS_SETTING: Shape().shards}
    for field in FIXED_SETTINGS:
        wanted = default[field] if patch.get(field) is None else patch[field]
        if field in patch and wanted != before[field]:
            raise ShapeFixed(queue.name.text)
    changed = {name: value for name, value in patch.items() if name not in FIXED_SETTINGS}
    fields = merged(queue.fields, changed)
    if fields == queue.fields:
        return
    queue.fields, queue.changed_ms = fields, world.now_ms()
    queue.settings = world.defaults.with_fields(fields)
    for message in queue.ready:
        world.watch_age(queue, message)


def purge(world: World, queue: Queue) -> int:
    """Has nothing be served any more that was published until now; up to when that is."""
    before_ms = world.uuids.end_moment()
    queue.purged_ms = before_ms
    for message in queue.messages.values():
        message.was_purged = True
    for message in queue.alive():
        world.move(queue, message, State.REMOVED, message.stamp)
        world.record(queue, message, Event.REMOVED)
    return before_ms


def describe(world: World, queue: Queue) -> dict[str, object]:
    """Counts, the oldest message's age, what was done, settings."""
    now_ms = world.now_ms()
    delayed = queue.within(State.DELAYED)
    in_flight = sum(1 for each in delayed if each.stamp.receives)
    oldest_ms = min((each.id.published_ms for each in queue.ready), default=None)
    return {
        "name": queue.name.text,
        "ready": len(queue.ready),
        "delayed": len(delayed) - in_flight,
        "in_flight": in_flight,
        "overdue": 0,
        "removed": len(queue.within(State.REMOVED)),
        "leased": 0,
        "sidelined": _sidelined(world, queue.name),
        "foreign": 0,
        "oldest_ready_age_s": None if oldest_ms is None else max(0, now_ms - oldest_ms) / 1000,
        "expired": is_expired(queue.settings, now_ms),
        "totals": asdict(queue.totals),
        "process": {"index": 0, "of": 1},
        "as_of": dict.fromkeys(_FIGURES, rfc3339(now_ms)),
        "settings": queue.effective(),
    }


def refreshed(world: World) -> dict[str, object]:
    """What a look at all queues found since the last one."""
    before, now = world.known, {name: each.effective() for name, each in world.queues.items()}
    world.known = now
    return dict(
        zip(
            _REFRESHED,
            (
                len(now),
                len(now.keys() - before.keys()),
                sum(1 for name in now.keys() & before.keys() if now[name] != before[name]),
                len(before.keys() - now.keys()),
            ),
            strict=True,
        )
    )


_REFRESHED = ("queues", "new", "changed", "gone")


def _sidelined(world: World, name: QueueName) -> int:
    sideline = None if name.is_sideline else world.queues.get(name.sideline().text)
    return 0 if sideline is None else len(sideline.ready)
