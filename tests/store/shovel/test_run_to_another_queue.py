"""A shovel that moves a sideline's messages to another queue: what goes, and how it ends."""

import os
from pathlib import Path

import pytest
from harness.audits import audit
from harness.faults import FaultyFiles
from harness.waiting import PATIENCE_S

from mq.model.clock import SystemClock
from mq.model.message import Stamp
from mq.model.names import MessageId, QueueName
from mq.model.shovel import Progress, RunState, Trigger
from mq.store.core.root import Root
from mq.store.disk.flush import FsyncFlusher
from mq.store.disk.group import run_alone
from mq.store.opening import open_root
from mq.store.operations.queues import create_queue, delete_queue
from mq.store.shovel.files import read_record, take_turn
from mq.store.shovel.run import Asked, Heard, begin

DEAD, OTHER = QueueName.parse("dead"), QueueName.parse("other")
ID = "00000000-0000-0000-0000-000000000001"


class Place:
    """A root with a sideline of messages, and another queue."""

    def __init__(self, top: Path, count: int = 3) -> None:
        self.files = FaultyFiles()
        self.root: Root = open_root(str(top), self.files, SystemClock())
        self.flusher = FsyncFlusher(self.files, 1)
        for queue in (DEAD, DEAD.sideline(), OTHER):
            run_alone(create_queue(self.root, queue), self.flusher)
        names = [f"0192f3a2-0000-7000-8000-00000000000{number},p=5" for number in range(count)]
        self.ids = [MessageId.parse(name) for name in names]
        for each in self.ids:
            path = Path(self.root.layout.queue(DEAD.sideline())) / each.text
            path.write_bytes(b"x")
            path.chmod(0o600)
            stamp = Stamp(self.root.now_ms() - 1000, receives=41, reason=3).mtime_ns()
            os.utime(path, ns=(stamp, stamp))

    def there(self, queue: QueueName = OTHER) -> list[str]:
        folder = self.root.layout.queue(queue)
        return sorted(each for each in os.listdir(folder) if not each.startswith("."))

    def ran(self, heard: Heard | None = None) -> Progress:
        asked = Asked(DEAD, Trigger.REQUEST, into=OTHER, renews=True)
        run = begin(self.root, self.flusher, asked, ID, heard or Heard())
        assert run.ended.wait(PATIENCE_S)
        record = read_record(self.root, DEAD)
        assert record is not None
        assert record.run == run.progress
        turn = take_turn(self.root, DEAD)
        assert turn is not None
        turn.end()
        return run.progress


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "root")


def test_all_messages_go_and_have_most_attempts_again(place: Place) -> None:
    done = place.ran()
    assert (done.state, done.moved, done.into, done.error) == (RunState.DONE, 3, "other", None)
    assert place.there() == [each.text for each in place.ids]
    assert place.there(DEAD.sideline()) == []
    for each in place.ids:
        status = (Path(place.root.layout.queue(OTHER)) / each.text).stat()
        stamp = Stamp.from_mtime_ns(status.st_mtime_ns)
        assert (stamp.receives, stamp.attempts, stamp.reason) == (41, 1, 0)
    assert audit(place.root).is_clean


def test_a_run_that_is_stopped_at_once_moves_nothing(place: Place) -> None:
    done = place.ran(Heard(may_go_on=lambda: False))
    assert (done.state, done.moved) == (RunState.STOPPED, 0)


def test_a_sideline_that_is_gone_has_none(place: Place) -> None:
    run_alone(delete_queue(place.root, DEAD.sideline(), ID), place.flusher)
    done = place.ran()
    assert (done.state, done.moved, done.error) == (RunState.DONE, 0, None)


def test_a_queue_that_was_made_again_gets_none(place: Place) -> None:
    begun = place.root.layout.queue(OTHER)
    before = os.stat(begun).st_ino

    def again() -> bool:
        if os.stat(begun).st_ino != before:
            return True
        run_alone(delete_queue(place.root, OTHER, ID), place.flusher)
        run_alone(create_queue(place.root, OTHER), place.flusher)
        return True

    done = place.ran(Heard(may_go_on=again))
    assert (done.state, done.error) == (RunState.FAILED, "queue-not-found")
    assert place.there() == []
