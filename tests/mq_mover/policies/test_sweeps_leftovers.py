"""A clock that is set ahead sweeps nothing early: mq-mover counts the time that has passed."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from harness.messages import new_id, put_entry, put_file

from mq.model.limits import FORGOTTEN_AFTER_S, IDEMPOTENCY_S_DEFAULT
from mq.model.names import Key, QueueName
from mq.store.bulk.sweep import STAGING_FORGOTTEN_S
from mq.store.format.layout import Keys
from mq.store.format.pipeline import LEDGER_KEPT_S
from mq.store.members.files import MEMBER_TOLD_KEPT_S, UNFINISHED_KEPT_S
from mq.store.operations.purge import PURGE_MARK_KEPT_S
from mq.store.operations.queues import TOMBSTONE_KEPT_S

if TYPE_CHECKING:
    from tests.mq_mover.conftest import Bench

A_YEAR_MS = 366 * 24 * 3600 * 1000
NAMED = "0" * 32


def in_new(bench: "Bench") -> str:
    """A publish in hand."""
    return str(put_entry(bench.folder("new"), body=b"to"))


def tombstone(bench: "Bench") -> str:
    return str(put_file(bench.folder("deleted") / "gone", due_ms=bench.clock.now_ms()))


def purge_mark(bench: "Bench") -> str:
    return str(put_file(bench.folder("purged") / "orders", due_ms=bench.clock.now_ms()))


def idempotency_key(bench: "Bench") -> str:
    place = bench.root.layout.link(Keys.IDEMPOTENCY, QueueName("orders"), Key("K"))
    Path(place.folder).mkdir(parents=True)
    Path(place.path).symlink_to(new_id().text)
    return place.path


def staged_job(bench: "Bench") -> str:
    job = bench.folder("new") / ".spark" / NAMED
    job.mkdir(parents=True)
    return str(job)


def publish_id(bench: "Bench") -> str:
    return str(put_file(bench.folder("journal") / "nightly.done", due_ms=bench.clock.now_ms()))


def told_by_a_member(bench: "Bench") -> str:
    return str(put_file(bench.folder("members") / "gone.json", due_ms=bench.clock.now_ms()))


def unfinished_shovel(bench: "Bench") -> str:
    name = f".orders.{NAMED[:16]}"
    return str(put_file(bench.folder("shovels") / name, due_ms=bench.clock.now_ms()))


@pytest.mark.parametrize(
    ("make", "kept_s"),
    [
        (in_new, FORGOTTEN_AFTER_S),
        (tombstone, TOMBSTONE_KEPT_S),
        (purge_mark, PURGE_MARK_KEPT_S),
        (idempotency_key, IDEMPOTENCY_S_DEFAULT),
        (staged_job, STAGING_FORGOTTEN_S),
        (publish_id, LEDGER_KEPT_S),
        (told_by_a_member, MEMBER_TOLD_KEPT_S),
        (unfinished_shovel, UNFINISHED_KEPT_S),
    ],
)
def test_a_step_ahead_sweeps_nothing_that_time_has_not(
    bench: "Bench", make: Callable[["Bench"], str], kept_s: float
) -> None:
    path = make(bench)
    sweeper = bench.sweeper()
    sweeper.run_once()
    bench.clock.set_ms(bench.clock.now_ms() + A_YEAR_MS)
    for seconds in (kept_s / 2, kept_s / 2 - 60):
        bench.clock.advance(seconds)
        sweeper.run_once()
        assert os.path.lexists(path)
    for _ in range(2):
        # A tombstone, a mark: the pass after the one that found nothing.
        bench.clock.advance(180)
        sweeper.run_once()
    assert not os.path.lexists(path)
