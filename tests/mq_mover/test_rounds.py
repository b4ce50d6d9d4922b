"""All that one mq-mover does over a root: rounds of it, alone and with others."""

import json
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from harness.messages import new_id, put_entry, put_file

from mq.coordination.coordinator import ASSIGN_EVERY_S, Alone, Coordinator
from mq.coordination.file import FileCoordinator
from mq.model.errors import StartupError
from mq.model.limits import FORGOTTEN_AFTER_S, REFRESH_EVERY_S
from mq.model.names import QueueName
from mq.store.operations.redeliver import Timer
from mq.store.settings.registry import REFRESH_ASKED_EVERY_S, RefreshMark, Registry
from mq_mover.cli import member_name
from mq_mover.policies.overdue import OVERDUE_EVERY_S
from mq_mover.rounds import Rounds

if TYPE_CHECKING:
    from .conftest import Bench


def rounds_of(bench: "Bench", coordinator: Coordinator | None = None) -> Rounds:
    rounds = Rounds(
        bench.root, bench.flusher, coordinator or Alone("a"), Timer(), Registry(bench.root)
    )
    rounds.start()
    return rounds


def pass_s(bench: "Bench", seconds: float, *rounds: Rounds, every_s: float = 1.0) -> None:
    for _ in range(round(seconds / every_s)):
        for each in rounds:
            each.run_once()
        bench.clock.advance(every_s)


def known(rounds: Rounds) -> set[str]:
    return {queue.text for queue in rounds.registry.queues}


def test_the_queues_are_known_at_the_start_and_new_ones_at_a_refresh(bench: "Bench") -> None:
    rounds = rounds_of(bench)
    assert known(rounds) == {"orders"}
    (bench.folder("queues") / "new").mkdir()
    pass_s(bench, REFRESH_EVERY_S - 10, rounds, every_s=10)
    assert known(rounds) == {"orders"}
    pass_s(bench, 30, rounds, every_s=10)
    assert known(rounds) == {"orders", "new"}
    (bench.folder("queues") / "new").rmdir()
    pass_s(bench, REFRESH_EVERY_S + 30, rounds, every_s=10)
    assert known(rounds) == {"orders"}


def test_whoever_asks_all_for_a_refresh_has_it_within_two_seconds(bench: "Bench") -> None:
    rounds = rounds_of(bench)
    (bench.folder("settings") / "orders.json").write_text(json.dumps({"sweep_after_s": 7}))
    RefreshMark(bench.root).ask()
    pass_s(bench, 2 * REFRESH_ASKED_EVERY_S + 1, rounds)
    settings = rounds.registry.queues[QueueName("orders")].settings
    assert settings is not None
    assert settings.sweep_after_s == 7


def test_a_folder_of_queues_that_is_away_is_told_once(
    bench: "Bench", caplog: pytest.LogCaptureFixture
) -> None:
    rounds = rounds_of(bench)
    aside = bench.folder("queues").rename(bench.folder("aside"))
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            RefreshMark(bench.root).ask()
            pass_s(bench, 2, rounds)
    told = [each for each in caplog.records if "could not list" in each.getMessage()]
    assert len(told) == 1
    assert known(rounds) == {"orders"}
    aside.rename(bench.folder("queues"))
    entry = bench.delayed(-1000)
    pass_s(bench, 5, rounds)
    assert bench.redelivered(entry).exists()


def test_a_round_is_redelivery_and_no_more_than_one_turn(bench: "Bench") -> None:
    """However many policies are due: lateness is counted in turns."""
    rounds = rounds_of(bench)
    for _ in range(60):
        before = sum(count.turns for count in rounds.policies.counts().values())
        entry = bench.delayed(-1000)
        os.utime(bench.folder("delay"))
        rounds.run_once()
        assert sum(count.turns for count in rounds.policies.counts().values()) - before <= 1
        bench.clock.advance(2)
        rounds.run_once()
        assert bench.redelivered(entry).exists()


def test_it_is_due_again_at_once_while_policies_are(bench: "Bench") -> None:
    rounds = rounds_of(bench)
    assert rounds.next_due_s() == 0
    turns = 0
    while rounds.next_due_s() == 0:
        rounds.run_once()
        turns += 1
        assert turns < 100
    assert turns > 5


def test_who_ends_leaves_nothing_in_members(bench: "Bench") -> None:
    rounds = rounds_of(bench, FileCoordinator(bench.root, "ends"))
    pass_s(bench, 5, rounds)
    assert list(bench.folder("members").glob("ends.*"))
    rounds.stop()
    assert not list(bench.folder("members").glob("ends.*"))


def remains(bench: "Bench") -> tuple[list[Path], list[Path]]:
    """Of all kinds that policies look after: what goes to remove/, and what goes to the sideline
    (nobody can tell its queue's settings, and that goes by buckets).
    """
    put_file(bench.folder("deleted") / "gone", due_ms=bench.clock.now_ms())
    put_file(bench.folder("purged") / "purged", due_ms=bench.clock.now_ms() + 10**6)
    (bench.folder("queues") / "purged").mkdir()
    (bench.folder("settings") / "orders.json").write_text("{")
    (bench.ready / "0192f3a2").mkdir()
    put_file(bench.ready / "0192f3a2" / new_id().text)
    removed = [put_entry(bench.folder("new"), "orders") for _ in range(20)]
    removed += [bench.delayed(10**9, queue="gone") for _ in range(20)]
    removed += [bench.delayed(10**9, queue="purged") for _ in range(20)]
    return removed, [bench.delayed(-1000) for _ in range(40)]


@pytest.mark.certificate
def test_two_with_all_policies_at_once_do_each_thing_once(bench: "Bench") -> None:
    removed, stuck = remains(bench)
    well = [bench.delayed(ms, queue="well") for ms in range(-1000, 10**6, 50_000)]
    (bench.folder("queues") / "well").mkdir()
    both = [rounds_of(bench, FileCoordinator(bench.root, name)) for name in ("a", "b")]
    pass_s(bench, FORGOTTEN_AFTER_S + 2 * OVERDUE_EVERY_S, *both, every_s=15)
    assert all(bench.removed(entry).exists() for entry in removed)
    assert all(bench.redelivered(entry).exists() for entry in well)
    sideline = bench.folder("queues") / "orders_SIDELINE"
    ids = {entry.name.partition(":")[2] for entry in stuck}
    assert {path.name for path in sideline.iterdir()} == ids
    assert list(bench.folder("delay").iterdir()) == []
    swept = [each.policies.counts()["overdue"].acted for each in both]
    assert sorted(swept) == [0, len(stuck)], "one of them has the queue"


@pytest.mark.certificate
def test_what_one_member_has_swept_goes_on_when_it_is_gone(bench: "Bench") -> None:
    """Within two deals, and a pass."""
    _, stuck = remains(bench)
    first = rounds_of(bench, FileCoordinator(bench.root, "first"))
    pass_s(bench, 60, first)
    second = rounds_of(bench, FileCoordinator(bench.root, "second"))
    pass_s(bench, 2 * ASSIGN_EVERY_S, first, second)
    # The first is killed.
    pass_s(bench, 2 * ASSIGN_EVERY_S, second)
    assert second.policies.counts()["overdue"].acted == 0
    pass_s(bench, 3 * OVERDUE_EVERY_S, second, every_s=15)
    assert second.policies.counts()["overdue"].acted == len(stuck)


def test_two_of_one_name_are_refused(bench: "Bench") -> None:
    rounds_of(bench, FileCoordinator(bench.root, "same"))
    with pytest.raises(StartupError):
        rounds_of(bench, FileCoordinator(bench.root, "same"))


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("box", "box-7-0102"),
        ("a.b-c_d", "a.b-c_d-7-0102"),
        ("", "host-7-0102"),
        ("-é/:", "host-7-0102"),
        ("x" * 300, f"{'x' * 60}-7-0102"),
        ("my box", "my-box-7-0102"),
    ],
    ids=["plain", "dots", "empty", "foreign", "long", "space"],
)
def test_a_members_name_is_one_that_files_can_have(host: str, expected: str) -> None:
    assert member_name(host, 7, bytes([1, 2])) == expected
