"""Rows to staged messages, without a JVM."""

import datetime
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from harness.audits import assert_audits_clean
from harness.browsing import browse
from harness.clock import FakeClock
from harness.folders import files_below
from hypothesis import given
from hypothesis import strategies as st

from mq.model.clock import rfc3339
from mq.model.errors import StagedFileGone, StartupError
from mq.model.headers import parse_block
from mq.model.limits import HEADERS_MAX, TAGS_MAX, VISIBILITY_S_MAX
from mq.model.message import Stamp
from mq.model.names import ROWS_PER_MS, Group, Key, MessageId, QueueName, RepeatableIds
from mq.model.settings import QueueSettings
from mq.spark.opening import PublishFailed, check_queue, following
from mq.spark.options import BadOption, WriteOptions
from mq.spark.publishing import (
    BadColumns,
    BadRow,
    Task,
    abort_staged,
    check_columns,
    commit_staged,
    stage_rows,
)
from mq.spark.rows import DEFAULT_HEADERS
from mq.store.bulk.staging import Staged
from mq.store.bulk.windows import FOLD_ROWS_MIN
from mq.store.core.root import Root
from mq.store.disk.files import Files
from mq.store.disk.flush import NoFlusher
from mq.store.disk.group import run_alone
from mq.store.format.layout import parse_entry
from mq.store.format.pipeline import Fold
from mq.store.history.read import read_tag_history
from mq.store.opening import open_root
from mq.store.operations.queues import WantedShape, create_queue
from mq.store.operations.tagged import list_tagged
from mq.store.settings.configure import change_settings

QUEUE = QueueName.parse("orders")
OTHER = QueueName.parse("others")
JOB = "ab" * 16
UTC = datetime.UTC
PAST = datetime.datetime(1999, 1, 1, tzinfo=UTC)


@pytest.fixture
def root(tmp_path: Path) -> Root:
    made = open_root(str(tmp_path), Files(), FakeClock())
    for queue in (QUEUE, OTHER):
        run_alone(create_queue(made, queue), NoFlusher())
    return made


def options(root: Root, **more: str) -> WriteOptions:
    return WriteOptions.parse({"path": root.layout.root, "queue": "orders"} | more)


def staged(root: Root, task: Task | None = None, /, **columns: Any) -> Staged:
    """One partition of these columns."""
    batch = pa.RecordBatch.from_pydict(columns)
    return stage_rows(root, options(root), task or Task(JOB, 0, 0), [batch])


def messages(root: Root) -> dict[bytes, tuple[QueueName, MessageId, Path]]:
    """What is staged, by what was written."""
    found = {}
    for path in Path(root.layout.new, ".spark").rglob("*:*"):
        queue, message_id = parse_entry(path.name)
        found[path.read_bytes()[message_id.header_bytes :]] = queue, message_id, path
    return found


def test_a_row_is_a_message(root: Root) -> None:
    at = datetime.datetime(2040, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
    headers = pa.map_(pa.string(), pa.string())
    found = staged(
        root,
        value=[b"a", b"b", b"c"],
        queue=["others", None, "orders"],
        key=["k/1", None, "k"],
        priority=[9, None, 0],
        at=pa.array([at, None, PAST], pa.timestamp("us", "UTC")),
        headers=pa.array([[("ce-id", "7")], [], None], headers),
        content_type=["application/json", "text/x; q=1", None],
    )
    assert [(each.queue, each.messages) for each in found.queues] == [("orders", 2), ("others", 1)]
    assert (found.is_keyed, found.is_scheduled) == (True, True)
    of = messages(root)
    queue, message_id, path = of[b"a"]
    assert (queue, message_id.priority, message_id.key) == (OTHER, 9, Key("k/1"))
    assert message_id.extension == "json"
    assert parse_block(path.read_bytes()[: message_id.header_bytes]) == (("ce-id", "7"),)
    stamp = Stamp.from_mtime_ns(path.stat().st_mtime_ns)
    assert stamp == Stamp(int(at.timestamp() * 1000))
    _, message_id, path = of[b"b"]
    assert parse_block(path.read_bytes()[: message_id.header_bytes]) == (
        ("Content-Type", "text/x; q=1"),
    )
    assert path.stat().st_mtime_ns == message_id.published_ms * 1_000_000
    _, message_id, path = of[b"c"]
    assert (message_id.header_bytes, message_id.extension) == (0, "")
    assert path.stat().st_mode & 0o777 == 0o600


def tagged(root: Root, tag: str) -> list[str]:
    return [each.id.text for each in list_tagged(root, QUEUE, Key(tag), 10, None).messages]


def test_a_row_has_a_group_tags_and_a_time_to_live(root: Root) -> None:
    of = staged(
        root,
        value=[b"a", b"b", b"c"],
        key=["k", None, None],
        group=["g", None, "g"],
        tags=pa.array([["eu", "wien/1", "eu"], [], None], pa.list_(pa.string())),
        ttl_s=pa.array([None, 60, None], pa.int32()),
        visibility_s=pa.array([None, None, 90], pa.int64()),
    )
    found = {body: message_id for body, (_, message_id, _) in messages(root).items()}
    assert [found[body].group for body in (b"a", b"b", b"c")] == [
        Group("g").digits, "", Group("g").digits
    ]  # fmt: skip
    assert (found[b"a"].tags, found[b"b"].ttl_s, found[b"c"].visibility_s) == (2, 60, 90)
    patch = {"history": True}
    run_alone(change_settings(root, QUEUE, patch, QueueSettings()), NoFlusher())
    commit_staged(root, options(root), JOB, [of], None)
    assert tagged(root, "eu") == tagged(root, "wien/1") == [found[b"a"].text]
    [event] = read_tag_history(root, QUEUE, Key("eu")).events
    assert (event["id"], event["tags"]) == (found[b"a"].text, ["eu", "wien/1"])
    [expiring] = Path(root.layout.root, "expiring", "orders").glob("*/*")
    assert expiring.name == found[b"b"].text
    assert_audits_clean(Path(root.layout.root), root.clock)
    # What was read can be written: header by header.
    rows = {row["value"]: row["headers"] for row in browse(root)}
    assert dict(rows[b"a"])["x-message-group"] == "g"
    fired = ("x-message-schedule", 'name="nightly"')
    headers = pa.array([[*rows[b"a"], fired], rows[b"c"]], pa.map_(pa.string(), pa.string()))
    again = stage_rows(
        root,
        options(root),
        Task("cd" * 16, 0, 0),
        [
            pa.RecordBatch.from_pydict(
                {"value": [b"a2", b"c2"], "headers": headers, "group": [None, "other"]}
            )
        ],
    )
    commit_staged(root, options(root), "cd" * 16, [again], None)
    rows = {row["value"]: dict(row["headers"]) for row in browse(root)}
    assert rows[b"a2"] == rows[b"a"]
    assert rows[b"c2"]["x-message-group"] == "other"
    assert len(tagged(root, "eu")) == 2


def test_a_content_type_comes_back_as_over_http(root: Root) -> None:
    types = ["application/octet-stream", None, "text/csv", "text/x; q=1"]
    of = staged(root, value=["0", "1", "2", "3"], content_type=types)
    commit_staged(root, options(root), JOB, [of], None)
    rows = browse(root)
    found = {row["value"]: dict(row["headers"])["content-type"] for row in rows}
    assert found == {
        b"0": "application/octet-stream",
        b"1": "application/octet-stream",
        b"2": "text/csv",
        b"3": "text/x; q=1",
    }


def test_a_column_says_the_type_of_what_was_read_without_one(root: Root) -> None:
    read = pa.array([list(DEFAULT_HEADERS)], pa.map_(pa.string(), pa.string()))
    staged(root, value=["0"], headers=read, content_type=["text/csv"])
    assert [each[1].extension for each in messages(root).values()] == ["csv"]


def test_a_queue_says_which_priority_and_how_large(root: Root) -> None:
    patch = {"priority_default": 4, "body_bytes_max": 3}
    run_alone(change_settings(root, QUEUE, patch, QueueSettings()), NoFlusher())
    staged(root, value=["abc"])
    assert [each[1].priority for each in messages(root).values()] == [4]
    with pytest.raises(BadRow, match="row 1 of partition 0, column value: has 4 bytes"):
        staged(root, Task(JOB, 0, 1), value=["abc", "abcd"])


def test_a_queue_says_how_long_a_row_waits_that_says_no_time(root: Root) -> None:
    patch = {"delay_default_s": 60}
    run_alone(change_settings(root, QUEUE, patch, QueueSettings()), NoFlusher())
    soon = datetime.datetime.fromtimestamp(root.clock.now_ms() // 1000 + 5, UTC)
    at = pa.array([None, soon, PAST], pa.timestamp("us", "UTC"))
    both = [
        staged(root, value=["a", "b"]),
        staged(root, Task(JOB, 1, 0), value=["c", "soon", "past"], at=at),
        staged(root, Task(JOB, 2, 0), value=["other"], queue=["others"]),
    ]
    assert [each.is_scheduled for each in both] == [True, True, False]
    due_ms = {
        body: (path.stat().st_mtime_ns // 1_000_000) - message_id.published_ms
        for body, (_, message_id, path) in messages(root).items()
    }
    assert abs(due_ms.pop(b"soon") - 5_000) <= 1_000
    late = dict.fromkeys((b"a", b"b", b"c"), 60_000)
    assert due_ms == {**late, b"past": 0, b"other": 0}
    commit_staged(root, options(root), JOB, both, None)
    assert len(list(Path(root.layout.delay).iterdir())) == 4


def test_to_a_queue_that_has_expired_nothing_is_published(root: Root) -> None:
    of = staged(root, value=["a"])
    check_queue(root, QUEUE)
    patch = {"expires_at": rfc3339(root.clock.now_ms())}
    run_alone(change_settings(root, QUEUE, patch, QueueSettings()), NoFlusher())
    root.facts.look_again(QUEUE)
    with pytest.raises(PublishFailed, match="the queue orders has expired at"):
        check_queue(root, QUEUE)
    with pytest.raises(PublishFailed, match="the queue orders has expired at"):
        commit_staged(root, options(root), JOB, [of], None)
    assert not list(Path(root.layout.queue(QUEUE)).iterdir())
    run_alone(change_settings(root, QUEUE, {"expires_at": None}, QueueSettings()), NoFlusher())
    root.facts.look_again(QUEUE)
    commit_staged(root, options(root), JOB, [of], None)
    assert list(Path(root.layout.queue(QUEUE)).iterdir())


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("value", None, "is null"),
        ("queue", "no such queue", "is not a queue name"),
        ("queue", "absent", "there is no queue absent"),
        ("key", "k" * 65, "is not a key"),
        ("key", "", "is not a key"),
        ("priority", 10, "is 10; it takes 0 to 9"),
        ("priority", -1, "is -1"),
        ("headers", [("X-Other", "1")], "keeps no X-Other"),
        ("headers", [("ce-id", None)], "is null"),
        ("headers", [("ce-id", "a\nb")], "control characters"),
        ("headers", [("content-type", "a/b"), ("Content-Type", "a/c")], "given twice"),
        ("group", "g h", "is not a group"),
        ("tags", ["x" * 65], "are not tags"),
        ("tags", [f"t{n}" for n in range(TAGS_MAX + 1)], "at most 9"),
        ("tags", ["a", None], "none of them null"),
        ("ttl_s", 0, "is 0; it takes 1 to"),
        ("visibility_s", VISIBILITY_S_MAX + 1, "seconds"),
        ("headers", [(f"ce-{n}", "1") for n in range(HEADERS_MAX + 1)], "at most 64 headers"),
    ],
)
def test_what_is_wrong_with_a_row_is_told_and_nothing_is_left(
    root: Root, column: str, value: object, said: str
) -> None:
    kinds = {
        "value": pa.binary(),
        "priority": pa.int32(),
        "headers": pa.map_(pa.string(), pa.string()),
        "tags": pa.list_(pa.string()),
        "ttl_s": pa.int32(),
        "visibility_s": pa.int32(),
    }
    good: dict[str, object] = {"value": b"x"}
    columns = {column: pa.array([good.get(column), value], kinds.get(column, pa.string()))}
    columns.setdefault("value", pa.array([b"x", b"y"]))
    with pytest.raises(BadRow) as raised:
        staged(root, **columns)
    assert (raised.value.row, raised.value.column) == (1, column)
    assert said in str(raised.value)
    assert list(Path(root.layout.new, ".spark").rglob("*:*")) == []


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"value": "int"}, "column value is int; it takes binary or string"),
        ({"key": "string"}, "no column value"),
        ({"value": "binary", "id": "string"}, "column id is none that is published"),
        ({"value": "binary", "at": "timestamp_ntz"}, "column at is timestamp_ntz"),
        ({"value": "binary", "tags": "string"}, "it takes array<string>"),
        ({"value": "binary", "headers": "map<string,int>"}, "it takes map<string,string>"),
    ],
)
def test_columns_are_looked_at_before_any_row(
    root: Root, columns: dict[str, str], said: str
) -> None:
    with pytest.raises(BadColumns, match=said):
        check_columns(list(columns.items()), options(root))


def test_a_queue_is_named_by_an_option_or_a_column(root: Root) -> None:
    without = WriteOptions.parse({"path": root.layout.root})
    check_columns([("value", "string"), ("queue", "string")], without)
    with pytest.raises(BadOption, match="queue"):
        check_columns([("value", "string")], without)


def test_a_task_of_what_is_published_already_writes_nothing(root: Root) -> None:
    def never() -> Any:
        raise AssertionError("a row was read")
        yield

    task = Task(JOB, 0, 0, Key("once"), repeats=True)
    given_options = options(root, publishId="once")
    first = stage_rows(root, given_options, task, [pa.RecordBatch.from_pydict({"value": [b"a"]})])
    commit_staged(root, given_options, JOB, [first], task.name)
    again = Task("cd" * 16, 0, 0, Key("once"), repeats=True)
    assert stage_rows(root, given_options, again, never()).messages == 0
    assert len(list(files_below(Path(root.layout.queue(QUEUE))))) == 1


def test_a_publish_that_is_tried_again_has_the_same_ids(root: Root) -> None:
    ids = []
    for attempt in range(2):
        task = Task(JOB, 3, attempt, Key("once"), repeats=True)
        stage_rows(
            root, options(root), task, [pa.RecordBatch.from_pydict({"value": [b"a", b"b"]})] * 20
        )
        folder = Path(root.layout.new, ".spark", JOB, f"3-{attempt}")
        ids.append(sorted(path.name for path in folder.iterdir()))
    assert ids[0] == ids[1]
    assert len(set(ids[0])) == 40


@pytest.mark.parametrize("rows", [1, FOLD_ROWS_MIN])
def test_a_task_that_is_late_stages_nothing_of_a_job_that_was_given_up(
    root: Root, rows: int
) -> None:
    batch = pa.RecordBatch.from_pydict({"value": [b"a"] * rows})

    def given_up_between() -> Iterator[pa.RecordBatch]:
        yield batch
        abort_staged(root, JOB, None)
        assert messages_flat(root) == []
        yield batch

    with pytest.raises(StagedFileGone, match="given up"):
        stage_rows(root, options(root), Task(JOB, 0, 0), given_up_between())
    with pytest.raises(StagedFileGone, match="given up"):
        stage_rows(root, options(root), Task(JOB, 0, 1), [batch])
    mark = Path(root.layout.new, ".spark", JOB)
    assert list(Path(root.layout.new, ".spark").rglob("*")) == [mark]
    assert mark.read_bytes() == b""


def folds(root: Root) -> list[str]:
    below = Path(root.layout.new, ".spark", JOB)
    return sorted(path.name for path in below.glob("*/*") if path.is_dir())


def test_many_rows_of_which_nothing_is_said_are_staged_in_folds(root: Root) -> None:
    values = [b"%d" % row for row in range(FOLD_ROWS_MIN)]
    batch = pa.RecordBatch.from_pydict({"value": values})
    more = pa.RecordBatch.from_pydict({"value": [b"last"]})
    found = stage_rows(root, options(root), Task(JOB, 0, 0), [batch, more])
    assert found.messages == FOLD_ROWS_MIN + 1
    (fold,) = folds(root)
    folder = Path(root.layout.new, ".spark", JOB, "0-0", fold)
    names = sorted(path.name for path in folder.iterdir())
    assert [Path(folder, name).read_bytes() for name in names] == values
    message_id = MessageId.parse(names[0])
    assert Fold.of(QUEUE, message_id).text == fold
    assert found.queues[0].first == message_id.uuid
    stamp = Stamp.from_mtime_ns(Path(folder, names[0]).stat().st_mtime_ns)
    assert stamp == Stamp(message_id.published_ms)
    ((_, last, _),) = messages_flat(root)
    assert last.uuid > names[-1]


def messages_flat(root: Root) -> list[tuple[QueueName, MessageId, Path]]:
    below = Path(root.layout.new, ".spark", JOB)
    return [(*parse_entry(path.name), path) for path in below.glob("*/*:*") if path.is_file()]


def test_what_says_more_or_has_a_publish_id_or_another_shape_is_in_no_fold(root: Root) -> None:
    values = [b"a"] * FOLD_ROWS_MIN
    staged(root, value=values, priority=[1] * FOLD_ROWS_MIN)
    name = Key.parse("nightly")
    staged(root, Task(JOB, 1, 0, name, repeats=True), value=values)
    shaped = QueueName("shaped")
    run_alone(create_queue(root, shaped, WantedShape(shards=2)), NoFlusher())
    batch = pa.RecordBatch.from_pydict({"value": values})
    stage_rows(root, options(root, queue="shaped"), Task(JOB, 2, 0), [batch])
    assert folds(root) == []
    assert len(messages_flat(root)) == 3 * FOLD_ROWS_MIN


def test_what_cannot_be_committed_is_told(root: Root) -> None:
    found = staged(root, value=[b"a"], key=["k"])
    commit_staged(root, options(root), JOB, [found], None)
    second = staged(root, Task("cd" * 16, 0, 0), value=[b"b"], key=["k"])
    with pytest.raises(PublishFailed, match="key 'k' is taken"):
        commit_staged(root, options(root), "cd" * 16, [second], None)
    commit_staged(root, options(root, onKeyTaken="skip"), "cd" * 16, [second], None)
    assert len(list(files_below(Path(root.layout.queue(QUEUE))))) == 1


def test_a_root_is_needed(tmp_path: Path) -> None:
    given_options = WriteOptions.parse({"path": str(tmp_path), "queue": "q"})
    with pytest.raises(StartupError, match="not an mq root"):
        following(given_options.path)


keys = st.builds(Key, st.text("abcXYZ0-_", min_size=1, max_size=20))
times = st.integers(0, 2**45)


@given(keys, times, st.integers(0, 2**20 - 1), st.integers(0, 10**7))
def test_a_repeatable_id_is_an_id_of_its_row_s_time(
    name: Key, begun_ms: int, partition: int, row: int
) -> None:
    message_id = MessageId.parse(RepeatableIds(name, begun_ms, partition).uuid(row))
    assert message_id.published_ms == begun_ms + row // ROWS_PER_MS
    assert message_id.uuid == RepeatableIds(name, begun_ms, partition).uuid(row)


@given(keys, times, st.sets(st.tuples(st.integers(0, 2**20 - 1), st.integers(0, 200)), max_size=50))
def test_repeatable_ids_are_all_different_and_in_order(
    name: Key, begun_ms: int, rows: set[tuple[int, int]]
) -> None:
    made: Callable[[int, int], str] = lambda partition, row: RepeatableIds(  # noqa: E731
        name, begun_ms, partition
    ).uuid(row)
    assert len({made(*each) for each in rows}) == len(rows)
    for partition in {partition for partition, _ in rows}:
        mine = sorted(row for of, row in rows if of == partition)
        uuids = [made(partition, row) for row in mine]
        assert uuids == sorted(uuids)
