"""A drain that dies, fails, or meets another one; without Spark: its tasks run in this process."""

import contextlib
import errno
import json
import threading
from collections import Counter
from pathlib import Path

import pytest
from harness.drains import OTHER, Place, Unflushed
from harness.faults import Died, FaultyFiles
from harness.folders import leased_files
from harness.leases import QUEUE
from harness.packs import body_of, new_pack, put_pack

from mq.model.errors import DeliveriesPaused, Unavailable
from mq.model.settings import QueueSettings
from mq.spark.jobs.drained_folder import About, DrainedFolder, FolderRefused
from mq.spark.jobs.row_reading import Reading, ids_in, read_rows
from mq.store.disk.files import Files
from mq.store.settings.configure import change_settings


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_all_that_is_ready_is_drained_and_removed(place: Place) -> None:
    done = place.drain()
    assert (done.messages, done.batches, done.files) == (9, 2, 5)
    place.assert_all_are_drained_once()
    assert place.drain().messages == 0
    more = place.publish(2)
    assert place.drain().messages == 2
    place.ids += [each.text for each in more]
    place.assert_all_are_drained_once()
    rows = [json.loads(line) for path in sorted(place.to.glob("0*"))
            for line in path.read_text().splitlines()]  # fmt: skip
    assert {row["receives"] for row in rows} == {1}
    # By batches as fetches are, urgent ones first; then by queue and age.
    first = [(row["queue"], row["priority"]) for row in rows[:5]]
    assert first.count(("q", 3)) == 3
    assert [row["id"] for row in rows[-2:]] == sorted(each.text for each in more)


@pytest.mark.parametrize("lapses", [False, True])
def test_killed_at_any_change_nothing_is_lost_and_nothing_is_twice(
    tmp_path: Path, lapses: bool
) -> None:
    changes = Unflushed()
    Place(tmp_path / "whole").drain(changes)
    assert changes.changes > 40
    for left in range(0, changes.changes, 3 if lapses else 1):
        place = Place(tmp_path / str(left))
        with pytest.raises(Died):
            place.drain(Unflushed(left))
        there = Counter(place.in_root()) + place.drained()
        assert set(there) == set(place.ids), left
        assert set(place.drained().values()) <= {1}, left
        if lapses:
            place.lapse()
        again = place.drain(Unflushed())
        assert place.drained() == Counter(place.ids), left
        assert place.in_root() == [], left
        if not lapses:
            assert again.twice == 0
            place.assert_all_are_drained_once()


def test_killed_twice_it_still_goes_on(tmp_path: Path) -> None:
    for first, second in ((25, 8), (40, 3), (33, 30), (60, 20)):
        place = Place(tmp_path / f"{first}-{second}")
        for left in (first, second):
            with contextlib.suppress(Died):
                place.drain(Unflushed(left))
        place.drain()
        place.assert_all_are_drained_once()


def test_what_lapsed_after_its_commit_is_not_written_twice(place: Place) -> None:
    files = FaultyFiles()
    files.fail("rename", errno.EIO, where=".l", times=1)
    with pytest.raises(Unavailable):
        place.drain(files)
    assert len(place.drained()) == 5
    place.lapse()
    assert len(place.in_root()) == 9
    done = place.drain()
    assert (done.twice, done.resumed) == (5, 5)
    assert place.drained() == Counter(place.ids)
    assert place.in_root() == []


@pytest.mark.parametrize(
    ("call", "where"),
    [
        ("write", "writing/"), ("sync", "writing/"), ("sync_folder", "writing"), ("create", "_mq"),
        ("create", "batches/"), ("sync", "batches/"), ("write", "batches/"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_what_cannot_be_stored_stays_in_its_queue(
    place: Place, call: str, where: str, code: int
) -> None:
    files = FaultyFiles()
    fault = files.fail(call, code, where, times=1, after=1 if where == "_mq" else 0)
    with pytest.raises((OSError, Unavailable)):
        place.drain(files)
    assert fault.hits == 1
    assert place.drained() == Counter()
    assert place.in_root() == place.ids
    assert leased_files(place.top) == []
    assert files.retried == []
    place.drain()
    assert place.drained() == Counter(place.ids)


def test_a_commit_whose_flush_failed_is_written_anew(place: Place) -> None:
    files = FaultyFiles()
    files.fail("sync_folder", errno.EIO, "batches", times=1)
    with pytest.raises((OSError, Unavailable)):
        place.drain(files)
    # Nobody knows whether it is durable: neither acknowledged nor given back.
    assert len(leased_files(place.top)) == 5
    seen = FaultyFiles()
    assert place.drain(seen).resumed == 5
    assert seen.calls.index(("create", next(
        path for call, path in seen.calls if call == "create" and "batches/000001" in path
    ))) < seen.calls.index(next(each for each in seen.calls if each[1].endswith(".l")
                                or (each[0] == "rename" and "leases" in each[1])))  # fmt: skip
    place.assert_all_are_drained_once()


def test_each_step_is_durable_before_the_next(place: Place) -> None:
    files = FaultyFiles()
    place.drain(files, batch=1000)
    told = [(call, path) for call, path in files.calls if call in ("sync", "sync_folder", "rename")]
    steps = [
        ("sync", "/_mq/writing/"), ("sync_folder", "/_mq/writing"), ("sync", "/_mq/batches/"),
        ("rename", "/_mq/batches/"), ("sync_folder", "/_mq/batches"), ("rename", "/_mq/writing/"),
        ("sync_folder", "out"), ("rename", "leases/"),
    ]  # fmt: skip
    at = next(i for i, each in enumerate(told) if each[0] == "sync" and "/_mq/writing/" in each[1])
    for call, where in steps:
        at = next(
            (i for i in range(at, len(told)) if told[i][0] == call and where in told[i][1]), -1
        )
        assert at >= 0, (call, where, told)


def test_a_file_that_is_gone_before_its_lease_is_acknowledged_is_an_error(place: Place) -> None:
    files = FaultyFiles()
    files.fail("rename", errno.EIO, where=".l", times=1)
    with pytest.raises(Unavailable):
        place.drain(files)
    gone = min(place.to.glob("000001*"))
    content = gone.read_bytes()
    gone.unlink()
    with pytest.raises(FolderRefused, match="has not the file"):
        place.drain()
    assert len(leased_files(place.top)) == 5
    gone.write_bytes(content)
    place.drain()
    place.assert_all_are_drained_once()


def test_one_drain_a_folder_and_disjoint_parts_for_two_folders(place: Place) -> None:
    with (
        contextlib.closing(DrainedFolder(place.to, Files())) as folder,
        folder.locked(),
        pytest.raises(FolderRefused, match="another process"),
    ):
        place.drain()
    assert place.in_root() == place.ids
    files = FaultyFiles()
    gate = files.hold("create", "batches/000001")
    first = threading.Thread(target=place.drain, args=(files,))
    first.start()
    assert gate.reached.wait(30)
    other = place.to.with_name("elsewhere")
    (other / "_mq").mkdir(parents=True)
    about = About("f" * 32, str(place.top), "json", "none")
    (other / "_mq" / "drain.json").write_bytes(about.written())
    try:
        assert place.drain(to=other).messages == 4
    finally:
        gate.open()
        first.join(30)
    ids = [each for path in other.glob("0*") for each in ids_in(path)]
    assert place.drained() + Counter(ids) == Counter(place.ids)


def test_a_limit_is_of_all_batches_and_the_rest_stays(place: Place) -> None:
    assert place.drain(limit=7, batch=3).messages == 7
    assert len(place.in_root()) == 2


def test_a_long_listing_goes_with_its_batch(place: Place) -> None:
    files = FaultyFiles()
    assert place.drain(files, held=2).messages == 9
    assert files.count("create", ".listings/") == 2
    assert list(Path(place.root.layout.new, ".spark", ".listings").iterdir()) == []
    place.assert_all_are_drained_once()


def test_a_copy_takes_nothing_and_is_made_once(place: Place) -> None:
    assert place.drain(state="ready").messages == 9
    assert place.in_root() == place.ids
    assert place.drained() == Counter(place.ids)
    with pytest.raises(FolderRefused, match="has a copy already"):
        place.drain(state="ready")
    with pytest.raises(FolderRefused, match="of state ready, not drained"):
        place.drain()


def test_a_queue_whose_deliveries_are_paused_is_not_drained(place: Place) -> None:
    place.run(change_settings(place.root, OTHER, {"paused": "deliveries"}, QueueSettings(), None))
    with pytest.raises(DeliveriesPaused):
        place.drain()
    settings = {"paused": "none", "active_consumer": "single"}
    place.run(change_settings(place.root, OTHER, settings, QueueSettings(), None))
    with pytest.raises(DeliveriesPaused, match="active_consumer"):
        place.drain()
    settings = {"active_consumer": "any"}
    place.run(change_settings(place.root, OTHER, settings, QueueSettings(), None))
    place.drain()
    place.assert_all_are_drained_once()


def test_folders_that_are_no_drains_are_refused(place: Place) -> None:
    place.to.mkdir()
    (place.to / "report.txt").touch()
    with pytest.raises(FolderRefused, match="is not empty"):
        place.drain()
    (place.to / "report.txt").unlink()
    place.drain()
    about = place.to / "_mq" / "drain.json"
    about.write_text(about.read_text().replace('"json"', '"csv"'))
    with pytest.raises(FolderRefused, match="of format csv, not json"):
        place.drain()
    about.write_text("{")
    with pytest.raises(FolderRefused, match="unreadable"):
        place.drain()


def test_a_damaged_message_is_drained_with_all_that_its_file_has(place: Place) -> None:
    folder = Path(place.root.layout.queue(QUEUE))
    torn = f"{place.ids[0][:36]},h=100"
    (folder / place.ids[0]).rename(folder / torn)
    done = place.drain()
    assert (done.messages, done.damaged) == (9, 1)
    rows = [json.loads(line) for path in place.to.glob("0*")
            for line in path.read_text().splitlines()]  # fmt: skip
    assert [(row["value"], row["size"]) for row in rows if row["id"] == torn] == [("x", None)]
    published = [batch.num_rows for path in place.to.glob("0*")
                 for batch in read_rows(path, Reading(is_drained=True))]  # fmt: skip
    assert sum(published) == 8


def test_packs_are_drained_as_their_messages(place: Place) -> None:
    """A damaged one with all that its file has, as one row."""
    folder = Path(place.root.layout.queue(QUEUE))
    packs = [new_pack(size, uuids=place.uuids) for size in (3, 7, 4)]
    for pack in packs:
        put_pack(folder / pack.text, pack, due_ms=place.clock.now_ms())
    (folder / packs[2].text).write_bytes(b"no pack")
    assert place.drain(state="ready", to=place.to.with_name("copy")).messages == 9 + 3 + 7 + 1
    done = place.drain(batch=4)
    assert (done.messages, done.damaged) == (9 + 3 + 7 + 1, 1)
    items = [each for pack in packs[:2] for each in pack.all_items()]
    place.ids += [*(each.text for each in items), packs[2].text]
    place.assert_all_are_drained_once()
    rows = {row["id"]: row for path in place.to.glob("0*")
            for row in map(json.loads, path.read_text().splitlines())}  # fmt: skip
    assert [rows[each.text]["value"] for each in items] == [
        body_of(each).decode() for each in items
    ]
    assert rows[packs[2].text]["value"] == "no pack"
