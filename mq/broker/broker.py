"""The queues that this process knows, and every operation that a request may ask of them."""

import asyncio
import logging
import random
from collections.abc import Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from mq.broker.accounts import Description, Totals
from mq.broker.consuming import Consuming
from mq.broker.describing import Describer
from mq.broker.ids import Ids
from mq.broker.keeper import Keeper
from mq.broker.listening import Listening
from mq.broker.memory import Hand, Memory
from mq.broker.publisher import Publisher
from mq.broker.purger import Purger
from mq.broker.queue import Host, Queue
from mq.broker.releases import Releaser
from mq.broker.retiring import retire
from mq.broker.sidelining import Sideliner
from mq.broker.turns import Turns
from mq.broker.watching import Watching
from mq.model.errors import PublishPurged, QueueNotFound
from mq.model.limits import MEMORY_BYTES_DEFAULT, SHARDS_MAX
from mq.model.looking import Page
from mq.model.message import PLAIN, Delivery, Envelope, GivenBack, Reason, Stamp
from mq.model.names import Key, MessageId, QueueName, UuidSource
from mq.model.serving_limits import WAITERS_MAX_DEFAULT
from mq.model.settings import QueueSettings
from mq.store.core.find import Precondition
from mq.store.core.root import Root
from mq.store.core.standing import queue_exists
from mq.store.disk.commit import Committer
from mq.store.disk.steps import Steps
from mq.store.operations.by_key import find_key, remove_by_key
from mq.store.operations.peek import peek
from mq.store.operations.queues import ANY_SHAPE, WantedShape, create_queue, delete_queue
from mq.store.operations.read import Choice, Reading
from mq.store.operations.remove import remove
from mq.store.operations.reschedule import reschedule
from mq.store.operations.streams import Upload, reading
from mq.store.settings.configure import Configured, Match

_log = logging.getLogger("mq.broker")

T = TypeVar("T")


class Broker:
    """Everything that HTTP asks for. Made and used on the event loop's thread."""

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
    ) -> None:
        self.root = root
        self.memory = Memory(memory_bytes, root.clock.steady_s)
        self.ids = Ids()
        self.committer = committer
        self._settings = settings
        chance = chance or random.Random()
        # Which of the peers this one is: the shard, or the share, that it begins with.
        own = chance.randrange(SHARDS_MAX) if peer_index is None else peer_index
        self._uuids = UuidSource(root.clock)
        self.keeper = Keeper(root, committer, settings)
        self.describer = Describer(root, committer)
        self._purger = Purger(root, committer, self._uuids)
        self.publisher = Publisher(
            root, committer, self._uuids, self.keeper, self._heard, self._forget
        )
        self._releaser = Releaser(root, committer, self.used)
        self._sideliner = Sideliner(root, committer, self.create_queue, self.used, self._heard)
        watching = Watching(root, committer, self.keeper, listening or Listening())
        self.consuming = Consuming(root, self.queue, self._refreshing, watching, waiters_max)
        """Fetches, long polls and subscriptions."""
        self._host = Host(
            root,
            committer,
            chance,
            peers,
            own,
            self.memory,
            self.ids,
            self._forget,
            watching.watch,
            self._refreshing,
            self._sideliner,
            watching.untold,
        )
        self._queues: dict[str, Queue] = {}
        self.gone_totals = Totals()
        """Of queues that this process uses no more."""
        self._turns = Turns()
        self.background: set[asyncio.Task[Any]] = set()

    async def create_queue(self, name: QueueName, wanted: WantedShape = ANY_SHAPE) -> bool:
        """Makes a queue; False when it was there. Raises Busy, NameTaken, ShapeFixed, Unavailable.
        Durable: yes.
        """
        if await self.committer.call(queue_exists, self.root, name):
            # No turn to wait for; what another process made is flushed all the same.
            created = await self.committer.commit_alone(create_queue(self.root, name, wanted))
        else:
            created = await self._turns.take(
                lambda: self.committer.commit_alone(create_queue(self.root, name, wanted))
            )
        self._known(name)
        return created

    async def delete_queue(self, name: QueueName) -> None:
        """Deletes a queue and its messages, to the end also when the caller is cancelled.
        Raises QueueNotFound, Busy. Durable: yes.
        """
        await asyncio.shield(self._in_background(self._delete_queue(name)))

    async def _delete_queue(self, name: QueueName) -> None:
        uuid, queue = self._uuids.next(), self._queues.get(name.text)
        try:
            await self._turns.take(
                lambda: self.committer.commit_alone(delete_queue(self.root, name, uuid))
            )
        except QueueNotFound:
            self._forget(queue)
            raise
        self._forget(queue)
        self._in_background(retire(self.root, self.committer, self._turns, name))

    async def settings(self, name: QueueName) -> Configured:
        """The queue's effective settings. Raises QueueNotFound, Unavailable."""
        queue = await self.queue(name)
        return await self._to_the_end(queue, self.keeper.read(queue))

    async def change_settings(
        self, name: QueueName, patch: Mapping[str, object], if_match: Match | None
    ) -> Configured:
        """Merges a patch into the queue's settings; what they are then. Raises UnknownSetting,
        BadSetting, QueueNotFound, SettingsChanged, ShapeFixed, Unavailable. Durable: yes.
        """
        queue = await self.queue(name)
        return await self._to_the_end(
            queue, self._turns.take(lambda: self.keeper.change(queue, patch, if_match))
        )

    async def purge(self, name: QueueName) -> int:
        """Has nothing be served any more that was published until now; up to which time
        (milliseconds since the epoch) that is. Raises QueueNotFound, Unavailable. Durable: yes.
        """
        queue = await self.queue(name)
        marked_ms = await self._to_the_end(
            queue, self._turns.take(lambda: self._purger.mark(queue))
        )
        self._in_background(self._purger.take_away(name))
        return marked_ms

    async def _to_the_end(self, queue: Queue, work: Coroutine[Any, Any, T]) -> T:
        """Waits for what goes on to its end also when the caller is cancelled."""
        task = asyncio.create_task(work)
        self.background.add(task)
        task.add_done_callback(self._background_ended)
        task.add_done_callback(partial(self._heard, queue))
        return await asyncio.shield(task)

    async def describe(self, name: QueueName) -> tuple[Queue, Description]:
        """A queue and its counts. Raises QueueNotFound, Unavailable."""
        queue = await self.queue(name)
        self.keeper.usable(queue)
        try:
            return queue, await self.describer.describe(queue)
        except QueueNotFound:
            self._forget(queue)
            raise

    async def publish(
        self,
        name: QueueName,
        body: bytes | bytearray,
        envelope: Envelope = PLAIN,
        hand: Hand | None = None,
    ) -> MessageId:
        """Publishes a body that is held in memory, which `hand` counts. Raises QueueNotFound,
        KeyTaken, DueTooFar, Unavailable. Durable: yes.
        """
        queue = await self.queue(name)
        return await asyncio.shield(self.begin_publish(queue, body, envelope, hand))

    def begin_publish(
        self,
        queue: Queue,
        body: bytes | bytearray,
        envelope: Envelope = PLAIN,
        hand: Hand | None = None,
    ) -> "asyncio.Future[MessageId]":
        """Like `publish`; nobody may cancel the future."""
        return self.publisher.begin(queue, body, envelope, hand)

    async def upload(self, name: QueueName, envelope: Envelope = PLAIN) -> Upload:
        """Begins a publish that is written bit by bit. Raises QueueNotFound, Unavailable.
        Durable: no.
        """
        return await self.publisher.upload(await self.queue(name), envelope)

    async def finish(self, name: QueueName, upload: Upload) -> MessageId:
        """Ends an upload. Raises QueueNotFound, KeyTaken, Unavailable. Durable: yes."""
        return await self.publisher.finish(await self.queue(name), upload)

    def stop_waiting(self) -> None:
        """Whoever waits for a message hears now that there is none; nobody waits from here on."""
        self.consuming.stop_waiting()
        self._purger.stop()

    async def remove(
        self, name: QueueName, message_id: MessageId, if_receives: Precondition | None = None
    ) -> None:
        """Deletes a message. Raises QueueNotFound, MessageNotFound, DeliveredAgain,
        Unavailable. Durable: yes.
        """
        await asyncio.shield(self.begin_remove(name, message_id, if_receives))

    def begin_remove(
        self, name: QueueName, message_id: MessageId, if_receives: Precondition | None = None
    ) -> "asyncio.Future[bool]":
        """Like `remove`, false when it was removed before; nobody may cancel the future."""
        return self._begin_remove(name, remove(self.root, name, message_id, if_receives))

    def _begin_remove(self, name: QueueName, operation: Steps[bool]) -> "asyncio.Future[bool]":
        queue = self._queues.get(name.text)
        future = self.committer.submit(operation)
        future.add_done_callback(partial(self._removed, name, queue))
        return future

    async def find_key(self, name: QueueName, key: Key) -> MessageId:
        """The message that has the lookup key and lives. Raises QueueNotFound, KeyNotFound,
        Unavailable.
        """
        return await self.committer.commit(find_key(self.root, name, key))

    async def remove_by_key(
        self, name: QueueName, key: Key, if_receives: Precondition | None = None
    ) -> None:
        """Like `remove`, of the message that has the lookup key. Raises KeyNotFound too."""
        operation = remove_by_key(self.root, name, key, if_receives)
        await asyncio.shield(self._begin_remove(name, operation))

    async def reschedule(
        self,
        name: QueueName,
        message_id: MessageId,
        due_in_s: float,
        if_receives: Precondition | None = None,
        given: GivenBack = GivenBack.NO,
    ) -> Stamp:
        """Has a message be ready in so many seconds; its new stamp. `given`: see
        mq.store.operations.reschedule. Raises QueueNotFound, MessageNotFound, DeliveredAgain,
        DueTooFar, Unavailable. Durable: yes.
        """
        queue = await self.queue(name)
        operation = reschedule(self.root, name, message_id, due_in_s, if_receives, given)
        future = self.committer.submit(operation)
        future.add_done_callback(partial(self._rescheduled, queue, message_id, due_in_s, given))
        return await asyncio.shield(future)

    def begin_release(
        self, deliveries: Sequence[Delivery], unhandled: bool = False
    ) -> asyncio.Task[None]:
        """Releases the messages of a consumer that has gone, in the background. `unhandled`: the
        deliveries are no attempts. Durable once the task is done: yes.
        """
        return self._in_background(self._releaser.release(deliveries, unhandled))

    async def sideline(
        self,
        name: QueueName,
        message_id: MessageId,
        reason: Reason = Reason.REJECTED,
        if_receives: Precondition | None = None,
    ) -> Stamp:
        """Moves a message to its queue's sideline; its stamp there. Raises AlreadySideline,
        QueueNotFound, MessageNotFound, MessageLeased, DeliveredAgain, Unavailable. Durable: yes.
        """
        return await self._sideliner.sideline(name, message_id, reason, if_receives)

    async def read(
        self,
        name: QueueName,
        message_id: MessageId,
        choice: Choice,
        with_removed: bool = True,
    ) -> Reading:
        """A message as it is, not consumed. Raises QueueNotFound, MessageNotFound, Unavailable."""
        of = (self.root, self.committer, name, message_id)
        return await reading(*of, choice, with_removed, self.memory.hold)

    async def peek(self, name: QueueName, page: Page) -> list[Reading]:
        """A page of the queue's messages as they are. Raises QueueNotFound, Unavailable."""
        return await self.committer.call(peek, self.root, name, page)

    def used(self, name: str) -> Queue | None:
        """The queue of that name, when this process has used it; for any text."""
        return self._queues.get(name)

    def known(self, name: str) -> Queue | None:
        """The queue of that name, when this process has used it and knows its settings of this
        moment; for any text.
        """
        queue = self._queues.get(name)
        return queue if queue is not None and self.keeper.is_fresh(queue) else None

    async def queue(self, name: QueueName) -> Queue:
        """The queue, looked for on disk when this process has not used it, with settings of this
        moment. Raises QueueNotFound.
        """
        queue = self._queues.get(name.text)
        if queue is None:
            if not await self.committer.call(queue_exists, self.root, name):
                raise QueueNotFound(name.text)
            queue = self._known(name)
        await self.keeper.refresh(queue)
        return queue

    def in_use(self) -> list[Queue]:
        """The queues that this process has used."""
        return list(self._queues.values())

    async def drain(self) -> None:
        """Waits for what goes on in the background, and gives the threads back."""
        await self.consuming.drain()
        for queue in self.in_use():
            await queue.drain()
        while self.background:
            await asyncio.wait(self.background)
        await self.committer.drain()

    def _known(self, name: QueueName) -> Queue:
        """The queue as this process knows it, from its first use on."""
        if (queue := self._queues.get(name.text)) is None:
            queue = self._queues[name.text] = Queue(name, self._host, self._settings)
        return queue

    def _removed(
        self, name: QueueName, queue: Queue | None, future: "asyncio.Future[bool]"
    ) -> None:
        if self._heard(queue, future):
            (queue or self._known(name)).totals.deleted += future.result()

    def _rescheduled(
        self,
        queue: Queue,
        message_id: MessageId,
        due_in_s: float,
        given: GivenBack,
        future: "asyncio.Future[Stamp]",
    ) -> None:
        if self._heard(queue, future):
            queue.was_rescheduled(message_id, due_in_s, future.result().attempts, given)

    def _heard(self, queue: Queue | None, future: "asyncio.Future[Any]") -> bool:
        """Hears of an operation's end, whoever else still does; whether it ended well."""
        if future.cancelled():
            return False
        error = future.exception()
        if isinstance(error, QueueNotFound):
            self._forget(queue)
        if isinstance(error, PublishPurged):
            self._purger.heard(error.before_ms)
        return error is None

    def _refreshing(self, queue: Queue) -> "asyncio.Task[None] | None":
        """The look for settings of this moment, where one is due; nobody may cancel it."""
        look = self.keeper.refreshing(queue)
        if look is not None and look not in self.background:
            self.background.add(look)
            look.add_done_callback(self._background_ended)
            look.add_done_callback(partial(self._heard, queue))
        return look

    def _in_background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self.background.add(task)
        task.add_done_callback(self._background_ended)
        return task

    def _background_ended(self, task: asyncio.Task[Any]) -> None:
        self.background.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.debug("in the background", extra={"fields": {"error": repr(task.exception())}})

    def _forget(self, queue: Queue | None) -> None:
        """The queue's folder is gone; one of the same name may have come since. None: this process
        did not use it.
        """
        if queue is not None and self._queues.get(queue.name.text) is queue:
            del self._queues[queue.name.text]
            self.gone_totals.add(queue.totals)
            queue.was_forgotten()
