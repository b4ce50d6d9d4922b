"""Hearing of what comes to the queues in which somebody waits, and telling nobody of it twice."""

import asyncio
from collections.abc import Callable, Iterable, Sequence

from mq.model.limits import TOLD_MAX
from mq.model.names import MessageId, QueueName
from mq.store.core.arrivals import Arrivals, News


class Listening:
    """What the kernel tells one process. Lives on the event loop's thread, but for `change`.

    `hears_all`: nothing comes to a watched queue's own folder that is not told; it is not so where
    another machine may have the file system too. `arrivals` None: nothing is told at all.

    What this process publishes is told as well, mostly before its publish has ended: `untold` gives
    those of them that were not, so that each message is offered once.
    """

    def __init__(self, arrivals: Arrivals | None = None, hears_all: bool = False) -> None:
        self.is_on = arrivals is not None
        self.hears_all = hears_all
        self._arrivals = arrivals
        self._on_news: Callable[[News], None] | None = None
        self._told: dict[str, None] = {}

    def begin(self, on_news: Callable[[News], None]) -> None:
        """Tells of all news from here on."""
        if self._arrivals is not None:
            self._on_news = on_news
            asyncio.get_running_loop().add_reader(self._arrivals.fileno(), self.hear)

    def end(self) -> None:
        """Tells nothing any more."""
        if self._arrivals is not None:
            if self._on_news is not None:
                asyncio.get_running_loop().remove_reader(self._arrivals.fileno())
            self._arrivals.close()
            self._arrivals = None

    def hears(self, queue: QueueName) -> bool:
        """Whether what comes to the queue's own folder is told."""
        return self._arrivals is not None and self._arrivals.is_watched(queue)

    def hear(self) -> None:
        """Tells what there is."""
        if self._arrivals is not None and self._on_news is not None:
            self._on_news(self._arrivals.read())

    def change(self, begin: Iterable[QueueName], end: Iterable[QueueName]) -> None:
        """Hears of some queues from here on, and of others no more. Blocking; one thread at a time.
        Whoever begins looks into them afterwards.
        """
        if self._arrivals is not None:
            for queue in end:
                self._arrivals.unwatch(queue)
            for queue in begin:
                self._arrivals.watch(queue)

    def was_told(self, ids: Iterable[MessageId]) -> None:
        """These were offered, as they were heard of."""
        for message_id in ids:
            self._told[message_id.text] = None
        while len(self._told) > TOLD_MAX:
            del self._told[next(iter(self._told))]

    def untold(self, queue: QueueName, ids: Sequence[MessageId]) -> Sequence[MessageId]:
        """Those of what this process has just published that are still to be offered."""
        if not self.hears(queue):
            return ids
        self.hear()  # They came to the folder before: what the kernel has to tell of them is there.
        told = self._told
        return [each for each in ids if each.text not in told or told.pop(each.text)]
