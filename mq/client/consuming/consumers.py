"""The consumers of one client, so that its end is theirs."""

from collections.abc import Sequence

from mq.client.consuming.consumer import AsyncConsumer
from mq.client.consuming.feed import Feed, OpenFeeds
from mq.client.limits import CREDIT_MAX, PREFETCH_MAX, SUBSCRIPTIONS_MAX
from mq.client.sending import Sender
from mq.client.values import Subscription, Via


class Consumers:
    """Opens consumers, and ends those that are left."""

    __slots__ = ("_feeds", "_sender")

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self._feeds = OpenFeeds()

    def open(self, subscriptions: Sequence[Subscription], prefetch: int, via: Via) -> AsyncConsumer:
        """A consumer, which has not begun. Raises NotUsable, ValueError."""
        self._sender.check_usable()
        self._feeds.check_open()
        _check(subscriptions, prefetch, via)
        return AsyncConsumer(Feed(self._sender, tuple(subscriptions), prefetch, via, self._feeds))

    async def close(self) -> None:
        """Closes all; none is opened from now on."""
        await self._feeds.close()


def _check(subscriptions: Sequence[Subscription], prefetch: int, via: Via) -> None:
    if via not in ("auto", "websocket", "poll"):
        raise ValueError("via is auto, websocket or poll")
    if not 1 <= len(subscriptions) <= SUBSCRIPTIONS_MAX:
        raise ValueError(f"a consumer has 1 to {SUBSCRIPTIONS_MAX} queues")
    if len({one.queue for one in subscriptions}) < len(subscriptions):
        raise ValueError("a consumer has each queue once")
    wanted = [prefetch if one.prefetch is None else one.prefetch for one in subscriptions]
    if not all(1 <= each <= PREFETCH_MAX for each in wanted):
        raise ValueError(f"prefetch is a whole number from 1 to {PREFETCH_MAX}")
    if sum(wanted) > CREDIT_MAX:
        raise ValueError(f"a consumer prefetches at most {CREDIT_MAX} messages in all")
