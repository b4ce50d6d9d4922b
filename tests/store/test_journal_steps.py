"""The steps of a bulk publish, in their order."""

import errno
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from harness.clock import FakeClock
from harness.faults import FaultyFiles, steps_of
from harness.processes import PATIENCE_S
from harness.staging import JOB, QUEUE, committed, rolled, stage

from mq.lifecycle import State
from mq.names import Key, MessageId, UuidSource
from mq.store.bucket_names import Shape, leading
from mq.store.files import Files
from mq.store.flush import FsyncFlusher, NoFlusher
from mq.store.group import run_alone
from mq.store.journal import begin_publish
from mq.store.pipeline_layout import Attempt, staged_spot
from mq.store.publish import Draft, publish
from mq.store.queues import create_queue, delete_queue
from mq.store.roll_forward import roll_forward
from mq.store.root import Root, attach_root, open_root
from mq.store.staging import StagingWriter
from mq.store.steps import Flush
from mq.store.sweep_bulk import sweep_bulk

NAME = "nightly"
JOURNAL = [("create", "journal"), ("sync", "journal"), ("rename", "journal")]
END = [("rename", "journal"), ("sync_folder", "journal")]


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles()


@pytest.fixture
def root(tmp_path: Path, files: FaultyFiles) -> Root:
    clock = FakeClock()
    run_alone(create_queue(open_root(str(tmp_path), Files(), clock), QUEUE), NoFlusher())
    return attach_root(str(tmp_path), files, clock)


def test_the_steps_of_staging(root: Root, files: FaultyFiles) -> None:
    stage(root, [b"a", b"b"])
    assert steps_of(files, 0) == [
        *[("create", "0-0"), ("stamp", "0-0")] * 2,
        *[("sync", "0-0")] * 2,
        *[("sync_folder", name) for name in ("0-0", JOB, ".spark", "new")],
    ]


def test_the_steps_of_staging_by_syncfs(
    root: Root, files: FaultyFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mq.store.staging.tells_syncfs_errors", lambda _: True)
    stage(root, [b"a", b"b"], sync="syncfs")
    calls = [call for call, _ in files.calls]
    begun, ended = calls.index("open_folder"), calls.index("sync_file_system")
    creates = [place for place, call in enumerate(calls) if call == "create"]
    stamps = [place for place, call in enumerate(calls) if call == "stamp"]
    assert begun < min(creates) <= max(stamps) < ended
    assert "sync" not in calls


def test_the_steps_of_a_commit(root: Root, files: FaultyFiles) -> None:
    staged, _ = stage(root, [b"a"])
    before = len(files.calls)
    committed(root, staged, publish_id=NAME)
    assert steps_of(files, before) == [
        ("sync_folder", "queues"), *JOURNAL, ("sync_folder", "journal"),
    ]  # fmt: skip


def test_who_finds_a_commit_or_a_beginning_flushes_it(root: Root, files: FaultyFiles) -> None:
    staged, _ = stage(root, [b"a"])
    committed(root, staged, publish_id=NAME)
    again, _ = stage(root, [b"a"], job="f" * 32)
    before = len(files.calls)
    committed(root, again, job="f" * 32, publish_id=NAME)
    assert steps_of(files, before) == [("sync_folder", "journal")]
    flusher = FsyncFlusher(files, 1)
    for _ in range(2):
        before = len(files.calls)
        run_alone(begin_publish(root, Key("other")), flusher)
    assert steps_of(files, before) == [("sync_folder", "journal")]


def rolling(root: Root, files: FaultyFiles, **more: object) -> list[tuple[str, str]]:
    """What is done to roll two messages forward."""
    staged, _ = stage(root, [b"a", b"b"], **more)  # type: ignore[arg-type]
    name = committed(root, staged, publish_id=NAME).name
    before = len(files.calls)
    rolled(root, name)
    return steps_of(files, before)


def test_the_steps_of_rolling_forward(root: Root, files: FaultyFiles) -> None:
    assert rolling(root, files) == [
        ("sync_folder", "queues"),
        *[("rename", "0-0")] * 2,
        ("sync_folder", QUEUE.text),
        ("sync_folder", "0-0"),
        *END,
    ]


def test_the_steps_of_rolling_forward_to_delay(root: Root, files: FaultyFiles) -> None:
    assert rolling(root, files, due_ms=root.now_ms() + 60_000) == [
        ("sync_folder", "queues"),
        *[("rename", "0-0")] * 2,
        ("sync_folder", "delay"),
        ("sync_folder", "0-0"),
        *END,
    ]


@pytest.mark.parametrize("key", [None, "k"], ids=["plain", "keyed"])
def test_a_bucket_is_flushed_before_anything_goes_there(
    tmp_path: Path, root: Root, files: FaultyFiles, key: str | None
) -> None:
    small = Root.of(root.layout, files, root.clock, folder_max=1)
    staged, _ = stage(root, [b"a", b"b"])
    rolled(small, committed(root, staged).name)
    steps = rolling(small, files, key=key)
    ((_, bucket),) = {
        (call, name)
        for call, name in steps
        if call == "sync_folder" and Path(root.layout.queue(QUEUE), name).is_dir()
    }
    first = steps.index(("rename", "0-0"))
    ways = [name for call, name in steps[:first] if call == "sync_folder"]
    last = len(ways) - 1 - ways[::-1].index(QUEUE.text)  # A key's folder has its name too.
    assert ways.index("queues") < last
    rest = [step for step in steps[first:] if step[0] == "sync_folder"]
    assert rest.index(("sync_folder", bucket)) < rest.index(("sync_folder", "0-0"))


@pytest.mark.parametrize("key", [None, "k"], ids=["plain", "keyed"])
def test_a_bucket_of_long_ago_is_flushed_at_each_use(
    root: Root, files: FaultyFiles, key: str | None
) -> None:
    """Others may have taken it away, and made it anew, since this process flushed it."""
    small = Root.of(root.layout, files, root.clock, folder_max=1)
    staged, (message_id,) = stage(root, [b"a"], key=key)
    name = committed(root, staged, publish_id=NAME).name
    assert isinstance(root.clock, FakeClock)
    root.clock.advance(3600)
    queue = Path(root.layout.queue(QUEUE))
    bucket = Shape().bucket(message_id)[:-1]
    (queue / bucket).mkdir()
    (queue / bucket / ".full").touch()
    (queue / ".full").touch()
    flusher = FsyncFlusher(files, 1)
    top = Flush(entries=(str(queue), str(queue / bucket)))
    flusher.flush({0: top}, 0)
    before = len(files.calls)
    roll_forward(small, flusher, name)
    steps = steps_of(files, before)
    ways = steps[: steps.index(("rename", "0-0"))]
    assert ways[-2:] == [("sync_folder", QUEUE.text), ("sync_folder", bucket)]
    flusher.close()


def test_what_another_try_brings_to_its_place_is_flushed(root: Root, files: FaultyFiles) -> None:
    """Its bucket went between a look and its rename."""
    staged, _ = stage(root, [b"a"])
    name = committed(root, staged, publish_id=NAME).name
    files.fail("rename", errno.ENOENT, "/0-0/", times=1)
    before = len(files.calls)
    rolled(root, name)
    steps = steps_of(files, before)
    last = len(steps) - 1 - steps[::-1].index(("rename", "0-0"))
    assert steps[last:] == [
        ("rename", "0-0"), ("sync_folder", QUEUE.text), ("sync_folder", "0-0"), *END,
    ]  # fmt: skip


@pytest.mark.parametrize("has_moved_all", [True, False])
def test_what_another_has_moved_is_flushed(
    root: Root, files: FaultyFiles, has_moved_all: bool
) -> None:
    """To any of its places, before it died."""
    staged, (message_id, *_) = stage(root, [b"a"] if has_moved_all else [b"a", b"b"])
    name = committed(root, staged, publish_id=NAME).name
    layout = root.layout
    deep = leading(layout.queue(QUEUE), Shape().deep(message_id))
    for folder in deep:
        Path(folder).mkdir()
    source = layout.path(State.NEW, QUEUE, message_id, staged_spot(JOB, Attempt(0, 0)))
    Path(source).rename(Path(deep[-1], message_id.text))
    before = len(files.calls)
    rolled(root, name)
    expected = [
        *[("sync_folder", top) for top in (QUEUE.text, "delay", "remove")],
        *[("sync_folder", Path(folder).name) for folder in deep],
        ("sync_folder", "0-0"),
        *END,
    ]
    assert steps_of(files, before)[-len(expected) :] == expected


def test_a_link_is_flushed_before_its_message_shows(root: Root, files: FaultyFiles) -> None:
    steps = rolling(root, files, key="k")
    shown = steps.index(("rename", "0-0"))
    links = [name for call, name in steps if call == "link"]
    assert all(("sync_folder", name) in steps[:shown] for name in links)
    assert ("sync_folder", "queues") in steps[:shown]
    assert steps[shown:] == [
        *[("rename", "0-0")] * 2,
        ("sync_folder", QUEUE.text),
        ("sync_folder", "0-0"),
        *END,
    ]


def test_what_goes_with_its_queue_is_flushed(root: Root, files: FaultyFiles) -> None:
    staged, _ = stage(root, [b"a"])
    name = committed(root, staged, publish_id=NAME).name
    run_alone(delete_queue(root, QUEUE, UuidSource(root.clock).next()), NoFlusher())
    before = len(files.calls)
    rolled(root, name)
    assert steps_of(files, before) == [
        ("rename", "0-0"), ("sync_folder", "remove"), ("sync_folder", "0-0"), *END,
    ]  # fmt: skip


def test_what_a_queue_that_is_made_again_must_not_get_is_flushed(
    root: Root, files: FaultyFiles
) -> None:
    staged, _ = stage(root, [b"a"])
    committed(root, staged, publish_id=NAME)
    run_alone(delete_queue(root, QUEUE, UuidSource(root.clock).next()), NoFlusher())
    before = len(files.calls)
    run_alone(create_queue(root, QUEUE), FsyncFlusher(files, 1))
    steps = [step for step in steps_of(files, before) if step != ("sync_folder", "schedules")]
    assert steps[:3] == [
        ("rename", "0-0"), ("sync_folder", "remove"), ("sync_folder", "0-0"),
    ]  # fmt: skip


def test_what_the_ledger_forgets_is_flushed(root: Root, files: FaultyFiles) -> None:
    flusher = FsyncFlusher(files, 1)
    run_alone(begin_publish(root, Key("other")), flusher)
    assert isinstance(root.clock, FakeClock)
    root.clock.advance(8 * 24 * 3600)
    before = len(files.calls)
    sweep_bulk(root, flusher)
    assert steps_of(files, before) == [("sync_folder", "journal")]


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
    gate = files.hold("lock", "/keys/")
    with ThreadPoolExecutor(1) as pool:
        rolling = pool.submit(rolled, root, name)
        assert gate.reached.wait(PATIENCE_S)
        other = attach_root(str(tmp_path), Files(), root.clock)
        message_id = MessageId(UuidSource(root.clock).next(), key=Key("k"))
        run_alone(publish(other, Draft(QUEUE, message_id, root.now_ms()), b"b"), NoFlusher())
        gate.open()
        assert rolling.result(PATIENCE_S) == (0, 1, 0)
    assert [path.name for path in Path(root.layout.queue(QUEUE)).iterdir()] == [message_id.text]
