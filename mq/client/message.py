"""A fetched message, which is the caller's until it is settled, or due."""

import asyncio
import json
from collections.abc import Mapping
from datetime import datetime
from types import TracebackType
from typing import Any, Final, Self

from mq.client.errors import AlreadySettled, ClientError
from mq.client.limits import CLOSE_S
from mq.client.settling import Settler
from mq.client.values import Reason
from mq.client.wire.rows import Row, priority_and_key

DELETED: Final = "deleted"
RELEASED: Final = "released"
SIDELINED: Final = "sidelined"


class AsyncMessage:
    """A message that was fetched. `async with message:` deletes it at the end, and releases it when
    an exception leaves the block; what was settled in the block stays as it is.

    Each way of settling is of this delivery alone: where the message was delivered again since, it
    raises DeliveredAgain and changes nothing. Settled once, the same again does nothing, and
    another way raises AlreadySettled.
    """

    __slots__ = (
        "_lock", "_settler", "body", "due", "headers", "id", "key", "priority", "published",
        "queue", "receives", "settled", "sidelined",
    )  # fmt: skip

    def __init__(self, queue: str, row: Row, settler: Settler) -> None:
        self.queue: Final = queue
        self.id: Final = row.id
        self.body: Final = row.body
        self.headers: Final[Mapping[str, str]] = row.headers
        """The Content-Type and what else the message keeps, by names in lower case."""
        self.receives: Final = row.receives
        """How often it was delivered, this time included."""
        self.published: Final = row.published
        self.due: datetime = row.due
        """Until then it is the caller's, by mq's clock."""
        self.sidelined: Final = row.sidelined
        """In a sideline, why it came there, where that is known."""
        priority, key = priority_and_key(row.id)
        self.priority: Final = priority
        self.key: Final = key
        self.settled: str | None = None
        """What became of it: deleted, released, sidelined; None so far."""
        self._settler = settler
        self._lock = asyncio.Lock()

    @property
    def content_type(self) -> str:
        """Its Content-Type."""
        return self.headers["content-type"]

    def text(self) -> str:
        """The body as text in UTF-8. Raises UnicodeDecodeError."""
        return self.body.decode()

    def json(self) -> Any:
        """What the body says as JSON. Raises ValueError."""
        return json.loads(self.body)

    def came_by(self, settler: Settler) -> bool:
        """Whether it is settled so, as all are that came together."""
        return self._settler is settler

    async def begin(self) -> bool:
        """Says that the program gets it now, for consumers; false where it is not its to have."""
        return await self._settler.begin(self.id)

    async def delete(self) -> None:
        """Deletes the message: it was dealt with. Durable on return."""
        async with self._lock:
            if self._is_settled(DELETED):
                return
            await self._settler.delete(self.queue, self.id, self.receives)
            self.settled = DELETED

    async def release(self, delay_s: float = 0.0, *, unhandled: bool = False) -> None:
        """Gives the message back, ready after so many seconds; `unhandled`, which is at once alone:
        the delivery does not count towards the queue's `max_receives`. Durable on return.
        """
        if unhandled and delay_s:
            raise ValueError("what is given back unhandled is ready at once: without delay_s")
        async with self._lock:
            if self._is_settled(RELEASED):
                return
            await self._settler.release(self.queue, self.id, self.receives, delay_s, unhandled)
            self.settled = RELEASED

    async def sideline(self, reason: Reason = "rejected") -> None:
        """Moves the message out of the queue's way, to its sideline. Durable on return."""
        async with self._lock:
            if self._is_settled(SIDELINED):
                return
            await self._settler.sideline(self.queue, self.id, self.receives, reason)
            self.settled = SIDELINED

    async def extend(self, seconds: float) -> datetime:
        """Keeps the message for so many seconds from now; until when. Durable on return."""
        async with self._lock:
            if self.settled is not None:
                raise AlreadySettled(f"the message was {self.settled}")
            found = await self._settler.extend(self.queue, self.id, self.receives, seconds)
            self.due = found.due
            return found.due

    def _is_settled(self, wanted: str) -> bool:
        """Whether it was settled so before. Raises AlreadySettled: it was otherwise."""
        if self.settled not in (None, wanted):
            raise AlreadySettled(f"the message was {self.settled}, and cannot be {wanted}")
        return self.settled is not None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.settled is not None:
            return
        if error is None:
            await self.delete()
            return
        try:
            # Who was cancelled is to end soon, also where mq does not answer.
            async with asyncio.timeout(None if isinstance(error, Exception) else CLOSE_S):
                await self.release()
        except (ClientError, TimeoutError) as failed:
            # The caller's own exception goes on; the message comes back when it is due.
            error.add_note(f"mq: the message {self.id} could not be released: {failed}")

    def __repr__(self) -> str:
        return f"<message {self.id} of {self.queue}, receives {self.receives}>"
