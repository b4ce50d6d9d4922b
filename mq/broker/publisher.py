"""Publishing in one process: ids, drafts, and what a queue hears of its new messages."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from mq.broker.keeper import Keeper
from mq.broker.memory import Hand
from mq.broker.queue import Queue
from mq.model.errors import MqError, QueueExpired, QueueNotFound
from mq.model.headers import print_block
from mq.model.limits import BATCH_GROUPS_STANDING_MAX
from mq.model.message import Envelope, Held
from mq.model.names import MessageId, UuidSource
from mq.store.core.root import Root
from mq.store.disk.commit import Committer
from mq.store.disk.steps import Steps
from mq.store.operations.batch import Batch, publish_batch
from mq.store.operations.publish import Draft, publish
from mq.store.operations.streams import Upload


class Publisher:
    """Publishes to a broker's queues. `uuids` is where it has the ids of its messages from; `heard`
    hears of each operation's end, and says whether it ended well; `forget` hears of a queue that
    is gone.
    """

    def __init__(
        self,
        root: Root,
        committer: Committer,
        uuids: UuidSource,
        keeper: Keeper,
        heard: Callable[[Queue, "asyncio.Future[Any]"], bool],
        forget: Callable[[Queue], None],
    ) -> None:
        self._root = root
        self._committer = committer
        self._uuids = uuids
        self._keeper = keeper
        self._heard = heard
        self._forget = forget
        self._groups = asyncio.Semaphore(BATCH_GROUPS_STANDING_MAX)

    def begin(
        self,
        queue: Queue,
        body: bytes | bytearray,
        envelope: Envelope,
        hand: Hand | None,
    ) -> "asyncio.Future[MessageId]":
        """Publishes a body that is held, which `hand` counts; nobody may cancel the future."""
        try:
            draft = self._draft(queue, envelope)
        except QueueExpired as error:
            refused: asyncio.Future[MessageId] = asyncio.get_running_loop().create_future()
            refused.set_exception(error)
            return refused
        queue.publishes((draft.id,), draft.head)
        if hand is not None and not draft.is_scheduled and queue.is_consumed:
            held = Held(envelope.headers, bytes(body), len(draft.head), hand)
            queue.bodies.publishes(draft.id, held)
        future = self._committer.submit(publish(self._root, draft, body))
        future.add_done_callback(partial(self._published, queue, draft, body, envelope, hand))
        return future

    async def group(
        self, queue: Queue, bodies: Sequence[bytes], envelope: Envelope
    ) -> list[MessageId | MqError]:
        """Publishes at most BATCH_GROUP_MESSAGES as one operation, when it is its turn; for each
        its id, or why it was not published. Raises what fails all of them. Durable: yes.
        """
        draft = self._draft(queue, envelope)
        more = self._uuids.many(len(bodies) - 1)
        batch = Batch(draft, [draft.id, *map(draft.id.with_uuid, more)], bodies)
        await self._groups.acquire()  # Given back by the operation's end, whoever waits for it.
        queue.publishes(batch.ids, draft.head)
        future = self._committer.submit(publish_batch(self._root, batch))
        future.add_done_callback(partial(self._group_ended, queue, batch))
        errors = await asyncio.shield(future)
        return [error or each for error, each in zip(errors, batch.ids, strict=True)]

    async def upload(self, queue: Queue, envelope: Envelope) -> Upload:
        """Begins a publish that is written bit by bit. Raises Unavailable. Durable: no."""
        draft = self._draft(queue, envelope)
        beginning = asyncio.ensure_future(Upload.begin(self._root, self._committer, draft))
        beginning.add_done_callback(partial(self._heard, queue))
        try:
            return await beginning
        except asyncio.CancelledError:
            # Or it has begun in this same turn of the loop.
            if not beginning.cancelled() and beginning.exception() is None:
                await beginning.result().abort()
            raise

    async def finish(self, queue: Queue, upload: Upload) -> MessageId:
        """Ends an upload. Raises QueueNotFound, KeyTaken, Unavailable. Durable: yes."""
        return await asyncio.shield(self._deliver(queue, upload.draft, await upload.seal()))

    def _draft(self, queue: Queue, envelope: Envelope) -> Draft:
        settings = self._keeper.usable(queue)
        queue.check_life()
        head = print_block(envelope.headers) if envelope.headers else b""
        message_id = MessageId(
            self._uuids.next(),
            settings.priority_default if envelope.priority is None else envelope.priority,
            envelope.key,
            envelope.visibility_s,
            len(head),
            envelope.extension,
        )
        due_ms = envelope.due_ms
        is_scheduled = due_ms is not None and due_ms > self._root.now_ms()
        if due_ms is None or not is_scheduled:
            due_ms = message_id.published_ms
        idempotency, for_s = envelope.idempotency, queue.settings.idempotency_s
        return Draft(queue.name, message_id, due_ms, is_scheduled, head, idempotency, for_s)

    def _deliver(
        self, queue: Queue, draft: Draft, operation: Steps[MessageId]
    ) -> "asyncio.Future[MessageId]":
        queue.publishes((draft.id,), draft.head)
        future = self._committer.submit(operation)
        # By a callback, since the message is there also when whoever published it is gone.
        future.add_done_callback(partial(self._delivered, queue, draft))
        return future

    def _published(
        self,
        queue: Queue,
        draft: Draft,
        body: bytes | bytearray,
        envelope: Envelope,
        hand: Hand | None,
        future: "asyncio.Future[MessageId]",
    ) -> None:
        queue.bodies.publish_ended(draft.id)
        if self._was_delivered(queue, draft, future):
            queue.was_published(draft.id, is_ready=not draft.is_scheduled, block=draft.head)
            if hand is not None and not draft.is_scheduled and queue.is_candidate(draft.id):
                queue.keep(draft.id, Held(envelope.headers, bytes(body), len(draft.head)), hand)

    def _delivered(self, queue: Queue, draft: Draft, future: "asyncio.Future[MessageId]") -> None:
        if self._was_delivered(queue, draft, future):
            queue.was_published(draft.id, is_ready=not draft.is_scheduled, block=draft.head)

    def _was_delivered(
        self, queue: Queue, draft: Draft, future: "asyncio.Future[MessageId]"
    ) -> bool:
        queue.publish_ended((draft.id,))
        # An earlier publish of the same idempotency key was told of before.
        return self._heard(queue, future) and future.result() is draft.id

    def _group_ended(
        self, queue: Queue, batch: Batch, future: "asyncio.Future[list[MqError | None]]"
    ) -> None:
        self._groups.release()
        queue.publish_ended(batch.ids)
        if not self._heard(queue, future):
            return
        errors = future.result()
        published = [each for each, error in zip(batch.ids, errors, strict=True) if error is None]
        draft = batch.draft
        queue.was_published(*published, is_ready=not draft.is_scheduled, block=draft.head)
        if any(isinstance(error, QueueNotFound) for error in errors):
            self._forget(queue)
