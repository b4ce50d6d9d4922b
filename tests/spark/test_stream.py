"""Streams and leases on a real Spark: what reaches a sink, and what is left in the root."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.leases import CONSUMER, QUEUE, LeasingRoot
from harness.processes import eventually
from harness.query_runs import StreamRun
from harness.spark import PATIENCE_S
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import mq.spark
from mq.model.errors import LeaseLost, QueueNotFound
from mq.model.lifecycle import State
from mq.model.names import MessageId
from mq.spark.listing import blocks_of
from mq.spark.options import Subscription
from mq.store.format.pipeline import LeaseName
from mq.store.leases.lease import acknowledge, own
from mq.store.leases.releasing import release
from mq.store.operations.remove import remove

# The time is for a machine that has much else to do.
pytestmark = pytest.mark.timeout(2 * PATIENCE_S)


@pytest.fixture
def place(tmp_path: Path) -> LeasingRoot:
    return LeasingRoot(tmp_path / "root")


@pytest.fixture
def run(spark: SparkSession, place: LeasingRoot, tmp_path: Path) -> Iterator[StreamRun]:
    with StreamRun(spark, place.top, tmp_path / "checkpoint") as made:
        yield made


def state_of(place: LeasingRoot, state: State) -> list[str]:
    """The ids of the messages of a state, sorted."""
    found = blocks_of(place.root, Subscription((QUEUE,)), state)
    names = [name for block in found for name in block.names]
    return sorted(name.rpartition(":")[2] for name in names)


def open_leases(place: LeasingRoot) -> list[int]:
    return [lease.seq for lease in place.leases() if lease.is_open]


def texts(ids: list[MessageId]) -> list[str]:
    return sorted(message_id.text for message_id in ids)


def ids_of(df: DataFrame) -> list[str]:
    return sorted(row.id for row in df.select("id").collect())


def test_what_is_ready_is_drained_into_parquet_exactly(
    spark: SparkSession, place: LeasingRoot, run: StreamRun, tmp_path: Path
) -> None:
    first = texts(place.publish(25, body=b"a body"))
    sink = str(tmp_path / "sink")
    query = run.start(
        lambda writer: writer.format("parquet").option("path", sink), maxMessagesPerTrigger=10
    )
    query.awaitTermination()
    assert [each.numInputRows for each in query.recentProgress] == [10, 10, 5]
    second = texts(place.publish(3))
    run.start(lambda writer: writer.format("parquet").option("path", sink)).awaitTermination()
    found = spark.read.parquet(sink)
    assert ids_of(found) == sorted(first + second)
    assert {(row.queue, row.receives, row.state) for row in found.collect()} == {("q", 1, "leased")}
    assert bytes(found.where(found.id == first[0]).first().value) == b"a body"
    assert state_of(place, State.READY) == []
    assert open_leases(place) == []
    assert state_of(place, State.REMOVED) == sorted(first + second)


def test_what_is_published_while_it_drains_is_for_another_run(
    place: LeasingRoot, run: StreamRun
) -> None:
    early = texts(place.publish(4))
    seen: list[str] = []
    late: list[str] = []

    def publishing(batch: DataFrame, number: int) -> None:
        seen.extend(ids_of(batch))
        # Of a priority that comes before what is there.
        late.extend(texts(place.publish(2, priority=9)))

    run.each(publishing, maxMessagesPerTrigger=2).awaitTermination()
    assert sorted(seen) == early
    assert state_of(place, State.READY) == sorted(late)


def test_a_batch_that_failed_is_read_again_with_the_same_messages(
    place: LeasingRoot, run: StreamRun
) -> None:
    published = texts(place.publish(5))
    seen: list[tuple[int, list[str]]] = []

    def failing(batch: DataFrame, number: int) -> None:
        seen.append((number, ids_of(batch)))
        place.publish(1)
        if len(seen) == 2:
            raise ValueError("the sink is down")

    with pytest.raises(StreamingQueryException, match="the sink is down"):
        run.each(failing, maxMessagesPerTrigger=3).awaitTermination()
    assert open_leases(place) == [2]
    run.each(failing, maxMessagesPerTrigger=3).awaitTermination()
    batches = [number for number, _ in seen]
    assert batches[:3] == [0, 1, 1]
    assert seen[1][1] == seen[2][1]
    assert sorted(seen[0][1] + seen[1][1]) == published
    assert open_leases(place) == []


def test_without_its_checkpoint_a_query_gets_what_was_not_processed(
    place: LeasingRoot, run: StreamRun, tmp_path: Path
) -> None:
    published = texts(place.publish(4))

    def failing(batch: DataFrame, number: int) -> None:
        raise ValueError("the sink is down")

    with pytest.raises(StreamingQueryException, match="the sink is down"):
        run.each(failing).awaitTermination()
    seen: list[str] = []
    run.checkpoint = tmp_path / "another"
    run.each(lambda batch, number: seen.extend(ids_of(batch))).awaitTermination()
    assert sorted(seen) == published
    assert state_of(place, State.REMOVED) == published


def test_what_is_deleted_meanwhile_is_read_no_more(place: LeasingRoot, run: StreamRun) -> None:
    published = place.publish(3)
    seen: list[list[str]] = []

    def deleting(batch: DataFrame, number: int) -> None:
        seen.append(ids_of(batch))
        place.run(remove(place.root, QUEUE, published[1]))
        seen.append(ids_of(batch))

    run.each(deleting).awaitTermination()
    assert seen == [texts(published), texts([published[0], published[2]])]
    assert state_of(place, State.REMOVED) == texts(published)


def test_the_last_batch_is_acknowledged_when_a_query_is_stopped(
    place: LeasingRoot, run: StreamRun
) -> None:
    published = texts(place.publish(3))
    done = threading.Event()
    query = run.each(lambda batch, number: done.set(), {"processingTime": "1 hour"})
    assert done.wait(60)
    eventually(lambda: query.lastProgress is not None, "the batch's progress")
    assert open_leases(place) == [1]
    query.stop()
    eventually(lambda: not open_leases(place), "the last batch's acknowledgement")
    assert state_of(place, State.REMOVED) == published


def test_a_query_that_failed_acknowledges_nothing(place: LeasingRoot, run: StreamRun) -> None:
    place.publish(2)
    seen = 0

    def failing(batch: DataFrame, number: int) -> None:
        nonlocal seen
        seen += 1
        if seen == 2:
            raise ValueError("the sink is down")

    with pytest.raises(StreamingQueryException):
        run.each(failing, maxMessagesPerTrigger=1).awaitTermination()
    assert open_leases(place) == [2]


def test_what_cannot_be_read_again_fails_the_query_unless_it_is_told_otherwise(
    place: LeasingRoot, run: StreamRun
) -> None:
    place.publish(2)

    def failing(batch: DataFrame, number: int) -> None:
        if number == 1:
            raise ValueError("the sink is down")

    with pytest.raises(StreamingQueryException, match="the sink is down"):
        run.each(failing, maxMessagesPerTrigger=1).awaitTermination()
    place.run(acknowledge(place.root, place.leases()[-1].name))
    with pytest.raises(StreamingQueryException, match=r"c\.2 of the batch cannot be read again"):
        run.each(failing).awaitTermination()
    seen: list[list[str]] = []
    run.each(
        lambda batch, number: seen.append(ids_of(batch)), failOnDataLoss=False
    ).awaitTermination()
    assert seen == [[]]


@pytest.mark.certificate
def test_a_consumers_name_is_for_one_query(place: LeasingRoot, run: StreamRun) -> None:
    place.publish(1)
    with own(place.root, CONSUMER):
        query = run.each(lambda batch, number: None)
        with pytest.raises(StreamingQueryException, match="another query uses the consumer name"):
            query.awaitTermination()
    run.each(lambda batch, number: None).awaitTermination()
    assert state_of(place, State.READY) == []


def test_a_block_consumes_what_it_leases(spark: SparkSession, place: LeasingRoot) -> None:
    published = texts(place.publish(5))
    with mq.spark.lease(spark, place.top, "q", limit=3) as lease:
        assert lease.messages == 3
        assert ids_of(lease.df) == ids_of(lease.df) == published[:3]
        assert state_of(place, State.READY) == published[3:]
    assert state_of(place, State.REMOVED) == published[:3]
    with pytest.raises(PySparkException, match="is over"):
        lease.df.count()
    assert list((place.top / "leases").iterdir()) == []


@pytest.mark.parametrize("failure", [ValueError, KeyboardInterrupt])
def test_a_block_that_fails_gives_back_what_it_leased(
    spark: SparkSession, place: LeasingRoot, failure: type[BaseException]
) -> None:
    published = texts(place.publish(2))
    with pytest.raises(failure), mq.spark.lease(spark, place.top, "q"):
        raise failure
    assert state_of(place, State.READY) == published
    with mq.spark.lease(spark, place.top, "q", includeValue=False) as again:
        assert {row.receives for row in again.df.collect()} == {2}


def test_a_block_may_find_nothing(spark: SparkSession, place: LeasingRoot) -> None:
    with mq.spark.lease(spark, place.top, "q") as lease:
        assert (lease.messages, lease.name, lease.df.count()) == (0, "", 0)
        assert (
            lease.df.columns
            == spark.read.format("mq")
            .option("path", place.top)
            .option("subscribe", "q")
            .load()
            .columns
        )
    with pytest.raises(QueueNotFound), mq.spark.lease(spark, place.top, "other"):
        pass


def test_a_block_whose_lease_was_ended_meanwhile_is_told(
    spark: SparkSession, place: LeasingRoot
) -> None:
    place.publish(2)
    with pytest.raises(LeaseLost), mq.spark.lease(spark, place.top, "q") as lease:
        place.run(release(place.root, LeaseName.parse(lease.name)))
    assert len(state_of(place, State.READY)) == 2
