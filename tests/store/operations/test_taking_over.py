"""The turn of a queue's active consumer, and what is in flight from before."""

import os
from pathlib import Path

import pytest
from harness.audits import assert_audits_clean
from harness.clock import FakeClock
from harness.messages import new_id, put_file

from mq.model.limits import TURN_SILENT_S
from mq.model.names import ConsumerName, QueueName
from mq.model.settings import QueueSettings
from mq.store.core.root import Root
from mq.store.disk.files import FOLDER_MODE, Files
from mq.store.disk.flush import NoFlusher
from mq.store.disk.group import run_alone
from mq.store.leases.lease import claim
from mq.store.opening import open_root
from mq.store.operations.purge import purge
from mq.store.operations.queues import create_queue
from mq.store.operations.taking_over import is_any_in_flight, sweep_turns, take_over
from mq.store.settings.configure import change_settings

QUEUE = QueueName("orders")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def opened(root: Path, clock: FakeClock) -> Root:
    found = open_root(str(root), Files(), clock)
    run_alone(create_queue(found, QUEUE), NoFlusher())
    return found


def delayed(opened: Root, due_in_s: float, receives: int, queue: str = "orders") -> Path:
    due_ms = opened.now_ms() + round(due_in_s * 1000)
    path = Path(opened.layout.delay, f"{queue}:{new_id().text}")
    return put_file(path, b"x", due_ms, receives)


@pytest.mark.parametrize(
    ("due_in_s", "receives", "queue", "is_in_flight"),
    [
        (30, 1, "orders", True),
        (30, 0, "orders", False),
        (-1, 0, "orders", True),
        (-1, 3, "orders", True),
        (30, 1, "orders2", False),
        (30, 1, "orders_SIDELINE", False),
    ],
)
def test_what_is_in_flight(
    opened: Root, due_in_s: float, receives: int, queue: str, is_in_flight: bool
) -> None:
    """What is due, without a receive, may be a claim that is not stamped yet."""
    assert not is_any_in_flight(opened, QUEUE)
    path = delayed(opened, due_in_s, receives, queue)
    assert is_any_in_flight(opened, QUEUE) is is_in_flight
    bucket = Path(opened.layout.delay, "0192f3a")
    bucket.mkdir(FOLDER_MODE)
    path.rename(bucket / path.name)
    assert is_any_in_flight(opened, QUEUE) is is_in_flight


def test_what_was_purged_is_not_waited_for(opened: Root, clock: FakeClock) -> None:
    delayed(opened, 30, 1)
    clock.advance(10**9)
    run_alone(purge(opened, QUEUE, opened.now_ms()), NoFlusher())
    assert not is_any_in_flight(opened, QUEUE)


def test_a_turn_is_one_process_s_and_ends_with_it(opened: Root, clock: FakeClock) -> None:
    first = take_over(opened, QUEUE)
    assert first is not None
    assert take_over(opened, QUEUE) is None
    assert take_over(opened, QueueName("other")) is not None
    clock.advance(TURN_SILENT_S - 1)
    assert first.keep()
    clock.advance(TURN_SILENT_S - 1)
    assert take_over(opened, QUEUE) is None
    first.end()
    second = take_over(opened, QUEUE)
    assert second is not None
    second.end()
    assert_audits_clean(opened.layout.root, clock)


def test_turns_of_queues_that_are_gone_are_swept(opened: Root) -> None:
    for name in ("orders", "gone", "taken"):
        turn = take_over(opened, QueueName(name))
        assert turn is not None
        if name != "taken":
            turn.end()
    Path(opened.layout.active, "notes.txt").touch()
    assert sweep_turns(opened) == 1
    assert sorted(os.listdir(opened.layout.active)) == ["notes.txt", "orders.lock", "taken.lock"]
    turn.end()
    assert sweep_turns(opened) == 1


def test_no_lease_takes_what_one_consumer_gets_alone(opened: Root) -> None:
    put_file(Path(opened.layout.queue(QUEUE), new_id().text), b"x")

    def set_to(value: str) -> None:
        patch = {"active_consumer": value}
        run_alone(change_settings(opened, QUEUE, patch, QueueSettings(), None), NoFlusher())

    def taken() -> bool:
        lease = claim(opened, ConsumerName("c"), [QUEUE], 10, 60)
        return run_alone(lease, NoFlusher()) is not None

    set_to("single")
    assert not taken()
    set_to("any")
    assert taken()
