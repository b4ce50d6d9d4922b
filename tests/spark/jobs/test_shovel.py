"""Shovelling by a query: what is chosen, what moves, and how a run goes on that was cut off."""

import gc
import json
import os
import signal
from pathlib import Path

import pytest
from harness.faults import CrashingFiles, Died
from harness.leases import QUEUE, LeasingRoot, stamp_of
from harness.packs import body_of, new_pack, put_pack
from pyspark.sql import SparkSession

from mq.model.errors import Busy, QueueNotFound
from mq.model.lifecycle import State
from mq.model.message import Page, Reason
from mq.model.names import MessageId, QueueName, ReplayId
from mq.model.settings import QueueSettings
from mq.model.shovel import Why
from mq.spark.jobs.choosing import BadCondition
from mq.spark.jobs.shovel import Mover, Refused, Stopped, shovel
from mq.spark.jobs.tasks import Unwatched
from mq.store.core.find import whereabouts
from mq.store.disk.flush import NoFlusher
from mq.store.disk.group import run_alone
from mq.store.format.crossings import Crossing
from mq.store.opening import attach_root
from mq.store.operations.peek import peek
from mq.store.operations.sideline import sideline
from mq.store.scan.census import Census, count
from mq.store.settings.configure import change_settings
from mq.store.shovel.crossing_files import Chosen, find_crossing, finish, held, record_chosen, renew

OTHER = QueueName.parse("other")
SIDELINE = QUEUE.sideline()
FIVE = "json:n::int >= 5"


@pytest.fixture
def place(tmp_path: Path) -> LeasingRoot:
    made = LeasingRoot(tmp_path / "root")
    for queue in (OTHER, SIDELINE):
        made.make_queue(queue)
    return made


def ten(place: LeasingRoot) -> list[MessageId]:
    """Whose bodies are JSON with their numbers."""
    return [
        place.publish(1, body=json.dumps({"n": number}).encode(), priority=number % 2)[0]
        for number in range(10)
    ]


def ready(place: LeasingRoot, queue: QueueName) -> list[str]:
    return sorted(path.name for path in (place.top / "queues" / queue.text).iterdir())


def texts(ids: list[MessageId]) -> list[str]:
    return [each.text for each in ids]


def snapshot(place: LeasingRoot) -> dict[str, int]:
    return {str(path): path.lstat().st_mtime_ns for path in place.top.rglob("*")}


def test_a_run_by_bodies(spark: SparkSession, place: LeasingRoot) -> None:
    ids = ten(place)
    place.publish(1, body=b"\xff no text")
    before = snapshot(place)
    counted = shovel(spark, place.top, "q", FIVE, to="other", dry_run=True)
    assert snapshot(place) == before
    assert counted.chosen is not None
    facts = counted.chosen.facts()
    assert (facts["messages"], facts["bytes"]) == (5, 5 * len(b'{"n": 5}'))
    assert (facts["by_priority"], facts["first"]) == ({"0": 2, "1": 3}, texts(ids[5:]))
    done = shovel(spark, place.top, "q", FIVE, to="other", limit=3, replay_id="a")
    assert (done.selected, done.moved, done.stayed, done.was_over) == (3, 3, {}, False)
    assert ready(place, OTHER) == texts(ids[5:8])
    again = shovel(spark, place.top, "q", FIVE, to="other", limit=3, replay_id="a")
    assert (again.moved, again.was_over) == (3, True)
    assert len(ready(place, OTHER)) == 3
    with pytest.raises(Refused, match="another run"):
        shovel(spark, place.top, "q", "true", to="other", limit=3, replay_id="a")


def test_a_sideline_by_its_reasons(spark: SparkSession, place: LeasingRoot) -> None:
    place.run(change_settings(place.root, QUEUE, {"history": True}, QueueSettings()))
    ids = place.publish(3)
    reasons = (Reason.REJECTED, Reason.EXCEPTION, Reason.EXCEPTION)
    for message_id, reason in zip(ids, reasons, strict=True):
        place.run(sideline(place.root, QUEUE, message_id, reason))
    where = "reason = 'exception' and sidelined > timestamp '2020-01-01' and receives = 0"
    done = shovel(spark, place.top, SIDELINE.text, where)
    assert done.chosen is not None
    assert done.chosen.facts()["by_reason"] == {"exception": 2}
    assert (done.target, done.moved) == ("q", 2)
    assert ready(place, QUEUE) == texts(ids[1:])
    assert ready(place, SIDELINE) == texts(ids[:1])
    assert stamp_of(place.root, ids[1]).reason == 0
    (history,) = (place.top / "history/q").rglob("spark-*.ndjson")
    lines = [json.loads(line) for line in history.read_text().splitlines()]
    assert [(each["event"], each["id"]) for each in lines] == [
        ("shovelled", each) for each in texts(ids[1:])
    ]


@pytest.mark.parametrize(
    ("where", "told"),
    [
        ("nowhere = 1", "`nowhere` cannot be resolved"),
        ("priority", "is not a boolean"),
        ("select 1", "Syntax error"),
        ("true; drop table x", "Syntax error"),
        ("count(*) > 1", "aggregate functions"),
        ("", "Syntax error"),
    ],
)
def test_what_is_no_condition(
    spark: SparkSession, place: LeasingRoot, where: str, told: str
) -> None:
    with pytest.raises(BadCondition, match=told) as refused:
        shovel(spark, place.top, "q", where, to="other")
    assert "receives, size, state, text, json" in str(refused.value)
    assert "SQLSTATE" not in str(refused.value)


def test_what_is_refused(spark: SparkSession, place: LeasingRoot) -> None:
    place.publish(1)
    for queue, to, error in (
        ("q", None, Refused),
        ("q", "q", Refused),
        ("q", "none", QueueNotFound),
        ("none", "q", QueueNotFound),
    ):
        with pytest.raises(error):
            shovel(spark, place.top, queue, "true", to=to)
    with pytest.raises(QueueNotFound) as said:
        shovel(spark, place.top, "none", "true", to="q")
    assert str(said.value) == "there is no queue none"
    place.run(
        change_settings(place.root, OTHER, {"expires_at": "2020-01-01T00:00:00Z"}, QueueSettings())
    )
    with pytest.raises(Refused, match="expired"):
        shovel(spark, place.top, "q", "true", to="other")
    assert len(ready(place, QUEUE)) == 1


class Interrupting(Unwatched):
    """Ends the run as Ctrl-C does, once so many are done."""

    def __init__(self, after: int) -> None:
        self.left = after

    def advanced(self, by: int) -> None:
        self.left -= by
        if self.left <= 0:
            self.left = 1 << 30
            os.kill(os.getpid(), signal.SIGINT)


def test_a_run_that_was_ended_goes_on(spark: SparkSession, place: LeasingRoot) -> None:
    ids = ten(place)
    with pytest.raises(Stopped, match="--replay-id stop"):
        shovel(
            spark, place.top, "q", "rand() >= 0", to="other", rate=40, replay_id="stop",
            watcher=Interrupting(4),
        )  # fmt: skip
    moved = len(ready(place, OTHER))
    assert 4 <= moved < 10
    more = place.publish(1)
    with held(place.root, ReplayId.parse("stop")), pytest.raises(Busy, match="stop"):
        shovel(spark, place.top, "q", "rand() >= 0", to="other", replay_id="stop")
    done = shovel(spark, place.top, "q", "rand() >= 0", to="other", replay_id="stop")
    assert (done.selected, done.moved, done.moved_before) == (10, 10 - moved, moved)
    assert (ready(place, OTHER), ready(place, QUEUE)) == (texts(ids), texts(more))


RUN = Crossing(ReplayId.parse("run"), QUEUE, OTHER)


def run_with(place: LeasingRoot, files: CrashingFiles, chosen: list[Chosen]) -> Mover:
    """A process's run, from wherever it is."""
    root, flusher = attach_root(str(place.top), files, place.clock), NoFlusher()
    with held(root, RUN.id):
        if find_crossing(root, RUN.id) is None:
            run_alone(record_chosen(root, RUN, {}, iter(chosen)), flusher)
        else:
            renew(root, RUN)
        mover = Mover(root, flusher, RUN, None, Unwatched())
        mover.run()
        run_alone(finish(root, RUN, {}), flusher)
    return mover


def test_a_run_that_dies_anywhere_moves_each_once(tmp_path: Path) -> None:
    changes_left = 0
    while True:
        place = LeasingRoot(tmp_path / str(changes_left), folder_max=2)
        place.make_queue(OTHER)
        ids = place.publish(3)
        chosen = [Chosen(each, stamp_of(place.root, each)) for each in ids]
        files = CrashingFiles(changes_left)
        try:
            run_with(place, files, chosen)
            died = False
        except (Died, Exception):  # What a death looks like from outside.
            died = True
        gc.collect()  # As the kernel does, with all that was open.
        for each in ids:
            where = [whereabouts(place.root, queue, each) for queue in (QUEUE, OTHER)]
            assert sorted(map(str, where)) == sorted(map(str, [None, State.READY])), changes_left
        if not died:
            break
        second = run_with(place, CrashingFiles(), chosen)
        moved = [whereabouts(place.root, OTHER, each) for each in ids]
        assert moved == [State.READY] * 3, changes_left
        assert not second.done.stayed[Why.GONE]
        changes_left += 1
    assert changes_left > 10


def test_a_run_that_dies_anywhere_moves_each_item_once(tmp_path: Path) -> None:
    """One pack moves whole. Of the other some items move, so it is parted."""
    changes_left = 0
    while True:
        place = LeasingRoot(tmp_path / str(changes_left))
        place.make_queue(OTHER)
        packs = [new_pack(3, uuids=place.uuids), new_pack(4, uuids=place.uuids)]
        for pack in packs:
            put_pack(place.top / "queues" / "q" / pack.text, pack, due_ms=place.clock.now_ms())
        goes = [*packs[0].all_items(), packs[1].item(2), packs[1].item(4)]
        stays = [packs[1].item(1), packs[1].item(3)]
        chosen = [Chosen(each, stamp_of(place.root, each.pack())) for each in goes]
        files = CrashingFiles(changes_left)
        try:
            run_with(place, files, chosen)
            died = False
        except (Died, Exception):  # What a death looks like from outside.
            died = True
        gc.collect()
        held = [count(Census(place.root), queue).ready for queue in (QUEUE, OTHER)]
        assert sum(held) == 7, changes_left
        if not died:
            break
        second = run_with(place, CrashingFiles(), chosen)
        for queue, ids in ((OTHER, goes), (QUEUE, stays)):
            listed = peek(place.root, queue, Page((State.READY,), 100)).found
            assert [reading.id for reading in listed] == ids, changes_left
            assert [reading.body for reading in listed] == list(map(body_of, ids)), changes_left
        assert not second.done.stayed[Why.GONE], changes_left
        changes_left += 9  # Each death costs a second; the crash scripts part at each call.
    assert changes_left > 27
