"""What is due in a fake, while its clock runs."""

from pathlib import Path

from harness.clock import FakeClock
from harness.messages import new_id, put_file

from mq.model.names import QueueName
from mq.store.disk.files import ClockFiles
from mq.store.disk.flush import NoFlusher
from mq.store.disk.group import run_alone
from mq.store.opening import open_root
from mq.store.operations.queues import create_queue
from mq.testing.upkeep import Upkeep


def test_what_becomes_due_behind_a_look_is_due_next(root: Path) -> None:
    clock = FakeClock()
    files = ClockFiles(clock.now_ms)
    opened = open_root(str(root), files, clock)
    run_alone(create_queue(opened, QueueName.parse("q")), NoFlusher())
    put_file(root / "delay" / f"q:{new_id().text}", b"soon", clock.now_ms() + 20)
    upkeep = Upkeep(opened, files, NoFlusher())
    upkeep.run()
    due_ms = clock.now_ms() + 20
    assert upkeep.next_ms(()) == due_ms
    clock.advance(0.02)
    assert upkeep.next_ms(()) == due_ms
    upkeep.run()
    assert upkeep.next_ms(()) is None
    assert len(list((root / "queues" / "q").iterdir())) == 1
