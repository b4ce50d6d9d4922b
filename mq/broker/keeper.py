"""The settings of queues: what a process knows of them, and how it changes them.

The settings file is the truth. An operation uses settings that are at most SETTINGS_AGE_S old. A
request that comes later reads the file first, and all requests that come meanwhile wait for the
same read.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from mq.broker.accounts import Seen
from mq.broker.queue import Queue
from mq.model.errors import QueueNotFound, SettingsUnreadable, Unavailable
from mq.model.log import logger
from mq.model.settings import IN_FLIGHT_MAX, QueueSettings, check_patch
from mq.store.core.facts import SETTINGS_AGE_S, Configured, QueueFacts
from mq.store.core.root import Root
from mq.store.core.standing import queue_seen
from mq.store.disk.commit import Committer
from mq.store.format.settings import Version, settings_in, settings_version
from mq.store.scan.delayed_names import in_flight
from mq.store.settings.configure import Match, change_settings

_log = logger("mq.queue")


class Keeper:
    """The settings of a broker's queues. `defaults`: the daemon's."""

    def __init__(self, root: Root, committer: Committer, defaults: QueueSettings) -> None:
        self._root = root
        self._committer = committer
        self._defaults = defaults
        self._looks: dict[Queue, asyncio.Task[None]] = {}
        self._asked_for: set[Queue] = set()
        """Those that `refresh_all` looks at in this moment."""

    def is_fresh(self, queue: Queue) -> bool:
        """Whether the settings were read, and understood, within the last half second, by this
        object or by an operation that needed the queue's facts.
        """
        seen = queue.seen
        if seen.error is None and self._root.clock.steady_s() - seen.at_s < SETTINGS_AGE_S:
            return True
        facts = self._root.facts.fresh(queue.name)
        if facts is None or facts.unreadable is not None:
            return False
        self._take_facts(queue, facts)
        is_counted = queue.permits is None or not queue.permits.is_to_count
        return queue.seen.error is None and is_counted

    async def refresh(self, queue: Queue) -> None:
        """Reads the settings if they are due, as another process may have changed them. Settings
        that cannot be parsed keep their last good value, and `usable` raises the error.
        """
        if self.is_fresh(queue):
            return
        look = self._looks.get(queue) or self._begin_look(queue)
        await asyncio.shield(look)

    def refreshing(self, queue: Queue) -> "asyncio.Task[None] | None":
        """The read in progress, or a new one if it is due; else None. Do not cancel it."""
        if self.is_fresh(queue):
            return None
        return self._looks.get(queue) or self._begin_look(queue)

    def usable(self, queue: Queue) -> QueueSettings:
        """The queue's settings as last read. Raises SettingsUnreadable, Unavailable."""
        if queue.seen.error is not None:
            raise queue.seen.error
        return queue.settings

    async def refresh_all(self, queues: Sequence[Queue]) -> None:
        """Like `refresh`, for queues without requests: in one hop, and only where the files have
        changed. Raises Unavailable.
        """
        # If the storage hangs, repeated calls must not occupy more threads.
        due = [each for each in queues if not self.is_fresh(each) and not self._is_looked_at(each)]
        if not due:
            return
        began_s = self._root.clock.steady_s()
        self._asked_for.update(due)
        try:
            versions = await self._committer.call(self._versions, due)
        finally:
            self._asked_for.difference_update(due)
        for queue, version in zip(due, versions, strict=True):
            if queue.seen.error is None and queue.seen.file == version:
                queue.seen = replace(queue.seen, at_s=max(queue.seen.at_s, began_s))
            else:
                await self.refresh(queue)

    def _is_looked_at(self, queue: Queue) -> bool:
        return queue in self._looks or queue in self._asked_for

    def _versions(self, queues: Sequence[Queue]) -> list[Version]:
        root = self._root
        return [settings_version(root.layout, root.files, each.name) for each in queues]

    async def read(self, queue: Queue) -> Configured:
        """The effective settings as they are now, with their tag. Raises QueueNotFound,
        Unavailable.
        """
        found = await self._committer.call(self._read, queue)
        self._take(queue, found.settings, Seen(self._root.clock.steady_s(), found.version))
        await self._count(queue)
        return found

    async def change(
        self, queue: Queue, patch: Mapping[str, object], if_match: Match | None
    ) -> Configured:
        """Merges a patch into the queue's settings. Returns the new settings. Raises
        UnknownSetting, BadSetting, QueueNotFound, SettingsChanged, ShapeFixed, Unavailable, Busy.
        Durable on return: yes.
        """
        check_patch(patch)
        began_s = self._root.clock.steady_s()
        operation = change_settings(self._root, queue.name, patch, self._defaults, if_match)
        changed = await self._committer.commit_alone(operation)
        self._take(queue, changed.settings, Seen(began_s, changed.version))
        await self._count(queue)
        return changed

    def _begin_look(self, queue: Queue) -> "asyncio.Task[None]":
        look = self._looks[queue] = asyncio.create_task(self._look(queue))
        look.add_done_callback(partial(self._looked, queue))
        return look

    async def _look(self, queue: Queue) -> None:
        began_s = self._root.clock.steady_s()
        try:
            self._take_facts(queue, await self._committer.call(self._look_at, queue))
        except Unavailable as error:
            queue.seen = Seen(began_s, error=error)
        await self._count(queue)

    async def _count(self, queue: Queue) -> None:
        """Counts the messages in flight of a queue whose `in_flight_max` this mq uses for the first
        time.
        """
        limit = queue.permits
        if limit is None or not limit.is_to_count:
            return
        shown_s = queue.settings.visibility_s
        found: list[tuple[str, int]] = []
        try:
            of = (self._root, queue.name, shown_s, IN_FLIGHT_MAX)
            found = await self._committer.call(in_flight, *of)
        except Unavailable as error:
            fields = {"queue": queue.name.text, "error": repr(error)}
            _log.warning(
                "could not count the messages that consumers have; the limit begins at 0",
                extra={"fields": fields},
            )
        limit.count(found)
        queue.goes_on()

    def _read(self, queue: Queue) -> Configured:
        if not queue_seen(self._root, queue.name):
            raise QueueNotFound(queue.name.text)
        return self._root.facts.configured(queue.name, self._defaults)

    def _look_at(self, queue: Queue) -> QueueFacts:
        """Raises SettingsUnreadable, OSError."""
        facts = self._root.facts.fresh(queue.name)
        if facts is None or facts.unreadable is not None:
            facts = self._root.facts.look(queue.name)
        if facts.unreadable is not None:
            raise facts.unreadable
        return facts

    def _take_facts(self, queue: Queue, facts: QueueFacts) -> None:
        if queue.seen.error is None and queue.seen.file == facts.version:
            queue.seen = Seen(max(queue.seen.at_s, facts.looked_s), facts.version)
            return
        seen = Seen(facts.looked_s, facts.version)
        try:
            self._take(queue, settings_in(facts.fields or {}, self._defaults), seen)
        except SettingsUnreadable as error:
            queue.seen = Seen(facts.looked_s, error=error)

    def _take(self, queue: Queue, settings: QueueSettings, seen: Seen) -> None:
        before = queue.settings
        queue.settings, queue.seen = settings, seen
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
