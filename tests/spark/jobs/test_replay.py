"""Publishing archived messages again: what is chosen, what each carries, and that it is once."""

import itertools
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from harness.archives_by_hand import write_archive
from harness.leases import LeasingRoot
from pyspark.sql import SparkSession

from mq.model.clock import SystemClock
from mq.model.errors import Busy
from mq.model.names import Key, MessageId, QueueName, ReplayId
from mq.spark.jobs.archive_rows import ARCHIVE, FILE_SCHEMA
from mq.spark.jobs.choosing import BadCondition
from mq.spark.jobs.replay import ReplayRefused, replay
from mq.spark.opening import PublishFailed
from mq.store.operations.publish import Draft, publish
from mq.store.shovel.crossing_files import held

OTHER = QueueName.parse("other")
THEN = datetime(2026, 1, 1, tzinfo=UTC)
LARGE = b'{"n": 20}' * 1000


def message_id(number: int) -> str:
    return f"019b7000-0000-7000-8000-{number:012x}"


def row(number: int, **said: Any) -> tuple[Any, ...]:
    facts: dict[str, Any] = {
        "id": message_id(number), "key": None, "value": b'{"n": %d}' % number,
        "headers": {"ce-id": str(number), "X-Attribute-Replay-Of": "older"},
        "priority": number % 3, "published": THEN, "removed": THEN, "removal": "message",
        "receives": 1, "size": 8, "damaged": False, "batch": 1, "queue": "q", "day": THEN.date(),
        **said,
    }  # fmt: skip
    return tuple(facts.get(name) for name in (*FILE_SCHEMA.names, "queue", "day"))


ROWS = [row(number) for number in range(10)]
KEYED = row(10, key="k", queue="keyed")
LIES_IN_FILE = row(20, value=None, body="_bodies/20", size=len(LARGE), queue="files")
LOST = row(21, value=None, body="_bodies/../../secret", queue="files")
DAMAGED = row(22, damaged=True, queue="files")


@pytest.fixture(scope="module")
def archive(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("archives") / "archive"
    rows = [*ROWS, KEYED, LIES_IN_FILE, LOST, DAMAGED]
    write_archive(folder, spark.createDataFrame(rows, ARCHIVE))
    (folder / "_bodies").mkdir(exist_ok=True)
    (folder / "_bodies" / "20").write_bytes(LARGE)
    (folder.parent / "secret").write_bytes(b"{}")
    return folder


@pytest.fixture
def place(tmp_path: Path) -> LeasingRoot:
    made = LeasingRoot(tmp_path / "root")
    made.clock.set_ms(SystemClock().now_ms())
    made.make_queue(OTHER)
    return made


def read(
    spark: SparkSession, place: LeasingRoot, queue: str, state: str
) -> list[Mapping[str, Any]]:
    rows = spark.read.format("mq").option("path", str(place.top)).option("subscribe", queue)
    return [each.asDict() for each in rows.option("state", state).load().collect()]


def test_it_is_published_once(spark: SparkSession, place: LeasingRoot, archive: Path) -> None:
    where = "queue = 'q' and json:n::int >= 4"
    counted = replay(spark, place.top, archive, where, dry_run=True)
    assert counted.chosen is not None
    assert counted.chosen.facts()["by_queue"] == {"q": 6}
    assert counted.chosen.first_ids == tuple(message_id(number) for number in range(4, 10))
    done = replay(spark, place.top, archive, where, replay_id="r", limit=5)
    assert done.chosen is not None
    assert done.chosen.messages == 5
    assert replay(spark, place.top, archive, where, replay_id="r", limit=5).was_over
    found = read(spark, place, "q", "ready")
    assert sorted(json.loads(each["value"])["n"] for each in found) == [4, 5, 6, 7, 8]
    for each in found:
        number = json.loads(each["value"])["n"]
        assert each["id"] != message_id(number)
        assert each["priority"] == number % 3
        assert each["headers"] == {
            "ce-id": str(number),
            "content-type": "application/octet-stream",
            "x-attribute-replay-id": "r",
            "x-attribute-replay-of": message_id(number),
        }
    with held(place.root, ReplayId.parse("r")), pytest.raises(Busy, match="replay id r"):
        replay(spark, place.top, archive, where, replay_id="r")


def test_what_is_refused(spark: SparkSession, place: LeasingRoot, archive: Path) -> None:
    with pytest.raises(BadCondition, match="nothing"):
        replay(spark, place.top, archive, "nothing = 1")
    with pytest.raises(PublishFailed, match="keyed"):
        replay(spark, place.top, archive, "queue = 'keyed'")
    with pytest.raises(ReplayRefused, match="2 of 3 messages are damaged"):
        replay(spark, place.top, archive, "queue = 'files'", to="other")
    assert read(spark, place, "q,other", "ready") == []


def test_bodies_that_lie_in_files(spark: SparkSession, place: LeasingRoot, archive: Path) -> None:
    where = "queue = 'files' and priority < 9"
    done = replay(spark, place.top, archive, where, to="other", skip_damaged=True)
    assert done.skipped_damaged == 2
    (found,) = read(spark, place, "other", "ready")
    assert found["value"] == LARGE


@pytest.mark.parametrize("key_taken", ["fail", "skip", "drop"])
def test_keys(spark: SparkSession, place: LeasingRoot, archive: Path, key_taken: Any) -> None:
    holder = MessageId(place.uuids.next(), key=Key.parse("k"))
    place.run(publish(place.root, Draft(OTHER, holder, holder.published_ms), b"x"))
    if key_taken == "fail":
        with pytest.raises(ReplayRefused, match="nothing was published"):
            replay(spark, place.top, archive, "queue = 'keyed'", to="other")
    else:
        replay(spark, place.top, archive, "queue = 'keyed'", to="other", key_taken=key_taken)
    others = [each for each in read(spark, place, "other", "ready") if each["id"] != holder.text]
    assert [each["key"] for each in others] == ([None] if key_taken == "drop" else [])


def test_a_rate_is_when_each_is_ready(
    spark: SparkSession, place: LeasingRoot, archive: Path
) -> None:
    replay(spark, place.top, archive, "queue = 'q'", to="other", rate=2)
    found = read(spark, place, "other", "delayed")
    by_number = sorted(found, key=lambda each: json.loads(each["value"])["n"])
    due = [each["due"].timestamp() for each in by_number]
    assert [round(late - early, 3) for early, late in itertools.pairwise(due)] == [0.5] * 9
