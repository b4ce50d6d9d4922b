"""Jobs that were given up: what they had staged is gone, and their tasks stage nothing more."""

import errno
from pathlib import Path

import pytest
from harness.audits import assert_audits_clean
from harness.clock import FakeClock
from harness.faults import FaultyFiles
from harness.staging import JOB, QUEUE, stage, staged_files

from mq.model.errors import MqError, StagedFileGone
from mq.model.names import MessageId, UuidSource
from mq.store.bulk.journal import abort
from mq.store.bulk.staging import StagingWriter, Sync
from mq.store.bulk.sweep import sweep_bulk
from mq.store.core.root import Root
from mq.store.disk.files import Files
from mq.store.disk.flush import NoFlusher
from mq.store.disk.group import run_alone
from mq.store.format.pipeline import Attempt
from mq.store.opening import attach_root, open_root
from mq.store.operations.queues import create_queue

CALLS_MAX = 400


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def root(tmp_path: Path, clock: FakeClock) -> Root:
    made = open_root(str(tmp_path), Files(), clock)
    run_alone(create_queue(made, QUEUE), NoFlusher())
    return made


class _TaskBegins(FaultyFiles):
    """A task of the job begins between two steps of who gives it up, as often as is said."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times
        self.root: Root

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        if self.times:
            self.times -= 1
            stage(attach_root(self.root.layout.root, Files(), self.root.clock), [b"late"])


@pytest.mark.parametrize("times", [0, 1, 3])
def test_tasks_that_begin_while_their_job_is_given_up_leave_nothing(
    root: Root, tmp_path: Path, times: int
) -> None:
    files = _TaskBegins(times)
    files.root = root
    stage(root, [b"a"])
    assert abort(attach_root(str(tmp_path), files, root.clock), JOB)
    assert (files.times, staged_files(tmp_path)) == (0, [JOB])
    assert [path.name for path in (tmp_path / "new" / ".spark").iterdir()] == [JOB]


@pytest.mark.parametrize("sync", ["fsync", "syncfs"])
@pytest.mark.parametrize("put", [0, 1])
def test_a_task_that_comes_late_is_told_that_its_job_was_given_up(
    root: Root, tmp_path: Path, put: int, sync: Sync, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mq.store.bulk.staging.tells_syncfs_errors", lambda _: True)
    uuids = UuidSource(root.clock)
    begun = StagingWriter(root, JOB, Attempt(0, 0), sync)
    for _ in range(put):
        begun.put(QUEUE, MessageId(uuids.next()), b"a")
    assert abort(root, JOB)
    with begun, pytest.raises(StagedFileGone, match="given up"):
        begun.put(QUEUE, MessageId(uuids.next()), b"b")
    for attempt in (Attempt(0, 0), Attempt(1, 0)):
        with pytest.raises(StagedFileGone, match="given up"):
            stage(root, [b"late"], attempt=attempt, sync=sync)
    assert staged_files(tmp_path) == [JOB]


def test_a_task_that_had_written_all_when_its_job_was_given_up_leaves_nothing(
    root: Root, tmp_path: Path
) -> None:
    with StagingWriter(root, JOB, Attempt(0, 0), "fsync") as writer:
        writer.put(QUEUE, MessageId(UuidSource(root.clock).next()), b"a")
        abort(root, JOB)
        with pytest.raises(StagedFileGone, match="given up"):
            writer.finish()
    assert staged_files(tmp_path) == [JOB]


def test_a_job_may_be_given_up_before_any_task_of_the_root_began(
    root: Root, tmp_path: Path
) -> None:
    assert abort(root, JOB)
    with pytest.raises(StagedFileGone, match="given up"):
        stage(root, [b"late"])
    assert staged_files(tmp_path) == [JOB]


def test_that_a_job_was_given_up_is_known_for_a_day(
    root: Root, tmp_path: Path, clock: FakeClock
) -> None:
    abort(root, JOB)
    clock.advance(23 * 3600)
    sweep_bulk(root)
    assert staged_files(tmp_path) == [JOB]
    assert_audits_clean(tmp_path)
    clock.advance(2 * 3600)
    sweep_bulk(root)
    assert staged_files(tmp_path) == []


@pytest.mark.certificate
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.ESTALE])
def test_giving_up_may_fail_at_every_call_and_the_next_try_does_it(
    tmp_path: Path, code: int
) -> None:
    for after in range(CALLS_MAX):
        path, files, clock = tmp_path / str(after), FaultyFiles(), FakeClock()
        root = open_root(str(path), files, clock)
        run_alone(create_queue(root, QUEUE), NoFlusher())
        stage(root, [b"a"])
        fault = files.fail("", code, times=1, after=after)
        try:
            abort(root, JOB)
        except (OSError, MqError):
            abort(root, JOB)
        if not fault.hits:
            break
        with pytest.raises(StagedFileGone):
            stage(root, [b"late"])
        clock.advance(25 * 3600)
        sweep_bulk(root)
        assert staged_files(path) == []
    else:
        raise AssertionError("the faults never ended")
