"""Publishing in one process: assigns ids, writes drafts, and adds the published messages to their
queue.
"""

import asyncio
import itertools
import operator
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar, cast

from mq.broker.gathering import Gathering
from mq.broker.limits import Limits
from mq.broker.memory import Reservation
from mq.broker.queue import Queue
from mq.broker.refreshing import Refresher
from mq.model.errors import MqError, PublishDiffers, QueueExpired, QueuePaused
from mq.model.headers import print_block
from mq.model.message import Envelope, Held, Posted
from mq.model.names import Key, MessageId, QueueName, UuidSource
from mq.model.packs import contents
from mq.store.core.room import Load, full
from mq.store.core.root import Root
from mq.store.core.unserved import refuse_publish
from mq.store.disk.commit import Committer
from mq.store.disk.steps import Steps
from mq.store.format.layout import Keys
from mq.store.keys.keyed import Once, earlier_publish
from mq.store.operations.publish import Draft, publish, publish_many
from mq.store.operations.streams import Upload

T = TypeVar("T")

_HEAD_AND_TIME: Final = operator.attrgetter("head", "is_scheduled")
# Groups of batches that are in progress at a time.
BATCH_GROUPS_STANDING_MAX: Final = 3


class Publisher:
    """Publishes to a broker's queues. `uuids` makes the messages' ids; `failed` is called with the
    error of an operation.
    """

    def __init__(
        self,
        root: Root,
        committer: Committer,
        uuids: UuidSource,
        refresher: Refresher,
        limits: Limits,
        failed: Callable[[Queue, BaseException], None],
    ) -> None:
        self._root = root
        self._committer = committer
        self._uuids = uuids
        self._refresher = refresher
        self._limits = limits
        self._failed = failed
        self._singles = Gathering(committer, self._publish)
        """Publishes of one message without a key: one with a key may wait for a lock."""
        self._groups = asyncio.Semaphore(BATCH_GROUPS_STANDING_MAX)

    def begin(
        self,
        queue: Queue,
        body: bytes | bytearray,
        envelope: Envelope,
        reservation: Reservation | None,
    ) -> "asyncio.Future[MessageId]":
        """Publishes a body in memory, which `reservation` counts. Do not cancel the future."""
        if queue.settings.is_limited:
            return asyncio.ensure_future(self._begin_limited(queue, body, envelope, reservation))
        return self._begin(queue, body, envelope, reservation)

    async def _begin_limited(
        self,
        queue: Queue,
        body: bytes | bytearray,
        envelope: Envelope,
        reservation: Reservation | None,
    ) -> MessageId:
        load = Load(1, len(_head(envelope)) + len(body))
        async with self._limits.admitted(queue, load):
            return await self._begin(queue, body, envelope, reservation)

    def _begin(
        self,
        queue: Queue,
        body: bytes | bytearray,
        envelope: Envelope,
        reservation: Reservation | None,
    ) -> "asyncio.Future[MessageId]":
        try:
            draft = self._draft(queue, envelope)
        except (QueueExpired, QueuePaused) as error:
            refused: asyncio.Future[MessageId] = asyncio.get_running_loop().create_future()
            refused.set_exception(error)
            return refused
        held = None
        if reservation is not None and not draft.is_scheduled and queue.wants_bodies:
            held = Held(envelope.headers, bytes(body), len(draft.head), reservation)
        if draft.is_linked:
            future = self._deliver(queue, draft, publish(self._root, draft, body), held)
        else:
            future = self._gather(queue, draft, body, held)
        if held is None and reservation is not None:
            # The reservation lasts until the body has left memory.
            future.add_done_callback(partial(_ended, reservation))
        return future

    def _gather(
        self, queue: Queue, draft: Draft, body: bytes | bytearray, held: Held | None
    ) -> "asyncio.Future[MessageId]":
        """Publishes the message together with others of its queue that come in the same turn of the
        loop.
        """
        queue.publishes((draft.id,), draft.head, held)
        ended = partial(self._published, queue, draft, held)
        return self._singles.add(queue.name, (draft, body), ended)

    def _publish(
        self, queue: QueueName, singles: Sequence[tuple[Draft, bytes | bytearray]]
    ) -> Steps[Sequence[MessageId | Exception]]:
        drafts, bodies = [each for each, _ in singles], [body for _, body in singles]
        return publish_many(self._root, drafts, bodies)

    async def group(
        self, queue: Queue, bodies: Sequence[bytes], envelope: Envelope
    ) -> list[MessageId | Exception]:
        """Publishes at most BATCH_GROUP_MESSAGES as one operation, when it is their turn. Returns
        each one's id or error. Raises an error that concerns all. Durable on return: yes.
        """
        sizes = [len(_head(envelope)) + len(body) for body in bodies]
        return await self._within(queue, bodies, sizes, lambda of: self._group(queue, of, envelope))

    async def _within(
        self,
        queue: Queue,
        messages: Sequence[T],
        sizes: Sequence[int],
        publish: Callable[[Sequence[T]], Coroutine[Any, Any, list[MessageId | Exception]]],
    ) -> list[MessageId | Exception]:
        """Publishes the messages that the queue has room for; the others end with QueueFull."""
        if not queue.settings.is_limited:
            return await publish(messages)
        fit = await self._limits.admit_each(queue, sizes)
        load = Load(sum(fit), sum(itertools.compress(sizes, fit)))
        publishing = asyncio.ensure_future(publish(list(itertools.compress(messages, fit))))
        publishing.add_done_callback(partial(self._many_ended, queue, load))
        ends = iter(await asyncio.shield(publishing))
        return [next(ends) if fits else full(queue.name, queue.settings) for fits in fit]

    def _many_ended(
        self, queue: Queue, load: Load, publishing: "asyncio.Future[list[MessageId | Exception]]"
    ) -> None:
        failed = publishing.cancelled() or publishing.exception() is not None
        self._limits.ended(queue, load, was_published=not failed)

    async def _group(
        self, queue: Queue, bodies: Sequence[bytes], envelope: Envelope
    ) -> list[MessageId | Exception]:
        draft = self._draft(queue, envelope)
        more = map(draft.id.with_uuid, self._uuids.many(len(bodies) - 1))
        return await self._batch(
            queue, [draft, *(draft._replace(id=each) for each in more)], bodies
        )

    async def packs(
        self, queue: Queue, bodies: Sequence[bytes], envelope: Envelope, files: Sequence[int]
    ) -> list[MessageId | Exception]:
        """Publishes messages as one operation, `files` with this many of them each. Returns each
        one's id or error. Raises an error that concerns all. Durable on return: yes.
        """
        draft, rest = self._draft(queue, envelope), iter(bodies)
        parts = [list(itertools.islice(rest, count)) for count in files]
        drafts = [draft._replace(id=each) for each in self._ids(draft.id, files)]
        held = [one[0] if len(one) == 1 else contents(one) for one in parts]
        ends: list[MessageId | Exception] = []
        for count, end in zip(files, await self._batch(queue, drafts, held), strict=True):
            ends += [end] * count if isinstance(end, Exception) else messages_of(end)
        return ends

    def _ids(self, like: MessageId, files: Sequence[int]) -> list[MessageId]:
        """Ids of files that have this many messages each, with the attributes of `like`."""
        uuids = self._uuids.packs(len(files))
        return [
            like.with_uuid(uuid) if count == 1 else replace(like, uuid=uuid, items=count)
            for count, uuid in zip(files, uuids, strict=True)
        ]

    async def pack(
        self, queue: Queue, bodies: Sequence[bytes], envelope: Envelope, refusal: MqError | None
    ) -> list[MessageId]:
        """Publishes messages with an idempotency key together as one pack, or one alone. Returns
        their ids, or those of an earlier publish. `refusal`: raised where there was none. Raises
        also PublishDiffers, and what `publish` does. Durable on return: yes.
        """
        if refusal is not None:
            once = Once(
                Keys.IDEMPOTENCY, cast(Key, envelope.idempotency), queue.settings.idempotency_s
            )
            first = await self._committer.commit(earlier_publish(self._root, queue.name, once))
            if first is None:
                raise refusal
        elif len(bodies) == 1:
            first = await asyncio.shield(self.begin(queue, bodies[0], envelope, None))
        else:
            draft = self._draft(queue, envelope)
            draft = draft._replace(id=self._ids(draft.id, [len(bodies)])[0])
            operation = publish(self._root, draft, contents(bodies))
            first = await asyncio.shield(self._deliver(queue, draft, operation))
        found = messages_of(first)
        if len(found) != len(bodies):
            raise PublishDiffers(len(found), len(bodies))
        return found

    async def rows(self, queue: Queue, rows: Sequence[Posted]) -> list[MessageId | Exception]:
        """Publishes at most BATCH_GROUP_MESSAGES, each with its own envelope. Returns each one's id
        or error. Raises an error that concerns all. Durable on return: yes.
        """
        sizes = [len(_head(each.envelope)) + len(each.body) for each in rows]
        return await self._within(queue, rows, sizes, partial(self._rows, queue))

    async def _rows(self, queue: Queue, rows: Sequence[Posted]) -> list[MessageId | Exception]:
        drafts = [self._draft(queue, each.envelope) for each in rows]
        return await self._batch(queue, drafts, [each.body for each in rows])

    async def _batch(
        self, queue: Queue, drafts: Sequence[Draft], bodies: Sequence[bytes]
    ) -> list[MessageId | Exception]:
        await self._groups.acquire()  # Given back by the operation's end, also without a caller.
        for each in drafts:
            queue.publishes((each.id,), each.head)
        future = self._committer.submit(publish_many(self._root, drafts, bodies))
        future.add_done_callback(partial(self._batch_ended, queue, drafts))
        return await asyncio.shield(future)

    async def upload(self, queue: Queue, envelope: Envelope) -> Upload:
        """Begins a publish whose body is written in parts. Raises QueueFull, Unavailable. Durable
        on return: no.
        """
        draft = self._draft(queue, envelope)
        if queue.settings.is_limited:
            await self._limits.check(queue)
        beginning = asyncio.ensure_future(Upload.begin(self._root, self._committer, draft))
        beginning.add_done_callback(partial(self._begun, queue))
        try:
            return await beginning
        except asyncio.CancelledError:
            # It may have begun in this same turn of the loop.
            if not beginning.cancelled() and beginning.exception() is None:
                await beginning.result().abort()
            raise

    async def finish(self, queue: Queue, upload: Upload) -> MessageId:
        """Ends an upload. Raises QueueFull, QueueNotFound, KeyTaken, Unavailable. Durable on
        return: yes.
        """
        if not queue.settings.is_limited:
            return await self._finish(queue, upload)
        return await asyncio.shield(asyncio.ensure_future(self._finish_limited(queue, upload)))

    async def _finish_limited(self, queue: Queue, upload: Upload) -> MessageId:
        async with self._limits.admitted(queue, Load(1, upload.size)):
            return await self._finish(queue, upload)

    async def _finish(self, queue: Queue, upload: Upload) -> MessageId:
        return await asyncio.shield(self._deliver(queue, upload.draft, await upload.seal()))

    def _draft(self, queue: Queue, envelope: Envelope) -> Draft:
        settings = self._refresher.usable(queue)
        refuse_publish(self._root, queue.name, settings)
        head = _head(envelope)
        message_id = MessageId(
            self._uuids.next(),
            settings.priority_default if envelope.priority is None else envelope.priority,
            envelope.key,
            envelope.visibility_s,
            len(head),
            envelope.extension,
            envelope.ttl_s,
            "" if envelope.group is None else envelope.group.digits,
            envelope.tags,
        )
        published_ms, is_scheduled = self._uuids.ms, False
        due_ms = envelope.due_ms
        if due_ms is None and settings.delay_default_s:
            due_ms = settings.due_ms_default(published_ms)
        if due_ms is not None:
            is_scheduled = due_ms > self._root.now_ms()
        if due_ms is None or not is_scheduled:
            due_ms = published_ms
        idempotency, for_s = envelope.idempotency, settings.idempotency_s
        return Draft(queue.name, message_id, due_ms, is_scheduled, head, idempotency, for_s)

    def _deliver(
        self, queue: Queue, draft: Draft, operation: Steps[MessageId], held: Held | None = None
    ) -> "asyncio.Future[MessageId]":
        queue.publishes((draft.id,), draft.head, held)
        future = self._committer.submit(operation)
        # A callback adds the message even when its publisher is gone.
        future.add_done_callback(partial(self._delivered, queue, draft, held))
        return future

    def _delivered(
        self, queue: Queue, draft: Draft, held: Held | None, future: "asyncio.Future[MessageId]"
    ) -> None:
        self._published(queue, draft, held, future.exception() or future.result())

    def _published(
        self, queue: Queue, draft: Draft, held: Held | None, end: MessageId | BaseException
    ) -> None:
        # An earlier publish of the same idempotency key was added before.
        if end is draft.id:
            queue.published((draft.id,), not draft.is_scheduled, held)
            return
        queue.publish_failed((draft.id,))
        if isinstance(end, BaseException):
            self._failed(queue, end)

    def _batch_ended(
        self,
        queue: Queue,
        drafts: Sequence[Draft],
        future: "asyncio.Future[list[MessageId | Exception]]",
    ) -> None:
        self._groups.release()
        error = future.exception()
        ends = future.result() if error is None else [error] * len(drafts)
        both = list(zip(drafts, ends, strict=True))
        queue.publish_failed([draft.id for draft, end in both if end is not draft.id])
        published = (draft for draft, end in both if end is draft.id)
        for (_, is_scheduled), alike in itertools.groupby(published, key=_HEAD_AND_TIME):
            queue.published([each.id for each in alike], not is_scheduled)
        for error in {type(end): end for end in ends if isinstance(end, BaseException)}.values():
            self._failed(queue, error)

    def _begun(self, queue: Queue, beginning: "asyncio.Future[Upload]") -> None:
        if not beginning.cancelled() and (error := beginning.exception()) is not None:
            self._failed(queue, error)


def messages_of(message_id: MessageId) -> list[MessageId]:
    """The ids of the messages in a file."""
    return message_id.all_items() if message_id.items else [message_id]


def _head(envelope: Envelope) -> bytes:
    return print_block(envelope.headers) if envelope.headers else b""


def _ended(reservation: Reservation, future: "asyncio.Future[MessageId]") -> None:
    """The body is on stable media, or refused; the last reference to its reservation goes."""
