"""A long poll: a consumer that takes one message and is gone, or has waited long enough."""

import asyncio
from collections.abc import Callable

from mq.broker.consumer import Consumer
from mq.broker.deadlines import Deadline, Deadlines
from mq.broker.queue import Queue
from mq.model.errors import MqError
from mq.model.message import Delivery
from mq.model.selection import Selection


class Poll(Consumer):
    """One long poll; `future` answers it: the message, None when there was none, or with what a
    fetch raises. It has no task, and looks by itself once, as it begins.
    """

    __slots__ = ("_deadline", "_deadlines", "_drains", "_end_s", "_is_late", "future")

    def __init__(
        self,
        queue: Queue,
        deadlines: Deadlines,
        end_s: float,
        drains: Callable[[], bool],
        visibility_s: float | None,
        selection: Selection | None,
    ) -> None:
        super().__init__(
            queue, 1, self._ask, self._fail, visibility_s=visibility_s, selection=selection
        )
        self._deadlines = deadlines
        self._drains = drains
        self._end_s = end_s
        self._is_late = False
        self._deadline: Deadline | None = None
        self.future: asyncio.Future[Delivery | None] = asyncio.get_running_loop().create_future()

    def begin(self) -> None:
        """Asks at once, and waits where nothing is there."""
        self.queue.join(self)
        self._ask()

    def begin_after(self, refreshing: "asyncio.Task[None]") -> None:
        """Begins once the queue's settings are those of this moment."""
        if self.is_closed:
            return
        try:
            refreshing.result()
            self.begin()
        except MqError as error:
            self._fail(error)
        except asyncio.CancelledError:
            self._answer(None)

    def abandon(self) -> None:
        """Whoever polls is gone: what was claimed for it, or is, is released."""
        self._end()
        self.queue.abandon(self.future)

    def _ask(self) -> None:
        for asked in self.pull(1):
            asked.add_done_callback(self._heard)

    def _heard(self, asked: "asyncio.Future[Delivery | None]") -> None:
        if asked.cancelled():
            return
        error = asked.exception()
        delivery = asked.result() if error is None else None
        if self.is_closed:
            if delivery is not None:
                self.queue.give_back(delivery)
        elif error is not None:
            self._end()
            self.future.set_exception(error)
        elif delivery is not None or self._is_late or self._drains():
            self._answer(delivery)
        elif self._deadline is None:
            self._deadline = self._deadlines.add(self._end_s, self._time_is_up)

    def _time_is_up(self) -> None:
        """It has waited as long as it would; what it asked for still comes."""
        self._is_late = True
        if not self.in_hand:
            self._answer(None)

    def _fail(self, error: MqError) -> None:
        self._end()
        if not self.future.done():
            self.future.set_exception(error)

    def _answer(self, delivery: Delivery | None) -> None:
        self._end()
        self.future.set_result(delivery)

    def _end(self) -> None:
        self.close()
        if self._deadline is not None:
            self._deadlines.take_back(self._deadline)
