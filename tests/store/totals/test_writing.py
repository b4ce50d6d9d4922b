"""Writing what was counted: bounded in files and memory; what cannot be written waits."""

import errno
from pathlib import Path

import pytest
from harness.clock import FakeClock
from harness.faults import FaultyFiles

from mq.model.names import QueueName
from mq.model.totals import Total
from mq.store.core.root import Root
from mq.store.core.totals import TOTALS_QUEUES_HELD_MAX
from mq.store.opening import open_root
from mq.store.totals.ledger import Ledger
from mq.store.totals.writing import TOTALS_FILES_MAX, write_totals

QUEUE = QueueName("q")


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles()


@pytest.fixture
def opened(root: Path, files: FaultyFiles) -> Root:
    return open_root(str(root), files, FakeClock())


def published(root: Root) -> int:
    return Ledger(root).of(QUEUE)[Total.PUBLISHED]


def counts(root: Root) -> int:
    return len(list(Path(root.layout.totals).glob("*.counts")))


def test_nothing_is_written_where_nothing_was_counted(opened: Root) -> None:
    assert not write_totals(opened)
    assert not Path(opened.layout.totals).exists()


def test_what_cannot_be_written_is_counted_and_written_later(
    opened: Root, files: FaultyFiles, caplog: pytest.LogCaptureFixture
) -> None:
    for call in ("mkdir", "create", "write", "rename"):
        files.fail(call, errno.ENOSPC, "totals")
        opened.totals.add(QUEUE, Total.PUBLISHED)
        assert not write_totals(opened)
        opened.totals.add(QUEUE, Total.PUBLISHED)
        assert not write_totals(opened)
        files.heal()
    assert len([each for each in caplog.records if each.levelname == "WARNING"]) == 1
    assert (published(opened), counts(opened)) == (8, 0)
    assert write_totals(opened)
    assert (published(opened), counts(opened)) == (8, 1)
    assert not write_totals(opened)


def test_files_that_nobody_folds_do_not_grow_without_end(opened: Root) -> None:
    for _ in range(TOTALS_FILES_MAX + 2):
        opened.totals.add(QUEUE, Total.PUBLISHED)
        write_totals(opened)
    assert (published(opened), counts(opened)) == (TOTALS_FILES_MAX + 2, TOTALS_FILES_MAX)
    assert write_totals(opened, at_end=True)
    assert (published(opened), counts(opened)) == (TOTALS_FILES_MAX + 2, TOTALS_FILES_MAX + 1)


def test_memory_is_bounded_with_however_many_queues(opened: Root) -> None:
    opened.totals.add(QUEUE, Total.PUBLISHED)
    for number in range(TOTALS_QUEUES_HELD_MAX + 3):
        opened.totals.add(QueueName(f"of-{number}"), Total.PUBLISHED)
    opened.totals.add(QUEUE, Total.PUBLISHED)
    with opened.totals.writing:
        rows = opened.totals.take()
        assert len(rows) == TOTALS_QUEUES_HELD_MAX
        opened.totals.add(QUEUE, Total.PUBLISHED)
        opened.totals.add(QueueName("another"), Total.PUBLISHED)
        opened.totals.give_back(rows)
        assert len(opened.totals.take()) == TOTALS_QUEUES_HELD_MAX
    opened.totals.add(QUEUE, Total.PUBLISHED)
    assert published(opened) == 1
