"""How a run begins: with its turn, of which a queue has one at a time in all processes."""

from dataclasses import dataclass

from mq.model.errors import ShovelRunning
from mq.model.names import QueueName
from mq.model.shovel import (
    ALL,
    SHOVEL_TRIES_MAX,
    SHOVEL_TRY_WAIT_S,
    Criteria,
    Progress,
    Record,
    Trigger,
)
from mq.runtime.upkeep import Stop
from mq.store.core.root import Root
from mq.store.disk.flush import Flusher
from mq.store.shovel.files import Turn, drop_stop, read_record, take_turn
from mq.store.shovel.hearing import NOBODY, Heard
from mq.store.shovel.run import Run
from mq.store.shovel.shovelling import Pass


@dataclass(frozen=True, slots=True)
class Asked:
    """What a run is to do. `rate`: messages a second at most."""

    queue: QueueName
    by: Trigger
    criteria: Criteria = ALL
    rate: int | None = None
    concurrency: int = 1
    dry_run: bool = False


def begin(root: Root, flusher: Flusher, asked: Asked, run_id: str, heard: Heard = NOBODY) -> Run:
    """Begins a run in a thread of its own. Raises ShovelRunning, OSError."""
    queue = asked.queue
    turn = _take_turn(root, queue)
    try:
        drop_stop(root, queue)
        before = read_record(root, queue)
        now_ms = root.now_ms()
        criteria = asked.criteria
        progress = Progress(
            run_id,
            queue.text,
            asked.by,
            now_ms,
            asked.dry_run,
            criteria.as_json(),
            asked.rate,
            asked.concurrency,
        )
        record = Record(progress, None if before is None else before.scheduled_ms)
        run = Run(root, flusher, turn, Pass(root, queue, criteria, now_ms), record, heard)
        run.start()
    except BaseException:
        turn.end()
        raise
    return run


def _take_turn(root: Root, queue: QueueName) -> Turn:
    wait = Stop()
    for _ in range(SHOVEL_TRIES_MAX):
        turn = take_turn(root, queue)
        if turn is not None:
            return turn
        wait.wait(SHOVEL_TRY_WAIT_S)
    record = read_record(root, queue)
    known = record is not None and record.run.state.is_under_way
    raise ShovelRunning(queue.text, record.run.id if record is not None and known else "")
