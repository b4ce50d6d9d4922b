"""The queues that this process knows, and every operation that a request may ask of them."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeVar

from mq.broker.queue import Description, Queue
from mq.errors import Busy, QueueNotFound
from mq.limits import SHARDS_MAX
from mq.message import Delivery
from mq.names import MessageId, QueueName, UuidSource
from mq.settings import QueueSettings
from mq.store.commit import Committer
from mq.store.moves import queue_exists
from mq.store.publish import Draft, publish
from mq.store.queues import ANY_SHAPE, WantedShape, create_queue, delete_queue, retire_delayed
from mq.store.remove import Precondition, remove
from mq.store.root import Root
from mq.store.steps import Steps
from mq.store.streams import Upload

_log = logging.getLogger("mq.broker")

T = TypeVar("T")

_LOCK_TRIES: Final = 100
_LOCK_WAIT_S: Final = 0.05


class Broker:
    """Everything that HTTP asks for. Made and used on the event loop's thread."""

    def __init__(
        self,
        root: Root,
        committer: Committer,
        settings: QueueSettings,
        peers: int = 0,
        chance: random.Random | None = None,
        shard_start: int | None = None,
    ) -> None:
        self.root = root
        self.committer = committer
        self._settings = settings
        self._peers = peers
        self._chance = chance or random.Random()
        # The shard that this process begins at where a queue has some.
        self._shard_start = (
            self._chance.randrange(SHARDS_MAX) if shard_start is None else shard_start
        )
        self._uuids = UuidSource(root.clock)
        self._queues: dict[QueueName, Queue] = {}
        self._queue_lock = asyncio.Lock()
        self.background: set[asyncio.Task[None]] = set()

    async def create_queue(self, name: QueueName, wanted: WantedShape = ANY_SHAPE) -> bool:
        """Makes a queue; False when it was there. Raises Busy, NameTaken, ShapeFixed, Unavailable.
        Durable: yes.
        """
        if await self.committer.call(queue_exists, self.root, name):
            # No turn to wait for; what another process made is flushed all the same.
            created = await self.committer.commit_alone(create_queue(self.root, name, wanted))
        else:
            created = await self._with_lock_tries(
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
        uuid, queue = self._uuids.next(), self._queues.get(name)
        try:
            await self._with_lock_tries(
                lambda: self.committer.commit_alone(delete_queue(self.root, name, uuid))
            )
        except QueueNotFound:
            self._forget(queue)
            raise
        self._forget(queue)
        self._in_background(self._retire_delayed(name))

    async def describe(self, name: QueueName) -> tuple[Queue, Description]:
        """A queue and its counts. Raises QueueNotFound."""
        queue = await self.queue(name)
        try:
            return queue, await queue.describe()
        except QueueNotFound:
            self._forget(queue)
            raise

    async def publish(self, name: QueueName, body: bytes | bytearray, extension: str) -> MessageId:
        """Publishes a body that is held in memory. Raises QueueNotFound, Unavailable.
        Durable: yes.
        """
        queue = await self.queue(name)
        draft = self._draft(name, extension)
        return await self._deliver(queue, publish(self.root, draft, body))

    async def upload(self, name: QueueName, extension: str) -> Upload:
        """Begins a publish that is written bit by bit. Raises Unavailable. Durable: no."""
        return await Upload.begin(self.root, self.committer, self._draft(name, extension))

    async def finish(self, name: QueueName, upload: Upload) -> MessageId:
        """Ends an upload. Raises QueueNotFound, Unavailable. Durable: yes."""
        queue = await self.queue(name)
        return await self._deliver(queue, await upload.seal())

    async def fetch(self, name: QueueName) -> Delivery | None:
        """Claims the queue's next message; None when nothing is ready. Raises QueueNotFound,
        Unavailable. Durable: yes.
        """
        queue = await self.queue(name)
        try:
            return await queue.fetch()
        except QueueNotFound:
            self._forget(queue)
            raise

    async def remove(
        self, name: QueueName, message_id: MessageId, if_receives: Precondition | None = None
    ) -> None:
        """Deletes a message. Raises QueueNotFound, MessageNotFound, DeliveredAgain,
        Unavailable. Durable: yes.
        """
        queue = self._queues.get(name)
        try:
            removed = await self.committer.commit(remove(self.root, name, message_id, if_receives))
        except QueueNotFound:
            self._forget(queue)
            raise
        (queue or self._known(name)).totals.deleted += removed

    async def queue(self, name: QueueName) -> Queue:
        """The queue, looked for on disk when this process has not used it. Raises
        QueueNotFound.
        """
        known = self._queues.get(name)
        if known is not None:
            return known
        if not await self.committer.call(queue_exists, self.root, name):
            raise QueueNotFound(name.text)
        return self._known(name)

    async def drain(self) -> None:
        """Waits for what goes on in the background, and gives the threads back."""
        for queue in list(self._queues.values()):
            await queue.drain()
        while self.background:
            await asyncio.wait(self.background)
        await self.committer.drain()

    def _known(self, name: QueueName) -> Queue:
        """The queue as this process knows it, from its first use on."""
        if (queue := self._queues.get(name)) is None:
            queue = self._queues[name] = Queue(
                name,
                self.root,
                self.committer,
                self._settings,
                self._peers,
                self._chance,
                self._shard_start,
            )
        return queue

    def _draft(self, name: QueueName, extension: str) -> Draft:
        message_id = MessageId(self._uuids.next(), extension=extension)
        return Draft(name, message_id, message_id.published_ms)

    async def _deliver(self, queue: Queue, operation: Steps[MessageId]) -> MessageId:
        future = self.committer.submit(operation)
        # By a callback, since the message is there also when whoever published it is gone.
        future.add_done_callback(queue.was_published)
        try:
            return await asyncio.shield(future)
        except QueueNotFound:
            self._forget(queue)
            raise

    def _in_background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self.background.add(task)
        task.add_done_callback(self._background_ended)
        return task

    def _background_ended(self, task: asyncio.Task[None]) -> None:
        self.background.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.debug("in the background", extra={"fields": {"error": repr(task.exception())}})

    def _forget(self, queue: Queue | None) -> None:
        """The queue's folder is gone; one of the same name may have come since. None: this process
        did not use it.
        """
        if queue is not None and self._queues.get(queue.name) is queue:
            del self._queues[queue.name]

    async def _retire_delayed(self, name: QueueName) -> None:
        try:
            await self._with_lock_tries(
                lambda: self.committer.commit_alone(retire_delayed(self.root, name))
            )
        except Exception as error:  # mq-mover and the next PUT do it again.
            _log.warning(
                "a deleted queue's messages stay in delay/ for now",
                extra={"fields": {"queue": name.text, "error": repr(error)}},
            )

    async def _with_lock_tries(self, operation: Callable[[], Awaitable[T]]) -> T:
        """Only one queue is made or deleted at a time: in this process by a lock, and against
        other processes by trying again for a few seconds.
        """
        async with self._queue_lock:
            for _ in range(_LOCK_TRIES):
                try:
                    return await operation()
                except Busy:
                    await asyncio.sleep(_LOCK_WAIT_S)
            return await operation()
