"""`spark.read.format("mq")`: a batch read in Spark, of a root that others work on meanwhile."""

import os
import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from harness.browsing import BEGIN_MS, ORDERS, an_id, put, with_headers
from harness.messages import make_body, number_in
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from mq.model.clock import SystemClock
from mq.model.lifecycle import State
from mq.model.names import ConsumerName, QueueName, UuidSource
from mq.spark.partitions import MESSAGES_PER_PARTITION_WORTH
from mq.spark.rows import DEFAULT_HEADERS
from mq.store.core.root import Root
from mq.store.disk.files import Files
from mq.store.format.layout import Place
from mq.store.format.pipeline import LeaseName
from mq.store.opening import open_root
from mq.store.operations.publish import Draft, publish
from mq.store.operations.remove import take_away

Load = Callable[..., DataFrame]
HEADERS = (("ce-type", "made"), ("Content-Type", "text/plain; charset=utf-8"))


@pytest.fixture
def root(tmp_path: Path) -> Root:
    made = open_root(str(tmp_path / "root"), Files(), SystemClock())
    os.mkdir(made.layout.queue(ORDERS))
    return made


@pytest.fixture
def load(spark: SparkSession, root: Root) -> Load:
    def loaded(**options: object) -> DataFrame:
        reading = spark.read.format("mq").option("path", root.layout.root)
        if not {"subscribePattern", "lease"} & set(options):
            options = {"subscribe": "orders", **options}
        return reading.options(**{name: str(value) for name, value in options.items()}).load()

    return loaded


def numbers(frame: DataFrame) -> list[int]:
    """How many milliseconds after BEGIN_MS they were published."""
    found = frame.select(sf.unix_millis("published")).collect()
    return sorted(row[0] - BEGIN_MS for row in found)


def test_rows_have_all_that_a_message_has(load: Load, root: Root) -> None:
    body = bytes(range(256))
    put(root.layout.root, with_headers(3, HEADERS), body, headers=HEADERS, receives=2)
    put(root.layout.root, an_id(4, priority=7, key="Zürich/1", extension="json"), b"{}")
    put(root.layout.root, an_id(5))
    first, second, third = load().orderBy("id").collect()
    assert first.asDict() == {
        "queue": "orders",
        "id": with_headers(3, HEADERS).text,
        "key": None,
        "value": body,
        "headers": {"ce-type": "made", "content-type": "text/plain; charset=utf-8"},
        "priority": 0,
        "published": first.published,
        "due": first.due,
        "receives": 2,
        "size": 256,
        "state": "ready",
    }
    assert first.published.timestamp() * 1000 == BEGIN_MS + 3
    assert first.due.timestamp() * 1000 == BEGIN_MS
    assert (second.key, second.priority, second.value) == ("Zürich/1", 7, b"{}")
    assert second.headers == {"content-type": "application/json"}
    assert (third.value, third.size, third.headers) == (b"", 0, dict(DEFAULT_HEADERS))


def test_each_state_is_read_by_its_name(load: Load, root: Root) -> None:
    for number, state in enumerate((State.READY, State.DELAYED, State.LEASED, State.REMOVED)):
        bucket = "nightly.1/" if state is State.LEASED else ""
        for more in range(3):
            put(root.layout.root, an_id(10 * number + more), state=state, bucket=bucket,
                depth=more)  # fmt: skip
    for number, name in enumerate(("ready", "delayed", "leased", "removed")):
        frame = load(state=name)
        assert numbers(frame) == [10 * number, 10 * number + 1, 10 * number + 2]
        assert [row.state for row in frame.select("state").distinct().collect()] == [name]


def test_an_empty_queue_is_no_row(load: Load) -> None:
    assert load().count() == 0
    assert load(subscribePattern="orders").collect() == []


def test_columns_and_conditions_are_sparks_own(load: Load, root: Root) -> None:
    for number in range(20):
        put(root.layout.root, an_id(number, priority=number % 3), b"%d" % number)
    some = load().where("priority = 2 and length(value) = 1").select("value")
    assert sorted(row.value for row in some.collect()) == [b"2", b"5", b"8"]


def test_messages_are_cut_into_partitions_as_told(load: Load, root: Root) -> None:
    for number in range(100):
        put(root.layout.root, an_id(number), depth=number % 3)

    def sizes(**options: object) -> list[int]:
        counted = load(**options).groupBy(sf.spark_partition_id()).count().collect()
        return sorted(row["count"] for row in counted)

    assert sizes(minPartitions=4) == [25] * 4
    assert sizes(maxMessagesPerPartition=40) == [20, 40, 40]


def test_a_backlog_is_read_by_several_tasks_without_a_word_said(load: Load, root: Root) -> None:
    for number in range(2 * MESSAGES_PER_PARTITION_WORTH + 1):
        put(root.layout.root, an_id(number))
    assert load(includeValue="false").rdd.getNumPartitions() == 2


@pytest.mark.parametrize("options", [{"readThreads": 4}, {"includeValue": "false"}])
def test_how_messages_are_read_changes_no_other_column(
    load: Load, root: Root, options: dict[str, object]
) -> None:
    for number in range(300):
        put(root.layout.root, an_id(number), make_body(number), depth=number % 3)
    put(root.layout.root, with_headers(300, HEADERS), make_body(300), headers=HEADERS)
    plain = load().drop("value").withColumn("headers", sf.map_entries("headers"))
    other = load(**options).drop("value").withColumn("headers", sf.map_entries("headers"))
    assert plain.exceptAll(other).count() == other.exceptAll(plain).count() == 0
    values = [row.value for row in load(**options).select("value").collect()]
    if "includeValue" in options:
        assert values == [None] * 301
    else:
        assert sorted(map(number_in, values)) == list(range(301))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"subscribe": "odrers"}, "odrers"),
        ({"subscribe": "orders,"}, "subscribe"),
        ({"subscribePattern": "("}, "subscribePattern"),
        ({"state": "gone"}, "ready or delayed or leased or removed"),
        ({"minPartitions": "0"}, "minPartitions"),
        ({"lease": "nightly.9"}, "nightly.9"),
        ({"path": "/proc/nowhere"}, "/proc/nowhere"),
    ],
)
def test_what_cannot_be_read_is_said(load: Load, options: dict[str, object], said: str) -> None:
    with pytest.raises(PySparkException, match=said):
        load(**options).count()


def test_a_lease_is_read_by_its_name(load: Load, root: Root) -> None:
    lease = LeaseName(ConsumerName.parse("nightly"), 3)
    for number in range(10):
        put(root.layout.root, an_id(number), b"x", state=State.LEASED, bucket=lease.spot)
    frame = load(lease=lease.text)
    assert numbers(frame) == list(range(10))
    assert {row.receives for row in frame.collect()} == {1}


def test_a_read_amid_publishes_and_deletes_shows_what_stays_and_nothing_torn(
    load: Load, root: Root
) -> None:
    kept = 200
    for number in range(kept):
        put(root.layout.root, an_id(number), make_body(number), depth=number % 3)
    with Others(root):
        for _ in range(3):
            rows = load(minPartitions=4).select("id", "value").collect()
            found = [number_in(row.value) for row in rows]
            assert len({row.id for row in rows}) == len(rows)
            assert set(range(kept)) <= set(found)
    rest = {number_in(row.value) for row in load().collect()}
    assert set(range(kept)) <= rest


class Others:
    """Publishes and removes messages of the queue in a thread, until the end; fails as it does."""

    def __init__(self, root: Root) -> None:
        self._root, self._stop = root, threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            self._rounds()
        except BaseException as error:
            self._error = error

    def _rounds(self) -> None:
        uuids, living = UuidSource(SystemClock()), []
        number = 1000
        while not self._stop.is_set():
            message_id = an_id(0).with_uuid(uuids.next())
            draft = Draft(ORDERS, message_id, SystemClock().now_ms())
            for _ in publish(self._root, draft, make_body(number)):
                pass  # Nothing needs to be flushed here.
            living.append(message_id)
            number += 1
            if len(living) > 50:
                gone = living.pop(random.randrange(len(living)))
                take_away(self._root, Place(State.READY, ORDERS, gone))


def test_queues_are_chosen_by_a_list_or_a_pattern(load: Load, root: Root) -> None:
    for name in ("orders.eu", "orders.us", "others"):
        os.mkdir(root.layout.queue(QueueName.parse(name)))
        put(root.layout.root, an_id(1), queue=QueueName.parse(name))
    put(root.layout.root, an_id(1))

    def chosen(**options: object) -> list[str]:
        return sorted(row.queue for row in load(**options).select("queue").collect())

    assert chosen(subscribe="orders, others") == ["orders", "others"]
    assert chosen(subscribePattern=r"orders\..*") == ["orders.eu", "orders.us"]
    assert chosen(subscribePattern=".*") == ["orders", "orders.eu", "orders.us", "others"]
