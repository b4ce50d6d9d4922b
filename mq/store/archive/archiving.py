"""An archive of removed messages from the root's side: batches to store, and batches that are
stored.

FORMAT.md, "Archive", has the files; PROTOCOL.md, "archive", the steps. While an archive is enabled,
mq-reaper unlinks what stored ledgers name, and no other message. Everything here is for the
archive's owner, except `archive_mark` and `is_archived`. If a process dies, the next owner
continues its work.
"""

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Self

from mq.model.errors import ArchiveBusy, ArchivedElsewhere, ArchiveNotEnabled, ArchiveUnreadable
from mq.model.limits import KIB
from mq.store.archive.ledger import (
    ArchiveBatch,
    LedgerWriter,
    OpenLedger,
    ledgers,
    names_of,
    stored_ledgers,
)
from mq.store.archive.removed_names import in_blocks, removed_names, without
from mq.store.core.root import Root, sweep_unfinished, unlink_if_there
from mq.store.disk.files import is_gone
from mq.store.disk.flush import Flusher
from mq.store.disk.group import run_alone
from mq.store.disk.replacing import replace_file, write_over
from mq.store.disk.steps import Flush, Steps
from mq.store.format.archive import (
    LedgerKind,
    LedgerName,
    archive_folder,
    archive_lock,
    ended_path,
    is_marked,
    ledger_path,
    mark_path,
    new_archive_file,
)

ARCHIVE_BATCH_MESSAGES_DEFAULT: Final = 1_000_000
# Beyond this number stored ledgers are merged: each batch reads all of them.
ARCHIVE_LEDGERS_MAX: Final = 32
ARCHIVE_MARK_BYTES_MAX: Final = 64 * KIB

_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class ArchiveMark:
    """The mark of an enabled archive: its folder's absolute path, and the time since when
    (milliseconds since the epoch).
    """

    to: str
    since_ms: int

    def written(self) -> bytes:
        said = {"version": _VERSION, "to": self.to, "since_ms": self.since_ms}
        return json.dumps(said).encode("ascii")

    @classmethod
    def parse(cls, path: str, content: bytes) -> Self:
        """Parses a mark. Raises ArchiveUnreadable with `path`."""
        said = _read_json(path, content)
        to, since_ms = said.get("to"), said.get("since_ms")
        if not isinstance(to, str) or not to.startswith("/") or not isinstance(since_ms, int):
            raise ArchiveUnreadable(path, "it names no folder, or no time")
        return cls(to, since_ms)


@contextlib.contextmanager
def own_archive(root: Root) -> Iterator[None]:
    """Makes this process the only one that archives the root, for the `with` block or until it
    dies. Raises ArchiveBusy if another owner, also of this process, does; OSError.
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
    """Whether an archive is enabled; an unreadable mark counts. Raises OSError if the file system
    does not say.
    """
    return is_marked(root.files, root.layout)


def archive_mark(root: Root) -> ArchiveMark | None:
    """The enabled archive; None: there is none. Raises ArchiveUnreadable, OSError."""
    path = mark_path(root.layout)
    root.files.refuse_links(archive_folder(root.layout))
    content = _read(root, path)
    return None if content is None else ArchiveMark.parse(path, content)


def enable(root: Root, flusher: Flusher, to: str, now_ms: int) -> ArchiveMark:
    """Enables the archive in the folder `to`, an absolute path; no effect if it is enabled already.
    Messages that are in remove/ by then are archived too, unless mq-reaper has unlinked them.
    Raises ArchivedElsewhere, ArchiveUnreadable, Unavailable. Durable on return: yes.
    """
    return run_alone(_enable(root, to, now_ms), flusher)


def disable(root: Root, flusher: Flusher) -> bool:
    """Disables the archive: mq-reaper unlinks removed messages as without one. False: none was
    enabled. An unfinished batch is forgotten; its number is never reused. Raises ArchiveUnreadable,
    Unavailable. Durable on return: yes.
    """
    return run_alone(_disable(root), flusher)


def unfinished_batch(root: Root) -> ArchiveBatch | None:
    """The batch that was begun and is not stored: store it again, with the same names. Raises
    ArchiveUnreadable, OSError. Durable on return: yes.
    """
    known = ledgers(root)
    newest = _newest(root, known)
    # An older name came back after a power cut, as some file systems allow.
    name = _name(newest, LedgerKind.BEGUN)
    is_done = newest == last_of_disabled(root) or any(
        each.seq == newest and each != name for each in known
    )
    if is_done or name not in known:
        return None
    # The process that began it may have died before its flush.
    root.files.sync_folder(archive_folder(root.layout))
    return _batch(root, name)


def begin_batch(
    root: Root, flusher: Flusher, limit: int = ARCHIVE_BATCH_MESSAGES_DEFAULT
) -> ArchiveBatch | None:
    """Begins the next batch: up to `limit` removed messages that no stored ledger names. None:
    there are none. Returns an unfinished batch again. The removals of all its messages are on
    stable media. Blocking for as long as listing remove/ takes. Raises ArchiveNotEnabled,
    ArchiveUnreadable, Unavailable. Durable on return: yes.
    """
    if limit <= 0:
        raise ValueError("a batch is of some messages")
    return run_alone(_begin(root, limit), flusher)


def stored(root: Root, flusher: Flusher, batch: ArchiveBatch) -> None:
    """Reports that the archive has the whole batch on stable media: mq-reaper may unlink it.
    Idempotent. Raises ArchiveNotEnabled if the batch is not known (any more); Unavailable. Durable
    on return: yes.
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
    if mark is not None:
        # The process that wrote it may have died before its flush.
        yield Flush(folders=(folder,))
        return mark
    # This archive does not have what a disabled one stored.
    yield from _keep_number(root)
    _forget(root, ledgers(root))
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
    _forget(root, ledgers(root))
    yield Flush(folders=(archive_folder(layout),))
    return was_enabled


def _begin(root: Root, limit: int) -> Steps[ArchiveBatch | None]:
    layout, files = root.layout, root.files
    if archive_mark(root) is None:
        raise ArchiveNotEnabled
    unfinished = unfinished_batch(root)
    if unfinished is not None:
        return unfinished
    # Files of an owner that died: there is only one owner at a time.
    sweep_unfinished(root, archive_folder(layout), kept_s=None)
    yield from _merge(root)
    known = ledgers(root)
    name = _name(1 + _newest(root, known), LedgerKind.BEGUN)
    with contextlib.ExitStack() as opened:
        have = opened.enter_context(names_of(root, stored_ledgers(known)))
        blocks = without(removed_names(root), have)
        block = next(blocks, None)
        if block is None:
            return None
        writer = LedgerWriter(files, new_archive_file(layout, name.text))
        opened.enter_context(writer)
        while block is not None and writer.messages < limit:
            writer.append(block[: limit - writer.messages])
            block = next(blocks, None)
        yield from _put(root, writer, name)
    _forget(root, [each for each in known if each.kind is not LedgerKind.STORED])
    return _batch(root, name)


def _merge(root: Root) -> Steps[None]:
    """Merges the stored ledgers if there are many."""
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
    """Gives a written ledger its final name. Durable on return: yes."""
    writer.finish(name.first, name.seq)
    yield Flush(files=(writer.descriptor,))
    root.files.rename(writer.path, ledger_path(root.layout, name))
    yield Flush(folders=(archive_folder(root.layout),))


def _end(root: Root, batch: ArchiveBatch) -> Steps[None]:
    """Renames a batch's ledger to a stored one. Durable on return: yes."""
    files, target = root.files, ledger_path(root.layout, _name(batch.seq, LedgerKind.STORED))
    try:
        files.rename(batch.path, target)
    except OSError as error:
        # It was done before, or NFS did it and lost the answer.
        if not is_gone(error):
            raise
        if files.status(target) is None:
            raise ArchiveNotEnabled from None
    yield Flush(folders=(archive_folder(root.layout),))


def _keep_number(root: Root) -> Steps[None]:
    """Keeps the last batch's number when its ledger is removed."""
    newest = _newest(root, ledgers(root))
    if newest > last_of_disabled(root):
        content = json.dumps({"version": _VERSION, "after": newest}).encode("ascii")
        path = ended_path(root.layout)
        yield from write_over(root.files, new_archive_file(root.layout, "ended"), path, content)


def _newest(root: Root, known: Sequence[LedgerName]) -> int:
    return max((last_of_disabled(root), *(name.seq for name in known)))


def last_of_disabled(root: Root) -> int:
    """The last batch's number when an archive was last disabled; 0: none was. Raises
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
    """Unlinks ledgers. Durable on return: no."""
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
