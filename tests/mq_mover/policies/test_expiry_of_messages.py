"""Expiry: what has lived long enough is taken away, messages and queues, and nothing else is."""

import fcntl
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from harness.audits import assert_audits_clean
from harness.faults import FaultyFiles
from harness.messages import new_id, put_file
from harness.upkeep import work_of

from mq.coordination.coordinator import Alone
from mq.model.clock import rfc3339
from mq.model.limits import GROUP_OPERATIONS_MAX
from mq.model.message import Reason, Stamp
from mq.model.names import MessageId, QueueName
from mq.model.settings import QueueSettings
from mq.store.core.find import lives
from mq.store.disk.files import Files
from mq.store.disk.group import run_alone
from mq.store.format.bucket_names import Shape
from mq.store.format.layout import Keys
from mq.store.keys.links import read_link
from mq.store.operations.expire import delete_expired_queue
from mq.store.operations.publish import Draft, publish
from mq.store.operations.purge import purge
from mq.store.operations.queues import create_queue
from mq.store.settings.configure import change_settings
from mq_mover.policies.expiry import (
    EXPIRED_PER_TURN_MAX,
    MESSAGE_EXPIRY_EVERY_S,
    QUEUE_EXPIRY_EVERY_S,
    MessageExpiry,
    QueueExpiry,
)
from mq_mover.policy import Policies, Work
from tests.mq_mover.conftest import Bench

ORDERS = QueueName.parse("orders")
SIDELINE = ORDERS.sideline()
TTL_S = 600


def configure(bench: Bench, queue: QueueName = ORDERS, **fields: object) -> None:
    run_alone(change_settings(bench.root, queue, fields, QueueSettings()), bench.flusher)
    bench.root.facts.look_again(queue)


def id_of(bench: Bench, age_s: float, more: str = "") -> MessageId:
    """An id of a message that was published so long ago."""
    ms = bench.clock.now_ms() - round(age_s * 1000)
    text = f"{ms:012x}"
    random = new_id().text[14:36]
    return MessageId.parse(f"{text[:8]}-{text[8:]}-{random}{more}")


def ready(
    bench: Bench, age_s: float, more: str = "", bucket: str = "", queue: QueueName = ORDERS
) -> Path:
    """A ready message that was published so long ago."""
    folder = bench.path / "queues" / queue.text / bucket
    folder.mkdir(exist_ok=True, parents=True)
    return put_file(folder / id_of(bench, age_s, more).text, b"body", bench.clock.now_ms())


def delayed(bench: Bench, age_s: float, receives: int = 1, due_in_ms: int = -5000) -> Path:
    """One in delay/, due a while ago."""
    name = f"{ORDERS.text}:{id_of(bench, age_s).text}"
    due_ms = bench.clock.now_ms() + due_in_ms
    return put_file(bench.folder("delay") / name, b"body", due_ms, receives)


def removed(bench: Bench, path: Path) -> Path:
    return bench.folder("remove") / f"{ORDERS.text}:{path.name.rpartition(':')[2]}"


def sidelined(bench: Bench, path: Path) -> Path:
    return bench.path / "queues" / SIDELINE.text / path.name.rpartition(":")[2]


def expiry(bench: Bench, work: Work | None = None) -> Policies:
    work = work or work_of(bench.root, bench.flusher)
    return Policies(bench.root, [MessageExpiry(work), QueueExpiry(work)])


def all_turns(policies: Policies) -> int:
    """Until nothing is due any more."""
    acted = 0
    while (due_s := policies.next_due_s()) is not None and due_s <= 0:
        acted += policies.run_next()
    return acted


def test_of_queues_that_have_no_end_no_file_is_looked_at_for_it(
    make_bench: Callable[[Files], Bench],
) -> None:
    """In one turn, in which nothing is redelivered: there may be very many."""
    files = FaultyFiles()
    bench = make_bench(files)
    for name in ("notes", "bills"):
        (bench.path / "queues" / name).mkdir()
    configure(bench, expires_at=rfc3339(bench.clock.now_ms() + 1000))
    work = work_of(bench.root, bench.flusher)
    files.calls.clear()
    assert QueueExpiry(work).act().again_in_s == 1.0
    looked_at = {path for call, path in files.calls if "/settings/" in path}
    assert looked_at == {bench.root.layout.settings_of(ORDERS)}


# Messages that are ready


def test_what_has_expired_goes_to_remove_and_the_rest_stays(bench: Bench) -> None:
    configure(bench, message_ttl_s=TTL_S)
    old, urgent = ready(bench, TTL_S), ready(bench, TTL_S + 5, ",p=9")
    young = ready(bench, TTL_S - 0.001)
    assert all_turns(expiry(bench)) == 2
    assert not old.exists()
    assert removed(bench, old).read_bytes() == b"body"
    assert removed(bench, urgent).exists()
    assert young.exists()
    assert_audits_clean(bench.path, bench.clock)


def test_without_the_setting_nothing_expires(bench: Bench) -> None:
    old = ready(bench, 10**8)
    assert all_turns(expiry(bench)) == 0
    assert old.exists()


def test_a_pass_is_made_once_a_minute_and_follows_the_settings(bench: Bench) -> None:
    policies, old = expiry(bench), ready(bench, TTL_S)
    assert all_turns(policies) == 0
    configure(bench, message_ttl_s=TTL_S)
    bench.clock.advance(MESSAGE_EXPIRY_EVERY_S - 1)
    assert all_turns(policies) == 0
    bench.clock.advance(1)
    assert all_turns(policies) == 1
    assert removed(bench, old).exists()


@pytest.mark.certificate
def test_a_turn_is_bounded_and_the_next_goes_on(bench: Bench) -> None:
    configure(bench, message_ttl_s=TTL_S)
    for _ in range(EXPIRED_PER_TURN_MAX + 5):
        ready(bench, TTL_S)
    policies = expiry(bench)
    assert policies.run_next() == EXPIRED_PER_TURN_MAX
    assert policies.next_due_s() == 0
    assert all_turns(policies) == 5
    counted = policies.counts()["message-expiry"]
    assert (counted.acted, counted.aside) == (EXPIRED_PER_TURN_MAX + 5, 0)


def test_to_the_sideline_with_the_reason_and_the_receives(bench: Bench) -> None:
    configure(bench, message_ttl_s=TTL_S, expired_to="sideline")
    old = ready(bench, TTL_S)
    os.utime(old, ns=(Stamp(bench.clock.now_ms(), receives=3).mtime_ns(),) * 2)
    assert all_turns(expiry(bench)) == 1
    stamp = Stamp.from_mtime_ns(sidelined(bench, old).stat().st_mtime_ns)
    assert (stamp.receives, stamp.reason) == (3, Reason.EXPIRED)
    assert stamp.due_ms == bench.clock.now_ms()
    assert_audits_clean(bench.path, bench.clock)


def test_many_go_to_the_sideline_a_group_a_turn(bench: Bench) -> None:
    configure(bench, message_ttl_s=TTL_S, expired_to="sideline")
    old = [ready(bench, TTL_S) for _ in range(GROUP_OPERATIONS_MAX + 2)]
    policies = expiry(bench)
    assert policies.run_next() == GROUP_OPERATIONS_MAX
    assert all_turns(policies) == 2
    assert all(sidelined(bench, each).exists() for each in old)
    assert policies.counts()["message-expiry"].aside == len(old)


def test_what_expires_in_a_sideline_is_removed(bench: Bench) -> None:
    run_alone(create_queue(bench.root, SIDELINE), bench.flusher)
    configure(bench, SIDELINE, message_ttl_s=TTL_S, expired_to="sideline")
    old = ready(bench, TTL_S, queue=SIDELINE)
    assert all_turns(expiry(bench)) == 1
    assert (bench.folder("remove") / f"{SIDELINE.text}:{old.name}").exists()


def test_where_the_sideline_cannot_be_made_they_stay_and_are_tried_again(bench: Bench) -> None:
    configure(bench, message_ttl_s=TTL_S, expired_to="sideline")
    foreign = put_file(bench.path / "queues" / SIDELINE.text, b"mine")
    old = [ready(bench, TTL_S) for _ in range(GROUP_OPERATIONS_MAX + 2)]
    policies = expiry(bench)
    assert all_turns(policies) == 0
    assert all(each.exists() for each in old)
    foreign.unlink()
    bench.clock.advance(MESSAGE_EXPIRY_EVERY_S)
    assert all_turns(policies) == len(old)


def test_where_the_sideline_s_purge_covers_them_they_stay(bench: Bench) -> None:
    configure(bench, message_ttl_s=TTL_S, expired_to="sideline")
    run_alone(create_queue(bench.root, SIDELINE), bench.flusher)
    old = ready(bench, TTL_S)
    run_alone(purge(bench.root, SIDELINE, bench.clock.now_ms()), bench.flusher)
    assert all_turns(expiry(bench)) == 0
    assert old.exists()


@pytest.mark.parametrize("settings", [b"{", b'{"message_ttl_s": -1}', b"[]"])
def test_settings_that_cannot_be_understood_expire_nothing(bench: Bench, settings: bytes) -> None:
    (bench.path / "settings" / "orders.json").write_bytes(settings)
    old = ready(bench, 10**8)
    assert all_turns(expiry(bench)) == 0
    assert old.exists()


def test_what_another_is_at_is_left_for_the_next_pass(bench: Bench) -> None:
    configure(bench, message_ttl_s=TTL_S)
    old = ready(bench, TTL_S)
    policies = expiry(bench)
    with old.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert all_turns(policies) == 0
    bench.clock.advance(MESSAGE_EXPIRY_EVERY_S)
    assert all_turns(policies) == 1
    assert removed(bench, old).exists()


def test_two_movers_at_once_take_each_away_once(bench: Bench) -> None:
    configure(bench, message_ttl_s=TTL_S, expired_to="sideline", history=True)
    old = [ready(bench, TTL_S) for _ in range(50)]
    one, two = expiry(bench), expiry(bench)
    assert one.run_next() + two.run_next() == len(old)
    assert all(sidelined(bench, each).exists() for each in old)


def test_another_member_s_queues_are_left_alone(bench: Bench) -> None:
    configure(bench, message_ttl_s=TTL_S, expires_at=rfc3339(0), expiry_grace_s=0)

    class Elsewhere(Alone):
        def has(self, queue: QueueName) -> bool:
            return False

    work = work_of(bench.root, bench.flusher)
    old = ready(bench, TTL_S)
    policies = expiry(bench, Work(work.root, work.flusher, Elsewhere("other"), work.registry))
    assert all_turns(policies) == 0
    assert old.exists()


# Buckets


def bucket_of(bench: Bench, age_s: float) -> str:
    return Shape().bucket(id_of(bench, age_s))


def test_a_bucket_of_nothing_else_goes_by_one_rename(make_bench: Callable[[Files], Bench]) -> None:
    files = FaultyFiles()
    bench = make_bench(files)
    configure(bench, message_ttl_s=TTL_S, history=True)
    age_s = TTL_S + 1000
    bucket = bucket_of(bench, age_s)
    old = [ready(bench, age_s, bucket=bucket) for _ in range(20)]
    before = files.count("rename")
    assert all_turns(expiry(bench)) == 1
    assert files.count("rename") == before + 1
    assert not any(each.exists() for each in old)
    [folder] = bench.folder("remove").iterdir()
    assert folder.name.endswith(".d")
    assert len(list((folder / bucket).iterdir())) == len(old)


def test_a_bucket_with_a_younger_one_or_a_foreign_one_does_not(bench: Bench) -> None:
    configure(bench, message_ttl_s=TTL_S)
    age_s = TTL_S + 1000
    bucket = bucket_of(bench, age_s)
    old, foreign = ready(bench, age_s, bucket=bucket), bench.ready / bucket / "notes.txt"
    put_file(foreign, b"mine")
    assert all_turns(expiry(bench)) == 1
    assert removed(bench, old).exists()
    assert foreign.exists()


def test_a_bucket_that_is_to_go_to_the_sideline_goes_by_messages(bench: Bench) -> None:
    configure(bench, message_ttl_s=TTL_S, expired_to="sideline")
    age_s = TTL_S + 1000
    old = [ready(bench, age_s, bucket=bucket_of(bench, age_s)) for _ in range(3)]
    assert all_turns(expiry(bench)) == 3
    assert all(sidelined(bench, each).exists() for each in old)


# Keys


@pytest.mark.parametrize("expired_to", ["remove", "sideline"])
def test_a_key_is_the_next_one_s(bench: Bench, expired_to: str) -> None:
    configure(bench, message_ttl_s=TTL_S, expired_to=expired_to)
    first = MessageId.parse(f"{new_id().uuid},k=night")
    draft = Draft(ORDERS, first, bench.clock.now_ms())
    assert run_alone(publish(bench.root, draft, b"one"), bench.flusher) == first
    bench.clock.advance(TTL_S + 10)
    assert all_turns(expiry(bench)) == 1
    assert not lives(bench.root, ORDERS, first)
    second = id_of(bench, 0, ",k=night")
    draft = Draft(ORDERS, second, bench.clock.now_ms())
    assert run_alone(publish(bench.root, draft, b"two"), bench.flusher) == second
    assert second.key is not None
    assert read_link(bench.root, bench.root.layout.link(Keys.LOOKUP, ORDERS, second.key)) == (
        second.text
    )
    assert_audits_clean(bench.path, bench.clock)


# What comes back


@pytest.mark.parametrize("receives", [0, 1])
def test_what_was_delayed_or_fetched_goes_when_it_is_due(bench: Bench, receives: int) -> None:
    configure(bench, message_ttl_s=TTL_S)
    due, young = delayed(bench, TTL_S, receives), delayed(bench, TTL_S - 100, receives)
    later = delayed(bench, TTL_S, receives, due_in_ms=60_000)
    mover = bench.mover()
    mover.run_once()
    bench.clock.advance(2)
    mover.run_once()
    assert removed(bench, due).exists()
    assert bench.redelivered(young).exists()
    assert later.exists()
    assert all_turns(expiry(bench)) == 0


def test_what_was_fetched_goes_to_the_sideline_where_that_is_set(bench: Bench) -> None:
    configure(bench, message_ttl_s=TTL_S, expired_to="sideline")
    due = delayed(bench, TTL_S, receives=2)
    mover = bench.mover()
    for _ in range(3):
        mover.run_once()
        bench.clock.advance(2)
    stamp = Stamp.from_mtime_ns(sidelined(bench, due).stat().st_mtime_ns)
    assert (stamp.receives, stamp.reason) == (2, Reason.EXPIRED)


def test_one_that_has_expired_and_had_its_receives_has_expired(bench: Bench) -> None:
    configure(bench, message_ttl_s=TTL_S, max_receives=2)
    due = delayed(bench, TTL_S, receives=2)
    mover = bench.mover()
    for _ in range(3):
        mover.run_once()
        bench.clock.advance(2)
    assert removed(bench, due).exists()


# Queues


def over(bench: Bench, ago_s: float, grace_s: float) -> None:
    at = rfc3339(bench.clock.now_ms() - round(ago_s * 1000))
    configure(bench, expires_at=at, expiry_grace_s=grace_s)


def test_a_queue_goes_once_its_grace_is_over(bench: Bench) -> None:
    ready(bench, 5)
    held = delayed(bench, 5, due_in_ms=10**6)
    over(bench, ago_s=50, grace_s=100)
    policies = expiry(bench)
    assert all_turns(policies) == 0
    assert bench.ready.exists()
    # It is due then, not at the next minute.
    assert 49 < (policies.next_due_s() or 0) <= 50
    bench.clock.advance(50)
    assert all_turns(policies) == 1
    assert not bench.ready.exists()
    assert not (bench.path / "settings" / "orders.json").exists()
    assert (bench.path / "deleted" / "orders").exists()
    assert removed(bench, held).exists()
    assert policies.counts()["queue-expiry"].acted == 1
    assert_audits_clean(bench.path, bench.clock)


def test_its_sideline_stays(bench: Bench) -> None:
    run_alone(create_queue(bench.root, SIDELINE), bench.flusher)
    over(bench, ago_s=1, grace_s=0)
    assert all_turns(expiry(bench)) == 1
    assert (bench.path / "queues" / SIDELINE.text).exists()


def test_a_queue_that_is_gone_meanwhile_is_no_error(bench: Bench) -> None:
    over(bench, ago_s=1, grace_s=0)
    late = delete_expired_queue(bench.root, ORDERS, new_id().uuid)
    bench.ready.rmdir()
    assert run_alone(late, bench.flusher) is False


def test_settings_that_cannot_be_understood_delete_nothing(bench: Bench) -> None:
    over(bench, ago_s=1, grace_s=0)
    policies = expiry(bench)
    (bench.path / "settings" / "orders.json").write_bytes(json.dumps({"expires_at": 7}).encode())
    assert all_turns(policies) == 0
    assert bench.ready.exists()


def test_while_others_hold_the_queues_lock_it_waits(bench: Bench) -> None:
    over(bench, ago_s=1, grace_s=0)
    policies = expiry(bench)
    with (bench.path / "deleted" / ".lock").open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert all_turns(policies) == 0
    assert bench.ready.exists()
    bench.clock.advance(QUEUE_EXPIRY_EVERY_S)
    assert all_turns(policies) == 1
    assert not bench.ready.exists()


# A clock that was set


HOUR_MS = 3_600_000


def test_a_clock_that_is_set_ahead_expires_nothing_but_the_time_that_has_passed(
    bench: Bench,
) -> None:
    configure(bench, message_ttl_s=TTL_S)
    old, young = ready(bench, TTL_S - 60), ready(bench, 0)
    waits = delayed(bench, TTL_S - 60, due_in_ms=HOUR_MS)
    policies = expiry(bench)
    bench.clock.set_ms(bench.clock.now_ms() + HOUR_MS)
    assert all_turns(policies) == 0
    bench.clock.advance(59)
    assert all_turns(policies) == 0
    assert bench.mover().run_once() == 1
    assert (bench.path / "queues" / ORDERS.text / waits.name.rpartition(":")[2]).exists()
    bench.clock.advance(MESSAGE_EXPIRY_EVERY_S)
    assert all_turns(policies) == 2
    assert removed(bench, old).exists()
    assert young.exists()
    bench.clock.advance(TTL_S)
    assert all_turns(policies) == 1
    assert removed(bench, young).exists()


def test_what_is_published_once_the_clock_was_put_right_lives_as_long_as_any(bench: Bench) -> None:
    configure(bench, message_ttl_s=TTL_S)
    policies = expiry(bench)
    bench.clock.set_ms(bench.clock.now_ms() + 1000 * HOUR_MS)
    assert all_turns(policies) == 0
    path = ready(bench, 0)
    bench.clock.advance(TTL_S - 1)
    assert all_turns(policies) == 0
    bench.clock.advance(MESSAGE_EXPIRY_EVERY_S)
    assert all_turns(policies) == 1
    assert removed(bench, path).exists()


def test_a_clock_that_is_set_ahead_and_back_has_expired_nothing(bench: Bench) -> None:
    configure(bench, message_ttl_s=TTL_S)
    path, policies = ready(bench, TTL_S - 60), expiry(bench)
    bench.clock.set_ms(bench.clock.now_ms() + HOUR_MS)
    assert all_turns(policies) == 0
    bench.clock.set_ms(bench.clock.now_ms() - HOUR_MS)
    bench.clock.advance(59)
    assert all_turns(policies) == 0
    assert path.exists()
    bench.clock.advance(MESSAGE_EXPIRY_EVERY_S)
    assert all_turns(policies) == 1


@pytest.mark.parametrize("grace_s", [0, 7200])
def test_a_clock_that_is_set_ahead_deletes_no_queue_for_its_grace_and_an_hour(
    bench: Bench, grace_s: float
) -> None:
    expires_ms = bench.clock.now_ms() + 5 * HOUR_MS
    configure(bench, expires_at=rfc3339(expires_ms), expiry_grace_s=grace_s)
    policies = expiry(bench)
    bench.clock.set_ms(bench.clock.now_ms() + 10 * HOUR_MS)
    assert all_turns(policies) == 0
    bench.clock.advance(max(grace_s, 3600) - 1)
    assert all_turns(policies) == 0
    bench.clock.advance(QUEUE_EXPIRY_EVERY_S)
    assert all_turns(policies) == 1
    assert not (bench.path / "queues" / ORDERS.text).exists()
