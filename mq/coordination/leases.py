"""Leases in members/: a member's own, and the members that others' leases show.

FORMAT.md, "Members". A lease is an empty file. Its mtime is the time at which the member was last
alive, by the clock of the root's file system.
"""

import contextlib
from dataclasses import dataclass
from typing import Final

from mq.model.errors import BadName, StartupError
from mq.model.message import Stamp
from mq.store.core.moves import named_status
from mq.store.core.root import Root, unlink_if_there
from mq.store.format.members import Of, member_path, parse_member_file

MEMBER_FORGOTTEN_S: Final = 3600.0


class Lease:
    """A member's own lease. For one thread."""

    def __init__(self, root: Root, member: str) -> None:
        self._root = root
        self._member = member
        self._path = member_path(root.layout, member, Of.LEASE)
        self._descriptor: int | None = None

    def renew(self) -> None:
        """Creates or renews the lease. Raises OSError; StartupError when another process has the
        member's name.
        """
        if not self.is_there():
            self.close()
            self._descriptor = self._open()
        if self._descriptor is not None:
            self._root.files.stamp(self._descriptor, Stamp(self._root.now_ms()).mtime_ns())

    def is_there(self) -> bool:
        """Whether the file is still this lease: another member may have removed it as an old one.
        Raises OSError.
        """
        if self._descriptor is None:
            return False
        return named_status(self._root, self._path, self._descriptor) is not None

    def leave(self) -> None:
        """Removes the lease. Raises OSError."""
        if self._descriptor is not None:
            try:
                unlink_if_there(self._root.files, self._path)
            finally:
                self.close()

    def close(self) -> None:
        """Closes the file and leaves it as it is."""
        if self._descriptor is not None:
            self._root.files.close(self._descriptor)
            self._descriptor = None

    def _open(self) -> int:
        files = self._root.files
        descriptor = files.open_kept(self._path)
        try:
            if files.lock(descriptor):
                return descriptor
        except BaseException:
            files.close(descriptor)
            raise
        files.close(descriptor)
        raise StartupError(f"another process is the member {self._member}; use another --member")


@dataclass(slots=True)
class _Sight:
    """Another member's lease, as this process has seen it."""

    mtime_ns: int
    since_s: float
    has_changed: bool = False


class Sightings:
    """The living members. A lease counts while this process sees renewals, by its own steady clock;
    wall time counts only for a lease whose renewals it has not seen yet. For one thread.
    """

    def __init__(self, root: Root, gone_s: float) -> None:
        self._root = root
        self._gone_s = gone_s
        self._seen: dict[str, _Sight] = {}

    def look(self, member: str) -> tuple[str, ...]:
        """The living members in the order of names, `member` always included. Raises OSError."""
        files, now_s = self._root.files, self._root.clock.steady_s()
        found: dict[str, _Sight] = {}
        for entry in files.entries(self._root.layout.members):
            with contextlib.suppress(BadName, FileNotFoundError):
                each, of = parse_member_file(entry.name)
                if of is Of.LEASE:
                    mtime_ns = entry.stat(follow_symlinks=False).st_mtime_ns
                    found[each] = self._sight(each, mtime_ns, now_s)
        self._seen = found
        there = {each for each, sight in found.items() if self._is_there(sight, now_s)}
        return tuple(sorted(there | {member}))

    def forget(self, member: str) -> None:
        """Removes leases of members that have long been gone. Raises OSError."""
        now_s, long_ago_ms = self._root.clock.steady_s(), MEMBER_FORGOTTEN_S * 1000
        for each, sight in self._seen.items():
            age_ms = self._root.now_ms() - Stamp.from_mtime_ns(sight.mtime_ns).due_ms
            if each != member and age_ms > long_ago_ms and not self._is_there(sight, now_s):
                unlink_if_there(self._root.files, member_path(self._root.layout, each, Of.LEASE))

    def _sight(self, member: str, mtime_ns: int, now_s: float) -> _Sight:
        seen = self._seen.get(member)
        if seen is None:
            return _Sight(mtime_ns, now_s)
        return seen if seen.mtime_ns == mtime_ns else _Sight(mtime_ns, now_s, has_changed=True)

    def _is_there(self, sight: _Sight, now_s: float) -> bool:
        if now_s - sight.since_s >= self._gone_s:
            return False
        age_ms = self._root.now_ms() - Stamp.from_mtime_ns(sight.mtime_ns).due_ms
        return sight.has_changed or age_ms < self._gone_s * 1000
