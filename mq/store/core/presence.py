"""Whether the root that a daemon opened is at its path.

A mount may go while daemons run. The path then leads to nothing, or to the folder below the mount
point, which may hold another root: changes there are hidden once the mount is back. So a
daemon knows its root by device and inode, and does nothing while another, or none, is in its place.
"""

import contextlib
import errno
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from mq.model.errors import NoInodes, NoSpace, RootAway, Unavailable
from mq.model.log import logger
from mq.store.disk.files import Files
from mq.store.disk.flush import Failures, Flusher, Session
from mq.store.disk.mounts import file_system_of
from mq.store.disk.steps import Flush
from mq.store.format.layout import Layout

_log = logger("mq.root")

# Nothing is at the path, or its file system is gone: a mount whose server has ended, too.
_GONE: Final = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE, errno.ENOTCONN)


@dataclass(frozen=True, slots=True)
class Identity:
    """What tells one root from another. A mount that comes back may have another device number; the
    inodes of the root's folders and the time of its `format` file are the same.
    """

    device: int
    folder: int
    queues: int
    made_ns: int

    @classmethod
    def of(cls, layout: Layout, files: Files) -> "Identity | None":
        """That of the root at the path; None where there is none. Raises OSError."""
        found = [files.status(path) for path in (layout.root, layout.queues, layout.format)]
        top, queues, line = found
        if top is None or queues is None or line is None:
            return None
        return cls(top.st_dev, top.st_ino, queues.st_ino, line.st_mtime_ns)

    def __str__(self) -> str:
        return f"{self.device}-{self.folder}-{self.queues}-{self.made_ns}"

    def is_of(self, found: "Identity", has_inodes: bool = True) -> bool:
        """Whether the root that was found is this one. `has_inodes`: inodes have numbers that
        stay.
        """
        if has_inodes and (found.folder, found.queues) != (self.folder, self.queues):
            return False
        return found.device == self.device or found.made_ns == self.made_ns

    @classmethod
    def parse(cls, text: str) -> "Identity":
        """Reads what `str` wrote. Raises ValueError."""
        device, folder, queues, made_ns = map(int, text.split("-"))
        return cls(device, folder, queues, made_ns)


class Presence:
    """Looks whether the root is there. Any thread may use it."""

    def __init__(self, layout: Layout, files: Files, known: Identity | None = None) -> None:
        """`known`: the root that was opened; None: whatever is at the path is the root."""
        self.is_away = False
        """Whether it was not there at the last look."""
        self._layout = layout
        self._files = files
        self.known = known
        """With the present number of its device."""
        file_system = file_system_of(layout.root)
        self._has_inodes = file_system.has_inodes
        self._is_quick = self._has_inodes and not file_system.over_network

    def refuse_away(self) -> None:
        """Raises RootAway if it was not there at the last look. Never blocks."""
        if self.is_away:
            if self._is_quick:
                self.look()
            if self.is_away:
                raise RootAway(self._layout.root)

    def check(self) -> None:
        """Raises RootAway unless the root is there; OSError where that cannot be seen."""
        if self.known is not None:
            self._look(self.known)
            if self.is_away:
                raise RootAway(self._layout.root)

    def explained(self, error: BaseException) -> BaseException:
        """What a failed operation is answered with: RootAway or NoInodes, where that is the reason.
        Never blocks.
        """
        if isinstance(error, Unavailable):
            if self._is_quick:
                self.look()
            if self.is_away:
                return RootAway(self._layout.root)
            if type(error) is NoSpace and self._is_quick and self._lacks_inodes():
                return NoInodes(str(error))
        return error

    def _lacks_inodes(self) -> bool:
        with contextlib.suppress(OSError):
            return self._files.lacks_inodes(self._layout.root)
        return False

    def is_here(self) -> bool:
        """Whether the root is certainly there: one call, for each flush."""
        known = self.known
        if known is None:
            return True
        try:
            top = os.stat(self._layout.root)
        except OSError:
            return False
        return top.st_ino == known.folder and top.st_dev == known.device and not self.is_away

    def failure(self) -> OSError | None:
        """What the flushes of operations have failed with, as they may be those of another root."""
        try:
            self.check()
        except OSError as error:
            return error
        except RootAway:
            return OSError(errno.EIO, "the root is away", self._layout.root)
        return None

    def look(self) -> None:
        """Sets `is_away`; leaves it as it is where the disk fails."""
        if self.known is not None:
            with contextlib.suppress(OSError):
                self._look(self.known)

    def _look(self, known: Identity) -> None:
        try:
            top = self._files.status(self._layout.root)
            is_it = top is not None and (top.st_dev, top.st_ino) == (known.device, known.folder)
            # Most looks end here. Else its device may have another number now.
            found = known if is_it else Identity.of(self._layout, self._files)
        except OSError as error:
            if error.errno not in _GONE:
                raise
            found = None
        if found is None:
            self._went("there is no root")
        elif not known.is_of(found, self._has_inodes):
            self._went("another root is there")
        else:
            self.known = found
            if self.is_away:
                self._came_back()

    def follow(self) -> None:
        """Looks, as a daemon does now and then, and follows a change of the `format` file."""
        self.look()
        if self.known is not None and not self.is_away:
            with contextlib.suppress(OSError):
                found = Identity.of(self._layout, self._files)
                if found is not None and found.device == self.known.device:
                    self.known = found

    def _went(self, why: str) -> None:
        if not self.is_away:
            self.is_away = True
            fields = {"root": self._layout.root, "why": why}
            _log.error("the root is away; requests are refused", extra={"fields": fields})

    def _came_back(self) -> None:
        self.is_away = False
        _log.warning("the root is back", extra={"fields": {"root": self._layout.root}})


class PresentFlusher:
    """A flush policy whose flushes fail while the root is away: what an operation did by its paths
    may have been done in another root.
    """

    def __init__(self, flusher: Flusher, presence: Presence) -> None:
        self.name = flusher.name
        self._flusher = flusher
        self._presence = presence

    def session(self) -> Session:
        """See Flusher."""
        return _PresentSession(self._flusher.session(), self._presence)

    def close(self) -> None:
        self._flusher.close()


class _PresentSession:
    def __init__(self, session: Session, presence: Presence) -> None:
        self.begin = session.begin
        self.rest = session.rest
        self._flush = session.flush
        self._presence = presence

    def flush(self, asked: Mapping[int, Flush]) -> Failures:
        failures = self._flush(asked)
        if not self._presence.is_here() and (failure := self._presence.failure()) is not None:
            return dict.fromkeys(asked, failure)
        return failures
