"""Firing schedules: one message for each due time, whoever fires and however often.

A firing's link, named by its due time, is made before its message shows, and stays at least until
the schedule has gone on for good. Whoever comes late meets the link, or sees that the schedule has
gone on. FORMAT.md, "fire a schedule", has the steps and what a crash after each leaves.
"""

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from mq.model.errors import (
    DueTooFar,
    KeyTaken,
    MqError,
    QueueExpired,
    QueueNotFound,
    ScheduleUnreadable,
)
from mq.model.expiry import is_expired
from mq.model.headers import print_block
from mq.model.names import Key, MessageId, QueueName, ScheduleName, UuidSource
from mq.model.schedule import Armed, Schedule
from mq.store.core.root import Root
from mq.store.core.standing import queue_exists
from mq.store.core.turns import in_turn
from mq.store.disk.steps import FilesFailed, Flush, Steps
from mq.store.format.layout import Keys
from mq.store.format.schedules import firing_key, firing_place, schedules_lock
from mq.store.keys.holders import lives
from mq.store.keys.keyed import Once, earlier_publish
from mq.store.operations.publish import Draft, publish
from mq.store.schedules.file import (
    Kept,
    Version,
    discard_written,
    is_still,
    read_kept,
    rename_over,
    write_beside,
)
from mq.store.schedules.line import print_progress
from mq.store.settings.configure import Configured

_log = logging.getLogger("mq.firing")


class MovedOn(MqError):
    """The schedule is not due any more, or not the one that it was: nothing is to be fired."""


@dataclass(frozen=True, slots=True)
class Firing:
    """What became of a schedule that was due: `message` was published, by this process where it
    `is_ours`; None: it was skipped. What is next is not written yet.
    """

    queue: QueueName
    name: ScheduleName
    version: Version
    due_ms: int
    message: MessageId | None
    is_ours: bool = False


def fire(root: Root, uuids: UuidSource, queue: QueueName, name: ScheduleName) -> Steps[Firing]:
    """Publishes the message of a schedule that is due, unless that has been done; `rearm` is to
    follow.

    Raises MovedOn, QueueNotFound, QueueExpired, ScheduleUnreadable, SettingsUnreadable,
    PublishPurged, NoSpace, Busy; it is due then as before. Durable on return: the message.
    """
    kept = read_kept(root, queue, name)
    due_ms = None if kept is None else kept.version.due_ms
    if kept is None or due_ms is None or due_ms > root.now_ms():
        raise MovedOn
    schedule, last = _understood(kept)
    if not queue_exists(root, queue):
        raise QueueNotFound(queue.text)
    firing = Firing(queue, name, kept.version, due_ms, None)
    key = firing_key(name, due_ms)
    first = yield from earlier_publish(root, queue, Once(Keys.FIRING, key, math.inf))
    if first is not None:
        # Another has published it, and perhaps died before it wrote what is next.
        return Firing(queue, name, kept.version, due_ms, first)
    if schedule.overlap == "skip" and last is not None and lives(root, queue, last):
        return firing
    draft = _draft(root, uuids, queue, schedule, key)
    try:
        published = yield from publish(
            root, draft, schedule.body, partial(_look_again, root, firing)
        )
    except KeyTaken:
        return firing
    return Firing(queue, name, kept.version, due_ms, published, is_ours=published is draft.id)


def rearm(root: Root, firings: Sequence[Firing]) -> Steps[list[Armed | None]]:
    """Writes what is next of schedules that were fired, or skipped; for each how it is now. None:
    it was changed or taken away meanwhile, or another has written what is next; or that could not
    be written, and is by whoever comes next.

    Raises Busy, OSError. Durable on return: yes.
    """
    prepared: dict[int, _Prepared] = {}
    try:
        for number, firing in enumerate(firings):
            if (made := _prepare(root, firing)) is not None:
                prepared[number] = made
        try:
            yield Flush(files=tuple(each.descriptor for each in prepared.values()))
        except FilesFailed as failed:
            for number, each in list(prepared.items()):
                if each.descriptor in failed.errors:
                    _drop(root, prepared.pop(number), failed.errors[each.descriptor])
        swap = partial(_swap, root, list(prepared.values()))
        done = yield from in_turn(root, schedules_lock(root.layout), swap)
        yield Flush(folders=(root.layout.schedules,))
    except BaseException:
        for each in prepared.values():
            discard_written(root, each.written)
        raise
    finally:
        for each in prepared.values():
            root.files.close(each.descriptor)
    armed = dict(zip(prepared, done, strict=True))
    return [armed.get(number) for number in range(len(firings))]


@dataclass(frozen=True, slots=True)
class _Prepared:
    """What is next of a schedule, written beside it; `descriptor` of that."""

    firing: Firing
    armed: Armed
    written: str
    descriptor: int


def _understood(kept: Kept) -> tuple[Schedule, MessageId | None]:
    armed = kept.armed()
    return armed.schedule, armed.last


def _draft(root: Root, uuids: UuidSource, queue: QueueName, schedule: Schedule, key: Key) -> Draft:
    settings = Configured.read(root, queue).settings
    if settings.expires_at is not None and is_expired(settings, root.now_ms()):
        raise QueueExpired(queue.text, settings.expires_at)
    head = print_block(schedule.headers)
    message_id = MessageId(
        uuids.next(),
        settings.priority_default if schedule.priority is None else schedule.priority,
        schedule.key,
        schedule.visibility_s,
        len(head),
        schedule.extension,
    )
    return Draft(queue, message_id, message_id.published_ms, head=head, firing=key)


def _look_again(root: Root, firing: Firing) -> None:
    """Once the link is there: whoever has fired it before may have gone on for so long that its
    own link went.
    """
    if not is_still(root, firing.queue, firing.name, firing.version):
        raise MovedOn


def _prepare(root: Root, firing: Firing) -> _Prepared | None:
    try:
        kept = read_kept(root, firing.queue, firing.name)
        if kept is None or kept.version != firing.version:
            return None
        armed = _gone_on(kept.armed(), firing.message, root.now_ms())
        content = print_progress(kept.content, armed)
        try:
            written = write_beside(root, firing.queue, firing.name, content, armed.next_ms)
        except DueTooFar:
            # A time that never comes for this file system.
            armed = replace(armed, next_ms=None)
            written = write_beside(root, firing.queue, firing.name, content, None)
    except (ScheduleUnreadable, OSError) as error:
        _not_written(firing, error)
        return None
    return _Prepared(firing, armed, *written)


def _gone_on(armed: Armed, message: MessageId | None, now_ms: int) -> Armed:
    return armed.skipped_at(now_ms) if message is None else armed.fired_at(now_ms, message)


def _swap(root: Root, prepared: Sequence[_Prepared]) -> list[Armed | None]:
    """For whoever has the lock."""
    done: list[Armed | None] = []
    for each in prepared:
        if _takes_place(root, each):
            done.append(each.armed)
        else:
            discard_written(root, each.written)
            done.append(None)
    return done


def _takes_place(root: Root, prepared: _Prepared) -> bool:
    firing = prepared.firing
    if not is_still(root, firing.queue, firing.name, firing.version):
        return False
    if firing.message is None and _is_fired(root, firing):
        return False  # By another meanwhile, who says so.
    try:
        made = root.files.descriptor_status(prepared.descriptor)
        rename_over(root, firing.queue, firing.name, prepared.written, made)
    except OSError as error:
        _not_written(firing, error)
        return False
    return True


def _is_fired(root: Root, firing: Firing) -> bool:
    place = firing_place(root.layout, firing.queue, firing.name, firing.due_ms)
    return root.files.linked(place.path) is not None


def _drop(root: Root, prepared: _Prepared, error: OSError) -> None:
    root.files.close(prepared.descriptor)
    discard_written(root, prepared.written)
    _not_written(prepared.firing, error)


def _not_written(firing: Firing, error: Exception) -> None:
    fields = {"queue": firing.queue.text, "schedule": firing.name.text, "error": repr(error)}
    _log.warning("what is next of a schedule is not written yet", extra={"fields": fields})
