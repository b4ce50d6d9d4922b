"""Makes room in queues beyond their limits: after publishes whose process ended before it could,
and after messages that came in other ways.
"""

from collections import deque
from typing import ClassVar, Final

from mq.model.errors import QueueNotFound
from mq.model.limits import GROUP_OPERATIONS_MAX
from mq.model.log import logger
from mq.model.names import QueueName
from mq.model.settings import QueueSettings
from mq.store.disk.group import run_group
from mq.store.operations.overflow import goes_aside, make_room, oldest_ready, to_go
from mq_mover.policy import Policy, Turn, Work

OVERFLOW_EVERY_S: Final = 60.0

_log = logger("mq-mover.policies")


class Overflow(Policy):
    """Removes or sidelines the oldest ready messages of queues whose `overflow` says so, one queue
    a turn.
    """

    name: ClassVar[str] = "overflow"
    every_s: ClassVar[float] = OVERFLOW_EVERY_S

    def __init__(self, work: Work) -> None:
        super().__init__(work)
        self._left: deque[QueueName] = deque()
        """The limited queues that this pass has not checked yet."""

    def act(self) -> Turn:
        """Makes room in one queue. Raises OSError."""
        if not self._left:
            self._left.extend(queue for queue, known in self.work.queues() if _drops(known))
        while self._left:
            queue = self._left.popleft()
            settings = self.work.registry.settings(queue)
            if settings is None or not _drops(settings):
                continue  # Unreadable settings: removal is not guessed.
            try:
                gone, more = self._let_go(queue, settings)
            except QueueNotFound:
                continue
            if more:
                self._left.appendleft(queue)
            if gone:
                aside = gone if goes_aside(queue, settings) else 0
                return Turn(gone, more=bool(self._left), aside=aside)
        return Turn()

    def _let_go(self, queue: QueueName, settings: QueueSettings) -> tuple[int, bool]:
        """Removes some messages. Returns their number, and whether more are due. Lists before it
        counts: a message that leaves meanwhile is not replaced by another.
        """
        if not self.root.room.look(queue, settings).excess(settings):
            return 0, False
        oldest = oldest_ready(self.root, queue, settings.bytes_max > 0)
        excess = self.root.room.look(queue, settings).excess(settings)
        going = to_go(oldest, excess)

        group = going[:GROUP_OPERATIONS_MAX]
        making = [make_room(self.root, place, settings) for place in group]
        outcomes = run_group(making, self.work.flusher)
        gone = sum(
            place.id.items or 1
            for place, outcome in zip(group, outcomes, strict=True)
            if outcome.value is True
        )
        errors = [outcome.error for outcome in outcomes if outcome.error is not None]
        if errors:
            fields = {"queue": queue.text, "count": len(errors), "error": repr(errors[0])}
            _log.warning("could not make room in a queue at its limit", extra={"fields": fields})
        return gone, gone > 0 and len(going) > len(group)


def _drops(settings: QueueSettings | None) -> bool:
    return settings is not None and settings.is_limited and not settings.refuses
