"""The option `where` of a read: which folders are listed and which files opened; and that the rows
are those that SQL would choose. Also of a read without Spark.
"""

import operator
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from harness.browsing import BEGIN_MS, ORDERS, CountingFiles, Row, an_id, put, with_headers
from harness.clock import FakeClock
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from mq.model.errors import QueueNotFound
from mq.model.headers import Headers, with_tags
from mq.model.lifecycle import State
from mq.model.names import Group, Key, QueueName
from mq.spark.browsing import arrow_reader, manner_of, names_of
from mq.spark.options import BadOption, ReadOptions, UnknownOption
from mq.spark.partitions import Cut, partitions
from mq.spark.reading import batches
from mq.spark.rows import ARROW_SCHEMA
from mq.store.core.root import Root
from mq.store.format.bucket_names import Shape
from mq.store.opening import open_root

OTHER = QueueName.parse("other")
WINDOW_MS = 1 << 16


def at(ms: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)


class Listing(CountingFiles):
    """Which folders were listed, too."""

    def __init__(self) -> None:
        super().__init__()
        self.listed: list[str] = []
        self.opened = 0

    def entries(self, folder: str) -> Any:
        self.listed.append(folder)
        return super().entries(folder)

    def read_opened(self, path: str) -> Any:
        self.opened += 1
        return super().read_opened(path)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Root:
    """Two queues with messages of several priorities, keys and windows of time."""
    made = open_root(str(tmp_path_factory.mktemp("root") / "root"), Listing(), FakeClock())
    for queue in (ORDERS, OTHER):
        Path(made.layout.queue(queue)).mkdir()
    for number in range(24):
        key = f"k{number}" if number % 2 else None
        message_id = an_id(number * WINDOW_MS // 2, priority=number % 3, key=key)
        queue = ORDERS if number % 4 else OTHER
        for state in (State.READY, State.DELAYED):
            put(made.layout.root, message_id, b"body", queue=queue, state=state,
                depth=number % 3, shape=Shape(by_priority=state is State.READY))  # fmt: skip
    return made


def read(root: Root, where: str | None = None, state: State = State.READY) -> list[Row]:
    more = {} if where is None else {"where": where}
    options = ReadOptions.parse(
        {"path": root.layout.root, "subscribe": "orders,other", "state": state.value, **more}
    )
    parts = partitions(root, names_of(root, options), Cut())
    found = [batch for names in parts for batch in batches(root, names, manner_of(options))]
    return [row for batch in found for row in batch.to_pylist()]


def quoted(value: object) -> str:
    if isinstance(value, datetime):
        return f"timestamp '{value.isoformat()}'"
    return str(value) if isinstance(value, int) else "'" + str(value).replace("'", "''") + "'"


COLUMN: dict[str, Any] = {
    "queue": st.sampled_from(["orders", "other", "orders_", "ord"]),
    "key": st.sampled_from(["k1", "k5", "k", "z", ""]),
    "priority": st.integers(-1, 4),
    "published": st.integers(-2, 26).map(lambda each: at(BEGIN_MS + each * WINDOW_MS // 2)),
    "due": st.integers(-1, 1).map(lambda each: at(BEGIN_MS + each)),
}
OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq, "!=": operator.ne, "<>": operator.ne, "<": operator.lt, "<=": operator.le,
    ">": operator.gt, ">=": operator.ge, "like": str.startswith,
    "in": lambda found, values: found in values,
}  # fmt: skip


@st.composite
def condition(draw: st.DrawFn) -> tuple[str, Callable[[Row], bool]]:
    """A condition, and whether SQL has it true of a row."""
    column = draw(st.sampled_from(sorted(COLUMN)))
    kinds = [*OPERATORS, "is null"]
    if column not in ("queue", "key"):
        kinds.remove("like")
    kind = draw(st.sampled_from(kinds))
    is_negated = draw(st.booleans()) and kind in ("in", "like", "is null")
    if kind == "is null":
        told = "is not null" if is_negated else kind
        return f"{column} {told}", lambda row: (row[column] is None) is not is_negated
    value = draw(st.lists(COLUMN[column], min_size=1, max_size=3)) if kind == "in" else draw(
        COLUMN[column])  # fmt: skip

    def said(row: Row) -> bool:
        found = row[column]
        return found is not None and OPERATORS[kind](found, value) is not is_negated

    shown = f"({', '.join(map(quoted, value))})" if kind == "in" else quoted(value)
    if kind == "like":
        shown = quoted(f"{value}%")
    return f"{column}{' not' * is_negated} {kind.upper()} {shown}", said


@settings(max_examples=200, deadline=None)
@given(st.lists(condition(), min_size=1, max_size=3), st.sampled_from([State.READY, State.DELAYED]))
def test_the_rows_are_those_for_which_sql_holds(
    root: Root, asked: list[tuple[str, Callable[[Row], bool]]], state: State
) -> None:
    if any("orders_%" in text for text, _ in asked):
        return  # The _ is of LIKE's own.
    expected = [row["id"] for row in read(root, None, state) if all(said(row) for _, said in asked)]
    where = " and ".join(text for text, _ in asked)
    assert sorted(row["id"] for row in read(root, where, state)) == sorted(expected)


def test_what_is_not_chosen_is_not_listed_or_opened(root: Root) -> None:
    files = root.files
    assert isinstance(files, Listing)

    def done(where: str | None, state: State = State.READY) -> tuple[int, int, int]:
        files.listed, files.read_files, files.opened = [], 0, 0
        rows = read(root, where, state)
        return len(rows), files.read_files + files.opened, len(files.listed)

    rows, opened, listed = done(None)
    assert (rows, opened) == (24, 24)
    assert done("queue = 'other'")[:2] == (6, 6)
    assert not [each for each in files.listed if f"/{ORDERS.text}" in each]
    assert done("key = 'k5'")[:2] == (1, 1)
    assert done("priority > 1")[:2] == (8, 8)
    # A bucket of another priority or time is not listed.
    assert done("priority = 1")[2] < listed
    after = f"published >= {quoted(at(BEGIN_MS + 20 * WINDOW_MS // 2))}"
    rows, opened, few = done(after)
    assert (rows, opened) == (4, 4)
    assert few < listed / 2
    assert done(after, State.DELAYED)[:2] == (4, 4)
    # A due time is in a file's status: no file is opened.
    assert done(f"due > {quoted(at(BEGIN_MS))}", State.DELAYED)[:2] == (0, 0)


def test_groups_and_tags(root: Root, tmp_path: Path) -> None:
    top = open_root(str(tmp_path / "root"), Listing(), FakeClock())
    Path(top.layout.queue(ORDERS)).mkdir()
    files = top.files
    assert isinstance(files, Listing)
    for number, (group, tags) in enumerate(
        [("", ""), ("g1", ""), ("g2", "red"), ("", "red blue"), ("g1", "blue 100%"), ("", "")]
    ):
        headers: Headers = (("x-attribute-a", "b"),)
        if tags:
            headers = with_tags(headers, [Key.parse(each) for each in tags.split()])
        message_id = replace(
            with_headers(number, headers),
            group=Group.parse(group).digits if group else "",
            tags=len(tags.split()),
        )
        put(top.layout.root, message_id, b"%d" % number, headers=headers)

    def found(where: str) -> list[bytes]:
        files.opened = 0
        options = {"path": top.layout.root, "subscribe": "orders", "where": where}
        asked = ReadOptions.parse(options)
        parts = partitions(top, names_of(top, asked), Cut())
        got = [each for names in parts for each in batches(top, names, manner_of(asked))]
        return sorted(value for batch in got for value in batch.column("value").to_pylist())

    assert found("group = 'g1'") == [b"1", b"4"]
    assert files.opened == 2
    assert found("group in ('g1', 'g2') and priority = 0") == [b"1", b"2", b"4"]
    assert found("group != 'g1'") == [b"2"]
    assert found("group is null") == [b"0", b"3", b"5"]
    assert found("tag = 'red'") == [b"2", b"3"]
    # Those without tags are not opened.
    assert files.opened == 3
    assert found("tag = 'red' and tag = 'blue'") == [b"3"]
    assert found("tag in ('100%', 'red')") == [b"2", b"3", b"4"]
    assert found("tag is not null and group is null") == [b"3"]
    assert found("tag is null") == [b"0", b"1", b"5"]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("", "one of queue id key priority published group tag due where its end is"),
        ("size > 3", "one of queue .* where size is"),
        ("priority > 'a'", "a number for priority"),
        ("key = 3", "a text in single quotes for key"),
        ("published > '2026-01-31'", "a time with its zone"),
        ("key like '%a'", "LIKE with a beginning"),
        ("key = 'a' or key = 'b'", "one of and where or is"),
        ("(key = 'a')", r"one of queue .* where \( is"),
        ("key = 'a", "conditions joined by AND"),
        ("key in ('a'", "one of , \\) where its end is"),
        ("priority =", "a number for priority"),
        ("tag != 'a'", "=, IN or IS .* for tag"),
        ("tag not in ('a')", "=, IN or IS .* for tag"),
        ("group like 'a%'", "=, IN or IS .* for group"),
        ("group = 'a b'", "for group 1 to 128 characters"),
    ],
)
def test_what_is_no_condition_is_said(where: str, expected: str) -> None:
    with pytest.raises(BadOption, match=expected):
        ReadOptions.parse({"path": "/r", "subscribe": "orders", "where": where})


def test_arrow_for_those_without_spark(root: Root) -> None:
    said = (
        "import sys, mq.spark\n"
        "reader = mq.spark.arrow_reader(sys.argv[1], 'orders,other', where='priority < 2',"
        " includeValue=True)\n"
        "frame = reader.read_pandas()\n"
        "assert 'pyspark' not in sys.modules\n"
        "print(len(frame), frame['value'][0], frame['published'].dt.tz, reader.schema.names)"
    )
    command = [sys.executable, "-c", said, root.layout.root]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"16 b'body' UTC {ARROW_SCHEMA.names}\n"
    reader = arrow_reader(root.layout.root, subscribePattern="oth.*", state="delayed")
    assert {row["queue"] for row in reader.read_all().to_pylist()} == {"other"}
    with pytest.raises(QueueNotFound):
        arrow_reader(root.layout.root, "missing")
    with pytest.raises(UnknownOption):
        arrow_reader(root.layout.root, "orders", columns="id")


@pytest.mark.certificate
def test_parts_of_one_query_with_conditions_of_their_own(spark: SparkSession, root: Root) -> None:
    """Of Spark's own pushdown, both would have the rows of one."""

    def rows(where: str) -> DataFrame:
        reader = spark.read.format("mq").option("path", root.layout.root)
        return reader.option("subscribe", "orders,other").option("where", where).load()

    both = rows("priority = 0").union(rows("priority > 0 and queue = 'other'"))
    found = [(row.priority == 0, row.queue) for row in both.collect()]
    assert found.count((True, "orders")) + found.count((True, "other")) == 8
    assert [queue for is_low, queue in found if not is_low] == ["other"] * 4
