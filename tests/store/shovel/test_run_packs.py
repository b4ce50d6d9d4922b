"""Packs in a sideline: a run counts their messages, and moves each by one rename."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from harness.packs import new_pack, put_pack
from harness.waiting import PATIENCE_S

from mq.model.clock import SystemClock
from mq.model.names import MessageId, QueueName, UuidSource
from mq.model.shovel import Criteria, Trigger
from mq.store.core.root import Root
from mq.store.disk.files import Files
from mq.store.disk.flush import NoFlusher
from mq.store.disk.group import run_alone
from mq.store.opening import open_root
from mq.store.operations.publish import Draft, publish
from mq.store.operations.queues import create_queue
from mq.store.scan.census import Census, count
from mq.store.shovel.run import Asked, begin

QUEUE = QueueName.parse("orders")
ASIDE = QUEUE.sideline()


@pytest.fixture
def root(tmp_path: Path) -> Root:
    root = open_root(str(tmp_path / "root"), Files(), SystemClock())
    for queue in (QUEUE, ASIDE):
        run_alone(create_queue(root, queue), NoFlusher())
    return root


def sidelined(root: Root, sizes: Sequence[int]) -> list[MessageId]:
    """A pack of each size; of size 1 a single message."""
    uuids = UuidSource(root.clock)
    ids = [new_pack(size, uuids=uuids) if size > 1 else MessageId(uuids.next()) for size in sizes]
    for message_id in ids:
        if message_id.items:
            put_pack(Path(root.layout.queue(ASIDE), message_id.text), message_id, due_ms=1)
        else:
            draft = Draft(ASIDE, message_id, message_id.published_ms)
            run_alone(publish(root, draft, b"x"), NoFlusher())
    return ids


@pytest.mark.parametrize(
    ("limit", "moved"), [(None, 11), (1, 3), (3, 3), (4, 4), (5, 9), (100, 11)]
)
@pytest.mark.parametrize("dry", [True, False])
def test_a_run_counts_messages_and_splits_no_pack(
    root: Root, limit: int | None, moved: int, dry: bool
) -> None:
    sidelined(root, [3, 1, 5, 2])
    asked = Asked(QUEUE, Trigger.REQUEST, Criteria(limit), dry_run=dry)
    run = begin(root, NoFlusher(), asked, "00000000-0000-0000-0000-000000000001")
    assert run.ended.wait(PATIENCE_S)
    assert (run.progress.moved, run.progress.looked_at) == (moved, moved)
    counts = count(Census(root), QUEUE)
    goes = 0 if dry else moved
    assert (counts.ready, counts.sidelined) == (goes, 11 - goes)
