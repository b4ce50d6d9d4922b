"""What a connection's client may consume, as of now: who it is, and what it may, both may end."""

from collections.abc import Callable, Iterable

from mq.access.callers import Caller, Right
from mq.access.errors import Forbidden
from mq.access.rules import check


class Permission:
    """Of one connection. `who` tells who the client is, or raises Unauthenticated."""

    def __init__(self, who: Callable[[], Caller]) -> None:
        """Raises Unauthenticated."""
        self._who = who
        self._caller = who()

    def renew(self) -> bool:
        """Asks again; whether the client, or its rights, are others now. Raises Unauthenticated."""
        before, self._caller = self._caller, self._who()
        return before != self._caller

    def error(self, queue: str) -> Forbidden | None:
        """What stands in the way of consuming the queue; None: nothing does."""
        try:
            check(self._caller, Right.CONSUME, queue)
        except Forbidden as error:
            return error
        return None

    def errors(self, queues: Iterable[str]) -> dict[str, Forbidden]:
        """What does so for those of the queues that may not be consumed."""
        found = {queue: self.error(queue) for queue in queues}
        return {queue: error for queue, error in found.items() if error is not None}
