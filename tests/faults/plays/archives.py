"""What is done for an archive: batches of names of remove/, and reaping by them."""

from faults.playing import At, plays
from harness.archives import OTHER, ArchivingRoot

from mq.store.archive.archiving import disable, stored


def begun(
    at: At,
    *,
    enabled: bool = True,
    removed: int = 1,
    kind: str = "unknown",
    folder_max: int = 10_000,
) -> ArchivingRoot:
    at.kind = kind
    place = ArchivingRoot(at.top, folder_max, files=at.files, flusher=at.flusher())
    if enabled:
        place.enable()
        place.remove(removed)
    return place


@plays("archive: enable", times=1)
@plays("archive: enable again", times=2)
async def enabled(at: At, times: int) -> None:
    place = begun(at, enabled=False)
    for _ in range(times):
        at.watch()
        place.enable()


@plays("archive: enable where another's ledger was left")
async def enabled_over_a_ledger(at: At) -> None:
    """By a hand that took the archive's mark away."""
    place = begun(at)
    place.store()
    (at.top / "archive/enabled.json").unlink()
    at.watch()
    place.enable()


@plays("archive: begin a batch beside a name that is back from before")
async def batch_begun_beside_an_old_name(at: At) -> None:
    """A power cut may bring the old name of a rename back; the archive was disabled since."""
    place = begun(at)
    place.store()
    content = (at.top / "archive/1.stored").read_bytes()
    disable(place.root, place.flusher)
    place.enable()
    place.remove(1)
    (at.top / "archive/1.names").write_bytes(content)
    at.watch()
    place.begun()


@plays("archive: begin a batch")
@plays("archive: begin a batch, by syncfs", kind="btrfs")
async def batch_begun(at: At, kind: str = "unknown") -> None:
    place = begun(at, kind=kind)
    at.watch()
    place.begun()


@plays("archive: go on with a batch")
async def batch_begun_by_another(at: At) -> None:
    """Who began it may have died before its own flush."""
    place = begun(at)
    place.begun()
    at.watch()
    place.begun()


@plays("archive: end a batch", times=1)
@plays("archive: end a batch again", times=2)
async def batch_stored(at: At, times: int) -> None:
    place = begun(at)
    batch = place.begun()
    for _ in range(times):
        at.watch()
        stored(place.root, place.flusher, batch)


@plays("archive: disable")
async def disabled(at: At) -> None:
    place = begun(at)
    place.store()
    at.watch()
    disable(place.root, place.flusher)


@plays("archive: reap by the newest ledger")
async def reaped(at: At) -> None:
    """Who stored it may have died before its own flush."""
    place = begun(at)
    place.store()
    at.watch()
    place.reap()


@plays("archive: reap by the newest ledger, with a deleted queue's folder")
async def reaped_folder(at: At) -> None:
    place = with_a_folder(at)
    at.watch()
    place.reap()


@plays("archive: take a ledger away whose names are reaped")
@plays("archive: take a ledger away whose names are reaped, by syncfs", kind="btrfs")
async def ledger_gone(at: At, kind: str = "unknown") -> None:
    place = with_a_folder(at, kind)
    place.reap()
    place.remove()
    place.store()
    at.watch()
    place.reap()


@plays("archive: take a ledger away whose names are reaped from a bucket")
async def ledger_of_a_bucket_gone(at: At) -> None:
    """The bucket stays: it may still be written to."""
    place = begun(at, removed=0, folder_max=1)
    at.crowd("remove")
    for _ in range(2):
        place.remove()
        place.store()
    at.watch()
    place.reap()


def with_a_folder(at: At, kind: str = "unknown") -> ArchivingRoot:
    place = begun(at, removed=0, kind=kind)
    place.make_queue(OTHER)
    place.publish(1, OTHER)
    place.delete(OTHER)
    place.remove()
    place.store()
    return place
