"""A fetched message, for threads."""

from collections.abc import Mapping
from datetime import datetime
from types import TracebackType
from typing import Any, Self

from mq.client.errors import ClientError
from mq.client.message import AsyncMessage
from mq.client.sync.portal import Portal
from mq.client.values import Reason


class Message:
    """A message that was fetched. `with message:` deletes it at the end, and releases it when an
    exception leaves the block. All as AsyncMessage has it.
    """

    __slots__ = ("_message", "_portal")

    def __init__(self, message: AsyncMessage, portal: Portal) -> None:
        self._message = message
        self._portal = portal

    @property
    def queue(self) -> str:
        """The queue that it was fetched from."""
        return self._message.queue

    @property
    def id(self) -> str:
        """Its id."""
        return self._message.id

    @property
    def body(self) -> bytes:
        """Its bytes, as they were published."""
        return self._message.body

    @property
    def headers(self) -> Mapping[str, str]:
        """The Content-Type and what else the message keeps, by names in lower case."""
        return self._message.headers

    @property
    def content_type(self) -> str:
        """Its Content-Type."""
        return self._message.content_type

    @property
    def receives(self) -> int:
        """How often it was delivered, this time included."""
        return self._message.receives

    @property
    def published(self) -> datetime:
        """When it was published."""
        return self._message.published

    @property
    def due(self) -> datetime:
        """Until then it is the caller's, by mq's clock."""
        return self._message.due

    @property
    def key(self) -> str | None:
        """Its lookup key."""
        return self._message.key

    @property
    def priority(self) -> int:
        """Its priority."""
        return self._message.priority

    @property
    def sidelined(self) -> str | None:
        """In a sideline, why it came there, where that is known."""
        return self._message.sidelined

    @property
    def settled(self) -> str | None:
        """What became of it: deleted, released, sidelined; None so far."""
        return self._message.settled

    def text(self) -> str:
        """The body as text in UTF-8. Raises UnicodeDecodeError."""
        return self._message.text()

    def json(self) -> Any:
        """What the body says as JSON. Raises ValueError."""
        return self._message.json()

    def delete(self) -> None:
        """Deletes the message: it was dealt with. Durable on return."""
        self._portal.run(self._message.delete)

    def release(self, delay_s: float = 0.0, *, unhandled: bool = False) -> None:
        """Gives the message back, ready after so many seconds. Durable on return."""
        self._portal.run(lambda: self._message.release(delay_s, unhandled=unhandled))

    def sideline(self, reason: Reason = "rejected") -> None:
        """Moves the message out of the queue's way, to its sideline. Durable on return."""
        self._portal.run(lambda: self._message.sideline(reason))

    def extend(self, seconds: float) -> datetime:
        """Keeps the message for so many seconds from now; until when. Durable on return."""
        return self._portal.run(lambda: self._message.extend(seconds))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.settled is not None:
            return
        try:
            self._portal.run(lambda: self._message.__aexit__(kind, error, trace))
        except ClientError as failed:
            # The caller's own exception goes on.
            if error is None:
                raise
            error.add_note(f"mq: the message {self.id} could not be released: {failed}")

    def __repr__(self) -> str:
        return repr(self._message)
