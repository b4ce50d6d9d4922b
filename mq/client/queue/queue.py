"""A queue, and all that can be done with it."""

from mq.client.queue.fetching import Fetching
from mq.client.queue.messages import Messages
from mq.client.queue.publishing import Publishing
from mq.client.queue.upkeep import Upkeep


class AsyncQueue(Publishing, Fetching, Messages, Upkeep):
    """One queue of an AsyncClient, which makes it: `client.queue("orders")`. It holds nothing but
    its name; whether there is such a queue is mq's to say, at the first call.
    """

    __slots__ = ()
