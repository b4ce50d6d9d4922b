"""What an archive's rows say of each message, however it was removed; and what is none, or hurt."""

import errno
import hashlib
import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from harness.archiving import DUE_MS, archive_here, data_files, put_removed, rows_of, sidelined_at
from harness.faults import FaultyFiles
from harness.folders import make_root
from harness.messages import make_headers, new_id, number_in, put_file
from harness.packs import body_of, new_pack, put_pack

from mq.model.headers import print_block
from mq.model.message import Reason
from mq.model.names import Key, MessageId
from mq.spark.jobs.archive_task import Wanted
from mq.spark.rows import DEFAULT_HEADERS, as_map
from mq.store.format.layout import Layout


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_root(tmp_path / "root")


def archived_rows(root: Path, wanted: Wanted | None = None) -> dict[str, dict[str, Any]]:
    """By the message's id; each once."""
    to = root.parent / "archive"
    archive_here(root, to, wanted)
    rows = rows_of(to)
    found = {row["id"]: row for row in rows}
    assert len(found) == len(rows)
    return found


def at(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def changed(path: Path) -> datetime:
    return at(path.stat().st_ctime_ns // 1_000_000)


def test_a_message_with_all_that_it_may_have(root: Path) -> None:
    block = print_block(make_headers(7))
    uuid = new_id().uuid
    message_id = MessageId(uuid, 9, Key.parse("a/ü"), 60, len(block), "json")
    body = b"{}\0\xff"
    path = put_file(root / "remove" / f"o.1_x:{message_id.text}", block + body, DUE_MS, receives=3)
    row = archived_rows(root)[message_id.text]
    headers = as_map((("content-type", "application/json"), *make_headers(7)))
    assert row == {
        "id": message_id.text,
        "key": "a/ü",
        "value": body,
        "headers": list(headers),
        "priority": 9,
        "published": at(message_id.published_ms),
        "removed": changed(path),
        "removal": "message",
        "receives": 3,
        "reason": None,
        "size": 4,
        "sha256": hashlib.sha256(body).hexdigest(),
        "body": None,
        "damaged": False,
        "events": None,
        "failures": None,
        "batch": 1,
        "queue": "o.1_x",
        "day": f"{changed(path):%Y-%m-%d}",
    }


def test_the_ways_to_be_removed(root: Path) -> None:
    """Alone, in a bucket, below one; with its queue, there in a bucket too; and with its lease."""
    remove = root / "remove"
    folders = [new_id(), new_id()]
    deleted = remove / f"orders:{folders[0].text}.d"
    lease = remove / f"etl.3:{folders[1].text}.l"
    ids = [new_id() for _ in range(6)]
    bucket = ids[1].uuid[:8]
    places = (
        remove / f"orders:{ids[0].text}",
        remove / bucket / f"orders:{ids[1].text}",
        remove / bucket / "0f" / f"orders:{ids[2].text}",
        deleted / ids[3].text,
        deleted / f"p1-{bucket}-2" / "0f" / ids[4].text,
        lease / f"orders:{ids[5].text}",
    )
    for place in places:
        place.parent.mkdir(parents=True, exist_ok=True)
        put_file(place, place.name.encode(), DUE_MS, receives=2)
    rows = archived_rows(root)
    assert {row["queue"] for row in rows.values()} == {"orders"}
    found = [rows[message_id.text] for message_id in ids]
    assert [row["value"] for row in found] == [place.name.encode() for place in places]
    assert [row["removal"] for row in found] == [*["message"] * 3, "queue", "queue", "lease"]
    assert [row["receives"] for row in found] == [2, 2, 2, 2, 2, 3]
    # Its file has the time of its claim, and its folder's name that of the end.
    assert found[5]["removed"] == at(folders[1].published_ms)
    assert all(
        row["removed"] == changed(place) for row, place in zip(found[:5], places[:5], strict=True)
    )


def test_why_it_was_sidelined(root: Path) -> None:
    known = put_removed(root, 3, "orders_SIDELINE")
    for path, reason in zip(known, (Reason.REJECTED, Reason.EXPIRED, Reason.UNKNOWN), strict=True):
        sidelined_at(path, 4, reason)
    (other,) = put_removed(root, 1, "orders")
    sidelined_at(other, 4, Reason.SWEPT)
    rows = archived_rows(root)
    reasons = [rows[path.name.partition(":")[2]]["reason"] for path in (*known, other)]
    assert reasons == ["rejected", "expired", None, None]
    assert {row["receives"] for row in rows.values()} == {4}


def failed(root: Path, message_id: MessageId, content: str) -> None:
    """What a release with a reason leaves."""
    path = Path(Layout.of(root).failure(message_id)[1])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)


def test_why_it_failed(root: Path) -> None:
    said = {
        "time": "2026-01-31T12:00:00.250Z",
        "event": "released",
        "queue": "orders",
        "id": "0192f3a2-7c4e-7d2a-9b1e-0123456789ab",
        "receives": 2,
        "type": "ValueError",
        "text": "no such customer: Jörg",
    }
    paths = [*put_removed(root, 3), *put_removed(root, 1, "orders_SIDELINE")]
    ids = [MessageId.parse(path.name.partition(":")[2]) for path in paths]
    strange = {"time": 5, "event": None, "text": "\ud800", "receives": True, "trace": ["x"]}
    failed(root, ids[0], f"{json.dumps(said)}\n{json.dumps(said | {'receives': 3})}\n")
    failed(root, ids[1], "torn {")
    failed(root, ids[3], json.dumps(strange) + "\n")
    rows = archived_rows(root)
    found = [rows[each.text]["failures"] for each in ids]
    first = {
        "time": datetime(2026, 1, 31, 12, 0, 0, 250_000, UTC),
        "event": "released",
        "queue": "orders",
        "receives": 2,
        "type": "ValueError",
        "text": "no such customer: Jörg",
        "trace": None,
        "handler": None,
    }
    assert found[0] == [first, first | {"receives": 3}]
    assert found[1:3] == [None, None]
    assert found[3] == [dict.fromkeys(first) | {"text": "?"}]


def test_files_of_an_older_mq_are_compacted_with_new_ones(root: Path) -> None:
    to = root.parent / "archive"
    (path,) = put_removed(root, 1)
    archive_here(root, to, Wanted(compact=False))
    (old,) = data_files(to)
    with pa.OSFile(str(old), "rb") as file:
        table = pq.read_table(file).drop_columns(["failures"])
    pq.write_table(table, old)
    (path,) = put_removed(root, 1, first=1)
    failed(root, MessageId.parse(path.name.partition(":")[2]), '{"text": "x"}\n')
    assert archive_here(root, to, Wanted(small_files_max=1)).compacted == 2
    assert len(data_files(to)) == 1
    by_number = {number_in(row["value"]): row["failures"] for row in rows_of(to)}
    assert by_number[0] is None
    assert [each["text"] for each in by_number[1]] == ["x"]


def test_a_damaged_file_is_kept_as_it_is(root: Path) -> None:
    short = MessageId(new_id().uuid, header_bytes=40)
    torn = MessageId(new_id().uuid, header_bytes=4)
    put_file(root / "remove" / f"orders:{short.text}", b"torn")
    put_file(root / "remove" / f"orders:{torn.text}", b"\0\0\0\xff body")
    rows = archived_rows(root)
    for message_id, content in ((short, b"torn"), (torn, b"\0\0\0\xff body")):
        row = rows[message_id.text]
        kept = (row["value"], row["damaged"], row["size"], row["sha256"], row["headers"])
        assert kept == (content, True, None, None, [])


@pytest.mark.parametrize("threads", [1, 4])
def test_a_pack_is_archived_as_its_messages(root: Path, threads: int) -> None:
    block = print_block((("ce-id", "7"),))
    packs = [
        new_pack(100, MessageId(new_id().uuid, 3, header_bytes=len(block), extension="json")),
        new_pack(2),
    ]
    paths = [
        put_pack(root / "remove" / f"orders:{pack.text}", pack, head, DUE_MS, 2)
        for pack, head in zip(packs, (block, b""), strict=True)
    ]
    (single,) = put_removed(root, 1)
    torn = new_pack(3)
    content = b'{"sizes": [1, 2]}\n'
    put_file(root / "remove" / f"orders:{torn.text}", content)
    failed(root, packs[1], '{"time": "2026-01-31T12:00:00.000Z", "text": "broken"}\n')
    rows = archived_rows(root, Wanted(threads=threads, batch_messages=3))
    assert rows.pop(single.name.partition(":")[2])["damaged"] is False
    damaged = rows.pop(torn.text)
    assert (damaged["value"], damaged["damaged"], damaged["size"]) == (content, True, None)
    assert sorted(rows) == sorted(each.text for pack in packs for each in pack.all_items())
    for pack, path in zip(packs, paths, strict=True):
        for item in pack.all_items():
            row, body = rows[item.text], body_of(item)
            assert (row["value"], row["size"]) == (body, len(body))
            assert row["sha256"] == hashlib.sha256(body).hexdigest()
            assert (row["priority"], row["receives"]) == (item.priority, 2)
            assert (row["removed"], row["removal"]) == (changed(path), "message")
            extra = [("ce-id", "7")] if item.header_bytes else []
            assert len(row["headers"]) == 1 + len(extra)
            assert row["headers"][1:] == extra
            failures = [each["text"] for each in row["failures"] or ()]
            assert failures == (["broken"] if pack is packs[1] else [])


def test_a_pack_that_is_gone_was_all_its_messages(root: Path) -> None:
    packs, to, files = [new_pack(5), new_pack(7)], root.parent / "archive", FaultyFiles()
    paths = [put_pack(root / "remove" / f"orders:{pack.text}", pack, b"", DUE_MS) for pack in packs]
    files.fail("read_opened", errno.EIO, paths[0].name, times=1)
    with pytest.raises(OSError, match="Input/output error"):
        archive_here(root, to, folder_files=files)
    paths[1].unlink()
    done = archive_here(root, to, folder_files=files)
    assert (done.messages, done.gone) == (5, 7)


@pytest.mark.parametrize("size", [99, 100, 101, 3 << 20])
def test_a_body_that_no_row_is_to_have_is_a_file(root: Path, size: int) -> None:
    block = print_block((("ce-id", "7"),))
    message_id = MessageId(new_id().uuid, header_bytes=len(block))
    body = os.urandom(size)
    put_file(root / "remove" / f"orders:{message_id.text}", block + body, DUE_MS)
    row = archived_rows(root, Wanted(value_bytes_max=len(block) + 100))[message_id.text]
    assert (row["size"], row["sha256"]) == (size, hashlib.sha256(body).hexdigest())
    assert row["headers"] == [*DEFAULT_HEADERS, ("ce-id", "7")]
    assert (row["value"] is None, row["body"] is not None) == (size > 100, size > 100)
    kept = row["value"] if row["body"] is None else (root.parent / "archive" / row["body"])
    assert (kept if isinstance(kept, bytes) else kept.read_bytes()) == body


def test_a_large_damaged_file_is_a_file_too(root: Path) -> None:
    message_id = MessageId(new_id().uuid, header_bytes=4)
    content = b"\0\0\0\xff" + os.urandom(200)
    put_file(root / "remove" / f"orders:{message_id.text}", content)
    row = archived_rows(root, Wanted(value_bytes_max=100))[message_id.text]
    assert (row["value"], row["damaged"], row["size"]) == (None, True, None)
    assert (root.parent / "archive" / row["body"]).read_bytes() == content


def test_threads_read_the_same_in_the_same_order(root: Path) -> None:
    paths = put_removed(root, 300)
    rows = archived_rows(root, Wanted(threads=4, batch_messages=170))
    assert sorted(rows) == sorted(path.name.partition(":")[2] for path in paths)
    assert {row["batch"] for row in rows.values()} == {1, 2}


def test_what_is_gone_is_told_and_what_cannot_be_read_ends_the_batch(root: Path) -> None:
    paths = put_removed(root, 20)
    to, files = root.parent / "archive", FaultyFiles()
    files.fail("read_opened", errno.EIO, paths[3].name, times=1)
    with pytest.raises(OSError, match="Input/output error"):
        archive_here(root, to, folder_files=files)
    assert rows_of(to) == []
    # The batch has its names from before.
    paths[5].unlink()
    paths[7].unlink()
    paths[7].symlink_to(paths[8])
    done = archive_here(root, to, folder_files=files)
    assert (done.messages, done.gone) == (18, 2)
    found = {row["id"] for row in rows_of(to)}
    gone = {paths[5].name, paths[7].name}
    assert found == {path.name.partition(":")[2] for path in paths if path.name not in gone}


def test_names_that_are_no_messages_are_left_alone(root: Path) -> None:
    (root / "remove" / "notes.txt").write_text("mine")
    (root / "remove" / f"orders:{new_id().text}").mkdir()
    (path,) = put_removed(root, 1)
    assert list(archived_rows(root)) == [path.name.partition(":")[2]]
