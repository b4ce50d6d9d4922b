"""The order of renames and flushes of leases: what must be on stable media before what."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.faults import FaultyFiles
from harness.leases import LEASE_S, QUEUE, LeasingRoot
from harness.messages import new_id

from mq.errors import MessageNotFound
from mq.names import Key, MessageId
from mq.store.flush import FsyncFlusher
from mq.store.holders import kept_flush
from mq.store.lapses import adopt
from mq.store.lease import acknowledge, finish_claim, forget_consumer, release
from mq.store.pipeline_layout import LeaseName
from mq.store.purge import purge
from mq.store.queues import delete_queue, sweep_tombstones
from mq.store.remove import remove


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles()


@pytest.fixture(params=[10_000, 1], ids=["flat", "in buckets"])
def place(
    tmp_path: Path, files: FaultyFiles, request: pytest.FixtureRequest
) -> Iterator[LeasingRoot]:
    flusher = FsyncFlusher(files, 1)
    yield LeasingRoot(tmp_path / "root", request.param, files, flusher)
    flusher.close()


def changes(place: LeasingRoot, after: int) -> list[str]:
    """What changed, and was flushed, below the root."""
    assert isinstance(place.files, FaultyFiles)
    said = []
    for call, path in place.files.calls[after:]:
        if call in ("create", "rename", "mkdir", "rmdir", "sync", "sync_folder", "stamp"):
            below = path.removeprefix(str(place.top)).lstrip("/")
            said.append(f"{call} {below}".replace(place.root.layout.root, ""))
    return said


def mark(place: LeasingRoot) -> int:
    assert isinstance(place.files, FaultyFiles)
    return len(place.files.calls)


def positions(said: list[str], *wanted: str) -> list[int]:
    """Where each of these begins for the first time; all of them are there."""
    return [next(at for at, each in enumerate(said) if each.startswith(word)) for word in wanted]


def assert_in_order(said: list[str], *wanted: str) -> None:
    found = positions(said, *wanted)
    assert found == sorted(found), said


def test_a_claim(place: LeasingRoot) -> None:
    place.publish(3)
    before = mark(place)
    place.claimed()
    said = changes(place, before)
    assert_in_order(
        said,
        "create leases/c.1.json",
        "stamp leases/c.1.json",
        "mkdir leases/c.1",
        "sync leases/c.1.json",
        "sync_folder leases",
        "rename queues/q/",
        "sync_folder leases/c.1",
        "sync_folder queues/q",
        "create leases/.c.1.json.",
        "sync leases/.c.1.json.",
        "rename leases/.c.1.json.",
    )
    assert said[-1] == "sync_folder leases"
    left = {Path(each.split()[1]).parent for each in said if each.startswith("rename queues/")}
    assert {f"sync_folder {folder}" for folder in left} <= set(said)


def test_a_claim_that_is_finished(place: LeasingRoot) -> None:
    place.publish(3)
    lease = place.claimed()
    (place.top / "leases/c.1.json").write_text("")
    before = mark(place)
    place.run(finish_claim(place.root, lease.name))
    said = changes(place, before)
    assert_in_order(said, "sync_folder leases/c.1", "create leases/.c.1.json.")
    # What its queues were is told by what it holds.
    assert_in_order(said, "sync_folder leases/c.1", "sync_folder queues/q")
    assert said[-1] == "sync_folder leases"


def test_a_claim_that_is_finished_flushes_what_it_left(place: LeasingRoot) -> None:
    place.publish(3)
    lease = place.claimed()
    text = (place.top / "leases/c.1.json").read_text()
    (place.top / "leases/c.1.json").write_text(text.replace("claimed", "claiming"))
    before = mark(place)
    place.run(finish_claim(place.root, lease.name))
    said = changes(place, before)
    queue = place.top / "queues/q"
    folders = [queue, *(path for path in queue.rglob("*") if path.is_dir())]
    for folder in folders:
        assert_in_order(
            said,
            "sync_folder leases/c.1",
            f"sync_folder {folder.relative_to(place.top)}",
            "create leases/.c.1.json.",
        )


def test_an_acknowledgement(place: LeasingRoot) -> None:
    place.publish(2)
    lease = place.claimed()
    before = mark(place)
    place.run(acknowledge(place.root, lease.name))
    expected = ["rename leases/c.1", "sync_folder remove", "sync_folder leases"]
    assert changes(place, before) == expected
    before = mark(place)
    place.run(acknowledge(place.root, lease.name))  # Whoever did it may not have flushed it.
    assert changes(place, before)[-2:] == expected[1:]


def test_a_release(place: LeasingRoot) -> None:
    ids = place.publish(2)
    lease = place.claimed()
    place.pass_s(LEASE_S + 1)
    before = mark(place)
    place.run(release(place.root, lease.name))
    said = changes(place, before)
    assert_in_order(
        said,
        "rename leases/c.1",
        "sync leases/c.1.json",
        "sync_folder leases",
        "stamp leases/c.1.back/",
        "rename leases/c.1.back/",
        "sync_folder queues/q",
        "sync_folder leases/c.1.back",
        "rename leases/c.1.json",
        "rmdir leases/c.1.back",
    )
    assert said[-1] == "sync_folder leases"
    assert said[positions(said, "rename leases/c.1.json")[0] + 1] == "sync_folder leases"
    for each in ids:
        (path,) = (place.top / "queues/q").rglob(each.text)
        folder = path.parent.relative_to(place.top)
        last = len(said) - 1 - said[::-1].index(f"sync_folder {folder}")
        assert positions(said, "rename leases/c.1.back/")[0] < last
        assert last < positions(said, "sync_folder leases/c.1.back")[0]


def test_a_release_to_a_bucket_that_is_made(tmp_path: Path, files: FaultyFiles) -> None:
    flusher = FsyncFlusher(files, 1)
    place = LeasingRoot(tmp_path / "root", 1, files, flusher)
    place.publish(3)
    lease = place.claimed()
    for folder in sorted((place.top / "queues/q").rglob("*"), reverse=True):
        folder.rmdir()
    place.pass_s(LEASE_S + 1)
    before = mark(place)
    flusher.close()
    place.flusher = other = FsyncFlusher(files, 1)  # A mover's, which has flushed no bucket yet.
    place.run(release(place.root, lease.name))
    said = changes(place, before)
    assert_in_order(said, "mkdir queues/q/", "sync_folder queues/q", "rename leases/c.1.back/")
    other.close()


def test_a_removal_from_a_lease(place: LeasingRoot) -> None:
    ids = place.publish(2)
    place.claimed()
    for again in (False, True):
        before = mark(place)
        place.run(remove(place.root, QUEUE, ids[0]))
        said = changes(place, before)
        if not again:
            assert_in_order(said, "rename leases/c.1/", "sync_folder remove")
        assert_in_order(said, "sync_folder remove", "sync_folder leases", "sync_folder leases/c.1")


def test_what_is_not_found_is_not_in_a_lease_for_good(place: LeasingRoot) -> None:
    place.publish(1)
    place.claimed()
    unknown = new_id()
    buckets = [row[0] for row in place.root.places.buckets(QUEUE, unknown)]
    for bucket in buckets:
        Path(bucket).mkdir(exist_ok=True)
    before = mark(place)
    with pytest.raises(MessageNotFound):
        place.run(remove(place.root, QUEUE, unknown))
    said = changes(place, before)
    # What a lease gives back comes to its queue first.
    for bucket in buckets:
        found = f"sync_folder {Path(bucket).relative_to(place.top)}"
        assert_in_order(said, found, "sync_folder leases", "sync_folder leases/c.1")


def test_a_key_of_what_was_in_a_lease(place: LeasingRoot) -> None:
    message_id = MessageId(place.uuids.next(), key=Key.parse("night"))
    (place.top / "leases/c.1").mkdir()
    leased = place.top / "leases/c.1" / f"q:{message_id.text}"
    leased.write_bytes(b"x")
    leases, held = place.root.layout.leases, str(leased.parent)
    assert kept_flush(place.root, QUEUE, message_id).folders[:2] == (leases, held)
    leased.unlink()
    assert {(leases,), (held,)} <= set(kept_flush(place.root, QUEUE, message_id).beside)


def test_a_deleted_queue_s_messages_are_gone_from_leases_for_good(place: LeasingRoot) -> None:
    place.publish(1)
    place.claimed()
    place.run(delete_queue(place.root, QUEUE, place.uuids.next()))
    before = mark(place)
    place.run(sweep_tombstones(place.root))
    said = changes(place, before)
    assert_in_order(said, "rename leases/c.1/", "sync_folder remove", "sync_folder leases/c.1")


def test_what_was_purged_goes_from_a_lease(place: LeasingRoot) -> None:
    place.publish(1)
    lease = place.claimed()
    place.run(purge(place.root, QUEUE, place.uuids.end_moment()))
    before = mark(place)
    place.run(release(place.root, lease.name))
    said = changes(place, before)
    assert_in_order(
        said, "rename leases/c.1.back/", "sync_folder leases/c.1.back", "rename leases/c.1.json"
    )


def test_a_manifest_that_is_made_for_others(place: LeasingRoot) -> None:
    (place.top / "leases/x.3").mkdir()
    before = mark(place)
    place.run(adopt(place.root, LeaseName.parse("x.3"), 1_000))
    assert changes(place, before) == [
        "create leases/x.3.json",
        "stamp leases/x.3.json",
        "sync leases/x.3.json",
        "sync_folder leases",
    ]


def test_a_consumer_that_is_forgotten(place: LeasingRoot) -> None:
    place.publish(1)
    place.run(acknowledge(place.root, place.claimed().name))
    before = mark(place)
    place.run(forget_consumer(place.root, place.leases()[0].name.consumer))
    assert changes(place, before) == ["sync_folder leases"]


def test_a_claim_from_a_queue_that_another_made(place: LeasingRoot, files: FaultyFiles) -> None:
    place.publish(1)
    place.flusher = other = FsyncFlusher(files, 1)
    before = mark(place)
    place.claimed()
    said = changes(place, before)
    assert_in_order(said, "rename queues/q/", "sync_folder queues", "sync_folder leases/c.1")
    other.close()


def test_a_claim_of_what_has_two_names(place: LeasingRoot) -> None:
    (message_id,) = place.publish(1)
    ready = next((place.top / "queues/q").rglob(message_id.text))
    os.link(ready, place.top / "new" / f"q:{message_id.text}")
    rows = place.root.places.buckets(QUEUE, message_id)
    for folder in (folder for row in rows for folder in row):
        Path(folder).mkdir(exist_ok=True)
    before = mark(place)
    place.claimed()
    said = changes(place, before)
    wanted = ["remove", "delay", "queues/q", "new"]
    wanted += [str(Path(folder).relative_to(place.top)) for row in rows for folder in row]
    for folder in wanted:
        assert_in_order(said, "sync_folder leases/c.1", f"sync_folder {folder}", "create leases/.c")


def test_a_release_to_a_bucket_of_long_ago(tmp_path: Path, files: FaultyFiles) -> None:
    """Others may have made it anew since: it is flushed at each use."""
    flusher = FsyncFlusher(files, 1)
    place = LeasingRoot(tmp_path / "root", 1, files, flusher)
    place.publish(3)
    place.pass_s(24 * 3600)
    lease = place.claimed()
    deep = next(path for path in (place.top / "queues/q").glob("*/*") if path.is_dir())
    before = mark(place)
    place.run(release(place.root, lease.name))
    said = changes(place, before)
    bucket = deep.parent.relative_to(place.top)
    assert_in_order(
        said, "sync_folder queues/q", f"sync_folder {bucket}", "rename leases/c.1.back/"
    )
    flusher.close()


def test_what_makes_durable_where_a_leased_message_is(place: LeasingRoot) -> None:
    place.publish(1)
    lease = place.claimed()
    (path,) = Path(lease.folder).iterdir()
    message_id = MessageId.parse(path.name.partition(":")[2])
    layout = place.root.layout
    delay, ready = layout.delay, layout.queue(QUEUE)
    leased = kept_flush(place.root, QUEUE, message_id)
    assert leased.folders == (layout.leases, lease.folder, delay, ready)
    assert leased.entries == (ready,)
    assert (lease.folder,) in leased.beside
    gone = kept_flush(place.root, QUEUE, new_id())
    assert gone.folders == (delay, ready)
    assert (lease.folder,) in gone.beside


def test_what_makes_durable_where_a_ready_message_is(place: LeasingRoot) -> None:
    """Also its buckets, from which it may have come back."""
    (message_id,) = place.publish(1)
    kept = kept_flush(place.root, QUEUE, message_id)
    layout = place.root.layout
    assert kept.folders[0] == layout.queue(QUEUE)
    assert kept.folders[-1] == layout.delay
    assert kept.beside == place.root.places.buckets(QUEUE, message_id)
