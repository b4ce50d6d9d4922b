"""Fires schedules: one message for each due time, whichever process fires, and however often.

A firing's link, named by its due time, is made before its message shows, and stays at least until
the schedule's next state is durable. A late process meets the link, or sees that the schedule has
another due time. PROTOCOL.md, "fire a schedule", has the steps and what a crash after each leaves.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from mq.model.clock import rfc3339
from mq.model.errors import DueTooFar, KeyTaken, MqError, QueueNotFound, ScheduleUnreadable
from mq.model.headers import FIRED_BY, print_block
from mq.model.limits import HEADER_BLOCK_BYTES_MAX, HEADERS_MAX
from mq.model.log import logger
from mq.model.names import MessageId, QueueName, ScheduleName, UuidSource
from mq.model.schedule import Armed
from mq.store.core.find import lives
from mq.store.core.locks import in_turn
from mq.store.core.room import Load
from mq.store.core.root import Root
from mq.store.core.standing import queue_exists
from mq.store.core.unserved import refuse_publish
from mq.store.disk.steps import FilesFailed, Flush, Steps
from mq.store.format.layout import Keys
from mq.store.format.schedules import firing_key, firing_place, schedules_lock
from mq.store.keys.keyed import Once, earlier_publish
from mq.store.operations.publish import Draft, publish
from mq.store.schedules.file import (
    Version,
    discard_written,
    is_still,
    read_kept,
    rename_over,
    write_beside,
)
from mq.store.schedules.line import print_progress

_log = logger("mq.firing")


class MovedOn(MqError):
    """The schedule is not due any more, or was changed: nothing is to be fired."""


@dataclass(frozen=True, slots=True)
class Firing:
    """The result for a due schedule. `message` was published, by this process if `is_ours`; None:
    it was skipped or, with `is_done`, the message that it waited for has ended. The next state is
    not written yet.
    """

    queue: QueueName
    name: ScheduleName
    version: Version
    due_ms: int
    message: MessageId | None
    is_ours: bool = False
    is_done: bool = False


def fire(root: Root, uuids: UuidSource, queue: QueueName, name: ScheduleName) -> Steps[Firing]:
    """Publishes the message of a due schedule, unless that was done; call `rearm` afterwards.

    Raises MovedOn, also while the schedule waits for a living message; QueueNotFound, QueueExpired,
    QueuePaused, QueueFull, ScheduleUnreadable, SettingsUnreadable, PublishPurged, NoSpace, Busy:
    the schedule stays due. Durable on return: the message.
    """
    kept = read_kept(root, queue, name)
    due_ms = None if kept is None else kept.version.due_ms
    if kept is None or due_ms is None or due_ms > root.now_ms():
        raise MovedOn
    armed = kept.armed()
    schedule, last = armed.schedule, armed.last
    if not queue_exists(root, queue):
        raise QueueNotFound(queue.text)
    firing = Firing(queue, name, kept.version, due_ms, None)
    if armed.waiting:
        if last is not None and lives(root, queue, last):
            raise MovedOn
        return replace(firing, is_done=True)
    key = firing_key(name, due_ms)
    first = yield from earlier_publish(root, queue, Once(Keys.FIRING, key, math.inf))
    if first is not None:
        # Another process published it, and may have died before it wrote the next state.
        return Firing(queue, name, kept.version, due_ms, first)
    if schedule.is_missed(due_ms, root.now_ms()):
        return firing
    if schedule.overlap == "skip" and last is not None and lives(root, queue, last):
        return firing
    draft = _draft(root, uuids, firing, armed)
    try:
        published = yield from publish(
            root, draft, schedule.body, partial(_look_again, root, firing)
        )
    except KeyTaken:
        return firing
    return Firing(queue, name, kept.version, due_ms, published, is_ours=published is draft.id)


def rearm(root: Root, firings: Sequence[Firing]) -> Steps[list[Armed | None]]:
    """Writes the next states of schedules that were fired or skipped. Returns each schedule's new
    state. None: it was changed or removed meanwhile, another process has written the next state, or
    that failed, and the next process writes it.

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
    """A schedule's next state, written beside it, with the new file's descriptor."""

    firing: Firing
    armed: Armed
    written: str
    descriptor: int


def _head(firing: Firing, armed: Armed) -> bytes:
    """The header block of the message, with the firing's header if that fits."""
    due = rfc3339(firing.due_ms)
    said = f'name="{firing.name.text}", due="{due}", number={armed.fired + 1}'
    headers = armed.schedule.message_headers()
    head = print_block((*headers, (FIRED_BY, said)))
    if len(headers) < HEADERS_MAX and len(head) <= HEADER_BLOCK_BYTES_MAX:
        return head
    return print_block(headers)


def _draft(root: Root, uuids: UuidSource, firing: Firing, armed: Armed) -> Draft:
    queue, schedule = firing.queue, armed.schedule
    settings = root.facts.configured(queue).settings
    refuse_publish(root, queue, settings)
    head = _head(firing, armed)
    root.room.refuse_full(queue, settings, Load(1, len(head) + len(schedule.body)))
    message_id = MessageId(
        uuids.next(),
        settings.priority_default if schedule.priority is None else schedule.priority,
        schedule.key,
        schedule.visibility_s,
        len(head),
        schedule.extension,
        schedule.ttl_s,
        "" if schedule.group is None else schedule.group.digits,
        len(schedule.tags),
    )
    key = firing_key(firing.name, firing.due_ms)
    return Draft(queue, message_id, message_id.published_ms, head=head, firing=key)


def _look_again(root: Root, firing: Firing) -> None:
    """Checks again once the link exists: another process may have fired the schedule so long ago
    that its link is gone.
    """
    if not is_still(root, firing.queue, firing.name, firing.version):
        raise MovedOn


def _prepare(root: Root, firing: Firing) -> _Prepared | None:
    try:
        kept = read_kept(root, firing.queue, firing.name)
        if kept is None or kept.version != firing.version:
            return None
        armed = _gone_on(kept.armed(), firing, root.now_ms())
        content = print_progress(kept.content, armed)
        try:
            written = write_beside(root, firing.queue, firing.name, content, armed.next_ms)
        except DueTooFar:
            # The file system cannot store the time.
            armed = replace(armed, next_ms=None)
            written = write_beside(root, firing.queue, firing.name, content, None)
    except (ScheduleUnreadable, OSError) as error:
        _not_written(firing, error)
        return None
    return _Prepared(firing, armed, *written)


def _gone_on(armed: Armed, firing: Firing, now_ms: int) -> Armed:
    if firing.is_done:
        return armed.done_at(now_ms)
    if firing.message is None:
        return armed.skipped_at(now_ms)
    return armed.fired_at(now_ms, firing.message)


def _swap(root: Root, prepared: Sequence[_Prepared]) -> list[Armed | None]:
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
        return False  # Another process fired it meanwhile, and writes that.
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
    _log.warning("could not write a schedule's next firing yet", extra={"fields": fields})
