"""Schedules on disk: what is kept of one, what replaces it, and when it goes."""

import errno
import os
from pathlib import Path

import pytest
from harness.audits import assert_audits_clean
from harness.clock import FakeClock
from harness.faults import FaultyFiles
from harness.messages import new_id
from harness.schedules import EVERY_S, MINUTELY, NAME, QUEUE, TimedRoot, to_its_end

from mq.model.errors import (
    NoSpace,
    QueueNotFound,
    ScheduleNotFound,
    ScheduleUnreadable,
    TooManySchedules,
)
from mq.model.limits import FORGOTTEN_AFTER_S
from mq.model.names import Group, Key, QueueName, ScheduleName
from mq.model.recurrence import Cron, Every
from mq.model.schedule import Schedule
from mq.store.disk.files import Files
from mq.store.disk.flush import FsyncFlusher
from mq.store.disk.group import run_group
from mq.store.opening import open_root
from mq.store.operations.purge import purge
from mq.store.operations.queues import create_queue, delete_queue, sweep_tombstones
from mq.store.schedules.schedules import (
    SCHEDULES_PER_QUEUE_MAX,
    delete_schedule,
    list_schedules,
    put_schedule,
    read_schedule,
)

FULL = Schedule(
    Cron.parse("0 30 2 * * ? 2027", "Europe/Berlin"),
    count=7,
    until_ms=1_900_000_000_000,
    overlap="skip",
    priority=0,
    key=Key.parse("Nächte"),
    visibility_s=90,
    extension="json",
    headers=(("ce-id", "7"), ("X-Attribute-a", "ä")),
    body=b"\x00\xff\n{}",
    ttl_s=600,
    group=Group("Köln"),
    tags=(Key.parse("spät"), Key.parse("a, b")),
)


@pytest.fixture
def place(root: Path) -> TimedRoot:
    return TimedRoot(root)


@pytest.mark.parametrize(
    "schedule",
    [MINUTELY, FULL, Schedule(Every(1.5, 0.0)), Schedule(Cron.parse("*/5 * * * *"), body=b"")],
)
def test_what_is_kept_is_what_was_said(place: TimedRoot, schedule: Schedule) -> None:
    armed = place.put(schedule)
    assert armed == schedule.armed(place.clock.now_ms())
    assert place.read() == armed
    [listed] = list_schedules(place.root, QUEUE)
    assert (listed.name, listed.size) == (NAME, len(schedule.body))
    assert listed.armed is not None
    assert listed.armed.schedule.recurrence == schedule.recurrence
    assert listed.armed.schedule.body == b""
    assert place.path().stat().st_mtime_ns == (armed.next_ms or 0) * 10**6
    assert_audits_clean(place.top)


def test_a_file_says_what_is_not_by_default_and_then_the_message(place: TimedRoot) -> None:
    place.put(headers=(("ce-id", "7"),))
    lines = place.path().read_bytes().split(b"\n")
    assert lines == [b'{"version": 1, "every_s": 60.0, "head": 9}', b"ce-id: 7", b"again"]
    assert place.path().stat().st_mode & 0o777 == 0o600


def test_the_same_again_changes_nothing_and_another_replaces_it(place: TimedRoot) -> None:
    first = place.put()
    before = place.path().stat()
    place.pass_s(10)
    assert place.run(put_schedule(place.root, QUEUE, NAME, MINUTELY)) == (first, False)
    assert place.path().stat().st_ino == before.st_ino
    place.pass_s(EVERY_S)
    place.rearm(place.fire())
    assert place.put().fired == 1
    changed = place.put(body=b"other")
    assert (changed.fired, changed.last) == (0, None)
    assert changed.next_ms == place.clock.now_ms() + EVERY_S * 1000
    assert place.read() == changed


def test_a_schedule_that_has_ended_is_there_and_starts_anew_when_it_changes(
    place: TimedRoot,
) -> None:
    place.put(count=1)
    place.pass_s()
    place.rearm(place.fire())
    assert place.path().stat().st_mtime_ns == 0
    assert place.read().next_ms is None
    assert place.put(count=1).next_ms is None
    assert place.put(count=2).next_ms is not None


def test_what_is_not_there_is_not_found(place: TimedRoot) -> None:
    nobody = QueueName.parse("nobody")
    with pytest.raises(ScheduleNotFound):
        place.read()
    with pytest.raises(ScheduleNotFound):
        place.run(delete_schedule(place.root, QUEUE, NAME))
    with pytest.raises(QueueNotFound):
        place.run(delete_schedule(place.root, nobody, NAME))
    with pytest.raises(QueueNotFound):
        place.run(put_schedule(place.root, nobody, NAME, MINUTELY))
    with pytest.raises(QueueNotFound):
        list_schedules(place.root, nobody)
    with pytest.raises(QueueNotFound):
        read_schedule(place.root, nobody, NAME)
    assert place.names() in ([], [".lock"])


def test_a_schedule_is_taken_away(place: TimedRoot) -> None:
    place.put()
    place.run(delete_schedule(place.root, QUEUE, NAME))
    assert list_schedules(place.root, QUEUE) == []
    assert place.names() == [".lock"]


def test_a_queue_s_list_has_its_own_schedules_by_name(place: TimedRoot) -> None:
    other = QueueName.parse("q.q")
    place.run(create_queue(place.root, other))
    for name in ("b", "a-1", "a"):
        place.put(name=name)
    place.run(put_schedule(place.root, other, NAME, MINUTELY))
    (place.top / "schedules" / "q:no.name").touch()
    assert [each.name.text for each in list_schedules(place.root, QUEUE)] == ["a", "a-1", "b"]


def test_a_queue_has_so_many_schedules_and_no_more(
    place: TimedRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert SCHEDULES_PER_QUEUE_MAX == 1000
    monkeypatch.setattr("mq.store.schedules.schedules.SCHEDULES_PER_QUEUE_MAX", 2)
    for name in ("a", "b"):
        place.put(name=name)
    with pytest.raises(TooManySchedules):
        place.put(name="c")
    assert place.put(name="b", body=b"other").schedule.body == b"other"
    assert place.names() == [".lock", "q:a", "q:b"]


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{}\n", b"nothing\n", b'{"version": 2, "every_s": 60}\n', b'{"version": 1}\n',
        b'{"version": 1, "every_s": 60, "cron": "* * * * *"}\n',
        b'{"version": 1, "every_s": "1"}\n',
        b'{"version": 1, "every_s": 0.1}\n', b'{"version": 1, "cron": "* * *"}\n',
        b'{"version": 1, "every_s": 60, "head": 9}\nce-id: 7', b'{"version": 1, "every_s": 60',
        b'{"version": 1, "every_s": 60, "overlap": "never"}\n',
        b'{"version": 1, "every_s": 60, "extension": "exe"}\n',
        b'{"version": 1, "every_s": 60, "priority": 10}\n',
        b'{"version": 1, "every_s": 60, "last": "x"}\n',
        b'{"version": 1, "every_s": 60, "key": ""}\n',
        b'{"version": 1, "every_s": 60, "key": "\\ud800"}\n',
        b'{"version": 1, "every_s": NaN}\n', b'{"version": 1, "every_s": 60, "delay_s": NaN}\n',
        b'{"version": 1, "every_s": 1' + b"0" * 400 + b"}\n",
        b'{"version": 1, "every_s": 60, "until_ms": 253402300800000}\n',
        b'{"version": 1, "every_s": 60, "count": 1000000001}\n',
        b'{"version": 1, "cron": "* * * * *", "tz": "Nowhere"}\n', b"[" * 4000 + b"\n",
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_understood_is_told_replaced_and_taken_away(
    place: TimedRoot, content: bytes
) -> None:
    place.put()
    place.path().write_bytes(content)
    place.touch(-1)
    with pytest.raises(ScheduleUnreadable):
        place.read()
    with pytest.raises(ScheduleUnreadable):
        place.fire()
    [listed] = list_schedules(place.root, QUEUE)
    assert (listed.name, listed.armed) == (NAME, None)
    assert place.run(put_schedule(place.root, QUEUE, NAME, MINUTELY))[1] is False
    assert place.read().schedule == MINUTELY
    place.path().write_bytes(content)
    place.run(delete_schedule(place.root, QUEUE, NAME))
    assert list_schedules(place.root, QUEUE) == []


def test_a_symbolic_link_is_not_followed(place: TimedRoot) -> None:
    place.put(name="real")
    place.path().symlink_to("q:real")
    with pytest.raises(ScheduleUnreadable):
        place.read()
    place.put()
    assert not place.path().is_symlink()


def test_fields_that_are_not_known_stay_when_it_goes_on(place: TimedRoot) -> None:
    place.put()
    place.path().write_bytes(b'{"version": 1, "every_s": 60.0, "color": "red"}\nagain')
    place.touch(-1)
    place.rearm(place.fire())
    assert b'"color": "red"' in place.path().read_bytes()
    assert place.read().fired == 1


def test_a_deleted_queue_s_schedules_go_with_it(place: TimedRoot) -> None:
    place.put()
    place.pass_s()
    place.rearm(place.fire())
    place.run(delete_queue(place.root, QUEUE, new_id().uuid))
    assert place.names() == [".lock"]
    assert place.firings() == []
    place.run(create_queue(place.root, QUEUE))
    assert list_schedules(place.root, QUEUE) == []
    assert_audits_clean(place.top)


@pytest.mark.parametrize("who", ["sweeper", "maker"])
def test_what_a_crash_has_left_of_a_deleted_queue_goes(place: TimedRoot, who: str) -> None:
    place.put()
    content = place.path().read_bytes()
    place.run(delete_queue(place.root, QUEUE, new_id().uuid))
    place.path().write_bytes(content)
    if who == "sweeper":
        place.run(sweep_tombstones(place.root))
    else:
        place.run(create_queue(place.root, QUEUE))
    assert not place.path().exists()


def test_schedules_of_a_queue_that_nobody_deleted_stay(place: TimedRoot) -> None:
    """A hand has moved it away, and may bring it back."""
    place.put()
    (place.top / "queues" / "q").rename(place.top / "aside")
    place.run(sweep_tombstones(place.root))
    assert place.path().exists()
    (place.top / "aside").rename(place.top / "queues" / "q")
    assert place.read().schedule == MINUTELY


def test_a_purge_leaves_schedules(place: TimedRoot) -> None:
    armed = place.put()
    place.run(purge(place.root, QUEUE, place.clock.now_ms()))
    assert place.read() == armed


def test_what_a_dead_process_was_writing_goes_in_time(place: TimedRoot) -> None:
    left = place.top / "schedules" / f".q:nightly.{'0' * 16}-7"
    left.touch()
    foreign = place.top / "schedules" / ".nfs0001"
    foreign.touch()
    place.run(sweep_tombstones(place.root))
    assert left.exists()
    place.pass_s(FORGOTTEN_AFTER_S + 1)
    place.run(sweep_tombstones(place.root))
    assert not left.exists()
    assert foreign.exists()


def test_a_full_disk_is_told_before_anything_is_written(root: Path) -> None:
    place = TimedRoot(root)
    place.root = open_root(str(root), Files(), FakeClock(), reserve_bytes=1 << 60)
    with pytest.raises(NoSpace):
        place.put()
    assert place.names() in ([], [".lock"])


def test_several_are_put_at_a_time(place: TimedRoot) -> None:
    """Of one name the last one stays; whoever meets another's writes again."""
    steps = [
        put_schedule(place.root, QUEUE, NAME, Schedule(Every(60.0), body=b"%d" % n))
        for n in range(4)
    ]
    steps += [put_schedule(place.root, QUEUE, ScheduleName(f"n{n}"), MINUTELY) for n in range(4)]
    outcomes = run_group(steps, place.flusher)
    assert [outcome.error for outcome in outcomes] == [None] * 8
    assert [outcome.value[1] for outcome in outcomes[:4]].count(True) == 1
    assert place.names() == [".lock", *(f"q:n{n}" for n in range(4)), "q:nightly"]


def test_an_older_root_gets_its_folders_at_the_next_start(root: Path) -> None:
    open_root(str(root), Files(), FakeClock())
    (root / "schedules").rmdir()
    place = TimedRoot(root)
    place.put()
    assert place.read().schedule == MINUTELY


def test_what_nfs_did_and_lost_the_answer_of_is_done(root: Path) -> None:
    files = FaultyFiles()
    place = TimedRoot(root, files)
    for call in ("rename", "unlink"):
        files.fail(call, errno.ENOENT, "/schedules/q:", times=1, performed=True)
    assert place.put() == place.read()
    place.run(delete_schedule(place.root, QUEUE, NAME))
    assert place.names() == [".lock"]


def test_a_schedule_that_changes_while_it_is_replaced_is_looked_at_again(root: Path) -> None:
    """A firing comes between the look and the rename; the same schedule stays as it is then."""
    place = TimedRoot(root)
    place.put(body=b"before")
    steps = put_schedule(place.root, QUEUE, NAME, MINUTELY)
    next(steps)
    os.utime(place.path(), ns=(10**18, 10**18))
    assert to_its_end(steps) == (place.read(), False)
    assert place.names() == [".lock", "q:nightly"]


def test_several_are_rearmed_though_one_could_not_be_flushed(root: Path) -> None:
    files = FaultyFiles()
    flusher = FsyncFlusher(files, 1)
    place = TimedRoot(root, files, flusher)
    names = ["a", "b", "c"]
    for name in names:
        place.put(name=name)
    place.pass_s()
    fired = [place.fire(name) for name in names]
    files.fail("sync", errno.EIO, "/.q:b", times=1)
    armed = place.rearm(*fired)
    assert [each is None for each in armed] == [False, True, False]
    assert [place.read(name).fired for name in names] == [1, 0, 1]
    assert place.names() == [".lock", "q:a", "q:b", "q:c"]
    assert files.open_paths() == []
    # The link stands: it is not published again.
    again = place.fire("b")
    assert (again.message, again.is_ours) == (fired[1].message, False)
    flusher.close()
