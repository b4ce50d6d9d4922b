"""Schedules on disk: making, reading, listing and removing them.

A schedule is a file of schedules/; its mtime is its next firing. It is written beside its place and
renamed under the folder's lock, which is held for a few calls. PROTOCOL.md, "make or change a
schedule", has the steps and what a crash after each leaves.
"""

import os
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from mq.model.errors import (
    Busy,
    QueueNotFound,
    ScheduleNotFound,
    ScheduleUnreadable,
    TooManySchedules,
)
from mq.model.names import QueueName, ScheduleName
from mq.model.schedule import Armed, Schedule
from mq.store.core.locks import in_turn
from mq.store.core.root import Root, sweep_unfinished, unlink_if_there
from mq.store.core.standing import no_such_queue, queue_exists
from mq.store.disk.steps import Flush, Steps
from mq.store.format.schedules import (
    is_unfinished_schedule,
    parse_schedule,
    schedule_path,
    schedules_lock,
)
from mq.store.format.walk import entries_if_there, named
from mq.store.schedules.file import (
    BEGINNING_BYTES,
    Kept,
    Version,
    count_of,
    discard_written,
    names_of,
    read_kept,
    rename_over,
    version_now,
    write_beside,
)
from mq.store.schedules.line import print_schedule

SCHEDULES_PER_QUEUE_MAX: Final = 1000
# Retries when others change a schedule concurrently.
SCHEDULE_TRIES_MAX: Final = 16


@dataclass(frozen=True, slots=True)
class Listed:
    """A schedule of a list, without its body of `size` bytes; `armed` None: its file is
    unreadable.
    """

    name: ScheduleName
    armed: Armed | None
    size: int


def put_schedule(
    root: Root, queue: QueueName, name: ScheduleName, schedule: Schedule
) -> Steps[tuple[Armed, bool]]:
    """Makes or replaces a schedule. Returns its state, and whether the name is new. An equal
    schedule stays as it is, with its next firing.

    Raises QueueNotFound, TooManySchedules, DueTooFar, NoSpace, Busy: nothing is changed then.
    Durable on return: yes.
    """
    layout = root.layout
    for _ in range(SCHEDULE_TRIES_MAX):
        if not queue_exists(root, queue):
            yield from no_such_queue(root, queue)
        before = version_now(root, queue, name)
        known = None if before is None else _said(root, queue, name)
        if known is not None and known.schedule == schedule:
            # Unchanged; but the process that wrote it may not have flushed it.
            yield Flush(folders=(layout.schedules,))
            return known, False
        armed = schedule.armed(root.now_ms())
        written = yield from _write(root, queue, name, armed)
        try:
            swap = partial(_swap, root, queue, name, before, written)
            is_done = yield from in_turn(root, schedules_lock(layout), swap)
        except BaseException as error:
            discard_written(root, written[0])
            if isinstance(error, QueueNotFound):
                yield from no_such_queue(root, queue)
            raise
        if is_done:
            yield Flush(folders=(layout.schedules,))
            return armed, before is None
        discard_written(root, written[0])  # It was changed or fired meanwhile.
    raise Busy("the schedule changes again and again")


def delete_schedule(root: Root, queue: QueueName, name: ScheduleName) -> Steps[None]:
    """Removes a schedule. Raises QueueNotFound, ScheduleNotFound, Busy. Durable on return: yes,
    also if there was none.
    """
    if not queue_exists(root, queue):
        yield from no_such_queue(root, queue)
    unlink = partial(_unlink, root, schedule_path(root.layout, queue, name))
    was_there = yield from in_turn(root, schedules_lock(root.layout), unlink)
    yield Flush(folders=(root.layout.schedules,))
    if not was_there:
        raise ScheduleNotFound(name.text)


def read_schedule(root: Root, queue: QueueName, name: ScheduleName) -> Armed:
    """Reads a schedule. Blocking. Raises QueueNotFound, ScheduleNotFound, ScheduleUnreadable,
    OSError.
    """
    if not queue_exists(root, queue):
        raise QueueNotFound(queue.text)
    kept = read_kept(root, queue, name)
    if kept is None:
        raise ScheduleNotFound(name.text)
    return kept.armed()


def list_schedules(root: Root, queue: QueueName) -> list[Listed]:
    """The queue's schedules by name. Blocking. Raises QueueNotFound, OSError."""
    if not queue_exists(root, queue):
        raise QueueNotFound(queue.text)
    found = []
    for name in sorted(names_of(root, queue)):
        try:
            kept = read_kept(root, queue, name, BEGINNING_BYTES)
            if kept is None:
                continue  # It is gone.
            armed = kept.armed()
        except ScheduleUnreadable:
            found.append(Listed(name, None, 0))
        else:
            found.append(_listed(name, armed, kept))
    return found


def forget_schedules(root: Root, queue: QueueName) -> Steps[None]:
    """Removes all schedules of a missing queue. Raises Busy, OSError. Durable on return: no."""

    def forget() -> None:
        for name in list(names_of(root, queue)):
            _unlink(root, schedule_path(root.layout, queue, name))

    yield from in_turn(root, schedules_lock(root.layout), forget)


def sweep_schedules(root: Root) -> Steps[None]:
    """Removes schedules that a crash left of deleted queues, under the queues' lock, and unfinished
    files of processes that died. Durable on return: no.
    """
    sweep_unfinished(root, root.layout.schedules, is_unfinished_schedule)
    entries = entries_if_there(root.files, root.layout.schedules)
    left = {queue for _, (queue, _) in named(entries, parse_schedule)}
    for queue in sorted(left):
        # A queue that was not deleted may come back, such as after an operator moved it away.
        is_deleted = root.files.status(root.layout.tombstone(queue)) is not None
        if is_deleted and not queue_exists(root, queue):
            yield from forget_schedules(root, queue)


def _write(
    root: Root, queue: QueueName, name: ScheduleName, armed: Armed
) -> Steps[tuple[str, os.stat_result]]:
    """Writes a schedule beside its place. Raises NoSpace, DueTooFar, QueueNotFound. Durable on
    return: the file, and the queue's folder, without which the schedule would have no queue.
    """
    content = print_schedule(armed)
    root.space.claim(len(content))
    written, descriptor = write_beside(root, queue, name, content, armed.next_ms)
    try:
        yield Flush(files=(descriptor,))
        return written, root.files.descriptor_status(descriptor)
    except BaseException:
        discard_written(root, written)
        raise
    finally:
        root.files.close(descriptor)


def _swap(
    root: Root,
    queue: QueueName,
    name: ScheduleName,
    before: Version | None,
    written: tuple[str, os.stat_result],
) -> bool:
    if not queue_exists(root, queue):
        raise QueueNotFound(queue.text)
    if version_now(root, queue, name) != before:
        return False
    if before is None and count_of(root, queue) >= SCHEDULES_PER_QUEUE_MAX:
        raise TooManySchedules(SCHEDULES_PER_QUEUE_MAX)
    rename_over(root, queue, name, *written)
    return True


def _said(root: Root, queue: QueueName, name: ScheduleName) -> Armed | None:
    """The current schedule, if it is readable."""
    try:
        kept = read_kept(root, queue, name)
        return None if kept is None else kept.armed()
    except ScheduleUnreadable:
        return None


def _listed(name: ScheduleName, armed: Armed, kept: Kept) -> Listed:
    size = len(armed.schedule.body) + kept.size - len(kept.content)
    return Listed(name, replace(armed, schedule=replace(armed.schedule, body=b"")), size)


def _unlink(root: Root, path: str) -> bool:
    """Returns whether the file existed. The caller holds the lock."""
    if root.files.status(path) is None:
        return False
    unlink_if_there(root.files, path)  # NFS may have done it and lost the answer.
    return True
