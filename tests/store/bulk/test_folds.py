"""Folds of a bulk publish: folders that go to their places whole, or else message by message."""

import errno
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from harness.audits import assert_audits_clean
from harness.clock import FakeClock
from harness.faults import FaultyFiles
from harness.folders import message_files
from harness.staging import JOB, QUEUE, committed, rolled, stage_fold, staged_files

from mq.model.errors import BadName, MqError, StagedFileGone
from mq.model.lifecycle import State
from mq.model.names import MessageId, QueueName, UuidSource
from mq.store.bulk.journal import abort, journals
from mq.store.bulk.roll_forward import roll_all_forward
from mq.store.bulk.staging import StagingWriter
from mq.store.bulk.sweep import sweep_bulk
from mq.store.bulk.windows import FOLD_ROWS_MAX, FOLD_ROWS_MIN, WINDOW_AHEAD_MS_MAX, WindowIds
from mq.store.core.find import whereabouts
from mq.store.core.root import Root
from mq.store.disk.flush import NoFlusher
from mq.store.disk.group import run_alone
from mq.store.format.bucket_names import Shape
from mq.store.format.pipeline import WINDOW_BITS, Attempt, Fold
from mq.store.opening import open_root
from mq.store.operations.publish import Draft, publish
from mq.store.operations.purge import purge
from mq.store.operations.queues import WantedShape, create_queue, delete_queue
from mq.store.scan.order import list_ready

BODIES = [b"a", b"b", b"c"]
CALLS_MAX = 300


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles()


@pytest.fixture
def root(tmp_path: Path, clock: FakeClock, files: FaultyFiles) -> Root:
    made = open_root(str(tmp_path), files, clock)
    run_alone(create_queue(made, QUEUE), NoFlusher())
    return made


def ready(root: Root) -> dict[str, bytes]:
    """What lies in the queue, by where."""
    folder = Path(root.layout.queue(QUEUE))
    found = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def places(ids: list[MessageId]) -> dict[str, bytes]:
    """Where a fold's messages belong."""
    shape = Shape()
    return {shape.deep(each) + each.text: body for each, body in zip(ids, BODIES, strict=True)}


@pytest.mark.parametrize("priority", [0, 7])
def test_a_fold_goes_to_its_place(root: Root, tmp_path: Path, priority: int) -> None:
    staged, ids = stage_fold(root, BODIES, priority=priority)
    name = committed(root, staged).name
    assert rolled(root, name) == (3, 0, 0)
    assert ready(root) == places(ids)
    assert staged_files(tmp_path) == []
    listing = list_ready(root, QUEUE, 10)
    assert listing is not None
    assert listing.ids == ids
    assert_audits_clean(tmp_path)


def test_a_queue_s_history_is_told_of_each_message_of_a_fold(root: Root, tmp_path: Path) -> None:
    (tmp_path / "settings" / f"{QUEUE.text}.json").write_text(json.dumps({"history": True}))
    staged, ids = stage_fold(root, BODIES)
    rolled(root, committed(root, staged).name)
    lines = [
        json.loads(line)
        for path in tmp_path.glob(f"history/{QUEUE.text}/*/*.ndjson")
        for line in path.read_text().splitlines()
    ]
    told = sorted((line["event"], line["id"]) for line in lines)
    assert told == [("published", each.text) for each in ids]


def test_a_place_that_is_taken_gets_them_one_by_one(root: Root, tmp_path: Path) -> None:
    first, ids = stage_fold(root, BODIES)
    second, more = stage_fold(root, BODIES, Attempt(1, 0))
    assert rolled(root, committed(root, first, second).name) == (6, 0, 0)
    assert set(places(ids)) < set(ready(root))
    assert len(ready(root)) == 6
    assert all(whereabouts(root, QUEUE, each) is State.READY for each in more)
    assert staged_files(tmp_path) == []
    assert_audits_clean(tmp_path)


def test_an_empty_folder_at_the_place_is_replaced(root: Root) -> None:
    staged, ids = stage_fold(root, BODIES)
    Path(root.layout.queue(QUEUE), Shape().deep(ids[0])).mkdir(parents=True)
    rolled(root, committed(root, staged).name)
    assert ready(root) == places(ids)


def test_what_has_the_place_s_name_and_is_no_folder_stays(root: Root, tmp_path: Path) -> None:
    """A link that a hand put there is never followed."""
    staged, ids = stage_fold(root, BODIES)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    Path(root.layout.queue(QUEUE), Shape().bucket(ids[0])[:-1]).symlink_to(elsewhere)
    assert rolled(root, committed(root, staged).name) == (3, 0, 0)
    assert list(elsewhere.iterdir()) == []
    assert sorted(ready(root).values()) == BODIES


def test_what_was_purged_is_not_served(root: Root, clock: FakeClock, tmp_path: Path) -> None:
    staged, _ = stage_fold(root, BODIES)
    name = committed(root, staged).name
    run_alone(purge(root, QUEUE, clock.now_ms()), NoFlusher())
    rolled(root, name)
    assert ready(root) == {}
    assert len(message_files(tmp_path)["remove"]) == 3


def test_a_purge_before_it_leaves_a_fold_whole(root: Root, clock: FakeClock) -> None:
    run_alone(purge(root, QUEUE, clock.now_ms()), NoFlusher())
    clock.advance(1)
    staged, ids = stage_fold(root, BODIES)
    rolled(root, committed(root, staged).name)
    assert ready(root) == places(ids)


@pytest.mark.parametrize("is_made_again", [False, True])
def test_a_deleted_queue_s_go_with_it(root: Root, tmp_path: Path, is_made_again: bool) -> None:
    staged, _ = stage_fold(root, BODIES)
    name = committed(root, staged).name
    run_alone(delete_queue(root, QUEUE, UuidSource(root.clock).next()), NoFlusher())
    if is_made_again:
        run_alone(create_queue(root, QUEUE), NoFlusher())
    rolled(root, name)
    assert not is_made_again or ready(root) == {}
    assert staged_files(tmp_path) == []
    assert journals(root) == []
    assert len(message_files(tmp_path)["remove"]) == 3


def test_a_queue_of_another_shape_gets_them_one_by_one(root: Root) -> None:
    staged, ids = stage_fold(root, BODIES)
    run_alone(delete_queue(root, QUEUE, UuidSource(root.clock).next()), NoFlusher())
    wanted = WantedShape(digits=7, shards=4)
    run_alone(create_queue(root, QUEUE, wanted), NoFlusher())
    rolled(root, committed(root, staged).name)
    assert ready(root) == {each.text: body for each, body in zip(ids, BODIES, strict=True)}


def test_over_a_network_they_go_one_by_one(root: Root) -> None:
    staged, ids = stage_fold(root, BODIES)
    assert rolled(replace(root, over_network=True), committed(root, staged).name) == (3, 0, 0)
    assert ready(root) == {each.text: body for each, body in zip(ids, BODIES, strict=True)}


def test_a_fold_that_lacks_a_message_is_not_committed(root: Root, tmp_path: Path) -> None:
    staged, _ = stage_fold(root, BODIES)
    next(path for path in (tmp_path / "new").rglob("*") if path.is_file()).unlink()
    with pytest.raises(StagedFileGone):
        committed(root, staged)


def test_folds_that_nobody_commits_go(root: Root, clock: FakeClock, tmp_path: Path) -> None:
    stage_fold(root, BODIES)
    clock.advance(25 * 3600)
    sweep_bulk(root)
    assert len([name for name in staged_files(tmp_path) if name[-5:] != ".lock"]) == 0
    stage_fold(root, BODIES)
    assert abort(root, JOB)
    assert staged_files(tmp_path) == [JOB]  # The mark.


@pytest.mark.certificate
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOENT])
def test_every_call_may_fail_once(tmp_path: Path, code: int) -> None:
    """All of it is published or nothing, and never twice; the next try brings it to its places. One
    of two folds finds its place taken.
    """
    for after in range(CALLS_MAX):
        path, files, clock = tmp_path / str(after), FaultyFiles(), FakeClock()
        root = open_root(str(path), files, clock)
        run_alone(create_queue(root, QUEUE), NoFlusher())
        fault = files.fail("", code, times=1, after=after)
        is_known = False
        try:
            first, _ = stage_fold(root, BODIES[:1])
            second, _ = stage_fold(root, BODIES[1:], Attempt(1, 0))
            committed(root, first, second)
            is_known = True
            roll_all_forward(root)
        except (OSError, MqError):
            pass
        files.heal()
        said = str(fault)
        assert files.open_paths() == [], said
        roll_all_forward(root)
        assert sorted(ready(root).values()) in ([BODIES] if is_known else [[], BODIES]), said
        assert journals(root) == [], said
        assert_audits_clean(path)
        if not fault.hits:
            break
    else:
        pytest.fail("it takes more calls")


def test_live_messages_come_beside_a_fold(root: Root, clock: FakeClock) -> None:
    staged, _ = stage_fold(root, BODIES)
    rolled(root, committed(root, staged).name)
    message_id = MessageId(UuidSource(clock).next())
    run_alone(publish(root, Draft(QUEUE, message_id, clock.now_ms()), b"d"), NoFlusher())
    listing = list_ready(root, QUEUE, 10)
    assert listing is not None
    assert len(listing.ids) == 4


@pytest.mark.parametrize("text", ["", "q", "q:", "q:0190abcd", "q:0190abcd.e", "q:0190abcd-1.ef"])
def test_other_names_are_no_folds(text: str) -> None:
    with pytest.raises(BadName):
        Fold.parse(text)


def test_a_fold_s_name_says_what_is_in_it() -> None:
    message_id = MessageId("0190abcd-ef01-7000-8000-000000000000", priority=3)
    fold = Fold.of(QueueName("q"), message_id)
    assert fold.text == "q:p3-0190abcd.ef"
    assert Fold.parse(fold.text) == fold
    assert fold.first_ms == 0x0190ABCDEF00


def window_of(uuid: str) -> int:
    return int(uuid[:8] + uuid[9:13], 16) >> WINDOW_BITS


def test_each_attempt_has_windows_of_its_own(root: Root, clock: FakeClock) -> None:
    stage_fold(root, BODIES)
    attempts = [WindowIds(root, JOB) for _ in range(3)]
    of_attempts: list[set[int]] = []
    for ids in attempts:
        found: list[str] = []
        of_attempts.append(set())
        for _ in range(3):
            uuids, are_apart = ids.many(FOLD_ROWS_MAX // 2)
            assert are_apart
            assert len({window_of(uuid) for uuid in uuids}) == 1
            of_attempts[-1].add(window_of(uuids[0]))
            found += uuids
        assert found == sorted(set(found))
        assert len(of_attempts[-1]) == 2
    assert len(set.union(*of_attempts)) == 6


@pytest.mark.certificate
def test_ids_are_not_far_ahead_of_the_time(root: Root, clock: FakeClock) -> None:
    stage_fold(root, BODIES)
    ids = WindowIds(root, JOB)
    found: list[str] = []
    are_apart = True
    while are_apart:
        uuids, are_apart = ids.many(FOLD_ROWS_MAX)
        found += uuids
    last = MessageId(found[-1]).published_ms
    assert last <= clock.now_ms() + WINDOW_AHEAD_MS_MAX + (1 << WINDOW_BITS)
    assert found == sorted(set(found))
    clock.advance(10)
    assert ids.many(FOLD_ROWS_MIN)[1]
    assert not ids.many(FOLD_ROWS_MIN - 1)[1]
    assert not ids.many(FOLD_ROWS_MAX + 1)[1]


def test_it_is_told_when_the_time_of_all_ids_has_come(root: Root, clock: FakeClock) -> None:
    stage_fold(root, BODIES)
    ids = WindowIds(root, JOB)
    for _ in range(3):
        uuids, _ = ids.many(FOLD_ROWS_MAX)
    ahead_s = ids.ahead_s()
    assert ahead_s > 0
    clock.advance(ahead_s)
    assert ids.ahead_s() == 0
    assert MessageId(uuids[-1]).published_ms < clock.now_ms()


def test_a_writer_that_fails_takes_its_folds_away(root: Root) -> None:
    uuids = UuidSource(root.clock).many(2)
    job = Path(root.layout.new, ".spark", JOB)

    def fail() -> None:
        with StagingWriter(root, JOB, Attempt(0, 0), "fsync") as writer:
            writer.put_alike(QUEUE, MessageId(uuids[0]), uuids, [b"a", b"b"], goes_whole=True)
            assert len(list(job.rglob("*-*-*"))) == 2
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert os.listdir(job) == []
