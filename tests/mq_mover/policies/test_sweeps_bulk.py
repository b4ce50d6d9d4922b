"""What daemons do with bulk publishes whose writers died after the commit point."""

from pathlib import Path

import pytest
from harness.clock import FakeClock
from harness.processes import Processes, eventually
from harness.server import Serve
from harness.staging import QUEUE, committed, stage
from harness.upkeep import all_policies

from mq.model.clock import SystemClock
from mq.store.bulk.journal import journals
from mq.store.bulk.sweep import BulkSweep
from mq.store.core.root import Root
from mq.store.disk.files import Files
from mq.store.disk.flush import NoFlusher
from mq.store.disk.group import run_alone
from mq.store.opening import open_root
from mq.store.operations.queues import create_queue


@pytest.fixture
def opened(root: Path) -> Root:
    """A root with a publish that is committed, and one that is not."""
    made = open_root(str(root), Files(), SystemClock())
    run_alone(create_queue(made, QUEUE), NoFlusher())
    staged, _ = stage(made, [b"a", b"b"])
    committed(made, staged)
    stage(made, [b"c"], job="f" * 32)
    return made


def ready(root: Root) -> list[bytes]:
    return sorted(path.read_bytes() for path in Path(root.layout.queue(QUEUE)).iterdir())


def is_rolled(root: Root) -> bool:
    return journals(root) == []


async def test_mq_rolls_forward_when_it_starts(opened: Root, serve: Serve) -> None:
    await serve()
    eventually(lambda: is_rolled(opened), "the journal's end")
    assert ready(opened) == [b"a", b"b"]


@pytest.mark.certificate
def test_mq_mover_rolls_forward_when_it_starts(opened: Root, daemons: Processes) -> None:
    daemons.mover("--root", opened.layout.root)
    eventually(lambda: is_rolled(opened), "the journal's end")
    assert ready(opened) == [b"a", b"b"]


def test_a_pass_beside_other_work_is_one_at_a_time(opened: Root) -> None:
    sweep = BulkSweep(opened)
    for _ in range(3):
        sweep.begin()
    eventually(lambda: is_rolled(opened), "the journal's end")
    assert ready(opened) == [b"a", b"b"]


def test_mq_mover_rolls_forward_each_minute(root: Path) -> None:
    clock = FakeClock()
    made = open_root(str(root), Files(), clock)
    run_alone(create_queue(made, QUEUE), NoFlusher())
    sweeper = all_policies(made, NoFlusher())
    sweeper.run_once()
    staged, _ = stage(made, [b"a"])
    committed(made, staged)
    sweeper.run_once()
    assert ready(made) == []
    clock.advance(60)
    sweeper.run_once()
    assert ready(made) == [b"a"]
