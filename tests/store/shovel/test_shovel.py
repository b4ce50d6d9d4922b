"""Taking messages back from a sideline: what moves, what stays, and what it meets
on the way.
"""

import errno
import fcntl
import itertools
import os
from pathlib import Path

import pytest
from harness.audits import LOOKS, audit
from harness.faults import Met
from harness.leases import QUEUE, LeasingRoot, stamp_of
from harness.messages import put_file

from mq.model.errors import KeyNotFound, KeyTaken, StorageFailed
from mq.model.history import Event
from mq.model.lifecycle import State
from mq.model.limits import FORGOTTEN_AFTER_S
from mq.model.message import Reason, Stamp
from mq.model.names import Key, MessageId, QueueName
from mq.model.settings import QueueSettings
from mq.model.shovel import ALL, Criteria, Why
from mq.store.core.find import whereabouts
from mq.store.disk.flush import FsyncFlusher
from mq.store.format.layout import Keys
from mq.store.keys.orphans import OrphanSweep
from mq.store.operations.fetch import fetch
from mq.store.operations.publish import Draft, publish
from mq.store.operations.purge import PURGE_MARK_KEPT_S, purge, sweep_purged
from mq.store.operations.queues import delete_queue
from mq.store.operations.remove import find_key, remove
from mq.store.operations.sideline import sideline
from mq.store.scan.order import STRICT, Candidate
from mq.store.settings.configure import change_settings
from mq.store.shovel.shovel import Aim, Pass, Shovelled, look_at_many, shovel, shovel_many

SIDELINE = QUEUE.sideline()
K = Key.parse("k")


@pytest.fixture
def files() -> Met:
    return Met()


@pytest.fixture(params=[10_000, 1], ids=["flat", "buckets"])
def place(tmp_path: Path, files: Met, request: pytest.FixtureRequest) -> LeasingRoot:
    return made(tmp_path, files, request.param)


def made(tmp_path: Path, files: Met, folder_max: int = 10_000) -> LeasingRoot:
    place = LeasingRoot(tmp_path / "root", folder_max, files, FsyncFlusher(files, 1))
    place.make_queue(SIDELINE)
    return place


def sidelined(place: LeasingRoot, *, is_fetched: bool = False) -> MessageId:
    """The last of three, so that it goes to a bucket where there are any."""
    ids = place.publish(3)
    for each in ids[:2]:
        place.run(remove(place.root, QUEUE, each))
    if is_fetched:
        assert place.run(fetch(place.root, QUEUE, ids[2], 60)) is not None
    place.run(sideline(place.root, QUEUE, ids[2], Reason.EXCEPTION))
    return ids[2]


def keyed(place: LeasingRoot, queue: QueueName = QUEUE) -> MessageId:
    message_id = MessageId(place.uuids.next(), key=K)
    place.run(publish(place.root, Draft(queue, message_id, message_id.published_ms), b"x"))
    return message_id


def sidelined_keyed(place: LeasingRoot) -> MessageId:
    message_id = keyed(place)
    place.run(sideline(place.root, QUEUE, message_id))
    return message_id


def aim(place: LeasingRoot, criteria: Criteria = ALL) -> Aim:
    return Aim(QUEUE, criteria, place.clock.now_ms())


def there(place: LeasingRoot, message_id: MessageId) -> Candidate:
    """As a listing finds it."""
    (path,) = (place.top / "queues" / SIDELINE.text).rglob(message_id.text)
    below = path.parent.relative_to(place.top / "queues" / SIDELINE.text).as_posix()
    return Candidate(STRICT.key(message_id.text), "" if below == "." else f"{below}/")


def back(place: LeasingRoot, *ids: MessageId, criteria: Criteria = ALL) -> Shovelled:
    candidates = [there(place, each) for each in ids]
    return shovel_many(place.root, place.flusher, aim(place, criteria), candidates)


def why(place: LeasingRoot, message_id: MessageId, criteria: Criteria = ALL) -> Why | None:
    """What became of it; None: it was moved."""
    became = back(place, message_id, criteria=criteria)
    assert became.error is None
    if became.moved:
        assert became.moved == (message_id,)
        return None
    ((found, count),) = became.stayed.items()
    assert count == 1
    return found


def states(place: LeasingRoot, message_id: MessageId) -> tuple[State | None, State | None]:
    """Where it is in the queue, and in its sideline."""
    root = place.root
    return whereabouts(root, QUEUE, message_id), whereabouts(root, SIDELINE, message_id)


HERE, THERE = (State.READY, None), (None, State.READY)


@pytest.mark.parametrize("is_fetched", [True, False])
def test_it_goes_with_its_name_and_its_receives(place: LeasingRoot, is_fetched: bool) -> None:
    message_id = sidelined(place, is_fetched=is_fetched)
    place.pass_s(7)
    assert why(place, message_id) is None
    assert stamp_of(place.root, message_id) == Stamp(place.clock.now_ms(), int(is_fetched))
    assert states(place, message_id) == HERE
    delivery = place.run(fetch(place.root, QUEUE, message_id, 60))
    assert delivery is not None
    assert (delivery.body, delivery.stamp.receives) == (b"x", 1 + is_fetched)
    assert audit(place.root).is_clean


def test_its_history_says_so(place: LeasingRoot) -> None:
    place.run(change_settings(place.root, QUEUE, {"history": True}, QueueSettings()))
    place.pass_s(1)
    message_id = sidelined(place)
    assert why(place, message_id) is None
    place.root.history.write_out()
    lines = [path.read_text() for path in place.top.glob("history/q/*/*.ndjson")]
    last = "".join(lines).splitlines()[-1]
    assert f'"event": "{Event.SHOVELLED.value}", "id": "{message_id.text}"' in last


def test_many_go_together(place: LeasingRoot, files: Met) -> None:
    ids = [sidelined(place) for _ in range(5)]
    since = len(files.calls)
    became = back(place, *ids)
    assert (became.moved, dict(became.stayed), became.error) == (tuple(ids), {}, None)
    flushed = [path for kind, path in files.calls[since:] if kind == "sync_folder"]
    assert len(flushed) == len(set(flushed))


@pytest.mark.parametrize("is_fetched", [True, False])
def test_round_and_round_until_it_was_received_too_often(
    place: LeasingRoot, is_fetched: bool
) -> None:
    message_id = sidelined(place, is_fetched=is_fetched)
    criteria, rounds = Criteria.of(max_receives=3), 0
    while why(place, message_id, criteria) is None:
        place.run(fetch(place.root, QUEUE, message_id, 60))
        place.run(sideline(place.root, QUEUE, message_id))
        rounds += 1
    assert rounds == (2 if is_fetched else 3)
    assert why(place, message_id, criteria) is Why.RECEIVES
    assert stamp_of(place.root, message_id, SIDELINE).receives == 3
    assert why(place, message_id) is None


# What stays


def test_what_is_not_to_go(place: LeasingRoot) -> None:
    message_id = sidelined(place)
    assert why(place, message_id, Criteria.of(priority="1..")) is Why.NOT_SELECTED
    assert why(place, message_id, Criteria.of(older_than_s=1)) is Why.TOO_YOUNG
    assert states(place, message_id) == THERE
    assert stamp_of(place.root, message_id, SIDELINE).reason == Reason.EXCEPTION
    place.pass_s(1)
    assert why(place, message_id, Criteria.of(older_than_s=1)) is None


def test_what_was_sidelined_after_the_pass_began_waits(place: LeasingRoot) -> None:
    """So a process that was stopped in the middle of a pass does not take it a second time."""
    late = aim(place)
    place.pass_s(1)
    message_id = sidelined(place)
    candidates = [there(place, message_id)]
    for _ in range(2):
        became = shovel_many(place.root, place.flusher, late, candidates)
        assert (became.moved, dict(became.stayed)) == ((), {Why.LATER: 1})
    assert why(place, message_id) is None


def test_what_was_purged_meanwhile_stays(place: LeasingRoot) -> None:
    message_id = sidelined(place)
    place.run(purge(place.root, QUEUE, place.clock.now_ms()))
    assert why(place, message_id) is Why.PURGED
    place.pass_s(PURGE_MARK_KEPT_S + 1)
    for _ in range(2):
        sweep_purged(place.root, {})
    assert why(place, message_id) is None


def test_what_was_purged_in_the_sideline_is_gone(place: LeasingRoot) -> None:
    message_id = sidelined(place)
    place.run(purge(place.root, SIDELINE, place.clock.now_ms()))
    assert why(place, message_id) is Why.GONE
    assert states(place, message_id)[0] is None


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        ({"message_ttl_s": 100}, Why.EXPIRED),
        ({"expires_at": "2001-01-01T00:00:00Z"}, Why.QUEUE_EXPIRED),
    ],
)
def test_the_queue_s_settings_count(
    place: LeasingRoot, patch: dict[str, object], expected: Why
) -> None:
    message_id = sidelined(place)
    place.pass_s(101)
    place.run(change_settings(place.root, QUEUE, patch, QueueSettings()))
    assert why(place, message_id) is expected
    place.run(change_settings(place.root, QUEUE, dict.fromkeys(patch), QueueSettings()))
    # Those of the sideline do not.
    place.run(change_settings(place.root, SIDELINE, patch, QueueSettings()))
    assert why(place, message_id) is None


def test_settings_that_cannot_be_read_keep_all(place: LeasingRoot) -> None:
    message_id = sidelined(place)
    path = Path(place.root.layout.settings_of(QUEUE))
    path.write_text("{")
    assert why(place, message_id) is Why.SETTINGS_UNREADABLE
    path.unlink()
    assert why(place, message_id) is None


def test_a_queue_that_is_not_there(place: LeasingRoot) -> None:
    message_id = sidelined(place)
    place.run(delete_queue(place.root, QUEUE, place.uuids.next()))
    assert why(place, message_id) is Why.QUEUE_MISSING
    place.make_queue(QUEUE)
    assert why(place, message_id) is None


def test_what_went_meanwhile(place: LeasingRoot) -> None:
    ids = [sidelined(place) for _ in range(3)]
    candidates = [there(place, each) for each in ids]
    place.run(remove(place.root, SIDELINE, ids[0]))
    place.run(fetch(place.root, SIDELINE, ids[1], 60))
    assert why(place, ids[2]) is None
    became = shovel_many(place.root, place.flusher, aim(place), candidates)
    assert (became.moved, dict(became.stayed)) == ((), {Why.GONE: 3})


def test_what_another_holds_stays(place: LeasingRoot, files: Met) -> None:
    message_id = sidelined(place)
    (path,) = place.top.glob(f"queues/**/{message_id.text}")
    descriptor = files.open_claimed(str(path))
    assert files.lock(descriptor)
    assert why(place, message_id) is Why.BUSY
    files.close(descriptor)
    assert why(place, message_id) is None


@pytest.mark.parametrize("criteria", [ALL, Criteria.of(key="a*"), Criteria.of(older_than_s=9)])
def test_a_dry_run_says_the_same_and_changes_nothing(
    place: LeasingRoot, files: Met, criteria: Criteria
) -> None:
    ids = [sidelined(place) for _ in range(3)]
    kept = sidelined_keyed(place)
    taken = keyed(place)
    purged_ms = ids[0].published_ms - 1
    place.run(purge(place.root, QUEUE, purged_ms))
    candidates = [there(place, each) for each in (*ids, kept)]
    place.run(remove(place.root, SIDELINE, ids[1]))
    since = len(files.calls)
    said = look_at_many(place.root, aim(place, criteria), candidates)
    assert {kind for kind, _ in files.calls[since:]} <= (LOOKS | {"open_claimed"}) - {"lock"}
    became = shovel_many(place.root, place.flusher, aim(place, criteria), candidates)
    assert (said.moved, dict(said.stayed)) == (became.moved, dict(became.stayed))
    assert states(place, taken) == HERE


def test_a_look_that_fails_is_told(place: LeasingRoot, files: Met) -> None:
    candidates = [there(place, sidelined(place)) for _ in range(2)]
    files.fail("status", errno.EIO, candidates[1].name)
    assert isinstance(look_at_many(place.root, aim(place), candidates).error, OSError)


# Keys


def link(place: LeasingRoot, queue: QueueName = QUEUE) -> str | None:
    path = place.root.layout.link(Keys.LOOKUP, queue, K).path
    return os.readlink(path) if os.path.lexists(path) else None


def test_it_has_its_key_again(place: LeasingRoot) -> None:
    message_id = sidelined_keyed(place)
    assert link(place) is None
    assert why(place, message_id) is None
    assert place.run(find_key(place.root, QUEUE, K)) == message_id
    with pytest.raises(KeyTaken):
        keyed(place)
    assert audit(place.root).is_clean


@pytest.mark.parametrize("is_fetched", [True, False])
def test_where_a_living_message_has_its_key_it_stays(place: LeasingRoot, is_fetched: bool) -> None:
    message_id, other = sidelined_keyed(place), keyed(place)
    if is_fetched:
        place.run(fetch(place.root, QUEUE, other, 60))
    assert why(place, message_id) is Why.KEY_TAKEN
    assert link(place) == other.text
    place.run(remove(place.root, QUEUE, other))
    assert why(place, message_id) is None


def test_of_two_with_one_key_the_first_goes(place: LeasingRoot) -> None:
    first, second = sidelined_keyed(place), sidelined_keyed(place)
    became = back(place, first, second)
    assert (became.moved, dict(became.stayed)) == ((first,), {Why.KEY_TAKEN: 1})
    assert link(place) == first.text
    place.run(sideline(place.root, QUEUE, first))
    assert why(place, second) is None


def test_a_link_that_was_left_is_taken(place: LeasingRoot, files: Met) -> None:
    """By who sidelined it, and died; by a shovel that died; by a message that is gone."""
    message_id = keyed(place)
    files.fail("unlink", errno.EIO, "/.keys/", times=1)
    place.run(sideline(place.root, QUEUE, message_id))
    assert link(place) == message_id.text
    assert why(place, message_id) is None
    place.run(sideline(place.root, QUEUE, message_id))
    other = keyed(place)
    files.fail("unlink", errno.EIO, "/.keys/", times=1)
    place.run(remove(place.root, QUEUE, other))
    assert link(place) == other.text
    assert why(place, message_id) is None
    assert link(place) == message_id.text


def test_the_key_that_it_had_in_the_sideline_is_free(place: LeasingRoot) -> None:
    message_id = keyed(place, SIDELINE)
    assert link(place, SIDELINE) == message_id.text
    assert why(place, message_id) is None
    assert (link(place), link(place, SIDELINE)) == (message_id.text, None)
    keyed(place, SIDELINE)


def test_the_key_of_one_that_was_left_in_new(place: LeasingRoot) -> None:
    """It was never published, and has no key."""
    message_id = sidelined_keyed(place)
    other = MessageId(place.uuids.next(), key=K)
    staged = Path(place.root.layout.path(State.NEW, QUEUE, other))
    put_file(staged, b"x", place.clock.now_ms(), 0)
    Path(place.root.layout.link(Keys.LOOKUP, QUEUE, K).path).symlink_to(other.text)
    with pytest.raises(KeyNotFound):
        place.run(find_key(place.root, QUEUE, K))
    assert why(place, message_id) is None
    assert states(place, message_id) == HERE
    assert link(place) == message_id.text
    assert staged.exists()


def test_who_publishes_its_key_before_it_moves_has_it(place: LeasingRoot, files: Met) -> None:
    message_id = sidelined_keyed(place)
    ids: list[MessageId] = []
    files.before("open_kept", "/q/.keys", lambda: ids.append(keyed(place)))
    assert why(place, message_id) is Why.KEY_TAKEN
    assert states(place, message_id) == THERE
    assert link(place) == ids[0].text
    assert audit(place.root).is_clean


def test_who_publishes_its_key_while_it_moves_has_it_not(place: LeasingRoot, files: Met) -> None:
    """He saw that it lay in the sideline: he looks again, when he has the lock."""
    message_id = keyed(place)
    files.fail("unlink", errno.EIO, "/.keys/", times=1)
    place.run(sideline(place.root, QUEUE, message_id))
    told: list[Why | None] = []
    files.before("open_kept", "/q/.keys", lambda: told.append(why(place, message_id)))
    with pytest.raises(KeyTaken):
        keyed(place)
    assert told == [None]
    assert link(place) == message_id.text
    assert audit(place.root).is_clean


def test_who_sweeps_its_key_while_it_moves_leaves_it(place: LeasingRoot, files: Met) -> None:
    message_id = keyed(place)
    files.fail("unlink", errno.EIO, "/.keys/", times=1)
    place.run(sideline(place.root, QUEUE, message_id))
    place.pass_s(FORGOTTEN_AFTER_S + 60)
    files.before("open_kept", "/q/.keys", lambda: why(place, message_id))
    assert place.run(OrphanSweep(place.root).sweep()) == 0
    assert place.run(find_key(place.root, QUEUE, K)) == message_id


def test_while_another_is_at_the_key_s_folder_it_stays(place: LeasingRoot) -> None:
    message_id = sidelined_keyed(place)
    lock = Path(place.root.layout.link(Keys.LOOKUP, QUEUE, K).lock)
    with lock.open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert why(place, message_id) is Why.BUSY
    assert states(place, message_id) == THERE
    with pytest.raises(KeyNotFound):
        place.run(find_key(place.root, QUEUE, K))
    assert why(place, message_id) is None


# Steps


def test_a_bucket_that_is_taken_away_is_made_again(tmp_path: Path, files: Met) -> None:
    place = made(tmp_path, files, folder_max=1)
    message_id = sidelined(place)
    place.publish(1)

    def sweep() -> None:
        for path in (place.top / "queues" / "q").glob("????????"):
            if not list(path.iterdir()):
                path.rmdir()

    files.before("rename", message_id.text, sweep)
    assert why(place, message_id) is None
    assert states(place, message_id) == HERE


# What it meets


@pytest.mark.parametrize("has_key", [False, True])
@pytest.mark.parametrize("code", [errno.ENOENT, errno.ESTALE])
def test_an_answer_that_a_mount_loses(
    place: LeasingRoot, files: Met, code: int, has_key: bool
) -> None:
    message_id = sidelined_keyed(place) if has_key else sidelined(place)
    files.fail("rename", code, message_id.text, times=1, performed=True)
    assert why(place, message_id) is None
    assert states(place, message_id) == HERE
    assert stamp_of(place.root, message_id).reason == 0


@pytest.mark.parametrize("has_key", [False, True])
@pytest.mark.parametrize("call", ["rename", "stamp", "sync", "sync_folder"])
def test_what_fails_loses_nothing(place: LeasingRoot, files: Met, call: str, has_key: bool) -> None:
    message_id = sidelined_keyed(place) if has_key else sidelined(place)
    where = message_id.text if call != "sync_folder" else "/queues/q"
    before = stamp_of(place.root, message_id, SIDELINE)
    files.fail(call, errno.EIO, where, times=1)
    became = back(place, message_id)
    assert isinstance(became.error, StorageFailed)
    assert (became.moved, dict(became.stayed)) == ((), {})
    assert states(place, message_id) in (HERE, THERE)
    if call == "rename":
        assert stamp_of(place.root, message_id, SIDELINE) == before
        assert why(place, message_id) is None


def test_one_s_failure_is_its_own(place: LeasingRoot, files: Met) -> None:
    ids = [sidelined(place) for _ in range(3)]
    files.fail("stamp", errno.EIO, ids[1].text, times=1)
    became = back(place, *ids)
    assert isinstance(became.error, StorageFailed)
    assert became.moved == (ids[0], ids[2])


def test_nobody_fetches_it_before_it_is_there_for_good(place: LeasingRoot, files: Met) -> None:
    message_id = sidelined(place)
    looked: list[object] = []

    def look() -> None:
        (path,) = place.top.glob(f"queues/q/**/{message_id.text}")
        descriptor = files.open_claimed(str(path))
        looked.append(files.lock(descriptor))
        files.close(descriptor)

    files.before("sync", message_id.text, look)
    assert why(place, message_id) is None
    assert looked == [False]


@pytest.mark.parametrize("has_key", [False, True])
@pytest.mark.parametrize("call", ["open_claimed", "rename"])
def test_who_removes_it_first_wins(
    place: LeasingRoot, files: Met, call: str, has_key: bool
) -> None:
    message_id = sidelined_keyed(place) if has_key else sidelined(place)
    where = message_id.text
    files.before(call, where, lambda: place.run(remove(place.root, SIDELINE, message_id)))
    assert why(place, message_id) is Why.GONE
    assert states(place, message_id) == (None, State.REMOVED)
    keyed(place)


@pytest.mark.parametrize("has_key", [False, True])
@pytest.mark.parametrize(("queue", "expected"), [(QUEUE, Why.PURGED), (SIDELINE, Why.GONE)])
def test_a_purge_that_comes_before_the_rename_counts(
    place: LeasingRoot, files: Met, queue: QueueName, expected: Why, has_key: bool
) -> None:
    message_id = sidelined_keyed(place) if has_key else sidelined(place)
    now_ms = place.clock.now_ms()
    # With a key, after the shovel has looked and before it has the lock of the key's link.
    call, where = ("open_kept", "/q/.keys/") if has_key else ("open_claimed", message_id.text)
    files.before(call, where, lambda: place.run(purge(place.root, queue, now_ms)))
    assert why(place, message_id) is expected
    assert states(place, message_id) == THERE


@pytest.mark.parametrize("has_key", [False, True])
@pytest.mark.parametrize("call", ["open_claimed", "rename", "sync"])
@pytest.mark.parametrize("queue", [QUEUE, SIDELINE])
def test_a_queue_that_is_deleted_meanwhile(
    place: LeasingRoot, files: Met, call: str, queue: QueueName, has_key: bool
) -> None:
    message_id = sidelined_keyed(place) if has_key else sidelined(place)
    uuid = place.uuids.next()
    where = message_id.text
    files.before(call, where, lambda: place.run(delete_queue(place.root, queue, uuid)))
    became = why(place, message_id)
    if queue == QUEUE:
        assert became is Why.QUEUE_MISSING
        assert states(place, message_id) == ((None, None) if call == "sync" else THERE)
    else:
        assert became is (None if call == "sync" else Why.GONE)
        assert states(place, message_id) == (HERE if call == "sync" else (None, None))


@pytest.mark.parametrize("has_key", [False, True])
@pytest.mark.parametrize("call", ["rename", "stamp"])
def test_of_two_shovels_one_moves_it(
    place: LeasingRoot, files: Met, call: str, has_key: bool
) -> None:
    message_id = sidelined_keyed(place) if has_key else sidelined(place)
    candidate, others = there(place, message_id), []

    def other() -> None:
        others.append(shovel_many(place.root, place.flusher, aim(place), [candidate]))

    files.before(call, message_id.text, other)
    assert why(place, message_id) is None
    (became,) = others
    assert (became.moved, became.error) == ((), None)
    assert set(became.stayed) <= {Why.BUSY, Why.GONE}


@pytest.mark.parametrize("names", ["queue", "delay", "new"])
def test_of_two_names_one_is_left(place: LeasingRoot, names: str) -> None:
    """A crash has left both ends of a rename."""
    message_id = sidelined(place)
    (path,) = place.top.glob(f"queues/*/**/{message_id.text}")
    if names == "queue":
        os.link(path, place.top / "queues" / "q" / message_id.text)
    else:
        os.link(path, place.top / names / f"q:{message_id.text}")
    assert why(place, message_id) is None
    left = [path for path in place.top.glob(f"**/*{message_id.text}") if path.is_file()]
    assert [path.is_relative_to(place.top / "queues" / "q") for path in left] == [True]
    assert left[0].stat().st_nlink == 1


def test_it_may_be_abandoned_at_every_step(place: LeasingRoot) -> None:
    """A process dies: whoever comes next does it."""
    for stops in range(20):
        message_id = sidelined_keyed(place)
        operation = shovel(place.root, aim(place), there(place, message_id), QueueSettings())
        if len(list(itertools.islice(operation, stops))) < stops:
            assert states(place, message_id) == HERE
            return
        operation.close()
        if states(place, message_id) == THERE:
            assert why(place, message_id) is None
        with pytest.raises(KeyTaken):
            keyed(place)
        place.run(remove(place.root, QUEUE, message_id))
    raise AssertionError("steps without an end")


# Passes


def all_of(at: Pass, count: int = 2) -> list[MessageId]:
    found: list[MessageId] = []
    while (batch := at.batch(count)) is not None:
        assert 1 <= len(batch.candidates) <= count
        found += [each.id for each in batch.candidates]
    return found


@pytest.fixture(params=[2000, 3], ids=["at-once", "in-parts"])
def listed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mq.store.shovel.shovel.SHOVEL_LISTED_MAX", request.param)


@pytest.mark.usefixtures("listed")
def test_a_pass_sees_each_message_once_in_the_order_of_delivery(place: LeasingRoot) -> None:
    ids = [*place.publish(4, SIDELINE), *place.publish(4, SIDELINE, priority=7)]
    place.publish(2)
    expected = [*ids[4:], *ids[:4]]
    at = Pass(place.root, Aim(QUEUE, ALL, place.root.now_ms()))
    assert all_of(at) == expected
    assert all_of(at) == []


@pytest.mark.usefixtures("listed")
def test_a_pass_whose_messages_go_and_stay_sees_each_once(place: LeasingRoot) -> None:
    ids = [sidelined(place) for _ in range(9)]
    at, seen = Pass(place.root, Aim(QUEUE, ALL, place.root.now_ms())), []
    while (batch := at.batch(2)) is not None:
        seen += [each.id for each in batch.candidates]
        shovel_many(place.root, place.flusher, at.aim, batch.candidates[:1])
    assert seen == ids


def test_a_pass_goes_on_after_an_error(place: LeasingRoot, files: Met) -> None:
    ids = place.publish(3, SIDELINE)
    at = Pass(place.root, Aim(QUEUE, ALL, place.root.now_ms()))
    files.fail("entries", errno.EIO, "/queues/q_SIDELINE", times=1)
    with pytest.raises(OSError, match="Input/output"):
        at.batch(2)
    assert all_of(at) == ids


def test_a_pass_ends_though_others_are_sidelined_meanwhile(place: LeasingRoot) -> None:
    ids = [sidelined(place) for _ in range(3)]
    at, seen, moved = Pass(place.root, Aim(QUEUE, ALL, place.root.now_ms())), [], []
    place.pass_s(1)
    while (batch := at.batch(1)) is not None:
        seen += [each.id for each in batch.candidates]
        moved += shovel_many(place.root, place.flusher, at.aim, batch.candidates).moved
        place.run(sideline(place.root, QUEUE, seen[-1]))  # It fails again.
        place.pass_s(3600)
        sidelined(place)
        assert len(seen) < 20
    assert moved == ids
    assert seen[:3] == ids


def test_a_pass_where_there_is_no_sideline_has_nothing(tmp_path: Path) -> None:
    place = LeasingRoot(tmp_path / "root")
    assert Pass(place.root, Aim(QUEUE, ALL, place.root.now_ms())).batch(10) is None


def test_a_pass_leaves_out_what_is_purged(place: LeasingRoot) -> None:
    place.publish(2, SIDELINE)
    place.run(purge(place.root, SIDELINE, place.clock.now_ms()))
    assert Pass(place.root, Aim(QUEUE, ALL, place.root.now_ms())).batch(10) is None
