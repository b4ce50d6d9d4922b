"""An archive of removed messages, as the root knows it: what is to be stored, and what is.

FORMAT.md, "Archive", has the files, and "archive" among the operations the steps. While an archive
is enabled mq-reaper unlinks what stored ledgers name, and no other message. All here is for the
archive's owner, but for `archive_mark` and `is_archived`. A process that dies anywhere leaves what
the next owner goes on with.
"""

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Self

from mq.model.bulk_limits import (
    ARCHIVE_BATCH_MESSAGES_DEFAULT,
    ARCHIVE_LEDGERS_MAX,
    ARCHIVE_MARK_BYTES_MAX,
)
from mq.model.errors import ArchiveBusy, ArchivedElsewhere, ArchiveNotEnabled, ArchiveUnreadable
from mq.store.archive.lag import lives_too
from mq.store.archive.ledger import (
    ArchiveBatch,
    LedgerWriter,
    OpenLedger,
    ledgers,
    names_of,
    stored_ledgers,
)
from mq.store.archive.removed_names import in_blocks, removed_names, without
from mq.store.archive.settling import settle_removals
from mq.store.core.root import Root, unlink_if_there
from mq.store.disk.files import Files, is_gone
from mq.store.disk.flush import Flusher
from mq.store.disk.group import run_alone
from mq.store.disk.mounts import file_system_of
from mq.store.disk.replacing import replace_file
from mq.store.disk.steps import Flush, Steps
from mq.store.format.archive import (
    LedgerKind,
    LedgerName,
    archive_folder,
    archive_lock,
    ended_path,
    ledger_path,
    mark_path,
    new_archive_file,
)
from mq.store.format.layout import Layout, is_unfinished

_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class ArchiveMark:
    """That an archive is enabled: its folder's absolute path, and since when (milliseconds since
    the epoch).
    """

    to: str
    since_ms: int

    def written(self) -> bytes:
        """As the file has it."""
        said = {"version": _VERSION, "to": self.to, "since_ms": self.since_ms}
        return json.dumps(said).encode("ascii")

    @classmethod
    def parse(cls, path: str, content: bytes) -> Self:
        """Raises ArchiveUnreadable, which says `path`."""
        said = _read_json(path, content)
        to, since_ms = said.get("to"), said.get("since_ms")
        if not isinstance(to, str) or not to.startswith("/") or not isinstance(since_ms, int):
            raise ArchiveUnreadable(path, "it names no folder, or no time")
        return cls(to, since_ms)


@contextlib.contextmanager
def own_archive(root: Root) -> Iterator[None]:
    """Archives the root in this process alone, for the `with` block, or until it dies. Raises
    ArchiveBusy when another one does, or this one already; OSError.
    """
    root.files.refuse_links(archive_folder(root.layout))
    with contextlib.suppress(FileExistsError):
        root.files.mkdir(archive_folder(root.layout))
    descriptor = root.files.open_kept(archive_lock(root.layout))
    try:
        if not root.files.lock(descriptor):
            raise ArchiveBusy
        yield
    finally:
        root.files.close(descriptor)


def is_archived(root: Root) -> bool:
    """Whether an archive is enabled, as far as anybody can tell: a mark that says nothing that can
    be understood counts. Raises OSError when the file system does not say.
    """
    return is_marked(root.files, root.layout)


def is_marked(files: Files, layout: Layout) -> bool:
    """The same of a root of which only its folders are known."""
    return files.status(mark_path(layout)) is not None


def archive_mark(root: Root) -> ArchiveMark | None:
    """Which archive is enabled; None: none is. Raises ArchiveUnreadable, OSError."""
    path = mark_path(root.layout)
    root.files.refuse_links(archive_folder(root.layout))
    content = _read(root, path)
    return None if content is None else ArchiveMark.parse(path, content)


def enable(root: Root, flusher: Flusher, to: str, now_ms: int) -> ArchiveMark:
    """Enables the archive in the folder `to`, an absolute path, from now on; where it is enabled,
    nothing changes. What lies in remove/ by then is archived too, as far as mq-reaper has not
    unlinked it. Raises ArchivedElsewhere, ArchiveUnreadable, Unavailable. Durable on return: yes.
    """
    return run_alone(_enable(root, to, now_ms), flusher)


def disable(root: Root, flusher: Flusher) -> bool:
    """Ends archiving: mq-reaper unlinks what was removed as without. False: none was enabled. A
    batch that was begun is forgotten, and its number is never used again. Raises ArchiveUnreadable,
    Unavailable. Durable on return: yes.
    """
    return run_alone(_disable(root), flusher)


def unfinished_batch(root: Root) -> ArchiveBatch | None:
    """The batch that was begun and is not stored: to be stored again, with the same names. Raises
    ArchiveUnreadable, OSError. Durable on return: yes.
    """
    known = ledgers(root)
    newest = _newest(root, known)
    # A name that is not the newest has come back after a power cut, as some file systems let it.
    name = _name(newest, LedgerKind.BEGUN)
    is_done = newest == last_of_disabled(root) or any(
        each.seq == newest and each != name for each in known
    )
    if is_done or name not in known:
        return None
    # Whoever began it may have died before its own flush.
    root.files.sync_folder(archive_folder(root.layout))
    return _batch(root, name)


def begin_batch(
    root: Root, flusher: Flusher, limit: int = ARCHIVE_BATCH_MESSAGES_DEFAULT
) -> ArchiveBatch | None:
    """The next batch, of up to `limit` removed messages that no stored ledger names; None: there
    are none. One that was begun and is not stored comes again. All of a batch were removed, on
    stable media. Blocking for as long as listing remove/ takes. Raises ArchiveNotEnabled,
    ArchiveUnreadable, Unavailable. Durable on return: yes.
    """
    if limit <= 0:
        raise ValueError("a batch is of some messages")
    return run_alone(_begin(root, limit), flusher)


def stored(root: Root, flusher: Flusher, batch: ArchiveBatch) -> None:
    """Says that the archive has all of the batch on stable media: mq-reaper may unlink it. Done
    again, nothing changes. Raises ArchiveNotEnabled when the batch is not known (any more);
    Unavailable. Durable on return: yes.
    """
    run_alone(_end(root, batch), flusher)


def _enable(root: Root, to: str, now_ms: int) -> Steps[ArchiveMark]:
    layout = root.layout
    folder = archive_folder(layout)
    mark = archive_mark(root)
    if mark is not None and mark.to != to:
        raise ArchivedElsewhere(mark.to)
    if not to.startswith("/"):
        raise ValueError("an archive is named by an absolute path")
    with contextlib.suppress(FileExistsError):
        root.files.mkdir(folder)
    yield Flush(folders=(layout.root,))
    if mark is not None:
        # Whoever wrote it may have died before its own flush.
        yield Flush(folders=(folder,))
        return mark
    # What an archive that was disabled has stored is not in this one.
    yield from _keep_number(root)
    _forget(root, ledgers(root))
    yield Flush(folders=(folder,))
    mark = ArchiveMark(to, now_ms)
    written = new_archive_file(layout, "mark")
    yield from replace_file(root.files, written, mark_path(layout), mark.written())
    return mark


def _disable(root: Root) -> Steps[bool]:
    layout = root.layout
    if root.files.status(archive_folder(layout)) is None:
        return False
    was_enabled = is_archived(root)
    yield from _keep_number(root)
    unlink_if_there(root.files, mark_path(layout))
    yield Flush(folders=(archive_folder(layout),))
    _forget(root, ledgers(root))
    return was_enabled


def _begin(root: Root, limit: int) -> Steps[ArchiveBatch | None]:
    layout, files = root.layout, root.files
    if archive_mark(root) is None:
        raise ArchiveNotEnabled
    unfinished = unfinished_batch(root)
    if unfinished is not None:
        return unfinished
    _sweep_unfinished(root)
    yield from _merge(root)
    known = ledgers(root)
    name = _name(1 + _newest(root, known), LedgerKind.BEGUN)
    with contextlib.ExitStack() as opened:
        have = opened.enter_context(names_of(root, stored_ledgers(known)))
        blocks = _removed_for_good(root, without(removed_names(root), have))
        block = next(blocks, None)
        if block is None:
            return None
        writer = LedgerWriter(files, new_archive_file(layout, name.text))
        opened.enter_context(writer)
        while block is not None and writer.messages < limit:
            writer.append(block[: limit - writer.messages])
            block = next(blocks, None)
        # Else a power cut could bring a message back to its queue that the archive has.
        yield from settle_removals(root)
        yield from _put(root, writer, name)
    _forget(root, [each for each in known if each.kind is not LedgerKind.STORED])
    return _batch(root, name)


def _removed_for_good(root: Root, blocks: Iterator[list[str]]) -> Iterator[list[str]]:
    """Without messages of two names that are somewhere else too: on some file systems a crash in
    the middle of a removal leaves that, and who moves them next says what they are.
    """
    if file_system_of(root.layout.root).leaves_one_name:
        yield from blocks
        return
    for block in blocks:
        kept = [name for name in block if not _has_two_lives(root, name)]
        if kept:
            yield kept


def _has_two_lives(root: Root, name: str) -> bool:
    status = root.files.status(f"{root.layout.remove}/{name}")
    return status is not None and status.st_nlink > 1 and lives_too(root, name)


def _sweep_unfinished(root: Root) -> None:
    """Unlinks what an owner was writing that died. Not flushed."""
    for entry in root.files.entries(archive_folder(root.layout)):
        if is_unfinished(entry.name):
            unlink_if_there(root.files, entry.path)


def _merge(root: Root) -> Steps[None]:
    """Makes one ledger of those that are stored, where they are many."""
    known = ledgers(root)
    kept = stored_ledgers(known)
    _forget(root, [each for each in known if any(other.covers(each) for other in kept)])
    if len(kept) < ARCHIVE_LEDGERS_MAX:
        return
    merged = LedgerName(kept[0].first, kept[-1].seq, LedgerKind.STORED)
    written = new_archive_file(root.layout, merged.text)
    with names_of(root, kept) as names, LedgerWriter(root.files, written) as writer:
        for block in in_blocks(names):
            writer.append(block)
        yield from _put(root, writer, merged)
    _forget(root, kept)


def _put(root: Root, writer: LedgerWriter, name: LedgerName) -> Steps[None]:
    """Gives a ledger that is written its name. Durable on return: yes."""
    writer.finish(name.first, name.seq)
    yield Flush(files=(writer.descriptor,))
    root.files.rename(writer.path, ledger_path(root.layout, name))
    yield Flush(folders=(archive_folder(root.layout),))


def _end(root: Root, batch: ArchiveBatch) -> Steps[None]:
    """Renames a batch's ledger. Durable on return: yes."""
    files, target = root.files, ledger_path(root.layout, _name(batch.seq, LedgerKind.STORED))
    try:
        files.rename(batch.path, target)
    except OSError as error:
        # It was done before; or NFS has done it and lost the answer.
        if not is_gone(error):
            raise
        if files.status(target) is None:
            raise ArchiveNotEnabled from None
    if files.status(batch.path) is not None:
        files.unlink(batch.path)  # Two names, which a crash has left: a rename does nothing then.
    yield Flush(folders=(archive_folder(root.layout),))


def _keep_number(root: Root) -> Steps[None]:
    """Has the last batch's number stay when its ledger goes."""
    newest = _newest(root, ledgers(root))
    if newest > last_of_disabled(root):
        content = json.dumps({"version": _VERSION, "after": newest}).encode("ascii")
        path = ended_path(root.layout)
        yield from replace_file(root.files, new_archive_file(root.layout, "ended"), path, content)


def _newest(root: Root, known: Sequence[LedgerName]) -> int:
    return max((last_of_disabled(root), *(name.seq for name in known)))


def last_of_disabled(root: Root) -> int:
    """The number of the last batch when an archive was disabled last; 0: none was. Raises
    ArchiveUnreadable, OSError.
    """
    path = ended_path(root.layout)
    content = _read(root, path)
    if content is None:
        return 0
    after = _read_json(path, content).get("after")
    if not isinstance(after, int):
        raise ArchiveUnreadable(path, "it says no number")
    return after


def _forget(root: Root, names: Sequence[LedgerName]) -> None:
    """Unlinks ledgers; not flushed."""
    for name in names:
        unlink_if_there(root.files, ledger_path(root.layout, name))


def _name(seq: int, kind: LedgerKind) -> LedgerName:
    return LedgerName(seq, seq, kind)


def _batch(root: Root, name: LedgerName) -> ArchiveBatch:
    with OpenLedger(root, name) as opened:
        head = opened.head
        return ArchiveBatch(name.seq, opened.path, head.messages, head.size)


def _read(root: Root, path: str) -> bytes | None:
    try:
        return root.files.read_file(path, ARCHIVE_MARK_BYTES_MAX)
    except OSError as error:
        if is_gone(error):
            return None
        raise


def _read_json(path: str, content: bytes) -> dict[str, object]:
    try:
        said = json.loads(content.decode("utf-8"))
    except ValueError as error:
        raise ArchiveUnreadable(path, str(error)) from None
    if not isinstance(said, dict) or said.get("version") != _VERSION:
        raise ArchiveUnreadable(path, f"it is none of version {_VERSION}")
    return said
