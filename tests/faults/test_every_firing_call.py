"""Every call of a firing fails once, or a mover dies at it: one message is published all the same,
and the schedule goes on.
"""

import contextlib
import errno
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from harness.audits import assert_audits_clean, looked_at
from harness.faults import DISK_ERRORS, CrashingFiles, Died, FaultyFiles, each_disk_error
from harness.messages import new_id
from harness.schedules import EVERY_S, NAME, QUEUE, TimedRoot

from mq.model.errors import MqError
from mq.model.names import Key
from mq.store.core.root import Root
from mq.store.disk.files import Files
from mq.store.disk.flush import FsyncFlusher, NoFlusher, SyncfsFlusher
from mq.store.disk.group import run_alone
from mq.store.format.layout import Layout
from mq.store.opening import root_of
from mq.store.operations.queues import delete_queue
from mq.store.schedules.schedules import list_schedules
from mq_mover.scheduler import FIRING_AGAIN_S, Scheduler

CALLS_MAX = 200
KEY = Key.parse("night")


def passes(place: TimedRoot, root: Root, flusher: Any) -> None:
    """What a mover does for a while; a pass that fails is logged by it, and made again."""
    scheduler = Scheduler(root, flusher)
    for _ in range(2):
        try:
            scheduler.run_once()
        except OSError as error:
            assert error.errno in DISK_ERRORS  # noqa: PT017 - a folder that could not be listed
        place.pass_s(FIRING_AGAIN_S)


def assert_fired_once(place: TimedRoot, said: str) -> None:
    """Once the faults are over."""
    passes(place, looked_at(place.top, place.clock), NoFlusher())
    assert place.bodies() == [b"again"], said
    assert (place.read().fired, place.read().last) == (1, place.ready()[0]), said
    assert place.names() == [".lock", f"q:{NAME.text}"], said
    assert_audits_clean(place.top)


@each_disk_error()
def test_every_call_of_a_firing_may_fail(tmp_path: Path, codes: Sequence[int], commit: str) -> None:
    for after in range(CALLS_MAX):
        top, files = tmp_path / str(after), FaultyFiles()
        place = TimedRoot(top, files)
        place.put(key=KEY, count=2)
        place.pass_s()
        flusher = FsyncFlusher(files, 1) if commit == "fsync" else SyncfsFlusher(files, str(top))
        fault = files.fail("", codes[after % len(codes)], times=1, after=after)
        passes(place, place.root, flusher)
        files.heal()
        flusher.close()
        said = f"{fault}"
        assert files.retried == [], said
        assert files.open_paths() == [], said
        assert_fired_once(place, said)
        if not fault.hits:
            return
    raise AssertionError("a firing without an end")


def test_a_mover_may_die_at_every_change_of_a_firing(tmp_path: Path) -> None:
    for changes in range(CALLS_MAX):
        place = TimedRoot(tmp_path / str(changes))
        place.put(key=KEY, count=2)
        place.pass_s()
        files = CrashingFiles(changes)
        root = root_of(Layout.of(place.top), files, place.clock)
        died = True
        try:
            passes(place, root, FsyncFlusher(files, 1))
            died = False
        except Died:
            assert files.is_dead
        for left in (place.top / "schedules").glob(".q:*"):
            left.unlink()  # As a sweeper does in time.
        assert_fired_once(place, f"died before change {changes}")
        if not died:
            return
    raise AssertionError("a firing without an end")


@pytest.mark.parametrize("code", DISK_ERRORS, ids=errno.errorcode.get)
def test_every_call_of_a_queue_s_deletion_may_fail_and_no_schedule_comes_back(
    tmp_path: Path, code: int
) -> None:
    for after in range(CALLS_MAX):
        files = FaultyFiles()
        place = TimedRoot(tmp_path / str(after), files)
        place.put()
        fault = files.fail("", code, times=1, after=after)
        with contextlib.suppress(MqError, OSError):
            place.run(delete_queue(place.root, QUEUE, new_id().uuid))
        files.heal()
        assert files.open_paths() == []
        real = looked_at(place.top, place.clock)
        if not (place.top / "queues" / "q").exists():
            again = TimedRoot(place.top, Files())  # It is made again.
            assert list_schedules(again.root, QUEUE) == []
        else:
            run_alone(delete_queue(real, QUEUE, new_id().uuid), NoFlusher())
        place.pass_s(EVERY_S)
        assert Scheduler(real, NoFlusher()).run_once() == 0
        assert_audits_clean(place.top)
        if not fault.hits:
            return
    raise AssertionError("a deletion without an end")
