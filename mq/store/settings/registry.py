"""The queues of a root and their settings, as they were when last looked at: what whoever looks
after all of them works from.
"""

import contextlib
import heapq
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from mq.model.errors import BadName, SettingsUnreadable
from mq.model.lifecycle import State
from mq.model.names import QueueName
from mq.model.settings import QueueSettings
from mq.model.upkeep_limits import REFRESH_ASKED_EVERY_S, REFRESH_EVERY_S, REFRESH_FIRST_S
from mq.store.core.root import Root
from mq.store.format.settings import Version, settings_version
from mq.store.settings.configure import Configured
from mq.store.settings.refreshing import RefreshMark


@dataclass(frozen=True, slots=True)
class Registered:
    """A queue: its settings, and which file says so. None: its file cannot be understood, and
    nothing is guessed.
    """

    settings: QueueSettings | None
    version: Version


@dataclass(frozen=True, slots=True)
class Refreshed:
    """What a look found: how many queues there are, how many of them this process did not know,
    or knew with other settings, and how many of those that it knew are gone.
    """

    queues: int
    new: int
    changed: int
    gone: int


class Registry:
    """What one process knows of all queues. Blocking; for one thread at a time."""

    def __init__(
        self,
        root: Root,
        defaults: QueueSettings | None = None,
        every_s: float = REFRESH_EVERY_S,
    ) -> None:
        """It looks every `every_s` seconds, first after a minute, or sooner where that is more
        often, and when anybody asks all processes to. Raises OSError.
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
        """Those that there were."""
        return MappingProxyType(self._known)

    def is_due(self) -> bool:
        """Whether to look now; asks at most once a second whether anybody wants it. Raises
        OSError.
        """
        now_s = self._root.clock.steady_s()
        if now_s >= self._mark_again_s:
            self._mark_again_s = now_s + REFRESH_ASKED_EVERY_S
            if self._mark.has_changed():
                self._again_s = now_s
        return now_s >= self._again_s

    def next_due_s(self) -> float:
        """Seconds until there is something to do, be it to ask whether there is."""
        soonest_s = min(self._again_s, self._mark_again_s)
        return max(0.0, soonest_s - self._root.clock.steady_s())

    def refresh_if_due(self) -> bool:
        """Refreshes when that is due; whether it was. Raises OSError."""
        if not self.is_due():
            return False
        self.refresh()
        return True

    def refresh(self) -> Refreshed:
        """Looks at all now; only settings whose file is another are read. Raises OSError when the
        folder of queues cannot be listed; what was known stays known then, until a second later.
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
        """Asks all other processes of the root to look too. Raises OSError. Durable: no."""
        self._mark.ask()

    def settings(self, queue: QueueName) -> QueueSettings | None:
        """A queue's settings as they are now; None where they cannot be understood. For a policy
        that is about to act. Raises OSError.
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
            return Registered(Configured.read(self._root, queue, self._defaults).settings, version)
        except SettingsUnreadable:
            return Registered(None, version)


def existing_queues(root: Root) -> Iterator[QueueName]:
    """The queues that there are, in no order. Raises OSError."""
    for entry in root.files.entries(root.layout.folder(State.READY)):
        with contextlib.suppress(BadName):
            if entry.is_dir(follow_symlinks=False):
                yield QueueName.parse(entry.name)


def count_queues(root: Root) -> int:
    """How many queues there are. Raises OSError."""
    return sum(1 for _ in existing_queues(root))


def list_queues(
    root: Root,
    count: int,
    after: QueueName | None = None,
    is_wanted: Callable[[QueueName], bool] = lambda _: True,
) -> list[QueueName]:
    """Up to so many of the queues that there are and are wanted, by name, from the one on that
    comes after `after`, whether that is there or not. Raises OSError.
    """
    behind = (
        each
        for each in existing_queues(root)
        if (after is None or each > after) and is_wanted(each)
    )
    return heapq.nsmallest(count, behind)
