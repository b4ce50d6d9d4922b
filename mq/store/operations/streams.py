"""Large bodies, which pass through in chunks and are never held in memory, in both directions.

Each chunk is a hop through aiofiles. An upload is fsynced before the commit group gets its rename,
so that a large file does not delay small ones.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import Any, Self

from aiofiles.os import wrap

from mq.model.errors import StorageFailed, unavailable
from mq.model.limits import CHUNK_BYTES
from mq.model.names import MessageId, QueueName
from mq.store.core.root import Root
from mq.store.disk.commit import Committer, finish
from mq.store.disk.files import Files
from mq.store.disk.steps import Steps, T
from mq.store.operations.publish import Draft, append, begin, deliver, discard, seal
from mq.store.operations.read import Choice, Reading, Room, any_room, close, read


class _OpenFile:
    """A descriptor that threads use: closed once no thread does, also if a caller is cancelled."""

    def __init__(self, files: Files, descriptor: int) -> None:
        self.descriptor = descriptor
        self._files = files
        self._hop: asyncio.Future[Any] | None = None

    async def use(self, hop: Awaitable[T]) -> T:
        """Waits for a hop that uses the descriptor. Raises Unavailable for an OSError."""
        running = asyncio.ensure_future(hop)
        self._hop = running
        try:
            return await finish(running)
        except OSError as error:
            raise unavailable(error) from error

    async def close(self) -> None:
        """Closes the descriptor, at most once."""
        if self._hop is not None and not self._hop.done():
            await asyncio.wait([self._hop])
        if self.descriptor >= 0:
            descriptor, self.descriptor = self.descriptor, -1
            self._files.close(descriptor)


class Upload:
    """A publish that is written in parts. The caller ends it by `seal` or `abort`."""

    def __init__(self, root: Root, committer: Committer, draft: Draft, descriptor: int) -> None:
        self._root = root
        self._committer = committer
        self.draft = draft
        self.size = len(draft.head)
        """The size of the file so far, in bytes."""
        self._file = _OpenFile(root.files, descriptor)
        self._append = wrap(append)
        self._seal = wrap(seal)
        self._sealed = False

    @classmethod
    async def begin(cls, root: Root, committer: Committer, draft: Draft) -> Self:
        """Creates the file in new/. Raises Unavailable. Durable on return: no."""
        staging = asyncio.create_task(committer.call(begin, root, draft))
        try:
            return cls(root, committer, draft, await asyncio.shield(staging))
        except asyncio.CancelledError:
            await asyncio.wait([staging])
            if staging.exception() is None:
                await cls(root, committer, draft, staging.result()).abort()
            raise

    async def write(self, data: bytes | bytearray) -> None:
        """Appends to the body. Raises Unavailable. Durable on return: no."""
        self.size += len(data)
        await self._file.use(self._append(self._root, self._file.descriptor, data))

    async def seal(self) -> Steps[MessageId]:
        """Ends the body and flushes the file. Returns the operation that delivers it, to be
        committed. Raises Unavailable. Durable on return: the file, not its place.
        """
        await self._file.use(self._seal(self._root, self.draft, self._file.descriptor))
        self._sealed = True
        await self._file.close()
        return deliver(self._root, self.draft)

    async def abort(self) -> None:
        """Removes an upload that was not sealed. Does nothing to a sealed one: its delivery handles
        the file.
        """
        if not self._sealed:
            await asyncio.shield(asyncio.create_task(self._abort()))

    async def _abort(self) -> None:
        await self._file.close()
        await self._committer.call(discard, self._root, self.draft)


class Download:
    """`size` bytes of a file from `offset` on, read at most `chunk_bytes` at a time: a body, or a
    part of one, that is not in memory. The download owns the descriptor; `reservation` counts a
    chunk.
    """

    def __init__(
        self,
        files: Files,
        descriptor: int,
        offset: int,
        size: int,
        chunk_bytes: int = CHUNK_BYTES,
        reservation: object | None = None,
    ) -> None:
        self.size = size
        self.chunk_bytes = chunk_bytes
        self._reservation = reservation
        self._offset = offset
        self._file = _OpenFile(files, descriptor)
        self._read = wrap(files.read)

    async def chunks(self) -> AsyncIterator[bytes]:
        """All bytes in chunks. Raises Unavailable if the file cannot be read."""
        offset, left = self._offset, self.size
        while left:
            chunk = await self._file.use(
                self._read(self._file.descriptor, min(left, self.chunk_bytes), offset)
            )
            if not chunk:
                raise StorageFailed("the file ended early")
            yield chunk
            offset += len(chunk)
            left -= len(chunk)

    async def close(self) -> None:
        """Closes the descriptor and drops the reservation: an error may keep a reference to this
        object for long.
        """
        self._reservation = None
        await asyncio.shield(asyncio.create_task(self._file.close()))


async def reading(
    root: Root,
    committer: Committer,
    queue: QueueName,
    message_id: MessageId,
    choice: Choice,
    with_removed: bool,
    room: Room = any_room,
) -> Reading:
    """Like `read`; closes the file if the caller is cancelled. Raises Unavailable too."""
    begun = asyncio.create_task(
        committer.call(read, root, queue, message_id, choice, with_removed, room)
    )
    try:
        return await asyncio.shield(begun)
    except asyncio.CancelledError:
        await asyncio.wait([begun])
        if begun.exception() is None:
            close(root, begun.result())
        raise
