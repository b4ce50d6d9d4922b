"""Bulk publishes without Spark: staged, committed, rolled forward; all of it or nothing."""

import errno
import os
from pathlib import Path

import pytest
from harness.audits import assert_audits_clean
from harness.clock import FakeClock
from harness.faults import FaultyFiles
from harness.folders import files_below, message_files
from harness.staging import JOB, QUEUE, committed, rolled, stage, staged_files

from mq.model.errors import (
    Busy,
    KeyTaken,
    MqError,
    PublishPurged,
    QueueFull,
    QueueNotFound,
    StagedFileGone,
)
from mq.model.lifecycle import State
from mq.model.names import Key, MessageId, QueueName, UuidSource
from mq.model.settings import QueueSettings
from mq.store.bulk.journal import abort, begin_publish, is_published, journals
from mq.store.bulk.roll_forward import roll_all_forward
from mq.store.bulk.sweep import sweep_bulk
from mq.store.core.root import Root
from mq.store.disk.files import Files
from mq.store.disk.flush import NoFlusher
from mq.store.disk.group import run_alone
from mq.store.format.pipeline import Attempt
from mq.store.opening import attach_root, open_root
from mq.store.operations.publish import Draft, publish
from mq.store.operations.purge import purge
from mq.store.operations.queues import WantedShape, create_queue, delete_queue
from mq.store.settings.configure import change_settings

OTHER_JOB = "f" * 32
NAME = Key.parse("nightly/7")
CALLS_MAX = 400


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def root(tmp_path: Path, clock: FakeClock) -> Root:
    made = open_root(str(tmp_path), Files(), clock)
    run_alone(create_queue(made, QUEUE), NoFlusher())
    return made


def ready(root: Root, queue: QueueName = QUEUE) -> list[bytes]:
    folder = Path(root.layout.queue(queue))
    return sorted(path.read_bytes() for path in files_below(folder))


def states(path: Path) -> dict[str, int]:
    """How many messages are in each state; what is staged is in none."""
    found = message_files(path).items()
    return {state: len(names) for state, names in found if names and state != "new"}


def test_what_is_staged_is_no_message_until_it_is_committed(root: Root, tmp_path: Path) -> None:
    staged, _ = stage(root, [b"a", b"b"])
    assert staged.messages == 2
    assert roll_all_forward(root) == 0
    assert ready(root) == []
    assert len(staged_files(tmp_path)) == 2
    committed(root, staged)
    assert ready(root) == []
    assert roll_all_forward(root) == 2
    assert ready(root) == [b"a", b"b"]
    assert journals(root) == []
    assert not Path(root.layout.new, ".spark", JOB).exists()
    assert os.listdir(root.layout.journal) == [".lock"]
    assert_audits_clean(tmp_path)


def test_losing_attempts_are_not_delivered(root: Root, tmp_path: Path) -> None:
    winner, _ = stage(root, [b"won"], attempt=Attempt(0, 1))
    stage(root, [b"lost"], attempt=Attempt(0, 0))
    rolled(root, committed(root, winner).name)
    assert ready(root) == [b"won"]
    assert staged_files(tmp_path) == []


def test_one_for_later_goes_to_delay_unless_it_is_due_by_then(root: Root, clock: FakeClock) -> None:
    soon, _ = stage(root, [b"soon"], due_ms=clock.now_ms() + 1_000)
    late, _ = stage(root, [b"late"], attempt=Attempt(1, 1), due_ms=clock.now_ms() + 60_000)
    clock.advance(2)
    rolled(root, committed(root, soon, late).name)
    assert ready(root) == [b"soon"]
    assert [name.read_bytes() for name in Path(root.layout.delay).iterdir()] == [b"late"]


def test_a_publish_id_is_published_once(root: Root, tmp_path: Path) -> None:
    first, _ = stage(root, [b"first"])
    assert not committed(root, first, publish_id=NAME.text).was_before
    second, _ = stage(root, [b"second"], job=OTHER_JOB)
    assert committed(root, second, job=OTHER_JOB, publish_id=NAME.text).was_before
    assert len(staged_files(tmp_path)) == 2  # The first one's message and lock.
    roll_all_forward(root)
    third, _ = stage(root, [b"third"], job=OTHER_JOB)
    assert committed(root, third, job=OTHER_JOB, publish_id=NAME.text).was_before
    assert ready(root) == [b"first"]
    assert staged_files(tmp_path) == []


def test_when_a_publish_began_is_told_to_its_next_try(root: Root, clock: FakeClock) -> None:
    begun_ms = run_alone(begin_publish(root, NAME), NoFlusher())
    clock.advance(60)
    assert run_alone(begin_publish(root, NAME), NoFlusher()) == begun_ms == clock.now_ms() - 60_000
    staged, _ = stage(root, [b"a"])
    rolled(root, committed(root, staged, publish_id=NAME.text).name)
    assert run_alone(begin_publish(root, NAME), NoFlusher()) == clock.now_ms()


def test_an_abort_takes_all_away_but_never_what_is_committed(root: Root, tmp_path: Path) -> None:
    staged, _ = stage(root, [b"a"])
    assert abort(root, JOB)
    assert staged_files(tmp_path) == [JOB]  # The mark.
    assert abort(root, JOB)
    for found in ([staged], []):
        with pytest.raises(StagedFileGone, match="given up"):
            committed(root, *found)
    staged, _ = stage(root, [b"b"], job=OTHER_JOB)
    committed(root, staged, job=OTHER_JOB, publish_id=NAME.text)
    assert not abort(root, OTHER_JOB, NAME)
    roll_all_forward(root)
    assert not abort(root, OTHER_JOB, NAME)
    assert ready(root) == [b"b"]


def test_a_queue_that_is_not_there_refuses_the_publish(root: Root) -> None:
    staged, _ = stage(root, [b"a"])
    run_alone(delete_queue(root, QUEUE, UuidSource(root.clock).next()), NoFlusher())
    with pytest.raises(QueueNotFound):
        committed(root, staged)
    assert journals(root) == []


@pytest.mark.parametrize("most", [{"messages_max": 2}, {"bytes_max": 5}])
def test_a_queue_that_has_no_room_refuses_the_whole_publish(
    root: Root, most: dict[str, object]
) -> None:
    """It has when messages have gone; where it makes room, mq-mover does so afterwards."""
    run_alone(change_settings(root, QUEUE, most, QueueSettings()), NoFlusher())
    first, _ = stage(root, [b"aa"])
    rolled(root, committed(root, first).name)
    second, _ = stage(root, [b"bb", b"cc"], job=OTHER_JOB)
    with pytest.raises(QueueFull):
        committed(root, second, job=OTHER_JOB)
    assert ready(root) == [b"aa"]
    run_alone(
        change_settings(root, QUEUE, {"overflow": "drop-oldest"}, QueueSettings()), NoFlusher()
    )
    root.facts.look_again(QUEUE)
    rolled(root, committed(root, second, job=OTHER_JOB).name)
    assert ready(root) == [b"aa", b"bb", b"cc"]


def test_a_purge_before_the_commit_point_refuses_it_and_later_ids_do(
    root: Root, clock: FakeClock
) -> None:
    run_alone(begin_publish(root, NAME), NoFlusher())
    staged, _ = stage(root, [b"a"])
    clock.advance(1)
    run_alone(purge(root, QUEUE, clock.now_ms()), NoFlusher())
    with pytest.raises(PublishPurged):
        committed(root, staged, publish_id=NAME.text)
    abort(root, JOB, NAME)
    clock.advance(1)
    assert run_alone(begin_publish(root, NAME), NoFlusher()) == clock.now_ms()
    staged, _ = stage(root, [b"a"], job=OTHER_JOB)
    rolled(root, committed(root, staged, job=OTHER_JOB, publish_id=NAME.text).name)
    assert ready(root) == [b"a"]


def test_a_purge_after_the_commit_point_covers_it(root: Root, clock: FakeClock) -> None:
    staged, _ = stage(root, [b"a"])
    keyed, _ = stage(root, [b"k"], attempt=Attempt(1, 1), key="k")
    committed(root, staged, keyed)
    clock.advance(1)
    run_alone(purge(root, QUEUE, clock.now_ms()), NoFlusher())
    roll_all_forward(root)
    assert ready(root) == []
    assert len(list(Path(root.layout.remove).iterdir())) == 2


@pytest.mark.parametrize("again", [False, True], ids=["deleted", "made-again"])
def test_what_is_committed_goes_with_its_queue(root: Root, tmp_path: Path, again: bool) -> None:
    staged, _ = stage(root, [b"a"])
    committed(root, staged)
    run_alone(delete_queue(root, QUEUE, UuidSource(root.clock).next()), NoFlusher())
    if again:
        run_alone(create_queue(root, QUEUE), NoFlusher())
    roll_all_forward(root)
    assert journals(root) == []
    assert states(tmp_path) == {"remove": 1}
    assert staged_files(tmp_path) == []


def test_what_has_no_queue_and_no_tombstone_stays(root: Root, tmp_path: Path) -> None:
    staged, _ = stage(root, [b"a"])
    committed(root, staged)
    Path(root.layout.queue(QUEUE)).rmdir()
    roll_all_forward(root)
    assert len(journals(root)) == 1
    Path(root.layout.queue(QUEUE)).mkdir(mode=0o700)
    roll_all_forward(root)
    assert ready(root) == [b"a"]


def test_a_key_that_is_taken_refuses_the_publish_or_is_passed_over(root: Root) -> None:
    uuids = UuidSource(root.clock)
    held = MessageId(uuids.next(), key=Key("k"))
    run_alone(publish(root, Draft(QUEUE, held, root.now_ms()), b"held"), NoFlusher())
    staged, _ = stage(root, [b"k", b"k1"], key="k")
    with pytest.raises(KeyTaken) as raised:
        committed(root, staged)
    assert (raised.value.key, raised.value.id) == ("k", held.text)
    assert journals(root) == []
    name = committed(root, staged, on_key_taken="skip").name
    assert rolled(root, name) == (1, 1, 0)
    assert ready(root) == [b"held", b"k1"]


def test_two_rows_of_one_key_refuse_the_publish_or_one_is_passed_over(root: Root) -> None:
    first, _ = stage(root, [b"one"], key="k")
    second, _ = stage(root, [b"two"], attempt=Attempt(1, 1), key="k")
    with pytest.raises(KeyTaken):
        committed(root, first, second)
    rolled(root, committed(root, first, second, on_key_taken="skip").name)
    assert ready(root) == [b"one"]


def test_keys_link_what_was_published(root: Root, tmp_path: Path) -> None:
    staged, ids = stage(root, [b"a", b"b"], key="k")
    rolled(root, committed(root, staged).name)
    links = {path.name: os.readlink(path) for path in (tmp_path / "queues").glob("*/.keys/*/k*")}
    assert links == {"k": ids[0].text, "k1": ids[1].text}
    assert_audits_clean(tmp_path)


def test_a_full_folder_goes_to_buckets(tmp_path: Path, clock: FakeClock) -> None:
    root = open_root(str(tmp_path), Files(), clock, folder_max=3)
    run_alone(create_queue(root, QUEUE, WantedShape(digits=8, shards=2)), NoFlusher())
    for attempt in range(3):
        bodies = [b"%d-%d" % (attempt, row) for row in range(10)]
        staged, _ = stage(root, bodies, attempt=Attempt(attempt, attempt))
        keyed, _ = stage(root, [b"k"], attempt=Attempt(10 + attempt, 0), key=f"x{attempt}-")
        rolled(root, committed(root, staged, keyed).name)
    assert len(ready(root)) == 33
    assert_audits_clean(tmp_path)


def test_a_journal_stays_while_a_message_is_hidden(
    root: Root, tmp_path: Path, clock: FakeClock
) -> None:
    """As by a network mount's cache: it is listed, and no look by its name finds it."""

    class HidingFiles(Files):
        hides = True

        def rename(self, source: str, target: str) -> None:
            if self.hides and "/0-0/" in source:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source)
            super().rename(source, target)

        def status(self, path: str) -> os.stat_result | None:
            return None if self.hides and "/0-0/" in path else super().status(path)

    files = HidingFiles()
    other = attach_root(str(tmp_path), files, clock)
    staged, _ = stage(root, [b"a"])
    name = committed(root, staged).name
    with pytest.raises(Busy):
        rolled(other, name)
    assert journals(root) == [name]
    files.hides = False
    assert rolled(other, name) == (1, 0, 0)
    assert ready(root) == [b"a"]


def test_only_one_process_rolls_a_journal_forward_at_a_time(root: Root) -> None:
    staged, _ = stage(root, [b"a"])
    name = committed(root, staged).name
    path = Path(root.layout.journal) / f"{name.written()}.json"
    descriptor = root.files.open_claimed(str(path))
    assert root.files.lock(descriptor)
    assert rolled(root, name) is None
    root.files.close(descriptor)
    assert rolled(root, name) == (1, 0, 0)
    assert rolled(root, name) is None


def test_a_publish_without_messages_is_remembered_too(root: Root) -> None:
    assert not committed(root, publish_id=NAME.text).was_before
    roll_all_forward(root)
    assert is_published(root, NAME)


def test_what_is_forgotten_goes_and_what_is_not_stays(
    root: Root, tmp_path: Path, clock: FakeClock
) -> None:
    stage(root, [b"a"])
    done, _ = stage(root, [b"b"], job=OTHER_JOB)
    committed(root, done, job=OTHER_JOB, publish_id=NAME.text)
    roll_all_forward(root)
    begun = Key.parse("begun")
    run_alone(begin_publish(root, begun), NoFlusher())
    clock.advance(23 * 3600)
    sweep_bulk(root)
    assert len(staged_files(tmp_path)) == 1
    clock.advance(2 * 3600)
    sweep_bulk(root)
    assert staged_files(tmp_path) == []
    assert is_published(root, NAME)
    clock.advance(7 * 24 * 3600)
    sweep_bulk(root)
    assert not is_published(root, NAME)
    assert os.listdir(root.layout.journal) == [".lock"]


WORK = ("keyed", "scheduled")


@pytest.mark.certificate
@pytest.mark.parametrize("code", [errno.EIO, errno.ESTALE], ids=errno.errorcode.get)
@pytest.mark.parametrize("work", WORK)
def test_every_call_may_fail_once(tmp_path: Path, work: str, code: int) -> None:
    """All of it is published or nothing, and never twice; the next try brings it to its places."""
    for after in range(CALLS_MAX):
        path, files, clock = tmp_path / str(after), FaultyFiles(), FakeClock()
        root = open_root(str(path), files, clock)
        run_alone(create_queue(root, QUEUE), NoFlusher())
        fault = files.fail("", code, times=1, after=after)
        is_known = False
        try:
            staged, _ = stage(
                root,
                [b"a", b"b"],
                key="k" if work == "keyed" else None,
                due_ms=clock.now_ms() + 60_000 if work == "scheduled" else None,
            )
            committed(root, staged, publish_id=NAME.text if work == "scheduled" else None)
            is_known = True
            roll_all_forward(root)
        except (OSError, MqError):
            pass
        files.heal()
        said = f"{fault} of {work}"
        assert files.open_paths() == [], said
        roll_all_forward(root)
        found = states(path)
        assert sum(found.values()) in ((2,) if is_known else (0, 2)), said
        assert journals(root) == [], said
        if sum(found.values()) == 2:
            assert set(found) == {"delay" if work == "scheduled" else "queues"}, said
            assert [name for name in staged_files(path) if ":" in name] == [], said
        assert_audits_clean(path)
        if not fault.hits:
            assert sum(found.values()) == 2
            return
    raise AssertionError("work without an end")


def test_the_states_of_a_publish_are_those_of_the_lifecycle(root: Root) -> None:
    assert root.layout.path(State.NEW, QUEUE, MessageId("x"), f".spark/{JOB}/0-0/").endswith(
        f"new/.spark/{JOB}/0-0/orders:x"
    )
