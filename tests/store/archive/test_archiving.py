"""An archive's batches: what they name, who may begin one, and what stays of them."""

import errno
from pathlib import Path

import pytest
from harness.archives import OTHER, TO, ArchivingRoot
from harness.faults import FaultyFiles

from mq.model.errors import (
    ArchiveBusy,
    ArchivedElsewhere,
    ArchiveNotEnabled,
    ArchiveUnreadable,
    StorageFailed,
)
from mq.store.archive.archiving import (
    archive_mark,
    disable,
    is_archived,
    own_archive,
    stored,
    unfinished_batch,
)
from mq.store.disk.flush import FsyncFlusher

MARK = "archive/enabled.json"


@pytest.fixture
def place(root: Path) -> ArchivingRoot:
    return ArchivingRoot(root, folder_max=2)


def test_a_batch_of_an_archive_that_was_disabled_cannot_be_stored(place: ArchivingRoot) -> None:
    place.enable()
    place.remove(1)
    batch = place.begun()
    disable(place.root, place.flusher)
    with pytest.raises(ArchiveNotEnabled):
        stored(place.root, place.flusher, batch)


def test_a_root_without_a_mark_has_no_archive(place: ArchivingRoot) -> None:
    assert archive_mark(place.root) is None
    assert not is_archived(place.root)
    assert unfinished_batch(place.root) is None
    with pytest.raises(ArchiveNotEnabled):
        place.begin()
    assert not disable(place.root, place.flusher)
    assert not (place.top / "archive").exists()


def test_the_mark_says_where_to_and_since_when(place: ArchivingRoot) -> None:
    mark = place.enable()
    assert (mark.to, mark.since_ms) == (TO, place.clock.now_ms())
    place.pass_s(10)
    assert place.enable() == archive_mark(place.root) == mark
    with pytest.raises(ArchivedElsewhere, match="/srv/archive"):
        place.enable("/srv/other")
    assert disable(place.root, place.flusher)
    assert archive_mark(place.root) is None
    assert place.enable("/srv/other").to == "/srv/other"


@pytest.mark.parametrize("content", [b"", b"{}", b'{"version": 2}', b"\xff", b'{"version": 1}'])
def test_a_mark_that_says_nothing_counts_and_is_not_guessed_about(
    place: ArchivingRoot, content: bytes
) -> None:
    place.enable()
    (place.top / MARK).write_bytes(content)
    place.remove()
    assert is_archived(place.root)
    for asks in (lambda: archive_mark(place.root), place.enable, place.begin):
        with pytest.raises(ArchiveUnreadable, match=r"enabled\.json"):
            asks()
    assert place.reap() == 0
    assert disable(place.root, place.flusher)
    assert place.reap() == 1


def test_one_process_archives_a_root(place: ArchivingRoot) -> None:
    with own_archive(place.root):
        with pytest.raises(ArchiveBusy), own_archive(place.root):
            pass
        assert place.enable()
    with own_archive(place.root):
        pass


def test_a_batch_names_what_was_removed_in_every_way_and_in_order(place: ArchivingRoot) -> None:
    place.make_queue(OTHER)
    place.publish(7, OTHER)
    place.delete(OTHER)
    place.publish(5)
    place.acknowledge()
    place.remove(9)
    place.enable()
    (place.top / "remove" / "notes.txt").touch()
    (place.top / "remove" / ".probe").touch()
    batch = place.begun()
    everything = [name for name in place.removed() if name not in ("notes.txt", ".probe")]
    assert len(everything) == 21
    assert place.names(batch) == everything
    for count in (1, 2, 3, 20, 21, 5000):
        ranges = batch.ranges(count)
        assert len(ranges) <= count
        assert [name for each in ranges for name in each.names(place.files)] == everything


def test_a_batch_comes_again_until_it_is_stored_and_then_never(place: ArchivingRoot) -> None:
    place.enable()
    first = place.remove(3)
    batch = place.begun()
    place.remove(2)
    assert place.begin() == unfinished_batch(place.root) == batch
    stored(place.root, place.flusher, batch)
    stored(place.root, place.flusher, batch)  # Whoever stored it may not have heard.
    assert unfinished_batch(place.root) is None
    after = place.begun()
    assert after.seq == batch.seq + 1
    assert len(place.names(after)) == 2
    assert not set(place.names(after)) & set(first)


def test_batches_have_so_many_names_and_then_there_is_none(place: ArchivingRoot) -> None:
    place.enable()
    removed = set(place.remove(7))
    batches = [place.store(3) for _ in range(3)]
    assert [len(each) for each in batches] == [3, 3, 1]
    assert {name for each in batches for name in each} == removed
    assert place.begin() is None
    assert place.ledgers() == ["1.stored", "2.stored", "3.stored"]


def test_no_number_is_used_twice(place: ArchivingRoot) -> None:
    place.enable()
    seqs = []
    for end in range(4):
        place.remove()
        batch = place.begun()
        seqs.append(batch.seq)
        stored(place.root, place.flusher, batch)
        place.reap()
        if end % 2:
            assert disable(place.root, place.flusher)
            assert place.ledgers() == []
            place.enable("/srv/other")
    assert seqs == [1, 2, 3, 4]


def test_what_an_archive_had_stored_is_not_stored_in_the_next(place: ArchivingRoot) -> None:
    place.enable()
    place.remove(2)
    names = place.store()
    disable(place.root, place.flusher)
    place.enable("/srv/other")
    assert place.reap() == 0
    assert place.names(place.begun()) == names


def test_ledgers_that_are_many_become_one(
    place: ArchivingRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mq.store.archive.archiving.ARCHIVE_LEDGERS_MAX", 3)
    place.enable()
    names = []
    for _ in range(4):
        place.remove(3)
        names += place.store()
    assert place.ledgers() == ["1-3.stored", "4.stored"]
    assert len(set(names)) == 12
    assert place.begin() is None
    assert place.reap() == 12
    place.remove()
    place.store()
    place.reap()
    assert place.ledgers() == ["5.stored"]


def test_a_merge_that_was_cut_is_made_again(
    place: ArchivingRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever made it died when the merged ledger had its name."""
    monkeypatch.setattr("mq.store.archive.archiving.ARCHIVE_LEDGERS_MAX", 2)
    place.enable()
    place.remove(4)
    for _ in range(2):
        place.store(2)
    kept = {name: (place.top / "archive" / name).read_bytes() for name in place.ledgers()}
    assert place.begin() is None
    for name, content in kept.items():
        (place.top / "archive" / name).write_bytes(content)
    assert place.begin() is None
    assert place.ledgers() == ["1-2.stored"]
    assert place.reap() == 4


@pytest.mark.parametrize("call", ["sync", "rename", "sync_folder"])
def test_what_is_stored_stays_named_where_a_merge_fails(
    root: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """Else it would be archived a second time."""
    monkeypatch.setattr("mq.store.archive.archiving.ARCHIVE_LEDGERS_MAX", 2)
    files = FaultyFiles()
    place = ArchivingRoot(root, 2, files, FsyncFlusher(files, 1))
    place.enable()
    place.remove(4)
    for _ in range(2):
        place.store(2)
    stored_twice = place.ledgers()
    files.fail(call, errno.EIO)
    with pytest.raises(StorageFailed):
        place.begin()
    files.heal()
    assert set(stored_twice) <= set(place.ledgers())
    assert place.begin() is None
    assert place.ledgers() == ["1-2.stored"]


@pytest.mark.parametrize("content", [b"", b"x" * 500, b'{"version": 1}\n'])
def test_a_torn_ledger_is_told_and_nothing_is_unlinked_by_it(
    place: ArchivingRoot, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    place.enable()
    place.remove(2)
    place.store()
    other = place.remove()
    place.store()
    (place.top / "archive" / "1.stored").write_bytes(content)
    with pytest.raises(ArchiveUnreadable, match=r"1\.stored"):
        place.begin()
    assert place.reap() == 1
    assert not set(other) & set(place.removed())
    assert any("cannot be understood" in record.getMessage() for record in caplog.records)


def test_a_folder_of_more_names_than_are_held_is_in_order_too(
    place: ArchivingRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.publish(25)
    place.acknowledge()
    place.remove(6)
    place.enable()
    monkeypatch.setattr("mq.store.archive.removed_names.removed_names.__defaults__", (4,))
    assert place.names(place.begun()) == place.removed()


@pytest.mark.parametrize("garbage", [b"\0", b"\xff\n", b"x", b"\n", b"\0\n"])
def test_a_ledger_of_garbage_is_told_and_nothing_is_unlinked_by_it(
    place: ArchivingRoot, garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """As a file system leaves it that lost what it had of the file, but for its length."""
    place.enable()
    kept = place.remove(2)
    place.store()
    other = place.remove()
    place.store()
    ledger = place.top / "archive" / "1.stored"
    head = ledger.read_bytes()[:128]
    size = ledger.stat().st_size
    ledger.write_bytes((head + garbage * size)[:size])
    with pytest.raises(ArchiveUnreadable, match=r"1\.stored"):
        place.begin()
    assert place.reap() == 1
    assert place.removed() == kept
    assert not set(other) & set(place.removed())
    assert any("cannot be understood" in record.getMessage() for record in caplog.records)
