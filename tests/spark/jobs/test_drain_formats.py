"""Messages as rows of files, without Spark: what is written is read byte for byte."""

import csv
import gzip
import io
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mq.model.limits import PUBLISHED_MS_MAX
from mq.spark.jobs.row_files import (
    COMPRESSIONS,
    FORMATS,
    Format,
    Output,
    csv_line,
    json_line,
    row_writer,
    suffix_of,
)
from mq.spark.jobs.row_reading import BadField, BadFile, Reading, body_of, ids_in, read_rows
from mq.spark.rows import ARROW_SCHEMA
from mq.store.disk.files import Files

NASTY = (
    b"", b"\x00", b"\r\n", b"\r", b"\n", b'"', b'","', b"\xef\xbb\xbfbom", b"\xff\xfe", b" x ",
    bytes(range(256)), "ü\u2028\u2029\x85 \U0001f355".encode(), b"#no comment", b"\\N", b"null",
    b"\xed\xa0\x80", b"=1+1", b"\\", b'\\"',
)  # fmt: skip
NO_SURROGATES = st.characters(exclude_categories=["Cs"])
TEXTS = st.text(NO_SURROGATES, min_size=1, max_size=20)
MOMENTS = st.integers(0, PUBLISHED_MS_MAX)
BODIES = st.one_of(st.binary(max_size=60), st.text(NO_SURROGATES).map(str.encode))
ROWS = st.fixed_dictionaries(
    {
        "queue": st.sampled_from(["orders", "a.b_c-d_SIDELINE"]),
        "id": TEXTS,
        "key": st.none() | TEXTS,
        "value": BODIES,
        "headers": st.dictionaries(TEXTS, st.text(NO_SURROGATES, max_size=20)),
        "priority": st.integers(0, 9),
        "published": MOMENTS,
        "due": MOMENTS,
        "receives": st.integers(0, 999),
    }
)


def batch_of(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    """The rows as a drain reads them."""
    full = [
        row
        | {
            "published": moment(row["published"]),
            "due": moment(row["due"]),
            "headers": list(row["headers"].items()),
            "size": row.get("size", len(row["value"])),
            "state": "leased",
        }
        for row in rows
    ]
    return pa.RecordBatch.from_pylist(full, ARROW_SCHEMA)


def moment(ms: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)


def written(path: Path, rows: list[dict[str, Any]], kind: Format, compression: str) -> Path:
    """A drained file of these rows."""
    found = path.with_name(path.name + suffix_of(kind, compression))
    found.unlink(missing_ok=True)
    with Output(Files(), str(found)) as out:
        writer = row_writer(out, kind, compression)
        for row in rows:
            writer.write(batch_of([row]))
        writer.close()
        out.finish()
        assert out.size == found.stat().st_size
    return found


def read(path: Path, **reading: Any) -> list[dict[str, Any]]:
    return [row for batch in read_rows(path, Reading(**reading)) for row in batch.to_pylist()]


def plain(number: int, value: bytes) -> dict[str, Any]:
    return {
        "queue": "orders", "id": f"id-{number}", "key": None, "value": value, "headers": {},
        "priority": 0, "published": 0, "due": 0, "receives": 1,
    }  # fmt: skip


@pytest.mark.parametrize("kind", FORMATS)
@settings(max_examples=60)
@given(rows=st.lists(ROWS, min_size=1, max_size=4))
@example(rows=[plain(number, value) for number, value in enumerate(NASTY)])
def test_what_is_written_is_read_byte_for_byte(
    tmp_path_factory: pytest.TempPathFactory, kind: Format, rows: list[dict[str, Any]]
) -> None:
    path = written(tmp_path_factory.getbasetemp() / "rows", rows, kind, COMPRESSIONS[kind][0])
    found = read(path, keeps_due=True, is_drained=True)
    assert [row["value"] for row in found] == [row["value"] for row in rows]
    for row, wanted in zip(found, rows, strict=True):
        assert (row["queue"], row["key"]) == (wanted["queue"], wanted["key"])
        assert (row["priority"], dict(row["headers"] or [])) == (
            wanted["priority"], wanted["headers"],
        )  # fmt: skip
        assert row["at"] == moment(wanted["due"])
    assert list(ids_in(path)) == [row["id"] for row in rows]


@pytest.mark.parametrize(
    ("kind", "compression"), [(kind, each) for kind in FORMATS for each in COMPRESSIONS[kind]]
)
def test_each_compression_is_read_again(tmp_path: Path, kind: Format, compression: str) -> None:
    body = b"pizza" * 300_000
    path = written(tmp_path / "rows", [plain(1, body), plain(2, b"\0")], kind, compression)
    assert (path.stat().st_size < len(body) // 10) is (compression != "none")
    assert [row["value"] for row in read(path)] == [body, b"\0"]


def test_lines_are_for_people_where_bodies_are_text() -> None:
    row = {"id": "7", "key": None, "value": "pizza für 2\n".encode(), "headers": {}, "size": 13}
    assert json_line(row) == '{"id": "7", "value": "pizza für 2\\n", "size": 13}\n'
    assert (
        json_line(row | {"value": b"\xff"}) == '{"id": "7", "value_base64": "/w==", "size": 13}\n'
    )


@given(st.lists(st.text(NO_SURROGATES.filter(lambda each: each != "\0")), min_size=2, max_size=5))
def test_csv_is_what_other_readers_of_rfc_4180_read(fields: list[str]) -> None:
    assert list(csv.reader(io.StringIO(csv_line(fields), newline=""), strict=True)) == [fields]


def test_a_drained_csv_has_a_line_a_message_whatever_the_bodies_are(tmp_path: Path) -> None:
    rows = [plain(number, value) for number, value in enumerate(NASTY)]
    path = written(tmp_path / "rows", rows, "csv", "none")
    assert len(path.read_text().splitlines()) == len(rows) + 1


def test_a_damaged_message_is_in_the_file_and_not_published(tmp_path: Path) -> None:
    rows = [plain(1, b"whole"), plain(2, b"torn") | {"size": None}, plain(3, b"")]
    for kind in FORMATS:
        path = written(tmp_path / "rows", rows, kind, "none")
        assert [row["value"] for row in read(path, is_drained=True)] == [b"whole", b""]
        assert list(ids_in(path)) == ["id-1", "id-2", "id-3"]


def test_files_of_ones_own_need_a_value_alone(tmp_path: Path) -> None:
    lines = tmp_path / "mine.ndjson"
    lines.write_text('\n{"value": "a", "priority": 3, "at": "2030-01-01T00:00:00+01:00"}\n\n')
    assert read(lines) == [
        {
            "value": b"a", "queue": None, "key": None, "priority": 3, "headers": None,
            "content_type": None, "at": datetime(2029, 12, 31, 23, tzinfo=UTC),
            "group": None, "tags": None, "ttl_s": None, "visibility_s": None,
        }
    ]  # fmt: skip
    lines.write_text('{"value": "a", "group": "g", "tags": ["x"], "ttl_s": 60, "visibility_s": 5}')
    [row] = read(lines)
    assert (row["group"], row["tags"], row["ttl_s"], row["visibility_s"]) == ("g", ["x"], 60, 5)
    table = tmp_path / "mine.csv.gz"
    table.write_bytes(
        gzip.compress(
            b'\xef\xbb\xbfvalue,headers,tags\r\n"a\r\nb","{""ce-id"":""1""}","[""x""]"\r\n,,\r\n'
        )
    )
    found = read(table)
    assert [row["tags"] for row in found] == [["x"], None]
    assert [row["value"] for row in found] == [b"a\r\nb", b""]
    assert [row["headers"] for row in found] == [[("ce-id", "1")], None]


BAD = {
    "json": {
        '{"value": "a"}\n{"value": 7}': "row 2: column value: 7 is not a text",
        '{"value": "a", "value_base64": "YQ=="}': "row 1: column value: value_base64 is there too",
        '{"value_base64": "Y?=="}': "row 1: column value_base64: is not base64",
        '{"value": "\\ud800"}': "row 1: column value: has half of a surrogate pair",
        '{"value": "a", "priority": "x"}': "row 1: column priority: 'x' is not a whole number",
        '{"value": "a", "headers": ["x"]}': "row 1: column headers: take an object",
        '{"value": "a", "tags": "[1]"}': "row 1: column tags: take a list of texts",
        '{"value": "a", "at": "soon"}': "row 1: column at: 'soon' is not a time",
        '{"value": "a", "colour": 1}': "row 1: column colour is none that is published",
        '{"key": "a"}': "row 1: there is no column value",
        "[1]": "row 1: is not a JSON object",
        '{"value": ': "row 1: is not JSON",
    },
    "csv": {
        "": "has no first line",
        "key\na\n": "there is no column value",
        "value,value\na,b\n": "two columns have one name",
        "value,key\na\n": "row 1: has 1 fields, and the first line names 2",
        'value\na\n"b': "row 2: is not CSV",
        "value,priority\na,high\n": "row 1: column priority: 'high' is not a whole number",
    },
}


@pytest.mark.parametrize(
    ("suffix", "text", "said"),
    [(kind, text, said) for kind, each in BAD.items() for text, said in each.items()],
)
def test_what_is_wrong_is_told_by_file_row_and_column(
    tmp_path: Path, suffix: str, text: str, said: str
) -> None:
    path = tmp_path / f"mine.{suffix}"
    path.write_text(text)
    with pytest.raises(BadFile) as caught:
        read(path)
    assert str(caught.value).startswith(str(path))
    assert said in str(caught.value)


def test_bad_parquet_is_told_too(tmp_path: Path) -> None:
    path = tmp_path / "mine.parquet"
    for columns, said in (
        ({"value": [b"a", None]}, "row 2: column value: is null"),
        ({"value": [1]}, "column value is int64; it takes binary"),
        ({"key": ["a"]}, "there is no column value"),
        ({"value": ["a"], "priority": [1 << 40]}, "column priority"),
    ):
        pa.parquet.write_table(pa.table(columns), path)
        with pytest.raises(BadFile, match="mine") as caught:
            read(path)
        assert said in str(caught.value)
    path.write_bytes(b"PAR1 and nothing of it")
    with pytest.raises(BadFile, match="not readable Parquet"):
        read(path)


@given(st.dictionaries(st.sampled_from(["value", "value_base64"]), st.text() | st.none()))
def test_a_body_is_one_or_an_error_that_says_so(fields: dict[str, Any]) -> None:
    try:
        body = body_of(fields)
    except BadField:
        return
    assert json.loads(json_line({"value": body})).keys() <= {"value", "value_base64"}
    assert body_of(json.loads(json_line({"value": body}))) == body
