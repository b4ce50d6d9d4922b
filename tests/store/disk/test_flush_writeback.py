"""Writeback ahead of a flush: it goes on beside whoever writes, and changes no outcome."""

import errno
from pathlib import Path

import pytest
from harness.clock import FakeClock
from harness.faults import FaultyFiles
from harness.processes import eventually
from harness.staging import JOB, QUEUE

from mq.model.errors import StorageFailed
from mq.model.names import MessageId, UuidSource
from mq.store.bulk.staging import StagingWriter
from mq.store.core.root import Root
from mq.store.disk.flush import NoFlusher, Writeback
from mq.store.disk.group import run_alone
from mq.store.format.pipeline import Attempt
from mq.store.opening import open_root
from mq.store.operations.queues import create_queue

SYNC = "sync_file_system"


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles()


@pytest.fixture
def root(tmp_path: Path, files: FaultyFiles, monkeypatch: pytest.MonkeyPatch) -> Root:
    """On a file system that tells of a syncfs's errors, wherever the tests' folder is."""
    monkeypatch.setattr("mq.store.bulk.staging.tells_syncfs_errors", lambda _: True)
    monkeypatch.setattr("mq.store.bulk.staging.STAGED_PER_WRITEBACK", 3)
    made = open_root(str(tmp_path), files, FakeClock())
    run_alone(create_queue(made, QUEUE), NoFlusher())
    return made


def syncs(files: FaultyFiles) -> int:
    return sum(call == SYNC for call, _ in files.calls)


def put(root: Root, writer: StagingWriter, count: int) -> None:
    for uuid in UuidSource(root.clock).many(count):
        writer.put(QUEUE, MessageId(uuid), b"x")


def test_it_goes_on_while_more_is_written(root: Root, files: FaultyFiles) -> None:
    with StagingWriter(root, JOB, Attempt(0, 0)) as writer:
        put(root, writer, 2)
        assert syncs(files) == 0
        gate = files.hold(SYNC)
        put(root, writer, 2)
        eventually(gate.reached.is_set, "a writeback")
        put(root, writer, 4)
        gate.open()
        assert writer.finish().messages == 8
    assert syncs(files) >= 2
    assert files.open_paths() == []


def test_what_it_meets_is_told_by_the_flush_alone(root: Root, files: FaultyFiles) -> None:
    files.fail(SYNC, errno.EIO)
    with StagingWriter(root, JOB, Attempt(0, 0)) as writer:
        put(root, writer, 4)
        eventually(lambda: syncs(files) or None, "a writeback that fails")
        put(root, writer, 4)
        with pytest.raises(StorageFailed):
            writer.finish()
    assert files.open_paths() == []


def test_one_that_cannot_begin_is_done_without(root: Root, files: FaultyFiles) -> None:
    writeback = Writeback(files, f"{root.layout.root}/gone")
    writeback.begin()
    writeback.end()
    assert syncs(files) == 0


def test_it_ends_with_a_writer_that_gives_up(root: Root, files: FaultyFiles) -> None:
    with StagingWriter(root, JOB, Attempt(0, 0)) as writer:
        put(root, writer, 4)
        writer.discard()
    assert files.open_paths() == []
