"""A run begins: after one that has just ended, and while another has lost its turn."""

from dataclasses import replace
from pathlib import Path

from harness.waiting import PATIENCE_S

from mq.model.clock import SystemClock
from mq.model.names import QueueName
from mq.model.shovel import Trigger
from mq.store.core.turns import Turn
from mq.store.disk.files import Files
from mq.store.disk.flush import FsyncFlusher
from mq.store.disk.group import run_alone
from mq.store.format.shovels import turn_place
from mq.store.opening import open_root
from mq.store.operations.queues import create_queue
from mq.store.shovel.files import read_record, take_turn, write_record
from mq.store.shovel.run import Asked, Heard, begin

QUEUE = QueueName.parse("orders")
OURS, THEIRS = (f"00000000-0000-0000-0000-00000000000{digit}" for digit in "12")


def test_what_the_next_says_stays(tmp_path: Path) -> None:
    """It finds nothing left to do, and ends before it looks whether its turn is its own."""
    files, clock = Files(), SystemClock()
    root = open_root(str(tmp_path), files, clock)
    flusher = FsyncFlusher(files, 1)
    for queue in (QUEUE, QUEUE.sideline()):
        run_alone(create_queue(root, queue), flusher)
    turns: list[Turn | None] = []

    def stands_still() -> bool:
        if not turns:
            files.unlink(turn_place(root.layout, QUEUE).path)
            turns.append(take_turn(root, QUEUE))
            ours = read_record(root, QUEUE)
            assert ours is not None
            write_record(root, QUEUE, replace(ours, run=replace(ours.run, id=THEIRS)))
        return True

    run = begin(root, flusher, Asked(QUEUE, Trigger.REQUEST), OURS, Heard(stands_still))
    assert run.ended.wait(PATIENCE_S)
    (turn,) = turns
    assert turn is not None
    now = read_record(root, QUEUE)
    turn.end()
    assert now is not None
    assert now.run.id == THEIRS
    flusher.close()


def test_a_run_begins_once_the_last_one_has_given_up_its_turn(tmp_path: Path) -> None:
    """Its record says that it has ended, a moment before."""
    turns: list[Turn] = []

    class GivenUpLate(Files):
        def lock(self, descriptor: int) -> bool:
            tries.append(descriptor)
            if len(tries) == 20:
                turns.pop().end()
            return super().lock(descriptor)

    tries: list[int] = []
    root = open_root(str(tmp_path), GivenUpLate(), SystemClock())
    flusher = FsyncFlusher(root.files, 1)
    for queue in (QUEUE, QUEUE.sideline()):
        run_alone(create_queue(root, queue), flusher)
    first = begin(root, flusher, Asked(QUEUE, Trigger.REQUEST), THEIRS)
    assert first.ended.wait(PATIENCE_S)
    turn = take_turn(root, QUEUE)
    assert turn is not None
    turns.append(turn)
    tries.clear()
    second = begin(root, flusher, Asked(QUEUE, Trigger.REQUEST), OURS)
    assert second.ended.wait(PATIENCE_S)
    now = read_record(root, QUEUE)
    assert now is not None
    assert now.run.id == OURS
    flusher.close()
