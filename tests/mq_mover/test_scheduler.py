"""Firing schedules: one message for each due time, by however many movers."""

import errno
import fcntl
import os
from dataclasses import replace
from pathlib import Path

import pytest
from harness.audits import assert_audits_clean
from harness.faults import FaultyFiles
from harness.messages import new_id
from harness.processes import Processes, eventually
from harness.schedules import EVERY_S, MINUTELY, NAME, QUEUE, TimedRoot, to_its_end
from harness.upkeep import all_policies

from mq.model.clock import rfc3339
from mq.model.headers import Headers
from mq.model.limits import FORGOTTEN_AFTER_S
from mq.model.message import Stamp
from mq.model.names import Key, MessageId, ScheduleName
from mq.model.recurrence import Every
from mq.model.schedule import Schedule
from mq.model.settings import QueueSettings
from mq.store.disk.files import Files
from mq.store.disk.group import run_group
from mq.store.keys.orphans import FIRING_KEPT_S
from mq.store.operations.publish import Draft, publish
from mq.store.operations.purge import purge
from mq.store.operations.queues import create_queue, delete_queue
from mq.store.schedules.firing import Firing, MovedOn, fire, rearm
from mq.store.schedules.schedules import delete_schedule, put_schedule
from mq.store.settings.configure import change_settings
from mq_mover.scheduler import FIRING_AGAIN_S, FIRING_STUCK_AGAIN_S


@pytest.fixture
def place(root: Path) -> TimedRoot:
    return TimedRoot(root)


def logged(place: TimedRoot, caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == "mq-mover.schedules"]


def test_a_schedule_is_fired_when_it_is_due_and_not_before(place: TimedRoot) -> None:
    place.put()
    scheduler = place.scheduler()
    assert scheduler.run_once() == 0
    assert scheduler.next_due_s() == EVERY_S
    place.pass_s(EVERY_S - 0.001)
    assert scheduler.run_once() == 0
    place.pass_s(0.001)
    assert scheduler.run_once() == 1
    assert place.bodies() == [b"again"]
    armed = place.read()
    assert (armed.fired, armed.last) == (1, place.ready()[0])
    assert scheduler.next_due_s() == EVERY_S
    assert scheduler.run_once() == 0
    assert_audits_clean(place.top)


def test_its_message_is_as_the_schedule_says(place: TimedRoot) -> None:
    place.put(
        priority=7, key=Key.parse("night"), visibility_s=90, extension="json",
        headers=(("ce-id", "7"),),
    )  # fmt: skip
    place.pass_s()
    place.scheduler().run_once()
    [message_id] = place.ready()
    assert ",p=7,k=night,v=90,h=" in message_id.text
    assert message_id.extension == "json"
    assert place.bodies() == [b"again"]
    fired = f'name="nightly", due="{rfc3339(place.clock.now_ms())}", number=1'
    assert place.headers() == [(("ce-id", "7"), ("X-Message-Schedule", fired))]
    path = place.top / "queues/q" / message_id.text
    assert Stamp.from_mtime_ns(path.stat().st_mtime_ns) == Stamp(message_id.published_ms)
    assert_audits_clean(place.top)


def test_its_messages_are_numbered_and_have_the_times_that_they_were_due_at(
    place: TimedRoot,
) -> None:
    place.put()
    due_ms = place.clock.now_ms() + round(EVERY_S * 1000)
    scheduler = place.scheduler()
    for seconds in (EVERY_S, EVERY_S + 5, EVERY_S):
        place.pass_s(seconds)
        assert scheduler.run_once() == 1
    assert place.headers() == [
        (("X-Message-Schedule", f'name="nightly", due="{rfc3339(each)}", number={number}'),)
        for number, each in enumerate((due_ms, due_ms + 60_000, due_ms + 120_000), 1)
    ]


@pytest.mark.parametrize(
    "headers",
    [(("x-attribute-a", "v" * (8192 - 16)),), tuple((f"ce-{n}", "") for n in range(64))],
    ids=["bytes", "count"],
)
def test_headers_without_room_for_one_more_stay_as_they_are(
    place: TimedRoot, headers: Headers
) -> None:
    place.put(headers=headers)
    place.pass_s()
    assert place.scheduler().run_once() == 1
    assert place.headers() == [headers]
    assert_audits_clean(place.top)


def test_where_it_says_no_priority_it_is_the_queue_s(place: TimedRoot) -> None:
    (place.top / "settings" / "q.json").write_text('{"priority_default": 3}')
    place.put()
    place.pass_s()
    place.scheduler().run_once()
    assert place.ready()[0].priority == 3


def test_firings_keep_the_grid_and_those_that_were_missed_are_one(place: TimedRoot) -> None:
    first_ms = place.put().next_ms
    assert first_ms is not None
    scheduler = place.scheduler()
    place.pass_s(10.5 * EVERY_S)
    assert scheduler.run_once() == 1
    assert scheduler.run_once() == 0
    assert place.read().next_ms == first_ms + 10 * EVERY_S * 1000
    for _ in range(3):
        place.pass_s()
        assert scheduler.run_once() == 1
    assert place.read().fired == len(place.ready()) == 4


def test_each_missed_firing_publishes_where_all_are_made_up_for(place: TimedRoot) -> None:
    place.put(misfire="all")
    place.pass_s(3.5 * EVERY_S)
    scheduler = place.scheduler()
    assert [scheduler.run_once() for _ in range(4)] == [1, 1, 1, 0]
    assert place.read().fired == 3
    assert len({each[0][1] for each in place.headers()}) == 3


def test_a_late_firing_is_skipped_where_none_is_made_up_for(place: TimedRoot) -> None:
    first_ms = place.put(misfire="skip").next_ms
    assert first_ms is not None
    scheduler = place.scheduler()
    place.pass_s(EVERY_S + 61)
    assert scheduler.run_once() == 0
    armed = place.read()
    assert (armed.skipped, armed.fired, armed.next_ms) == (1, 0, first_ms + 2 * EVERY_S * 1000)
    place.pass_s(EVERY_S + 58)  # A minute late at most.
    assert scheduler.run_once() == 1
    assert_audits_clean(place.top)


def test_the_next_firing_is_counted_from_the_end_of_the_last_message(place: TimedRoot) -> None:
    place.put(after="done", count=3)
    scheduler = place.scheduler()
    for fired in (1, 2, 3):
        place.pass_s()
        assert scheduler.run_once() == 1
        place.pass_s(10 * EVERY_S)
        assert scheduler.run_once() == 0  # Its message lives.
        assert (place.read().fired, place.read().waiting) == (fired, fired < 3)
        place.take_away()
        place.pass_s(1)
        assert place.scheduler().run_once() == scheduler.run_once() == 0
        ends = place.clock.now_ms() + round(EVERY_S * 1000)
        assert place.read().next_ms == (ends if fired < 3 else None)
    assert_audits_clean(place.top)


def test_a_message_that_was_sidelined_has_ended(place: TimedRoot) -> None:
    place.put(after="done")
    place.pass_s()
    scheduler = place.scheduler()
    assert scheduler.run_once() == 1
    sideline = QUEUE.sideline()
    place.run(create_queue(place.root, sideline))
    [message_id] = place.ready()
    (place.top / "queues/q" / message_id.text).rename(
        place.top / "queues" / sideline.text / message_id.text
    )
    place.pass_s(1)
    assert scheduler.run_once() == 0
    assert not place.read().waiting


def test_a_count_ends_it(place: TimedRoot) -> None:
    place.put(count=2)
    scheduler = place.scheduler()
    for published in (1, 1, 0, 0):
        place.pass_s()
        assert scheduler.run_once() == published
    assert (place.read().fired, place.read().next_ms) == (2, None)
    assert scheduler.next_due_s() is None


def test_a_time_ends_it_and_what_was_due_before_that_is_fired_late(place: TimedRoot) -> None:
    place.put(until_ms=place.clock.now_ms() + 90_000)
    scheduler = place.scheduler()
    for published in (1, 0):
        place.pass_s(10 * EVERY_S)
        assert scheduler.run_once() == published
    assert place.read().next_ms is None


def test_it_is_skipped_while_its_last_message_lives(place: TimedRoot) -> None:
    place.put(overlap="skip")
    scheduler = place.scheduler()
    for published in (1, 0, 0):
        place.pass_s()
        assert scheduler.run_once() == published
    assert (place.read().fired, place.read().skipped) == (1, 2)
    place.take_away()
    place.pass_s()
    assert scheduler.run_once() == 1
    place.run(purge(place.root, QUEUE, place.clock.now_ms()))
    place.pass_s()
    assert scheduler.run_once() == 1
    assert (place.read().fired, place.read().skipped) == (3, 2)


def test_it_is_skipped_while_another_message_has_its_key(place: TimedRoot) -> None:
    key = Key.parse("night")
    holder = MessageId(new_id().uuid, key=key)
    place.run(publish(place.root, Draft(QUEUE, holder, place.clock.now_ms()), b"first"))
    place.put(key=key)
    scheduler = place.scheduler()
    place.pass_s()
    assert scheduler.run_once() == 0
    assert place.bodies() == [b"first"]
    assert (place.read().fired, place.read().skipped) == (0, 1)
    assert place.firings() == []
    assert not list((place.top / "new").iterdir())
    place.take_away()
    place.pass_s()
    assert scheduler.run_once() == 1
    assert_audits_clean(place.top)


def test_two_movers_fire_once(place: TimedRoot) -> None:
    place.put()
    movers = [place.scheduler(), place.scheduler()]
    for n in range(1, 6):
        place.pass_s()
        assert sum(mover.run_once() for mover in movers) == 1
        assert place.read().fired == len(place.ready()) == n


def test_those_who_fire_at_the_same_time_fire_once(place: TimedRoot) -> None:
    """Each has seen it due, and none has made its link yet."""
    place.put(key=Key.parse("night"))
    place.pass_s()
    fired = run_group([fire(place.root, place.uuids, QUEUE, NAME) for _ in range(3)], place.flusher)
    firings: list[Firing] = [outcome.value for outcome in fired]
    assert {firing.message for firing in firings} == set(place.ready())
    assert [firing.is_ours for firing in firings].count(True) == 1
    armed = run_group([rearm(place.root, [each]) for each in firings], place.flusher)
    assert [outcome.value != [None] for outcome in armed].count(True) == 1
    assert place.read().fired == len(place.ready()) == 1
    assert not list((place.top / "new").iterdir())
    assert place.names() == [".lock", "q:nightly"]


def test_what_one_published_who_died_is_not_published_again(place: TimedRoot) -> None:
    """Neither at once nor long after, when others sweep; and it counts."""
    place.put(overlap="skip")
    place.pass_s()
    message = place.fire().message
    place.pass_s(2 * FIRING_KEPT_S)
    all_policies(place.root, place.flusher).run_once()
    assert len(place.firings()) == 1
    assert place.scheduler().run_once() == 0
    assert place.ready() == [message]
    assert (place.read().fired, place.read().skipped, place.read().last) == (1, 0, message)


def test_what_one_staged_who_died_is_fired_by_the_next(place: TimedRoot) -> None:
    place.put()
    place.pass_s()
    message = place.fire().message
    assert message is not None
    (place.top / "queues/q" / message.text).rename(place.top / "new" / f"q:{message.text}")
    assert place.scheduler().run_once() == 1
    (fired,) = place.ready()
    assert fired != message
    assert place.read().last == fired


def test_what_was_staged_and_forgotten_is_fired_anew(place: TimedRoot) -> None:
    """Its link goes before its file: it never said of a message that was not delivered."""
    place.put()
    place.pass_s()
    message = place.fire().message
    assert message is not None
    (place.top / "queues/q" / message.text).rename(place.top / "new" / f"q:{message.text}")
    place.pass_s(FORGOTTEN_AFTER_S + 100)
    all_policies(place.root, place.flusher).run_once()
    assert place.firings() == []
    assert place.scheduler().run_once() == 1
    assert place.read().fired == len(place.ready()) == 1


def test_one_that_comes_late_sees_that_it_was_fired(place: TimedRoot) -> None:
    """Its link was swept long since; the schedule has gone on."""
    place.put()
    place.pass_s()
    late = fire(place.root, place.uuids, QUEUE, NAME)
    next(late)
    place.scheduler().run_once()
    place.pass_s(2 * FIRING_KEPT_S)
    place.touch(3600)
    all_policies(place.root, place.flusher).run_once()
    assert place.firings() == []
    with pytest.raises(MovedOn):
        to_its_end(late)
    assert len(place.ready()) == 1
    assert not list((place.top / "new").iterdir())
    # Its own link, whose file was forgotten, goes as the others do.
    place.pass_s(2 * FIRING_KEPT_S)
    all_policies(place.root, place.flusher).run_once()
    assert place.firings() == []


def test_links_of_firings_go_in_time_once_the_schedule_went_on(place: TimedRoot) -> None:
    place.put()
    scheduler, sweeper = place.scheduler(), all_policies(place.root, place.flusher)
    for _ in range(3):
        place.pass_s()
        scheduler.run_once()
        sweeper.run_once()
    assert len(place.firings()) == 3
    place.pass_s(FIRING_KEPT_S + EVERY_S)
    scheduler.run_once()
    sweeper.run_once()
    assert place.firings() == []
    assert_audits_clean(place.top)


@pytest.mark.parametrize("change", ["deleted", "replaced", "postponed"])
def test_a_schedule_that_changes_before_its_message_shows_is_not_fired(
    place: TimedRoot, change: str
) -> None:
    place.put()
    place.pass_s()
    firing = fire(place.root, place.uuids, QUEUE, NAME)
    next(firing)
    if change == "deleted":
        place.run(delete_schedule(place.root, QUEUE, NAME))
    elif change == "replaced":
        place.put(body=b"other")
    else:
        place.touch(100)
    with pytest.raises(MovedOn):
        to_its_end(firing)
    assert place.ready() == []
    assert place.firings() == []
    assert not list((place.top / "new").iterdir())


def test_what_was_replaced_while_it_fired_stays_as_it_was_put(place: TimedRoot) -> None:
    place.put()
    place.pass_s()
    firing = place.fire()
    changed = place.put(body=b"other")
    assert place.rearm(firing) == [None]
    assert place.read() == changed
    assert place.names() == [".lock", "q:nightly"]


def test_a_hand_s_touch_is_seen_within_a_second(place: TimedRoot) -> None:
    place.put()
    scheduler = place.scheduler()
    scheduler.run_once()
    place.touch(0)
    place.pass_s(1)
    assert scheduler.run_once() == 1
    place.touch(500)
    place.pass_s(1)
    scheduler.run_once()
    assert scheduler.next_due_s() == 499
    os.utime(place.path(), ns=(0, 0))
    place.pass_s(1000)
    assert scheduler.run_once() == 0
    assert scheduler.next_due_s() is None


def test_what_others_put_is_seen_within_a_second(place: TimedRoot) -> None:
    scheduler = place.scheduler()
    scheduler.run_once()
    place.put(Schedule(Every(1.0)))
    place.pass_s(1)
    assert scheduler.run_once() == 1


def test_a_purged_queue_s_schedules_go_on(place: TimedRoot) -> None:
    """Also where the mark is a little ahead of this process's clock."""
    place.put()
    scheduler = place.scheduler()
    place.pass_s()
    place.run(purge(place.root, QUEUE, place.clock.now_ms() + 300))
    assert scheduler.run_once() == 0
    place.pass_s(FIRING_AGAIN_S)
    assert scheduler.run_once() == 1
    assert len(place.ready()) == 1


def test_a_deleted_queue_s_schedules_are_not_fired(
    place: TimedRoot, caplog: pytest.LogCaptureFixture
) -> None:
    """What a crash left of them, until it is swept; told once."""
    place.put()
    content = place.path().read_bytes()
    place.run(delete_queue(place.root, QUEUE, new_id().uuid))
    place.path().write_bytes(content)
    place.touch(-1)
    scheduler = place.scheduler()
    for _ in range(3):
        assert scheduler.run_once() == 0
        place.pass_s(FIRING_STUCK_AGAIN_S)
    assert len(logged(place, caplog)) == 1
    place.run(create_queue(place.root, QUEUE))
    place.pass_s(1)
    assert scheduler.run_once() == 0
    assert scheduler.next_due_s() is None


def test_an_expired_queue_s_schedules_wait_and_are_fired_once_it_is_back(
    place: TimedRoot, caplog: pytest.LogCaptureFixture
) -> None:
    place.put()
    at = rfc3339(place.clock.now_ms() + 1000)

    def configure(expires_at: str | None) -> None:
        fields = {"expires_at": expires_at}
        place.run(change_settings(place.root, QUEUE, fields, QueueSettings()))

    configure(at)
    scheduler = place.scheduler()
    place.pass_s(EVERY_S)
    for _ in range(3):
        assert scheduler.run_once() == 0
        place.pass_s(FIRING_STUCK_AGAIN_S)
    assert len(logged(place, caplog)) == 1
    assert place.read().fired == 0
    assert place.ready() == []
    configure(None)
    place.pass_s(FIRING_STUCK_AGAIN_S)
    assert scheduler.run_once() == 1
    assert len(place.ready()) == 1


def test_a_file_that_cannot_be_understood_is_told_once_and_fired_when_it_can(
    place: TimedRoot, caplog: pytest.LogCaptureFixture
) -> None:
    place.put()
    place.put(name="other")
    content = place.path().read_bytes()
    place.path().write_bytes(b"what?")
    place.touch(-1)
    scheduler = place.scheduler()
    place.pass_s()
    assert scheduler.run_once() == 1
    for _ in range(3):
        place.pass_s(FIRING_AGAIN_S)
        assert scheduler.run_once() == 0
    assert len(logged(place, caplog)) == 1
    place.path().write_bytes(content)
    place.touch(-1)
    place.pass_s(FIRING_AGAIN_S)
    assert scheduler.run_once() == 1


@pytest.mark.parametrize("where", ["/new/", "/schedules/", "/.firings/"])
def test_a_full_disk_loses_no_firing_and_makes_none_twice(root: Path, where: str) -> None:
    files = FaultyFiles()
    place = TimedRoot(root, files)
    place.put()
    scheduler = place.scheduler()
    place.pass_s()
    for call in ("create", "write", "link", "mkdir"):
        files.fail(call, errno.ENOSPC, where)
    before = (place.path().stat().st_ino, place.path().stat().st_mtime_ns)
    for _ in range(3):
        scheduler.run_once()
        place.pass_s(FIRING_AGAIN_S)
        assert (place.path().stat().st_ino, place.path().stat().st_mtime_ns) == before
    files.heal()
    scheduler.run_once()
    assert place.read().fired == len(place.ready()) == 1
    assert not list((place.top / "new").iterdir())
    assert place.names() == [".lock", "q:nightly"]


def test_what_is_next_waits_for_one_who_has_the_lock(place: TimedRoot) -> None:
    """And hangs there: the message is published, and once."""
    place.put()
    scheduler = place.scheduler()
    place.pass_s()
    with (place.top / "schedules" / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert scheduler.run_once() == 1
        place.pass_s(FIRING_AGAIN_S)
        assert scheduler.run_once() == 0
        assert place.read().fired == 0
    place.pass_s(FIRING_AGAIN_S)
    assert scheduler.run_once() == 0
    assert place.read().fired == len(place.ready()) == 1
    assert place.names() == [".lock", "q:nightly"]


def test_a_firing_that_comes_after_the_last_time_of_the_disk_ends_it(root: Path) -> None:
    class Short(Files):
        def stamp(self, descriptor: int, mtime_ns: int) -> None:
            super().stamp(descriptor, min(mtime_ns, 2**31 * 10**9))

    place = TimedRoot(root, Short())
    place.put(Schedule(Every(1e8)))
    place.clock.set_ms((2**31 - 100) * 1000)
    place.touch(-1)
    assert place.scheduler().run_once() == 1
    assert (place.read().fired, place.read().next_ms) == (1, None)


@pytest.mark.certificate
def test_a_thousand_that_are_due_at_once_are_each_fired_once(place: TimedRoot) -> None:
    for n in range(1000):
        place.put(replace(MINUTELY, body=b"%d" % n), name=f"n{n}")
    place.pass_s()
    movers = [place.scheduler(), place.scheduler()]
    published = 0
    while now := sum(mover.run_once() for mover in movers):
        published += now
    assert published == 1000
    assert sorted(place.bodies()) == sorted(b"%d" % n for n in range(1000))
    assert {place.read(f"n{n}").fired for n in range(1000)} == {1}


def test_large_ones_are_held_a_few_at_a_time(place: TimedRoot) -> None:
    large = b"x" * (1 << 20)
    for n in range(20):
        place.put(body=large, name=f"n{n}")
    place.pass_s()
    assert place.scheduler().run_once() == 20
    assert place.bodies() == [large] * 20


def test_foreign_names_and_folders_are_left_alone(place: TimedRoot) -> None:
    for name in ("q", "q:no.name", ".hidden", "q:x:y"):
        (place.top / "schedules" / name).touch()
    (place.top / "schedules" / "q:folder").mkdir()
    place.touch(-1, "folder")
    assert place.scheduler().run_once() == 0
    assert (place.top / "schedules" / "q:folder").is_dir()


@pytest.mark.certificate
def test_two_real_movers_fire_each_once(daemons: Processes, root: Path) -> None:
    place = TimedRoot(root)
    movers = [daemons.mover("--root", str(root)) for _ in range(2)]
    count, each = 10, 3
    for n in range(count):
        soon = Schedule(Every(1.0, 0.2), count=each, body=b"%d" % n)
        place.run(put_schedule(place.root, QUEUE, ScheduleName(f"n{n}"), soon))
    for n in range(count):
        eventually(lambda n=n: place.read(f"n{n}").next_ms is None, f"n{n} has ended")
    assert sorted(place.bodies()) == sorted(b"%d" % n for n in range(count) for _ in range(each))
    assert {place.read(f"n{n}").fired for n in range(count)} == {each}
    assert [mover.terminate() for mover in movers] == [0, 0]
    assert_audits_clean(root)
