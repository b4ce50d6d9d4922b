"""What a process knows of its queues' settings, and how it changes them.

Truth is the file. Where a queue is used what is known is at most SETTINGS_AGE_S old: a request that
comes later looks first, and all who come meanwhile wait for the same look.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from mq.broker.accounts import Seen
from mq.broker.queue import Queue
from mq.model.errors import QueueNotFound, Unavailable
from mq.model.limits import SETTINGS_AGE_S
from mq.model.settings import QueueSettings, check_patch
from mq.store.core.root import Root
from mq.store.core.standing import queue_seen
from mq.store.disk.commit import Committer
from mq.store.format.settings import Version, settings_version
from mq.store.settings.configure import Configured, Match, change_settings


class Keeper:
    """The settings of a broker's queues. `defaults` are the daemon's own."""

    def __init__(self, root: Root, committer: Committer, defaults: QueueSettings) -> None:
        self._root = root
        self._committer = committer
        self._defaults = defaults
        self._looks: dict[Queue, asyncio.Task[None]] = {}
        self._asked_for: set[Queue] = set()
        """Those that `refresh_all` looks at in this moment."""

    def is_fresh(self, queue: Queue) -> bool:
        """Whether what is known was looked at a moment ago, and understood."""
        return (
            queue.seen.error is None
            and self._root.clock.steady_s() - queue.seen.at_s < SETTINGS_AGE_S
        )

    async def refresh(self, queue: Queue) -> None:
        """Looks whether another process has changed them, where that is due. What cannot be
        understood is told by `usable`, and until then the last that was known stays.
        """
        if self.is_fresh(queue):
            return
        look = self._looks.get(queue) or self._begin_look(queue)
        await asyncio.shield(look)

    def refreshing(self, queue: Queue) -> "asyncio.Task[None] | None":
        """The look that goes on, or begins here, where one is due; nobody may cancel it."""
        if self.is_fresh(queue):
            return None
        return self._looks.get(queue) or self._begin_look(queue)

    def usable(self, queue: Queue) -> QueueSettings:
        """The queue's settings as last looked at. Raises SettingsUnreadable, Unavailable."""
        if queue.seen.error is not None:
            raise queue.seen.error
        return queue.settings

    async def refresh_all(self, queues: Sequence[Queue]) -> None:
        """Like `refresh` of queues of which nobody asks for anything, in one hop, and only where
        their files are others by now. Raises Unavailable.
        """
        # Where the storage hangs, no more threads are to wait for it with each call.
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
        """The effective settings, and what tells them from others, as they are now. Raises
        QueueNotFound, Unavailable.
        """
        found = await self._committer.call(self._read, queue)
        self._take(queue, found, self._root.clock.steady_s())
        return found

    async def change(
        self, queue: Queue, patch: Mapping[str, object], if_match: Match | None
    ) -> Configured:
        """Merges a patch into the queue's settings; what they are then. Raises UnknownSetting,
        BadSetting, QueueNotFound, SettingsChanged, ShapeFixed, Unavailable, Busy. Durable: yes.
        """
        check_patch(patch)
        began_s = self._root.clock.steady_s()
        operation = change_settings(self._root, queue.name, patch, self._defaults, if_match)
        changed = await self._committer.commit_alone(operation)
        self._root.history.look_again(queue.name)
        self._take(queue, changed, began_s)
        return changed

    def _begin_look(self, queue: Queue) -> "asyncio.Task[None]":
        look = self._looks[queue] = asyncio.create_task(self._look(queue))
        look.add_done_callback(partial(self._looked, queue))
        return look

    async def _look(self, queue: Queue) -> None:
        began_s = self._root.clock.steady_s()
        known = None if queue.seen.error else queue.seen.file
        try:
            found = await self._committer.call(self._read_other, queue, known)
        except Unavailable as error:
            queue.seen = Seen(began_s, error=error)
            return
        if found is None:
            queue.seen = replace(queue.seen, at_s=began_s)
        else:
            self._take(queue, found, began_s)

    def _read(self, queue: Queue) -> Configured:
        if not queue_seen(self._root, queue.name):
            raise QueueNotFound(queue.name.text)
        return Configured.read(self._root, queue.name, self._defaults)

    def _read_other(self, queue: Queue, known: Version | None) -> Configured | None:
        """None: the file is the one that is known."""
        if settings_version(self._root.layout, self._root.files, queue.name) == known:
            return None
        return Configured.read(self._root, queue.name, self._defaults)

    def _take(self, queue: Queue, found: Configured, seen_s: float) -> None:
        before = queue.settings.message_ttl_s
        queue.settings, queue.seen = found.settings, Seen(seen_s, found.version)
        if found.settings.message_ttl_s != before:
            queue.serves_others()

    def _looked(self, queue: Queue, look: "asyncio.Task[None]") -> None:
        del self._looks[queue]
