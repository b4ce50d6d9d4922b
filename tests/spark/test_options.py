"""The options of `format("mq")`: names in any case, each value kept, each bad one told."""

import contextlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mq.model.names import QueueName
from mq.spark.options import (
    MESSAGES_PER_PARTITION_MAX,
    MESSAGES_PER_TRIGGER_MAX,
    PARTITIONS_MAX,
    READ_THREADS_MAX,
    BadOption,
    ReadOptions,
    StreamOptions,
    UnknownOption,
    WriteOptions,
)
from mq.store.leases.manifest import LEASE_S_MAX

READ = {"path": "/r", "subscribe": "orders"}
STREAM = {**READ, "consumer": "lake"}
WRITE = {"path": "/r", "queue": "orders"}
KINDS: dict[str, tuple[Any, dict[str, str]]] = {
    "read": (ReadOptions, READ),
    "stream": (StreamOptions, STREAM),
    "write": (WriteOptions, WRITE),
}
NUMBERS = {
    "minPartitions": ("read", "partitions_min", PARTITIONS_MAX),
    "maxMessagesPerPartition": ("read", "messages_per_partition_max", MESSAGES_PER_PARTITION_MAX),
    "readThreads": ("stream", "read_threads", READ_THREADS_MAX),
    "maxMessagesPerTrigger": ("stream", "messages_per_trigger_max", MESSAGES_PER_TRIGGER_MAX),
    "leaseSeconds": ("stream", "lease_s", LEASE_S_MAX),
}


def test_a_read_needs_a_root_and_a_queue_alone() -> None:
    read = ReadOptions.parse(READ)
    assert read.path == Path("/r")
    assert read.subscription is not None
    assert read.subscription.queues == (QueueName("orders"),)
    assert (read.state, read.include_value, read.lease) == ("ready", True, None)


def test_what_a_stream_and_a_write_do_unless_told() -> None:
    stream = StreamOptions.parse(STREAM)
    assert (stream.consumer, stream.lease_s, stream.fail_on_data_loss) == ("lake", 600, True)
    write = WriteOptions.parse({"path": "/r"})
    assert (write.queue, write.sync, write.publish_id) == (None, "syncfs", None)
    assert write.on_key_taken == "fail"


def test_a_value_is_kept() -> None:
    read = ReadOptions.parse(
        {**READ, "subscribe": "b, a,b", "state": "Removed", "includeValue": "FALSE"}
    )
    assert read.subscription is not None
    assert [queue.text for queue in read.subscription.queues] == ["b", "a"]
    assert (read.state, read.include_value) == ("removed", False)
    write = WriteOptions.parse({**WRITE, "sync": "fsync", "publishId": "é", "onKeyTaken": "skip"})
    assert (write.sync, write.on_key_taken) == ("fsync", "skip")
    assert write.publish_id is not None
    assert write.publish_id.written() == "=C3=A9"


def test_a_pattern_is_of_the_whole_name() -> None:
    stream = StreamOptions.parse({"path": "/r", "subscribePattern": "eu-.*|us", "consumer": "lake"})
    pattern = stream.subscription.pattern
    assert pattern is not None
    assert [name for name in ("eu-1", "us", "us-1") if pattern.fullmatch(name)] == ["eu-1", "us"]


def test_a_lease_is_read_without_a_subscription() -> None:
    read = ReadOptions.parse({"path": "/r", "lease": "lake.17"})
    assert (read.lease, read.subscription) == ("lake.17", None)


@pytest.mark.parametrize("path", ["/r 1", "file:/r 1", "file:///r%201"])
def test_a_root_is_a_path_or_its_uri(path: str) -> None:
    assert WriteOptions.parse({"path": path}).path == Path("/r 1")


@pytest.mark.parametrize(
    ("kind", "option", "value", "says"),
    [
        ("read", "path", "r", "an absolute path"),
        ("read", "path", "", "an absolute path"),
        ("read", "path", "hdfs://r", "an absolute path"),
        ("read", "path", "file://host/r", "an absolute path"),
        ("read", "subscribe", "", "a queue's name"),
        ("read", "subscribe", "a,,b", "a queue's name"),
        ("read", "subscribe", "../a", "a queue's name"),
        ("read", "state", "gone", "ready or delayed or leased or removed"),
        ("read", "includeValue", "yes", "true or false"),
        ("read", "lease", "lake.17", "does not go with subscribe"),
        ("read", "subscribePattern", "a.*", "does not go with subscribe"),
        ("stream", "consumer", "", "a letter or digit"),
        ("stream", "consumer", "a.1", "a letter or digit"),
        ("stream", "consumer", "a" * 41, "a letter or digit"),
        ("stream", "failOnDataLoss", "1", "true or false"),
        ("write", "queue", "a/b", "a queue's name"),
        ("write", "queue", "a,b", "a queue's name"),
        ("write", "sync", "none", "syncfs or fsync"),
        ("write", "publishId", "", "1 to 64 bytes"),
        ("write", "publishId", "é" * 11, "1 to 64 bytes"),
        ("write", "onKeyTaken", "replace", "fail or skip"),
    ],
)
def test_a_bad_value_is_named_with_what_is_right(
    kind: str, option: str, value: str, says: str
) -> None:
    parser, needed = KINDS[kind]
    with pytest.raises(BadOption) as raised:
        parser.parse({**needed, option: value})
    assert option in str(raised.value)
    assert says in str(raised.value)


@pytest.mark.parametrize("pattern", ["(", "a{2,1}", "[z-a]", "(" * 5000 + ")" * 5000])
def test_a_bad_pattern_is_told(pattern: str) -> None:
    with pytest.raises(BadOption, match="subscribePattern"):
        ReadOptions.parse({"path": "/r", "subscribePattern": pattern})


@pytest.mark.parametrize("lease", ["lake", "lake.0", "lake.01", ".1", "lake.1.back", "a/b.1"])
def test_a_bad_lease_is_told(lease: str) -> None:
    with pytest.raises(BadOption, match=r"a lease's name"):
        ReadOptions.parse({"path": "/r", "lease": lease})


@pytest.mark.parametrize(
    ("kind", "missing"),
    [
        ("read", "path"),
        ("read", "subscribe"),
        ("stream", "path"),
        ("stream", "subscribe"),
        ("stream", "consumer"),
        ("write", "path"),
    ],
)
def test_what_is_missing_is_told(kind: str, missing: str) -> None:
    parser, needed = KINDS[kind]
    with pytest.raises(BadOption, match=f"option {missing}: is missing"):
        parser.parse({name: value for name, value in needed.items() if name != missing})


@pytest.mark.parametrize(
    ("kind", "option", "meant"),
    [
        ("read", "subscribed", "subscribe"),
        ("read", "maxMessagesPerPartitions", "maxMessagesPerPartition"),
        ("read", "includevalues", "includeValue"),
        ("stream", "failOnDataloss2", "failOnDataLoss"),
        ("stream", "lease_seconds", "leaseSeconds"),
        ("write", "publish_id", "publishId"),
        ("write", "queues", "queue"),
    ],
)
def test_an_unknown_option_is_refused_with_the_nearest_known(
    kind: str, option: str, meant: str
) -> None:
    parser, needed = KINDS[kind]
    with pytest.raises(UnknownOption, match=rf"no option {option} \(did you mean {meant}\?\)"):
        parser.parse({**needed, option: "1"})


def test_what_is_near_nothing_is_refused_with_all_there_is() -> None:
    with pytest.raises(UnknownOption) as raised:
        WriteOptions.parse({**WRITE, "mergeSchema": "true"})
    assert str(raised.value) == (
        "mq: no option mergeSchema; known: path, queue, sync, publishId, onKeyTaken"
    )


@pytest.mark.parametrize(
    ("kind", "option"),
    [("read", "consumer"), ("read", "queue"), ("stream", "state"), ("stream", "lease")],
)
def test_another_ways_option_is_refused(kind: str, option: str) -> None:
    parser, needed = KINDS[kind]
    with pytest.raises(UnknownOption):
        parser.parse({**needed, option: "ready"})


def test_what_spark_says_to_every_sink_is_no_option_of_ours() -> None:
    told = {**WRITE, "checkpointLocation": "/c", "queryname": "lake"}
    assert WriteOptions.parse(told) == WriteOptions.parse(WRITE)


@given(st.data(), st.sampled_from(sorted(NUMBERS)))
def test_a_number_is_kept_or_refused(data: st.DataObject, option: str) -> None:
    kind, field, most = NUMBERS[option]
    parser, needed = KINDS[kind]
    number = data.draw(st.integers(-1, most + 1) | st.sampled_from([0, 1, most, most + 1]))
    if 1 <= number <= most:
        assert getattr(parser.parse({**needed, option: str(number)}), field) == number
    else:
        with pytest.raises(BadOption, match=f"whole number from 1 to {most}"):
            parser.parse({**needed, option: str(number)})


@pytest.mark.parametrize(
    "text", ["", " 1", "1 ", "+1", "01", "1.0", "1e3", "\u0661", "1_000", "0x1"]
)
def test_a_number_is_written_in_one_way(text: str) -> None:
    with pytest.raises(BadOption, match="minPartitions"):
        ReadOptions.parse({**READ, "minPartitions": text})


@given(st.sampled_from(sorted(KINDS)), st.randoms(use_true_random=False))
def test_names_are_known_in_any_case(kind: str, chance: Any) -> None:
    parser, needed = KINDS[kind]
    spelt = {
        "".join(chance.choice((letter.lower(), letter.upper())) for letter in name): value
        for name, value in needed.items()
    }
    assert parser.parse(spelt) == parser.parse(needed)


@given(
    st.sampled_from(sorted(KINDS)),
    st.dictionaries(
        st.sampled_from(
            ["path", "subscribe", "subscribePattern", "consumer", "queue", "publishId", "lease"]
        )
        | st.text(max_size=12),
        st.text(max_size=12),
    ),
)
def test_whatever_is_given_it_is_parsed_or_told(kind: str, options: dict[str, str]) -> None:
    parser, needed = KINDS[kind]
    with contextlib.suppress(BadOption, UnknownOption):
        assert parser.parse({**needed, **options}).path.is_absolute()
