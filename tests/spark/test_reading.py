"""What a batch read shows of a root, without Spark: which messages, and what of each."""

import contextlib
import errno
import os
import re
import stat
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from harness.browsing import (
    BEGIN_MS,
    ORDERS,
    CountingFiles,
    an_id,
    browse,
    ids,
    put,
    queues,
    with_headers,
)
from harness.clock import FakeClock
from harness.faults import FaultyFiles
from harness.messages import set_due

from mq.model.errors import LeaseLost, QueueNotFound
from mq.model.lifecycle import State
from mq.model.limits import MIB, RECEIVES_MAX
from mq.model.names import ConsumerName, MessageId, QueueName
from mq.spark.listing import blocks_of, lease_blocks
from mq.spark.options import Subscription
from mq.spark.partitions import Cut, partitions
from mq.spark.reading import READ_BATCH_BYTES, Manner, batches, leased_batches
from mq.spark.rows import DEFAULT_HEADERS, READ_BATCH_ROWS
from mq.store.core.root import Root
from mq.store.core.unserved import mark_of
from mq.store.disk.files import Files
from mq.store.format.bucket_names import Shape
from mq.store.format.pipeline import LeaseFile, LeaseName, acknowledged_folder, lease_path
from mq.store.opening import open_root

LIVES = (State.READY, State.DELAYED, State.LEASED, State.REMOVED)
LEASE = LeaseName(ConsumerName.parse("nightly"), 7)
UUID = an_id(1).uuid


@pytest.fixture
def root(tmp_path: Path) -> Root:
    made = open_root(str(tmp_path / "root"), Files(), FakeClock())
    os.mkdir(made.layout.queue(ORDERS))
    return made


def at(ms: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)


def purge_up_to(root: Root, number: int) -> None:
    path = Path(root.layout.purge_mark(ORDERS))
    path.touch()
    set_due(path, BEGIN_MS + number)
    assert mark_of(root, ORDERS) is not None


@pytest.mark.parametrize("state", [State.READY, State.DELAYED, State.REMOVED])
@pytest.mark.parametrize(
    "shape", [Shape(), Shape(digits=7), Shape(digits=9, shards=16), Shape(by_priority=False)]
)
def test_messages_are_found_in_buckets_of_every_shape(
    root: Root, state: State, shape: Shape
) -> None:
    wanted = [an_id(70_000 * number, priority=number % 4) for number in range(9)]
    for number, message_id in enumerate(wanted):
        put(root.layout.root, message_id, state=state, depth=number % 3, shape=shape)
    rows = browse(root, state=state)
    assert ids(rows) == sorted(each.text for each in wanted)
    assert {row["state"] for row in rows} == {state.value}
    for other in set(LIVES) - {state}:
        assert browse(root, state=other) == []


def test_removed_messages_are_found_in_the_folders_of_what_was_removed_as_a_whole(
    root: Root,
) -> None:
    layout = root.layout
    deleted = Path(layout.deleted_folder(ORDERS, UUID))
    acknowledged = Path(acknowledged_folder(layout, LEASE, UUID))
    # Also where their names are as short as bucket names are long.
    short = QueueName.parse("a")
    for folder in (
        deleted / Shape().deep(an_id(1)),
        acknowledged,
        Path(layout.deleted_folder(short, UUID)),
    ):
        folder.mkdir(parents=True)
    (deleted / an_id(1).text).touch()
    (deleted / Shape().bucket(an_id(2)) / an_id(2).text).touch()
    (deleted / Shape().deep(an_id(3)) / an_id(3).text).touch()
    (acknowledged / f"orders:{an_id(4).text}").touch()
    (acknowledged / f"others:{an_id(5).text}").touch()
    (Path(layout.deleted_folder(short, UUID)) / an_id(6).text).touch()
    put(layout.root, an_id(7), state=State.REMOVED)
    os.rmdir(layout.queue(ORDERS))
    assert ids(browse(root, state=State.REMOVED)) == [an_id(n).text for n in (1, 2, 3, 4, 7)]
    every = browse(root, Subscription(pattern=re.compile("a|o.*")), State.REMOVED)
    assert [row["queue"] for row in sorted(every, key=lambda row: str(row["id"]))] == [
        *("orders",) * 4, "others", "a", "orders",
    ]  # fmt: skip


def test_leased_messages_are_found_while_they_are_leased_and_given_back(root: Root) -> None:
    put(root.layout.root, an_id(1), state=State.LEASED, bucket=LEASE.spot, receives=2)
    put(root.layout.root, an_id(2), state=State.LEASED, bucket=LEASE.released_spot)
    put(root.layout.root, an_id(3), state=State.LEASED, bucket="no lease/")
    Path(lease_path(root.layout, LEASE, LeaseFile.MANIFEST)).touch()
    rows = browse(root, state=State.LEASED)
    assert ids(rows) == [an_id(1).text, an_id(2).text]
    assert sorted(row["receives"] for row in rows) == [0, 2]


def test_a_row_says_what_name_mtime_and_header_block_say(root: Root) -> None:
    headers = (
        ("Content-Type", "text/plain; charset=utf-8"),
        ("ce-id", "ü, ∆"),
        ("X-Attribute-Who", "one"),
        ("x-attribute-who", "two"),
    )
    all_bytes = bytes(range(256))
    plain = an_id(1)
    full = MessageId(
        an_id(2).uuid, 9, with_key("Zürich/1").key, 30, with_headers(2, headers).header_bytes
    )
    put(root.layout.root, plain, all_bytes)
    put(root.layout.root, full, all_bytes, headers=headers, due_ms=BEGIN_MS + 5, receives=3)
    put(root.layout.root, an_id(3, extension="json"), b"{}")
    put(root.layout.root, an_id(4))
    rows = {row["id"]: row for row in browse(root)}
    assert rows[plain.text] == {
        "queue": "orders",
        "id": plain.text,
        "key": None,
        "value": all_bytes,
        "headers": list(DEFAULT_HEADERS),
        "priority": 0,
        "published": at(BEGIN_MS + 1),
        "due": at(BEGIN_MS),
        "receives": 0,
        "size": 256,
        "state": "ready",
    }
    assert rows[full.text] | {"headers": dict(rows[full.text]["headers"])} == {
        "queue": "orders",
        "id": full.text,
        "key": "Zürich/1",
        "value": all_bytes,
        "headers": {
            "content-type": "text/plain; charset=utf-8",
            "ce-id": "ü, ∆",
            "x-attribute-who": "one, two",
        },
        "priority": 9,
        "published": at(BEGIN_MS + 2),
        "due": at(BEGIN_MS + 5),
        "receives": 3,
        "size": 256,
        "state": "ready",
    }
    typed = rows[an_id(3, extension="json").text]
    assert typed["headers"] == [("content-type", "application/json")]
    assert (rows[an_id(4).text]["value"], rows[an_id(4).text]["size"]) == (b"", 0)


def with_key(key: str) -> MessageId:
    return an_id(2, key=key)


@pytest.mark.parametrize("seconds", [-62_135_596_900, -1, 0, 16_725_225_600, 1 << 40])
def test_a_due_time_that_somebody_set_is_told_as_far_as_years_go(seconds: int) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as top:  # tmpfs keeps every mtime.
        root = open_root(f"{top}/root", Files(), FakeClock())
        os.mkdir(root.layout.queue(ORDERS))
        path = put(root.layout.root, an_id(1))
        os.utime(path, (seconds, seconds))
        assert path.stat().st_mtime == seconds
        (row,) = browse(root)
    due_s = min(max(seconds, -62_135_596_800), 253_402_300_799)
    assert abs((row["due"] - at(0)).total_seconds() - due_s) < 1


def test_an_mtime_that_mq_did_not_set_counts_no_deliveries(root: Root) -> None:
    path = put(root.layout.root, an_id(1))
    os.utime(path, ns=(0, BEGIN_MS * 1_000_000 + 123_456))
    (row,) = browse(root)
    assert (row["due"], row["receives"]) == (at(BEGIN_MS), 0)


def test_without_values_a_file_is_opened_for_its_headers_alone(tmp_path: Path) -> None:
    files = CountingFiles()
    root = open_root(str(tmp_path / "root"), files, FakeClock())
    os.mkdir(root.layout.queue(ORDERS))
    headers = (("ce-id", "1"),)
    for number in range(5):
        put(root.layout.root, an_id(number), b"body")
    put(root.layout.root, with_headers(9, headers), b"body", headers=headers)
    rows = browse(root, include_value=False)
    assert files.read_files == 1
    assert [(row["value"], row["size"]) for row in rows] == [(None, 4)] * 6
    assert [row["headers"] for row in rows if len(row["headers"]) > 1] == [
        [*DEFAULT_HEADERS, ("ce-id", "1")]
    ]


@pytest.mark.parametrize("with_value", [True, False])
@pytest.mark.parametrize("threads", [1, 3])
def test_a_damaged_file_hides_no_other(
    root: Root, with_value: bool, threads: int, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(3):
        put(root.layout.root, an_id(number), b"body")
    torn = put(root.layout.root, with_headers(7, (("ce-id", "7"),)), b"")
    torn.write_bytes(b"ce-")
    rows = {row["id"]: row for row in browse(root, include_value=with_value, threads=threads)}
    assert len(rows) == 4
    damaged = rows.pop(torn.name)
    assert (damaged["value"], damaged["size"], damaged["headers"]) == (None, None, [])
    assert damaged["published"] == at(BEGIN_MS + 7)
    assert {row["size"] for row in rows.values()} == {4}
    assert torn.name in caplog.text


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("calls", [("read_opened", "read_file"), ("status",), ("entries",)])
def test_an_error_of_the_disk_is_not_passed_over(
    tmp_path: Path, calls: tuple[str, ...], threads: int
) -> None:
    files = FaultyFiles()
    root = open_root(str(tmp_path / "root"), files, FakeClock())
    os.mkdir(root.layout.queue(ORDERS))
    for number in range(200):
        put(root.layout.root, an_id(number), b"body")
    assert len(browse(root, threads=threads)) == 200
    for call in calls:
        files.fail(call, errno.EIO, root.layout.queue(ORDERS))
    with pytest.raises(OSError, match="Input/output error"):
        browse(root, threads=threads)


def test_what_is_no_message_is_passed_over(root: Root) -> None:
    put(root.layout.root, an_id(1))
    put(root.layout.root, an_id(1), state=State.DELAYED)
    late = "fffffffff-ffff"
    for state in (State.READY, State.DELAYED):
        folder, begin = root.layout.base(state, ORDERS), "" if state is State.READY else "orders:"
        foreign = [
            ".hidden-and-as-long-as-an-id-is-0123456789",
            f"{begin}{UUID}.exe",
            f"{begin}{UUID},p=0",
            f"{begin}{UUID.upper()}",
            f"{begin}{late[:8]}-ffff-7000-8000-000000000000",
            f"{begin}{UUID}\n{UUID}",
            f"{begin}{UUID}ü",
            f"/{begin}".strip("/") + "no id but as long as one would be, with blanks",
        ]
        for name in foreign:
            Path(folder, name).touch()
        with open(os.fsencode(f"{folder}/{begin}{UUID}") + b"\xff", "wb"):
            pass
        other = an_id(5).text
        Path(folder, begin + other).symlink_to(f"{folder}/{begin}{an_id(1).text}")
        Path(folder, begin + an_id(6).text).mkdir()
        os.mkfifo(f"{folder}/{begin}{an_id(7).text}")
        Path(folder, "0" * 8).symlink_to(folder)
        assert ids(browse(root, state=state)) == [an_id(1).text]
    Path(root.layout.delay, f"no queue:{UUID}").touch()
    Path(root.layout.delay, f"gone:{UUID}").touch()
    assert ids(browse(root, Subscription(pattern=re.compile(".*")), State.DELAYED)) == [
        an_id(1).text
    ]


def test_what_is_purged_is_neither_ready_nor_delayed(root: Root) -> None:
    for state in LIVES:
        bucket = LEASE.spot if state is State.LEASED else ""
        for number in range(4):
            put(root.layout.root, an_id(10 * number), state=state, bucket=bucket)
    purge_up_to(root, 10)
    left = [an_id(20).text, an_id(30).text]
    assert ids(browse(root)) == left
    assert ids(browse(root, state=State.DELAYED)) == left
    assert ids(browse(root, state=State.LEASED)) == left
    assert len(browse(root, state=State.REMOVED)) == 4


def test_what_is_purged_after_the_listing_is_not_read(root: Root) -> None:
    for number in range(4):
        put(root.layout.root, an_id(number))
    (names,) = partitions(root, blocks_of(root, queues("orders"), State.READY), Cut())
    purge_up_to(root, 1)
    (batch,) = batches(root, names, Manner(State.READY))
    assert sorted(batch.column("id").to_pylist()) == [an_id(2).text, an_id(3).text]


@pytest.mark.parametrize("threads", [1, 4])
def test_what_moves_or_goes_after_the_listing_is_passed_over(root: Root, threads: int) -> None:
    paths = [
        put(root.layout.root, an_id(number), b"body", depth=number % 3) for number in range(300)
    ]
    (names,) = partitions(root, blocks_of(root, queues("orders"), State.READY), Cut())
    for number, path in enumerate(paths):
        if number % 3 == 0:
            path.unlink()
        elif number % 3 == 1:
            path.rename(root.layout.path(State.DELAYED, ORDERS, an_id(number)))
            with contextlib.suppress(OSError):
                path.parent.rmdir()
    found = batches(root, names, Manner(State.READY, threads=threads))
    rows = [row for batch in found for row in batch.to_pylist()]
    assert ids(rows) == [an_id(number).text for number in range(2, 300, 3)]


def test_queues_are_those_that_are_there(root: Root) -> None:
    for name in ("orders.eu", "orders_SIDELINE", "others"):
        queue = QueueName.parse(name)
        os.mkdir(root.layout.queue(queue))
        put(root.layout.root, an_id(1), queue=queue)
    put(root.layout.root, an_id(1))
    Path(root.layout.queues, "not a queue").mkdir()
    Path(root.layout.queues, "file").touch()
    both = browse(root, queues("orders", "others"))
    assert sorted(row["queue"] for row in both) == ["orders", "others"]
    pattern = Subscription(pattern=re.compile(r"orders(\.eu)?"))
    assert [row["queue"] for row in browse(root, pattern)] == ["orders", "orders.eu"]
    assert browse(root, Subscription(pattern=re.compile("order"))) == []
    with pytest.raises(QueueNotFound, match="there is no queue odrers") as missing:
        blocks_of(root, queues("orders", "odrers"), State.READY)
    assert missing.value.queue == "odrers"
    assert browse(root, queues("gone"), State.REMOVED) == []


def test_a_batch_is_bounded_in_rows_and_in_bytes(root: Root) -> None:
    for number in range(40):
        put(root.layout.root, an_id(number), bytes(MIB))
    os.mkdir(root.layout.queue(QueueName.parse("many")))
    for number in range(READ_BATCH_ROWS + 10):
        put(root.layout.root, an_id(number), queue=QueueName.parse("many"))
    for threads in (1, 2, 7):
        for queue, rows in (("orders", 40), ("many", READ_BATCH_ROWS + 10)):
            blocks = blocks_of(root, queues(queue), State.READY)
            (names,) = partitions(root, blocks, Cut())
            found = list(batches(root, names, Manner(State.READY, threads=threads)))
            assert sum(batch.num_rows for batch in found) == rows
            assert len(found) > 1
            for batch in found:
                # What threads bring is put together in slabs of up to 64.
                assert batch.num_rows <= READ_BATCH_ROWS + 64
                assert batch.nbytes < READ_BATCH_BYTES + 2 * MIB


@pytest.mark.parametrize("threads", [1, 5])
def test_a_lease_is_read_in_the_order_of_its_names_and_counts_as_a_delivery(
    root: Root, threads: int
) -> None:
    last = 150
    for number in reversed(range(last)):
        receives = RECEIVES_MAX if number == 0 else 2
        put(root.layout.root, an_id(number), b"x", state=State.LEASED, bucket=LEASE.spot,
            receives=receives)  # fmt: skip
    found = partitions(root, lease_blocks(root, LEASE), Cut(names_max=100))
    manner = Manner(State.LEASED, threads=threads, receives=1)
    rows = [
        row
        for names in found
        for batch in leased_batches(root, LEASE, names, manner)
        for row in batch.to_pylist()
    ]
    assert [row["id"] for row in rows] == [an_id(number).text for number in range(last)]
    assert [row["receives"] for row in rows] == [RECEIVES_MAX, *[3] * (last - 1)]


def test_a_lease_that_ends_while_it_is_read_is_lost_but_not_by_a_delete(root: Root) -> None:
    paths = [
        put(root.layout.root, an_id(number), state=State.LEASED, bucket=LEASE.spot)
        for number in range(3)
    ]
    (names,) = partitions(root, lease_blocks(root, LEASE), Cut())
    paths[1].unlink()
    (batch,) = leased_batches(root, LEASE, names, Manner(State.LEASED))
    assert batch.num_rows == 2
    folder = lease_path(root.layout, LEASE, LeaseFile.FOLDER)
    os.rename(folder, lease_path(root.layout, LEASE, LeaseFile.RELEASED))
    with pytest.raises(LeaseLost):
        list(leased_batches(root, LEASE, names, Manner(State.LEASED)))


def everything(top: Path) -> dict[str, tuple[int, ...]]:
    """All that is below, with each one's times, as a read may not change them."""
    found = {}
    for path in [top, *sorted(top.rglob("*"))]:
        status = path.lstat()
        found[str(path)] = (
            status.st_ino, status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns,
            status.st_nlink,
        )  # fmt: skip
    return found


@pytest.mark.parametrize("state", LIVES)
@pytest.mark.parametrize("threads", [1, 4])
def test_a_read_changes_nothing(root: Root, state: State, threads: int) -> None:
    for each in LIVES:
        for number in range(20):
            bucket = LEASE.spot if each is State.LEASED else ""
            put(root.layout.root, an_id(number), b"body", state=each, depth=number % 3,
                bucket=bucket)  # fmt: skip
    top = Path(root.layout.root)
    before = everything(top)
    assert len(browse(root, state=state, threads=threads)) == 20
    assert everything(top) == before
    assert stat.S_ISDIR(top.stat().st_mode)
