"""The queues of a root and their settings as of the last scan: the basis of upkeep."""

import heapq
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from mq.model.errors import SettingsUnreadable
from mq.model.limits import REFRESH_EVERY_S
from mq.model.message import Stamp
from mq.model.names import QueueName
from mq.model.settings import QueueSettings
from mq.store.core.root import Root
from mq.store.format.members import refresh_path
from mq.store.format.settings import Version, settings_version
from mq.store.format.walk import named

REFRESH_FIRST_S: Final = 60.0
# The interval at which mq checks whether an operator asked for a refresh.
REFRESH_ASKED_EVERY_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Registered:
    """A queue's settings, and their file's version. None: the file is unreadable; nothing is
    guessed.
    """

    settings: QueueSettings | None
    version: Version


@dataclass(frozen=True, slots=True)
class Refreshed:
    """The result of a scan: the number of queues, of new or changed ones, and of known ones that
    are gone.
    """

    queues: int
    new: int
    changed: int
    gone: int


class Registry:
    """One process's knowledge of all queues. Blocking; for one thread at a time."""

    def __init__(
        self, root: Root, defaults: QueueSettings | None = None, every_s: float = REFRESH_EVERY_S
    ) -> None:
        """Scans every `every_s` seconds, the first time after a minute at most, and when a process
        asks all others to. Raises OSError.
        """
        self._root = root
        self._defaults = defaults or QueueSettings()
        self._every_s = every_s
        self._known: dict[QueueName, Registered] = {}
        now_s = root.clock.steady_s()
        self._again_s = now_s + min(REFRESH_FIRST_S, every_s)
        self._mark = RefreshMark(root)
        self._mark_again_s = now_s + REFRESH_ASKED_EVERY_S

    @property
    def queues(self) -> Mapping[QueueName, Registered]:
        return MappingProxyType(self._known)

    def is_due(self) -> bool:
        """Whether a scan is due; checks at most once a second whether a process asked for one.
        Raises OSError.
        """
        now_s = self._root.clock.steady_s()
        if now_s >= self._mark_again_s:
            self._mark_again_s = now_s + REFRESH_ASKED_EVERY_S
            if self._mark.has_changed():
                self._again_s = now_s
        return now_s >= self._again_s

    def next_due_s(self) -> float:
        """Seconds until the next scan or check."""
        soonest_s = min(self._again_s, self._mark_again_s)
        return max(0.0, soonest_s - self._root.clock.steady_s())

    def refresh_if_due(self) -> bool:
        """Scans if that is due. Returns whether it was. Raises OSError."""
        if not self.is_due():
            return False
        self.refresh()
        return True

    def refresh(self) -> Refreshed:
        """Scans all queues now; reads only settings with changed files. Raises OSError if the
        folder of queues cannot be listed: the known queues stay, until a second later.
        """
        began_s = self._root.clock.steady_s()
        self._again_s = began_s + REFRESH_ASKED_EVERY_S
        before = self._known
        found = {queue: self._look(queue) for queue in existing_queues(self._root)}
        self._known, self._again_s = found, began_s + self._every_s
        return Refreshed(
            len(found),
            len(found.keys() - before.keys()),
            sum(before[queue] != found[queue] for queue in found.keys() & before.keys()),
            len(before.keys() - found.keys()),
        )

    def ask_all(self) -> None:
        """Asks all other processes of the root to scan, too. Raises OSError. Durable on return:
        no.
        """
        self._mark.ask()

    def settings(self, queue: QueueName) -> QueueSettings | None:
        """A queue's current settings; None if they are unreadable. For a policy that is about to
        act. Raises OSError.
        """
        found = self._look(queue)
        if queue in self._known:
            self._known[queue] = found
        return found.settings

    def _look(self, queue: QueueName) -> Registered:
        version = settings_version(self._root.layout, self._root.files, queue)
        known = self._known.get(queue)
        if known is not None and known.version == version:
            return known
        try:
            return Registered(self._root.facts.configured(queue, self._defaults).settings, version)
        except SettingsUnreadable:
            return Registered(None, version)


def existing_queues(root: Root) -> Iterator[QueueName]:
    """The existing queues, in no order. Raises OSError."""
    for entry, queue in named(root.files.entries(root.layout.queues), QueueName.parse):
        if entry.is_dir(follow_symlinks=False):
            yield queue


def count_queues(root: Root) -> int:
    """The number of queues. Raises OSError."""
    return sum(1 for _ in existing_queues(root))


def list_queues(
    root: Root,
    count: int,
    after: QueueName | None = None,
    is_wanted: Callable[[QueueName], bool] = lambda _: True,
) -> list[QueueName]:
    """Up to `count` wanted queues by name, from the first one after `after`, which need not exist.
    Raises OSError.
    """
    behind = (
        each
        for each in existing_queues(root)
        if (after is None or each > after) and is_wanted(each)
    )
    return heapq.nsmallest(count, behind)


class RefreshMark:
    """One process's view of the refresh file. Blocking; for one thread at a time."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._path = refresh_path(root.layout)
        self._seen: tuple[int, int] | None = self._look()

    def has_changed(self) -> bool:
        """Whether a process has asked since the last call. Raises OSError."""
        seen, self._seen = self._seen, self._look()
        return self._seen is not None and self._seen != seen

    def ask(self) -> None:
        """Asks all other processes to scan; the caller scans by itself. Raises OSError. Durable on
        return: no.
        """
        files = self._root.files
        descriptor = files.open_kept(self._path)
        try:
            before_ns = files.descriptor_status(descriptor).st_mtime_ns
            now_ns = Stamp(self._root.now_ms()).mtime_ns()
            # Requests in one millisecond, or with differing clocks, must still differ.
            files.stamp(descriptor, max(now_ns, before_ns + 1))
        finally:
            files.close(descriptor)
        self._seen = self._look()

    def _look(self) -> tuple[int, int] | None:
        status = self._root.files.status(self._path)
        return None if status is None else (status.st_ino, status.st_mtime_ns)
