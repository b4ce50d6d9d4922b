"""Publishing to a queue: one message, many, lines."""

import asyncio
import uuid
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from mq.client.bodies import GivenBody
from mq.client.calls import publishing
from mq.client.errors import ClientError, NotUsable, Unanswered
from mq.client.limits import PUBLISHING_MAX, PUBLISHING_MAX_DEFAULT
from mq.client.queue.base import OfQueue
from mq.client.values import ABSENT, NewMessage, Published


class Publishing(OfQueue):
    """How messages come into a queue."""

    __slots__ = ()

    async def publish(
        self,
        body: GivenBody = b"",
        *,
        json: Any = ABSENT,
        delay_s: float | None = None,
        at: datetime | None = None,
        priority: int | None = None,
        key: str | None = None,
        visibility_s: int | None = None,
        headers: Mapping[str, str] | None = None,
        content_type: str | None = None,
        idempotency_key: str | None = None,
    ) -> str:
        """Publishes a message; its id. Durable on return.

        `body`: bytes; text, sent as UTF-8 with `text/plain`; a file that is open for reading bytes,
        or an async iterable, which are streamed. Or `json`, sent as `application/json`. `delay_s`
        or `at`: when it is ready, if not at once. `priority`: 0 to 9, 9 first. `key`: a lookup key
        that no other living message of the queue has. `visibility_s`: how long a fetch of it lasts.
        `headers`: those that mq keeps come back with it. `idempotency_key`: publishes with the same
        are one; by itself each call has one of its own, so that trying again is safe.

        Raises QueueNotFound, QueueExpired, KeyTaken, TooLarge, Refused, Unavailable, Unanswered;
        ValueError and TypeError for what cannot be sent.
        """
        return await self.publish_message(
            NewMessage(
                *(body, json, delay_s, at, priority, key, visibility_s, headers, content_type),
                idempotency_key,
            )
        )

    async def publish_message(self, message: NewMessage) -> str:
        """Publishes what a NewMessage says; its id. Durable on return. Raises as `publish` does."""
        key = message.idempotency_key or str(uuid.uuid4())
        return await self._sender.send(publishing.publish(self.name, message, key))

    async def publish_many(
        self,
        messages: Iterable[NewMessage | bytes | str],
        *,
        concurrency: int = PUBLISHING_MAX_DEFAULT,
    ) -> list[Published]:
        """Publishes each message, so many at a time; what became of each, in their order. Durable
        on return, where there is an id. They become ready in about their order, not exactly.

        A message's failure is its `problem`. Once mq cannot be reached, those that follow are not
        tried, and have the same. Raises NotUsable; ValueError and TypeError for what cannot be
        sent, after which those before it may be there.
        """
        if not 1 <= concurrency <= PUBLISHING_MAX:
            raise ValueError(f"concurrency is a whole number from 1 to {PUBLISHING_MAX}")
        found: list[Published] = []
        todo = enumerate(messages)
        unreachable: Unanswered | None = None

        async def publisher() -> None:
            nonlocal unreachable
            for place, message in todo:
                found.append(Published())
                if unreachable is not None:
                    found[place] = Published(problem=unreachable)
                    continue
                new = message if isinstance(message, NewMessage) else NewMessage(message)
                try:
                    found[place] = Published(await self.publish_message(new))
                except NotUsable:
                    raise
                except ClientError as error:
                    found[place] = Published(problem=error)
                    if isinstance(error, Unanswered):
                        unreachable = error

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(concurrency):
                    group.create_task(publisher())
        except BaseExceptionGroup as failed:
            # One says what happened: the others' tasks were cancelled for it.
            raise failed.exceptions[0] from None
        return found

    async def publish_lines(
        self,
        body: GivenBody,
        *,
        delay_s: float | None = None,
        at: datetime | None = None,
        priority: int | None = None,
        visibility_s: int | None = None,
        headers: Mapping[str, str] | None = None,
        content_type: str | None = None,
    ) -> list[Published]:
        """Publishes each line of the body that is not empty, in one request: at most 10,000 of them
        and 8 MiB. What became of each, in their order; durable on return, where there is an id.

        Not tried again once it may have been done: lines have no idempotency keys.
        """
        call = publishing.lines(
            self.name,
            body,
            delay_s=delay_s,
            at=at,
            priority=priority,
            visibility_s=visibility_s,
            headers=headers,
            content_type=content_type,
        )
        return await self._sender.send(call)
