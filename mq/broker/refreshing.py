"""The settings of queues: what a process knows of them, and how it changes them.

The settings file is the truth. A request uses settings that are at most SETTINGS_AGE_S old, as all
operations of the process do (`mq.store.core.facts`). A request that comes later looks first, and
all requests that come meanwhile wait for the same look.
"""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial

from mq.broker.counting import Counter
from mq.broker.queue import Queue
from mq.model.errors import QueueNotFound, SettingsUnreadable, Unavailable, unavailable
from mq.model.settings import QueueSettings, check_patch
from mq.store.core.facts import Configured, QueueFacts
from mq.store.core.root import Root
from mq.store.core.standing import queue_seen
from mq.store.disk.commit import Committer
from mq.store.format.settings import settings_in
from mq.store.settings.configure import Match, change_settings


class Refresher:
    """The settings of a broker's queues. `defaults`: the daemon's."""

    def __init__(
        self, root: Root, committer: Committer, counter: Counter, defaults: QueueSettings
    ) -> None:
        self._root = root
        self._committer = committer
        self._counter = counter
        self._defaults = defaults
        self._looks: dict[Queue, asyncio.Task[None]] = {}
        self._looked_at: set[Queue] = set()
        """Those that `refresh_all` looks at: a request that meets one looks by itself."""

    def is_fresh(self, queue: Queue) -> bool:
        """Whether the settings were read, and understood, within the last half second, for a
        request or for any operation.
        """
        facts = self._root.facts.fresh(queue.name)
        if facts is None or facts.unreadable is not None:
            return False
        if facts is not queue.facts:
            self._take(queue, facts)
        is_counted = queue.permits is None or not queue.permits.is_to_count
        return queue.trouble is None and is_counted

    async def refresh(self, queue: Queue) -> None:
        """Looks at the settings if that is due, as another process may have changed them. Settings
        that cannot be parsed keep their last good value, and `usable` raises the error.
        """
        if (look := self.refreshing(queue)) is not None:
            await asyncio.shield(look)

    def refreshing(self, queue: Queue) -> "asyncio.Task[None] | None":
        """The look in progress, or a new one if it is due; else None. Do not cancel it."""
        if self.is_fresh(queue):
            return None
        return self._looks.get(queue) or self._begin_look(queue)

    async def refresh_all(self, queues: Sequence[Queue]) -> None:
        """Like `refresh`, for queues without requests: in one hop."""
        # If the storage hangs, repeated calls must not occupy more threads.
        known = self._looks.keys() | self._looked_at
        due = [each for each in queues if each not in known and not self.is_fresh(each)]
        if not due:
            return
        self._looked_at.update(due)
        try:
            await self._look(due)
        finally:
            self._looked_at.difference_update(due)

    def usable(self, queue: Queue) -> QueueSettings:
        """The queue's settings as last read. Raises SettingsUnreadable, Unavailable."""
        if queue.trouble is not None:
            raise queue.trouble
        return queue.settings

    async def read(self, queue: Queue) -> Configured:
        """The effective settings as they are now, with their tag. Raises QueueNotFound,
        Unavailable.
        """
        return await self._committer.call(self._read, queue)

    async def change(
        self, queue: Queue, patch: Mapping[str, object], if_match: Match | None
    ) -> Configured:
        """Merges a patch into the queue's settings. Returns the new settings. Raises
        UnknownSetting, BadSetting, QueueNotFound, SettingsChanged, ShapeFixed, Unavailable, Busy.
        Durable on return: yes.
        """
        check_patch(patch)
        operation = change_settings(self._root, queue.name, patch, self._defaults, if_match)
        changed = await self._committer.commit_alone(operation)
        # A look that is in progress may have begun before the change.
        await self._look((queue,))
        return changed

    def _begin_look(self, queue: Queue) -> "asyncio.Task[None]":
        look = self._looks[queue] = asyncio.create_task(self._look((queue,)))
        look.add_done_callback(partial(self._looked, queue))
        return look

    async def _look(self, queues: Sequence[Queue]) -> None:
        try:
            found = await self._committer.call(self._look_at, queues)
        except Unavailable as error:
            for queue in queues:
                queue.trouble = error
            return
        for queue, facts in zip(queues, found, strict=True):
            self._take(queue, facts)
        for queue in queues:
            await self._counter.count(queue)

    def _read(self, queue: Queue) -> Configured:
        if not queue_seen(self._root, queue.name):
            raise QueueNotFound(queue.name.text)
        return self._root.facts.configured(queue.name, self._defaults)

    def _look_at(self, queues: Sequence[Queue]) -> list[QueueFacts]:
        return [self._root.facts.look(each.name) for each in queues]

    def _take(self, queue: Queue, facts: QueueFacts) -> None:
        known, before = queue.facts, queue.settings
        if known is not None and facts.stale_s < known.stale_s:
            return  # Of a look that began before.
        had_trouble, queue.facts, queue.trouble = queue.trouble is not None, facts, None
        if facts.unreadable is not None:
            error = facts.unreadable
            queue.trouble = unavailable(error) if isinstance(error, OSError) else error
            return
        if known is not None and known.fields is facts.fields and not had_trouble:
            return
        try:
            settings = queue.settings = settings_in(facts.fields or {}, self._defaults)
        except SettingsUnreadable as error:
            queue.trouble = error
            return
        if settings.message_ttl_s != before.message_ttl_s:
            queue.serves_others()
        if settings.is_single != before.is_single:
            queue.is_consumed_otherwise()
        if settings.delivery_limits != before.delivery_limits:
            queue.is_limited_otherwise()
        if settings.gives and not before.gives:
            queue.goes_on()

    def _looked(self, queue: Queue, look: "asyncio.Task[None]") -> None:
        del self._looks[queue]
