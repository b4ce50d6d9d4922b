"""Looks at what a root says of its archive."""

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from mq.model.errors import ArchiveUnreadable
from mq.store.archive.archiving import archive_mark, last_of_disabled
from mq.store.archive.ledger import OpenLedger
from mq.store.audit.breaches import Breach, Look, Violation
from mq.store.audit.looks import NOTHING, Looker
from mq.store.disk.files import FOLDER_MODE, is_gone
from mq.store.format.archive import LedgerName, archive_folder, ended_path, mark_path


class ArchiveLooker(Looker):
    """Of archive/. That a ledger names what is gone is no breach; what reads it finds that out."""

    def _archive(self) -> Iterator[Look]:
        folder = archive_folder(self._layout)
        yield partial(self._kept, folder, FOLDER_MODE)
        read: dict[str, Callable[[], object]] = {
            mark_path(self._layout): lambda: archive_mark(self._root),
            ended_path(self._layout): lambda: last_of_disabled(self._root),
        }
        for found in self._listed(folder):
            if not isinstance(found, os.DirEntry):
                yield found
            elif found.is_symlink():
                yield partial(self._symlink, found.path)
            elif found.name.startswith("."):
                self.amounts.hidden += 1
            elif found.path in read:
                yield partial(self._kept_file, found.path)
                yield partial(self._said, found.path, read[found.path])
            elif (name := self._parsed(LedgerName.parse, found.name)) is not None:
                yield partial(self._kept_file, found.path)
                yield partial(self._said, found.path, partial(self._ledger, name))

    def _said(self, path: str, read: Callable[[], object]) -> Sequence[Violation]:
        status = self._root.files.status(path)
        if status is None or not stat.S_ISREG(status.st_mode):
            return NOTHING  # Told of by itself.
        try:
            read()
        except ArchiveUnreadable as error:
            return (Violation(Breach.ARCHIVE, path, error.why),)
        except OSError as error:
            if not is_gone(error):
                raise
        return NOTHING

    def _ledger(self, name: LedgerName) -> None:
        with OpenLedger(self._root, name):
            return
