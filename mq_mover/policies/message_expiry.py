"""Messages that have lived as long as their queue's `message_ttl_s` says, and are ready: nobody is
given them any more, and here they are taken away. What is delayed, fetched or leased is asked about
when it comes back.
"""

import logging
from collections import deque
from collections.abc import Sequence
from typing import ClassVar

from mq.model.limits import GROUP_OPERATIONS_MAX
from mq.model.names import MessageId, QueueName
from mq.model.settings import SIDELINE
from mq.model.upkeep_limits import (
    EXPIRED_FAILED_KNOWN_MAX,
    EXPIRED_PER_TURN_MAX,
    EXPIRY_QUEUES_PER_TURN_MAX,
    MESSAGE_EXPIRY_EVERY_S,
)
from mq.store.disk.group import Outcome
from mq.store.disk.steps import Steps
from mq.store.operations.expire import Expiry, expire, expire_bucket, expired_ready
from mq_mover.policy import Policy, Turn, Work
from mq_mover.sidelines import Sidelines

_log = logging.getLogger("mq-mover.policies")


class MessageExpiry(Policy):
    """Takes them to remove/, or to their queues' sidelines, as `expired_to` says: one queue after
    the other, of each those alone that are old enough.
    """

    name: ClassVar[str] = "message-expiry"
    every_s: ClassVar[float] = MESSAGE_EXPIRY_EVERY_S

    def __init__(self, work: Work) -> None:
        super().__init__(work)
        self._sidelines = Sidelines(work.root, work.flusher)
        self._left: deque[QueueName] = deque()
        """The queues that this pass has still to look at."""
        self._stayed: dict[MessageId, Exception | None] = {}
        """What of the first of them could not be taken away in this pass, and why."""
        self._aside = 0

    def act(self) -> Turn:
        """Some of one queue. Raises OSError."""
        if not self._left:
            self._left.extend(queue for queue, _ in self.work.queues())
        for _ in range(EXPIRY_QUEUES_PER_TURN_MAX):
            if not self._left:
                break
            self._aside = 0
            taken, is_done = self._take_some(self._left[0])
            if is_done:
                self._tell(self._left.popleft())
            if taken or not is_done:
                return Turn(taken, more=bool(self._left), aside=self._aside)
        return Turn(more=bool(self._left))

    def _take_some(self, queue: QueueName) -> tuple[int, bool]:
        """How many were taken away (a bucket counts once), and whether that is all of this pass."""
        if not self.work.coordinator.has(queue):
            return 0, True
        settings = self.work.registry.settings(queue)
        if settings is None or not settings.message_ttl_s:
            return 0, True  # What cannot be understood is not guessed.
        if expire_bucket(self.root, queue):
            return 1, False
        goes_aside = settings.expired_to == SIDELINE and not queue.is_sideline
        most = GROUP_OPERATIONS_MAX if goes_aside else EXPIRED_PER_TURN_MAX
        found = expired_ready(self.root, queue, most, self._stayed)
        taken = self._take(queue, found)
        return taken, len(found) < most or len(self._stayed) >= EXPIRED_FAILED_KNOWN_MAX

    def _take(self, queue: QueueName, found: Sequence[tuple[str, MessageId]]) -> int:
        outcomes = self._run(queue, found)
        taken = 0
        for (_, message_id), outcome in zip(found, outcomes, strict=True):
            if outcome.value in (Expiry.REMOVED, Expiry.SIDELINED):
                taken += 1
                self._aside += outcome.value is Expiry.SIDELINED
            else:
                self._stayed[message_id] = outcome.error
        return taken

    def _run(self, queue: QueueName, found: Sequence[tuple[str, MessageId]]) -> list[Outcome]:
        def operation(message: tuple[str, MessageId]) -> Steps[Expiry]:
            bucket, message_id = message
            return expire(self.root, queue, message_id, bucket)

        outcomes: list[Outcome] = []
        for first in range(0, len(found), GROUP_OPERATIONS_MAX):
            group = found[first : first + GROUP_OPERATIONS_MAX]
            outcomes += self._sidelines.run(group, operation, lambda _: queue)
        return outcomes

    def _tell(self, queue: QueueName) -> None:
        """Of what stays where it is, and is tried again in the next pass."""
        errors = [error for error in self._stayed.values() if error is not None]
        self._stayed = {}
        if errors:
            fields = {"queue": queue.text, "count": len(errors), "error": repr(errors[0])}
            _log.warning("expired messages stay for now, not served", extra={"fields": fields})
