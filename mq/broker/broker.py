"""The queues that this process has used, and all operations that requests need."""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from mq.broker.accounts import Description, Totals
from mq.broker.consumers import Consuming
from mq.broker.counting import Counter
from mq.broker.describing import Describer
from mq.broker.gathering import Gathering
from mq.broker.limits import Limits
from mq.broker.memory import Memory, Reservation
from mq.broker.packs import Packs
from mq.broker.permits import Permits, SharedPermits
from mq.broker.publisher import Publisher
from mq.broker.purger import Purger, retire
from mq.broker.queue import Queue
from mq.broker.ready import IdBudget, Share
from mq.broker.refreshing import Refresher
from mq.broker.scanning import ScanLimits
from mq.broker.siblings import Siblings
from mq.broker.sidelining import Sideliner
from mq.broker.turns import Turns
from mq.broker.watching import Listening, Watching
from mq.model.errors import MessageNotFound, MqError, PublishPurged, QueueNotFound, Unavailable
from mq.model.failure import Failure
from mq.model.limits import MEMORY_BYTES_DEFAULT, SHARDS_MAX, WAITERS_MAX_DEFAULT
from mq.model.log import logger
from mq.model.message import PLAIN, Delivery, Envelope, GivenBack, Page, Stamp
from mq.model.names import Key, MessageId, QueueName, UuidSource
from mq.model.settings import QueueSettings
from mq.store.core.facts import Configured
from mq.store.core.find import Precondition
from mq.store.core.root import Root
from mq.store.core.standing import queue_exists
from mq.store.disk.commit import Committer
from mq.store.keys.entries import drop_stale
from mq.store.operations.peek import Head, Peeked, list_heads, peek
from mq.store.operations.queues import ANY_SHAPE, WantedShape, create_queue, delete_queue
from mq.store.operations.read import Choice, Reading
from mq.store.operations.release import release_many
from mq.store.operations.remove import Wanted, find_key, remove_by_key, remove_many
from mq.store.operations.reschedule import reschedule
from mq.store.operations.streams import Upload, reading
from mq.store.operations.tagged import TagPage, list_tagged
from mq.store.settings.configure import Match

_log = logger("mq.broker")

T = TypeVar("T")


class Broker:
    """All operations for HTTP. Create and use it on the event loop's thread."""

    def __init__(
        self,
        root: Root,
        committer: Committer,
        settings: QueueSettings,
        peers: int = 0,
        chance: random.Random | None = None,
        peer_index: int | None = None,
        listening: Listening | None = None,
        memory_bytes: int = MEMORY_BYTES_DEFAULT,
        waiters_max: int = WAITERS_MAX_DEFAULT,
        siblings: Siblings | None = None,
        permits: SharedPermits | None = None,
    ) -> None:
        self.root = root
        self.permits = Permits(root.now_ms, root.clock.steady_s, permits)
        self.siblings = siblings
        self.committer = committer
        self._settings = settings
        chance = chance or random.Random()
        self.share = Share(
            peers, chance.randrange(SHARDS_MAX) if peer_index is None else peer_index, chance
        )
        self.memory = Memory(memory_bytes)
        self.ids = IdBudget()
        self.scan_limits = ScanLimits()
        self._uuids = UuidSource(root.clock)
        self._counter = Counter(root, committer)
        self.refresher = Refresher(root, committer, self._counter, settings)
        self.describer = Describer(root, committer)
        self._purger = Purger(root, committer, self._uuids)
        self.packs = Packs(root, committer, self._parted)
        self.sidelines = Sideliner(root, committer, self.used, self._failed)
        self._limits = Limits(root, committer, self.sidelines, self.begin)
        self.publisher = Publisher(
            root, committer, self._uuids, self.refresher, self._limits, self._failed
        )
        self._listening = listening or Listening()
        self._watching = Watching(root, committer, self.refresher, self._listening, siblings)
        self.consuming = Consuming(self, waiters_max)
        """Fetches, long polls and subscriptions."""
        self._queues: dict[str, Queue] = {}
        self.gone_totals = Totals()
        """Of queues that this process uses no more."""
        self._turns = Turns()
        self._removing = Gathering(committer, partial(remove_many, root))
        self.background: set[asyncio.Task[Any]] = set()
        self.others_give_turn: Callable[[QueueName, str], Awaitable[bool]] | None = None
        """Asks the other processes of this mq, where there are some: see Process."""

    async def create_queue(self, name: QueueName, wanted: WantedShape = ANY_SHAPE) -> bool:
        """Creates a queue; False when it existed. Raises Busy, NameTaken, ShapeFixed, Unavailable.
        Durable on return: yes.
        """

        def make() -> Awaitable[bool]:
            return self.committer.commit_alone(create_queue(self.root, name, wanted))

        # To flush a queue that another process made needs no turn.
        is_there = await self.committer.call(queue_exists, self.root, name)
        created = await (make() if is_there else self._turns.take(make))
        self._known(name)
        return created

    async def delete_queue(self, name: QueueName) -> None:
        """Deletes a queue and its messages, and completes this when the caller is cancelled. Raises
        QueueNotFound, Busy. Durable on return: yes.
        """
        await asyncio.shield(self.begin(self._delete_queue(name)))

    async def _delete_queue(self, name: QueueName) -> None:
        uuid, queue = self._uuids.next(), self._queues.get(name.text)

        async def delete() -> None:
            in_flight = self.permits.entries(name)
            await self.committer.commit_alone(delete_queue(self.root, name, uuid))
            self.permits.end_all(name, in_flight)

        try:
            await self._turns.take(delete)
        except QueueNotFound:
            self.forget(queue)
            raise
        self.forget(queue)
        self.begin(retire(self.root, self.committer, self._turns, name))

    async def settings(self, name: QueueName) -> Configured:
        """The queue's effective settings. Raises QueueNotFound, Unavailable."""
        queue = await self.queue(name)
        return await self._to_the_end(queue, self.refresher.read(queue))

    async def change_settings(
        self, name: QueueName, patch: Mapping[str, object], if_match: Match | None
    ) -> Configured:
        """Merges a patch into the queue's settings. Returns the new settings. Raises
        UnknownSetting, BadSetting, QueueNotFound, SettingsChanged, ShapeFixed, Unavailable. Durable
        on return: yes.
        """
        queue = await self.queue(name)
        return await self._to_the_end(
            queue, self._turns.take(lambda: self.refresher.change(queue, patch, if_match))
        )

    async def purge(self, name: QueueName) -> int:
        """Stops the delivery of all messages that were published so far. Returns the time up to
        which they are purged, in milliseconds since the epoch. Raises QueueNotFound, Unavailable.
        Durable on return: yes.
        """
        queue = await self.queue(name)
        marked_ms = await self._to_the_end(queue, self._turns.take(lambda: self._mark(queue)))
        self.begin(self._purger.take_away(name))
        await self._purger.settle()
        return marked_ms

    async def _mark(self, queue: Queue) -> int:
        # Messages that are delivered from here on may be younger than the mark.
        in_flight = self.permits.entries(queue.name)
        marked_ms = await self._purger.mark(queue)
        self.permits.end_all(queue.name, in_flight)
        return marked_ms

    async def _to_the_end(self, queue: Queue, work: Coroutine[Any, Any, T]) -> T:
        """Completes the work when the caller is cancelled."""
        task = self.begin(work)
        task.add_done_callback(partial(self._ended, queue))
        return await asyncio.shield(task)

    async def describe(self, name: QueueName) -> tuple[Queue, Description]:
        """The queue and its counts. Raises QueueNotFound, Unavailable."""
        queue = await self.queue(name)
        self.refresher.usable(queue)
        try:
            return queue, await self.describer.describe(queue)
        except QueueNotFound:
            self.forget(queue)
            raise

    async def publish(
        self,
        name: QueueName,
        body: bytes | bytearray,
        envelope: Envelope = PLAIN,
        reservation: Reservation | None = None,
    ) -> MessageId:
        """Publishes a body in memory, which `reservation` counts. Raises QueueNotFound, KeyTaken,
        DueTooFar, Unavailable. Durable on return: yes.
        """
        queue = await self.queue(name)
        return await asyncio.shield(self.publisher.begin(queue, body, envelope, reservation))

    async def upload(self, name: QueueName, envelope: Envelope = PLAIN) -> Upload:
        """Begins a publish whose body is written in parts. Raises QueueNotFound, Unavailable.
        Durable on return: no.
        """
        return await self.publisher.upload(await self.queue(name), envelope)

    async def finish(self, name: QueueName, upload: Upload) -> MessageId:
        """Ends an upload. Raises QueueNotFound, KeyTaken, Unavailable. Durable on return: yes."""
        return await self.publisher.finish(await self.queue(name), upload)

    def stop_waiting(self) -> None:
        """Answers all waits with None; later ones do not wait."""
        self.consuming.stop_waiting()
        for queue in self.in_use():
            if queue.active is not None:
                queue.active.close()
        self._limits.stop()
        self._purger.stop()

    def remove(
        self, name: QueueName, message_id: MessageId, if_receives: Precondition | None = None
    ) -> "asyncio.Future[bool]":
        """Deletes a pack, or a message with a file of its own; see `settling`. The result is False
        when the message was removed before. Do not cancel the future.
        """
        ended = partial(self._removed, name, self._queues.get(name.text), message_id)
        return self._removing.add(name, Wanted(message_id, if_receives), ended)

    def _removed(
        self, name: QueueName, queue: Queue | None, message_id: MessageId, end: bool | BaseException
    ) -> None:
        """`queue`: as this process had used it before."""
        if isinstance(end, BaseException):
            self._failed(queue, end)
            if isinstance(end, MessageNotFound) and self.permits.are_used:
                self.permits.ended(name, message_id.text)
            return
        (queue or self._known(name)).totals.deleted += end * (message_id.items or 1)
        if message_id.group or self.permits.are_used:
            self._let_go(name, message_id)

    def _let_go(self, name: QueueName, message_id: MessageId) -> None:
        if (queue := self._queues.get(name.text)) is not None:
            queue.let_go(message_id)

    async def find_key(self, name: QueueName, key: Key) -> MessageId:
        """The living message that has the lookup key. Raises QueueNotFound, KeyNotFound,
        Unavailable.
        """
        return await self.committer.commit(find_key(self.root, name, key))

    async def remove_by_key(
        self, name: QueueName, key: Key, if_receives: Precondition | None = None
    ) -> None:
        """Like `remove`, for the message that has the lookup key. Raises also KeyNotFound."""
        message_id = None
        if self.permits.are_used:
            with contextlib.suppress(MqError):
                message_id = await self.find_key(name, key)
        queue = self._queues.get(name.text)
        future = self.committer.submit(remove_by_key(self.root, name, key, if_receives))

        def ended(future: "asyncio.Future[bool]") -> None:
            if self._ended(queue, future):
                (queue or self._known(name)).totals.deleted += future.result()
                if message_id is not None:
                    self._let_go(name, message_id)

        future.add_done_callback(ended)
        await asyncio.shield(future)

    async def reschedule(
        self,
        name: QueueName,
        message_id: MessageId,
        due_in_s: float,
        if_receives: Precondition | None = None,
        given: GivenBack = GivenBack.NO,
        failure: Failure | None = None,
    ) -> Stamp:
        """Makes a pack, or a message with a file of its own, ready in `due_in_s` seconds; see
        `settling`. Returns its new stamp.
        """
        queue = await self.queue(name)
        operation = reschedule(self.root, name, message_id, due_in_s, if_receives, given, failure)
        future = self.committer.submit(operation)
        if self.permits.are_used:
            future.add_done_callback(queue.on_new_due(message_id, due_in_s, given))
        future.add_done_callback(partial(self._rescheduled, queue, message_id, due_in_s, given))
        return await asyncio.shield(future)

    def begin_release(
        self, deliveries: Sequence[Delivery], unhandled: bool = False
    ) -> asyncio.Task[None]:
        """Releases a disconnected consumer's messages in the background, one batch per queue, and
        closes their descriptors. Messages that cannot be released become ready when their
        visibility timeout ends. `unhandled`: the deliveries do not count as attempts. Durable once
        the task is done: yes.
        """
        return self.begin(self._release(deliveries, unhandled))

    async def _release(self, deliveries: Sequence[Delivery], unhandled: bool) -> None:
        by_queue: dict[QueueName, list[Delivery]] = {}
        for delivery in deliveries:
            if delivery.descriptor is not None:
                self.root.files.close(delivery.descriptor)
            by_queue.setdefault(delivery.queue, []).append(delivery)
        releases = (self._release_of(name, of, unhandled) for name, of in by_queue.items())
        await asyncio.gather(*releases)

    async def _release_of(
        self, name: QueueName, deliveries: Sequence[Delivery], unhandled: bool
    ) -> None:
        if any(each.id.pack_size for each in deliveries):
            deliveries = await self.packs.held(name, deliveries)
        permits = [self.permits.permit(name, each.id.text) for each in deliveries]
        try:
            operation = release_many(self.root, name, deliveries, unhandled)
            ids = await self.committer.commit(operation)
        except Unavailable as error:
            fields = {"queue": name.text, "error": repr(error)}
            _log.warning(
                "could not release messages; they become ready when they are due",
                extra={"fields": fields},
            )
            return
        queue = self.used(name.text)
        if queue is not None:
            for delivery, permit in zip(deliveries, permits, strict=True):
                queue.ended(delivery.id, permit)
        if queue is not None and ids:
            queue.totals.released += sum(each.items or 1 for each in ids)
            queue.added(*ids)

    async def read(
        self, name: QueueName, message_id: MessageId, choice: Choice, with_removed: bool = True
    ) -> Reading:
        """Reads a message without consuming it. Raises QueueNotFound, MessageNotFound,
        Unavailable.
        """
        of = (self.root, self.committer, name, message_id)
        return await reading(*of, choice, with_removed, self.memory.hold)

    async def tagged(
        self, name: QueueName, tag: Key, count: int, after: MessageId | None
    ) -> TagPage:
        """Reads a page of the messages that have the tag. Raises QueueNotFound, Unavailable."""
        found = await self.committer.call(list_tagged, self.root, name, tag, count, after)
        if found.stale:
            self.begin(self.committer.call(drop_stale, self.root, found.stale))
        return found

    async def peek(self, name: QueueName, page: Page) -> Peeked:
        """Reads a page of the queue's messages. Raises QueueNotFound, Unavailable."""
        return await self.committer.call(peek, self.root, name, page)

    async def heads(self, name: QueueName, count: int) -> list[Head]:
        """The heads for which the queue's groups wait. Raises QueueNotFound, Unavailable."""
        return await self.committer.call(list_heads, self.root, name, count)

    def used(self, name: str) -> Queue | None:
        """The queue of that name, if this process has used it. Any text may be asked for."""
        return self._queues.get(name)

    def known(self, name: str) -> Queue | None:
        """The queue of that name, if this process has used it and its settings are fresh. Any text
        may be asked for.
        """
        queue = self._queues.get(name)
        return queue if queue is not None and self.refresher.is_fresh(queue) else None

    async def queue(self, name: QueueName) -> Queue:
        """The queue with fresh settings, looked for on disk if this process has not used it. Raises
        QueueNotFound.
        """
        queue = self._queues.get(name.text)
        if queue is None:
            if not await self.committer.call(queue_exists, self.root, name):
                raise QueueNotFound(name.text)
            queue = self._known(name)
        await self.refresher.refresh(queue)
        return queue

    def in_use(self) -> list[Queue]:
        """The queues that this process has used."""
        return list(self._queues.values())

    async def drain(self) -> None:
        """Waits for background work, and ends the threads."""
        await self._watching.drain()
        for queue in self.in_use():
            await queue.drain()
        while self.background:
            await asyncio.wait(self.background)
        await self.committer.drain()

    def _known(self, name: QueueName) -> Queue:
        """The queue as this process knows it, made at its first use."""
        if (queue := self._queues.get(name.text)) is None:
            queue = self._queues[name.text] = Queue(name, self, self._settings)
        return queue

    def _rescheduled(
        self,
        queue: Queue,
        message_id: MessageId,
        due_in_s: float,
        given: GivenBack,
        future: "asyncio.Future[Stamp]",
    ) -> None:
        if self._ended(queue, future):
            queue.was_rescheduled(message_id, due_in_s, future.result().attempts, given)

    def _ended(self, queue: Queue | None, future: "asyncio.Future[Any]") -> bool:
        """Whether an operation succeeded."""
        if future.cancelled():
            return False
        error = future.exception()
        if error is not None:
            self._failed(queue, error)
        return error is None

    def _failed(self, queue: Queue | None, error: BaseException) -> None:
        """Handles the error of an operation."""
        if isinstance(error, QueueNotFound):
            self.forget(queue)
        elif isinstance(error, PublishPurged):
            self._purger.met(error.before_ms)

    # For its queues: see Process

    async def asks_for_turn(self, queue: QueueName, name: str) -> bool:
        """Asks the other processes of this mq to give back the queue's turn, if their active
        consumer has this name. Whether one did.
        """
        return self.others_give_turn is not None and await self.others_give_turn(queue, name)

    def _parted(self, name: QueueName, items: Sequence[MessageId]) -> None:
        if (queue := self.used(name.text)) is not None:
            queue.added(*items)

    def check_permits(self, queue: Queue) -> None:
        """The queue is at its limits: compares its permits with the disk, where that is due."""
        if queue.permits is not None and (entries := queue.permits.begin_check()):
            self.begin(self._counter.check(queue, queue.permits, entries))

    def watch(self, queue: Queue) -> None:
        """Reports the messages that other processes publish to the queue from here on."""
        self._watching.watch(queue)

    def reports_later(self, queue: Queue, ids: Sequence[MessageId]) -> None:
        """Ignores inotify's later reports of these ids, which were added already."""
        self._listening.knows(queue.name, ids)

    def refreshing(self, queue: Queue) -> "asyncio.Task[None] | None":
        """The pending read of the queue's settings, where one is due. Do not cancel it."""
        look = self.refresher.refreshing(queue)
        if look is not None and look not in self.background:
            self.background.add(look)
            look.add_done_callback(self._background_ended)
            look.add_done_callback(partial(self._ended, queue))
        return look

    def forget(self, queue: Queue | None) -> None:
        """The queue's folder is gone; one of the same name may have been made since. None: this
        process did not use the queue.
        """
        if queue is not None and self._queues.get(queue.name.text) is queue:
            del self._queues[queue.name.text]
            self.gone_totals.add(queue.totals)
            queue.was_forgotten()

    def begin(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Does the work in the background; `drain` waits for it."""
        task = asyncio.create_task(work)
        self.background.add(task)
        task.add_done_callback(self._background_ended)
        return task

    def _background_ended(self, task: asyncio.Task[Any]) -> None:
        self.background.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.debug(
                "a background task failed", extra={"fields": {"error": repr(task.exception())}}
            )
