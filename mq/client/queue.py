"""A queue, and all operations on it."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from http import HTTPStatus
from typing import Any

from mq.client import wire
from mq.client.consuming.consumer import PREFETCH_DEFAULT, AsyncConsumer, Consumers
from mq.client.errors import QueueNotFound
from mq.client.messages import Messages
from mq.client.publishing import Publishing
from mq.client.schedules import Schedules
from mq.client.sending import Again, Call, Sender, done_after, nothing
from mq.client.shovel import Shovel
from mq.client.transport import Answer
from mq.client.values import Description, QueueConsumer, QueueConsumers, Settings, Subscription, Via
from mq.client.wire import Members
from mq.protocol import queues
from mq.protocol.conditions import IF_MATCH


class AsyncQueue(Publishing, Messages, Schedules, Shovel):
    """A queue of an AsyncClient, which makes it: `client.queue("orders")`. It is only a name; its
    first request shows whether mq has the queue. Each method but `create` raises QueueNotFound.
    """

    __slots__ = ("_consumers",)

    def __init__(self, name: str, sender: Sender, consumers: Consumers) -> None:
        super().__init__(name, sender)
        self._consumers = consumers

    async def create(self, *, bucket: int | None = None, shards: int | None = None) -> bool:
        """Creates the queue, where it does not exist; returns whether it did (False for a repeat
        after a lost answer). Durable on return. `bucket`, `shards`: how it stores a large backlog.
        Raises SettingsFixed where it exists with others, QueueExpired.
        """
        query = ((queues.DIGITS, bucket), (queues.SHARDS, shards))
        request = wire.request_to("create_queue", self.name, query=query)
        return await self._sender.send(Call(request, _is_created))

    async def describe(self) -> Description:
        """Reads the queue's counts, some of them a second old, and its settings."""
        request = wire.request_to("describe_queue", self.name)
        return await self._sender.send(Call(request, _description))

    async def delete(self) -> None:
        """Deletes the queue and its messages. Durable on return."""
        request = wire.request_to("delete_queue", self.name)
        call = Call(request, nothing, when_repeated=done_after(QueueNotFound))
        await self._sender.send(call)

    async def purge(self) -> datetime:
        """Deletes all messages that were published until now; returns that time. Durable on return.
        Not repeated once it may be done: a repeat would delete messages that were published since.
        """
        request = wire.request_to("purge_queue", self.name)
        return await self._sender.send(Call(request, _purged_before, Again.UNDONE))

    async def settings(self) -> Settings:
        """Reads the queue's effective settings, and their entity tag."""
        return await self._sender.send(Call(wire.request_to("read_settings", self.name), _settings))

    async def change_settings(
        self,
        /,
        changes: Mapping[str, Any] | None = None,
        *,
        if_match: str | None = None,
        **settings: Any,
    ) -> Settings:
        """Sets these settings, by keywords or a mapping, None for a default; returns the effective
        ones. Durable on return. `if_match`: their entity tag; raises SettingsChanged where they
        have changed since. Raises Refused for an unknown setting or a value out of bounds,
        ValueError without a setting, and for one that is given twice.
        """
        given = {**(changes or {}), **settings}
        if not given or len(given) < len(changes or {}) + len(settings):
            raise ValueError(
                "name each setting to change once: change_settings(max_receives=3), or a mapping"
            )
        headers = () if if_match is None else ((IF_MATCH.name, if_match),)
        request = wire.request_to("change_settings", self.name, headers=headers, body=given)
        # With an entity tag, a repeat would be refused because of the change that it repeats.
        again = Again.SAFE if if_match is None else Again.UNDONE
        return await self._sender.send(Call(request, _settings, again))

    async def consumers(self) -> QueueConsumers:
        """Lists the queue's consumers at this moment, in all processes of mq."""
        request = wire.request_to("list_consumers", self.name)
        return await self._sender.send(Call(request, _consumers))

    async def end_consumer(self, consumer: str) -> None:
        """Ends a consumer by its id, and releases its messages of the queue. Its program gets a
        Problem. Raises a Problem where there is none of this id.
        """
        request = wire.request_to("end_consumer", self.name, consumer)
        await self._sender.send(Call(request, nothing, Again.UNDONE))

    def consume(
        self,
        *,
        prefetch: int = PREFETCH_DEFAULT,
        visibility_s: float | None = None,
        select: str | Iterable[str] | None = None,
        priority: int = 0,
        via: Via = "auto",
        packs: bool = False,
    ) -> AsyncConsumer:
        """Delivers messages as they become ready: `async for message in queue.consume()`. See
        AsyncClient.consume, which takes several queues. `packs`: as of `fetch_many`; the last pack
        may exceed `prefetch`.
        """
        terms = select if select is None or isinstance(select, str) else ",".join(select)
        wanted = Subscription(self.name, priority, prefetch, visibility_s, terms, packs)
        return self._consumers.open((wanted,), prefetch, via)


def _is_created(answer: Answer) -> bool:
    return answer.status == HTTPStatus.CREATED


def _description(answer: Answer) -> Description:
    found = Members.of(answer)
    return found.value(Description, said=found.raw)


def _consumers(answer: Answer) -> QueueConsumers:
    found = Members.of(answer)
    each = tuple(one.value(QueueConsumer, said=one.raw) for one in found.each("consumers"))
    return QueueConsumers(each, found.truth("complete"))


def _purged_before(answer: Answer) -> datetime:
    return Members.of(answer).time("purged_before")


def _settings(answer: Answer) -> Settings:
    return Settings(Members.of(answer).raw, answer.header("ETag") or "")
