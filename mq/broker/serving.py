"""Serves a queue's waiters: whose turn it is gets the next ready message.

Synchronous; use it on the event loop's thread. `serve` begins claims until no one in line can be
served: the lines of higher priorities first, among equals the one that has waited longest. It is
called when a waiter stands, when messages become ready, and when claims or scans end.
"""

from typing import Protocol

from mq.broker.claims import Claimed, Claimer
from mq.broker.waiting import LineKey, Waiter
from mq.model.errors import MqError
from mq.model.selection import Selection


class Served(Claimed, Protocol):
    """The queue."""

    def claimer(self, selection: Selection | None) -> Claimer: ...

    def check_life(self) -> None:
        """Raises QueueExpired where the queue delivers no messages any more."""
        ...


class Serving:
    """Who waits for a queue's messages, and gets them."""

    def __init__(self, queue: Served) -> None:
        self._lines = queue.lines
        self._queue = queue
        self._is_serving = self._is_to_serve_again = False

    def serve(self) -> None:
        """Begins the claims that may begin now, and the scans that are due."""
        self._is_to_serve_again = True
        if self._is_serving:
            return
        self._is_serving = True
        try:
            while self._is_to_serve_again:
                self._is_to_serve_again = False
                self._serve()
        finally:
            self._is_serving = False

    def _serve(self) -> None:
        queue, lines = self._queue, self._lines
        if queue.is_parting:
            return  # Its end serves.
        if not lines or not self._gives():
            return
        now_s = queue.root.clock.steady_s()
        passed: set[LineKey] = set()
        while (waiter := lines.first(passed)) is not None:
            if not self._serve_one(waiter, now_s):
                passed.add((waiter.priority, waiter.selection))
            if self._is_parting():
                return
        if queue.permits is not None and not queue.permits.room():
            self._rest()

    def _is_parting(self) -> bool:
        return self._queue.is_parting

    def _serve_one(self, waiter: Waiter, now_s: float) -> bool:
        """Whether its line goes on: the waiter was served, or has left."""
        lines, claimer = self._lines, self._queue.claimer(waiter.selection)
        if waiter.is_gone or waiter.credit <= 0:
            lines.leave(waiter)
            return True
        if not claimer.may_claim(now_s) or not len(claimer.ready):
            return False
        if (room := min(waiter.room(), waiter.credit)) <= 0:
            lines.leave(waiter)
            return True
        # One after the other, so that equals have equal shares.
        if not claimer.claim(waiter, room if len(lines) == 1 else 1):
            if lines.above(waiter.priority) or self._queue.yields(waiter.priority):
                # What there is, is for those above.
                lines.find_nothing(
                    each
                    for each in lines.fresh(waiter.selection)
                    if each.priority == waiter.priority
                )
            else:
                claimer.may_claim(now_s)  # Where its candidates wait for others, a scan may be due.
            return False
        if waiter.credit > 0:
            lines.to_end(waiter)
        else:
            lines.leave(waiter)
        return True

    def _gives(self) -> bool:
        """Whether the queue delivers messages. Where it does not, tells the waiters."""
        queue, settings = self._queue, self._queue.settings
        if settings.expires_at is not None:
            try:
                queue.check_life()
            except MqError as error:
                queue.failed(error)
                return False
        if queue.permits is not None and not queue.permits.room():
            queue.waits_for_room()
            self._rest()
            return False
        if not settings.gives:
            self._rest()
            return False
        if settings.message_ttl_s:
            for claimer in queue.claimers:
                claimer.drop_expired()
        return True

    def _rest(self) -> None:
        """Tells the waiters that nothing is ready, once no claim of theirs is in progress."""
        for claimer in list(self._queue.claimers):
            if not claimer.claims:
                self._lines.find_nothing(self._lines.fresh(claimer.selection))
