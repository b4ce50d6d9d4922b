"""Expiry: each operation looks at what it decides on in the moment in which it acts."""

from pathlib import Path

import pytest
from harness.clock import FakeClock
from harness.messages import new_id, put_file

from mq.model.clock import rfc3339
from mq.model.names import MessageId, QueueName, UuidSource
from mq.model.settings import QueueSettings
from mq.store.core.facts import SETTINGS_AGE_S
from mq.store.core.root import Root
from mq.store.disk.files import Files
from mq.store.disk.flush import NoFlusher
from mq.store.disk.group import run_alone
from mq.store.format.bucket_names import Shape
from mq.store.leases.claiming import find_ready
from mq.store.opening import open_root, root_of
from mq.store.operations.expire import (
    Expiry,
    delete_expired_queue,
    expire,
    expire_bucket,
    expired_ready,
)
from mq.store.operations.fetch import fetch
from mq.store.operations.queues import create_queue, delete_queue
from mq.store.operations.redeliver import Redelivery, Timer, redeliver
from mq.store.scan.order import list_ready
from mq.store.settings.configure import change_settings

ORDERS = QueueName.parse("orders")
TTL_S = 600.0


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def opened(root: Path, clock: FakeClock) -> Root:
    made = open_root(str(root), Files(), clock)
    run_alone(create_queue(made, ORDERS), NoFlusher())
    return made


def configure(root: Root, **fields: object) -> None:
    """As another process does: what is known here is as it was, for a moment."""
    another = root_of(root.layout, Files(), root.clock)
    run_alone(change_settings(another, ORDERS, fields, QueueSettings()), NoFlusher())


def known(root: Root, **fields: object) -> None:
    configure(root, **fields)
    root.facts.look_again(ORDERS)
    root.facts.settings(ORDERS)


def ready(root: Root, clock: FakeClock, in_bucket: bool = False) -> tuple[MessageId, Path]:
    message_id = MessageId(UuidSource(clock).next())
    folder = Path(root.layout.queue(ORDERS))
    if in_bucket:
        folder /= Shape().bucket(message_id)
        folder.mkdir(mode=0o700)
    return message_id, put_file(folder / message_id.text, b"body", clock.now_ms())


def test_a_fetch_looks_in_the_moment_of_its_claim(opened: Root, clock: FakeClock) -> None:
    known(opened, message_ttl_s=TTL_S)
    message_id, path = ready(opened, clock)
    clock.advance(TTL_S)
    assert run_alone(fetch(opened, ORDERS, message_id, 30), NoFlusher()) is None
    assert path.exists()


def test_a_look_finds_what_lives_alone(opened: Root, clock: FakeClock) -> None:
    known(opened, message_ttl_s=TTL_S)
    ready(opened, clock)
    clock.advance(TTL_S)
    young, _ = ready(opened, clock)
    listing = list_ready(opened, ORDERS, 10)
    assert listing is not None
    assert listing.ids == [young]
    assert [each.id for each in find_ready(opened, ORDERS, 10).candidates] == [young]


def test_of_an_expired_queue_nothing_is_leased(opened: Root, clock: FakeClock) -> None:
    ready(opened, clock)
    known(opened, expires_at=rfc3339(clock.now_ms()))
    assert find_ready(opened, ORDERS, 10).candidates == ()


def test_a_queue_that_is_made_again_has_nothing_of_what_was_known_before(
    opened: Root, clock: FakeClock
) -> None:
    known(opened, expires_at=rfc3339(clock.now_ms() - 1000))
    ready(opened, clock)
    assert not find_ready(opened, ORDERS, 10).candidates
    run_alone(delete_queue(opened, ORDERS, UuidSource(clock).next()), NoFlusher())
    run_alone(create_queue(opened, ORDERS), NoFlusher())
    ready(opened, clock)
    assert len(find_ready(opened, ORDERS, 10).candidates) == 1


def test_what_is_due_and_has_expired_does_not_come_back(opened: Root, clock: FakeClock) -> None:
    known(opened, message_ttl_s=TTL_S)
    message_id = MessageId(UuidSource(clock).next())
    clock.advance(TTL_S)
    name = f"orders:{message_id.text}"
    put_file(Path(opened.layout.delay) / name, b"body", clock.now_ms() - 1, 1)
    again = redeliver(opened, ORDERS, message_id, Timer())
    assert run_alone(again, NoFlusher())[0] is Redelivery.EXPIRED
    assert (Path(opened.layout.remove) / name).exists()


def test_who_acts_late_looks_at_the_settings_again(opened: Root, clock: FakeClock) -> None:
    """A member that was stopped between its look and its move, while the setting was changed."""
    known(opened, message_ttl_s=TTL_S)
    message_id, path = ready(opened, clock)
    clock.advance(TTL_S)
    assert expired_ready(opened, ORDERS, 10) == [("", message_id)]
    late = expire(opened, ORDERS, message_id, "")
    configure(opened, message_ttl_s=10 * TTL_S)
    clock.advance(SETTINGS_AGE_S)
    assert run_alone(late, NoFlusher()) is Expiry.LIVES
    assert path.exists()


def test_of_a_bucket_the_settings_are_read_under_the_queues_lock(
    opened: Root, clock: FakeClock
) -> None:
    """By what was known a moment ago no bucket goes."""
    known(opened, message_ttl_s=TTL_S)
    _, path = ready(opened, clock, in_bucket=True)
    clock.advance(TTL_S + 100)
    opened.facts.settings(ORDERS)
    configure(opened, message_ttl_s=None)
    assert opened.facts.settings(ORDERS).message_ttl_s == TTL_S
    assert not expire_bucket(opened, ORDERS)
    assert path.exists()
    configure(opened, message_ttl_s=TTL_S)
    assert expire_bucket(opened, ORDERS)
    assert not path.exists()


def test_a_change_at_the_last_moment_keeps_the_queue(opened: Root, clock: FakeClock) -> None:
    known(opened, expires_at=rfc3339(clock.now_ms()), expiry_grace_s=0)
    late = delete_expired_queue(opened, ORDERS, new_id().uuid)
    configure(opened, expires_at=None)
    assert run_alone(late, NoFlusher()) is False
    assert Path(opened.layout.queue(ORDERS)).exists()
    assert not Path(opened.layout.tombstone(ORDERS)).exists()
