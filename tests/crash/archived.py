"""An archive after a power cut: what is gone it has, and it has nothing twice."""

from collections.abc import Iterator
from pathlib import Path

from crash.promises import Ledger
from harness.clock import FakeClock
from harness.folders import files_below

from mq.store.archive.archiving import begin_batch, is_archived, stored
from mq.store.core.root import Root
from mq.store.disk.flush import Flusher
from mq_reaper.reaper import Reaper

_PASSES = 4


def unkept(root: Root, ledger: Ledger) -> Iterator[str]:
    """What is broken right after the cut. An archive that was enabled is; what was published and is
    nowhere it has.
    """
    if not ledger.is_archive_enabled:
        return
    if not is_archived(root):
        yield "an archive was enabled, and is not"
    there = _ids(Path(root.layout.root))
    for message_id, told in ledger.messages.items():
        # One in the middle of its delete may go with a bucket of remove/ that nobody has flushed.
        is_sure = told.deleted or not told.delete_asked
        if told.published and is_sure and message_id not in there | ledger.archived_ids():
            yield f"{message_id} is gone, and no archive has it"


def stored_and_reaped(root: Root, flusher: Flusher, ledger: Ledger) -> Iterator[str]:
    """What is broken when reapers and the archive's job have gone on, which know each batch by its
    number as the archive does.
    """
    if not is_archived(root):
        return
    archived = dict(ledger.archived)  # What is read of a log is of many states.
    before = _ids(Path(root.layout.root))
    _reap(root)
    lost = before - _ids(Path(root.layout.root)) - ledger.archived_ids()
    if lost:
        yield f"{lost} was unlinked, and no archive has it"
    while (batch := begin_batch(root, flusher)) is not None:
        ids = {_id(name) for name in batch.names(root.files)}
        if ids != archived.get(batch.seq, ids):
            yield f"batch {batch.seq} has other names than the archive's"
        others = [each for seq, each in archived.items() if seq != batch.seq]
        if any(ids & each for each in others):
            yield f"batch {batch.seq} has what another one has"
        archived[batch.seq] = ids
        stored(root, flusher, batch)
    _reap(root)


def _reap(root: Root) -> None:
    assert isinstance(root.clock, FakeClock)
    reaper = Reaper(root.files, root.clock, root.layout.remove, 0)
    for _ in range(_PASSES):
        reaper.run_once()
        root.clock.advance(60)


def _ids(top: Path) -> set[str]:
    """Of all that lies anywhere but in archive/."""
    folders = [path for path in top.iterdir() if path.is_dir() and path.name != "archive"]
    found = [path for folder in folders for path in files_below(folder)]
    found += [path for folder in (top / "remove").glob("*.d") for path in files_below(folder)]
    return {_id(path.name) for path in found}


def _id(name: str) -> str:
    return name.rpartition("/")[2].rpartition(":")[2]
