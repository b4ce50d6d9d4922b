"""What a bulk publish opens, and whom it meets."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from harness.clock import FakeClock
from harness.faults import FaultyFiles
from harness.folders import files_below
from harness.processes import PATIENCE_S
from harness.staging import JOB, QUEUE, committed, rolled, stage

from mq.model.names import Key, MessageId, UuidSource
from mq.store.bulk.staging import StagingWriter
from mq.store.core.root import Root
from mq.store.disk.files import Files
from mq.store.disk.flush import NoFlusher
from mq.store.disk.group import run_alone
from mq.store.format.pipeline import Attempt
from mq.store.opening import attach_root, open_root
from mq.store.operations.publish import Draft, publish
from mq.store.operations.queues import create_queue


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles()


@pytest.fixture
def root(tmp_path: Path, files: FaultyFiles) -> Root:
    clock = FakeClock()
    run_alone(create_queue(open_root(str(tmp_path), Files(), clock), QUEUE), NoFlusher())
    return attach_root(str(tmp_path), files, clock)


def test_the_steps_of_staging_by_syncfs(
    root: Root, files: FaultyFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mq.store.bulk.staging.tells_syncfs_errors", lambda _: True)
    stage(root, [b"a", b"b"], sync="syncfs")
    calls = [call for call, _ in files.calls]
    begun, ended = calls.index("open_folder"), calls.index("sync_file_system")
    creates = [place for place, call in enumerate(calls) if call == "create"]
    stamps = [place for place, call in enumerate(calls) if call == "stamp"]
    assert begun < min(creates) <= max(stamps) < ended
    assert "sync" not in calls


def test_a_writer_that_fails_leaves_nothing_open(root: Root, files: FaultyFiles) -> None:
    with pytest.raises(RuntimeError), StagingWriter(root, JOB, Attempt(0, 0)):
        raise RuntimeError
    assert files.open_paths() == []


def test_a_key_that_another_takes_meanwhile_has_one_message(
    tmp_path: Path, root: Root, files: FaultyFiles
) -> None:
    """After the link was made, and before its message shows."""
    staged, _ = stage(root, [b"a"], key="k")
    name = committed(root, staged).name
    gate = files.hold("lock", "/.keys/")
    with ThreadPoolExecutor(1) as pool:
        rolling = pool.submit(rolled, root, name)
        assert gate.reached.wait(PATIENCE_S)
        other = attach_root(str(tmp_path), Files(), root.clock)
        message_id = MessageId(UuidSource(root.clock).next(), key=Key("k"))
        run_alone(publish(other, Draft(QUEUE, message_id, root.now_ms()), b"b"), NoFlusher())
        gate.open()
        assert rolling.result(PATIENCE_S) == (0, 1, 0)
    assert [path.name for path in files_below(Path(root.layout.queue(QUEUE)))] == [message_id.text]
