"""Expiry: messages older than their TTL, and queues whose `expires_at` has passed."""

from collections import deque
from collections.abc import Sequence
from typing import ClassVar, Final

from mq.model.errors import MqError
from mq.model.expiry import next_change_ms
from mq.model.limits import GROUP_OPERATIONS_MAX
from mq.model.log import logger
from mq.model.names import MessageId, QueueName, UuidSource
from mq.model.settings import SIDELINE
from mq.store.disk.group import Outcome, run_alone, run_group
from mq.store.keys.entries import drop_stale
from mq.store.operations.expire import (
    Expiry,
    OwnExpiry,
    delete_expired_queue,
    expire,
    expire_bucket,
    expired_ready,
    is_over,
)
from mq.store.operations.queues import retire_delayed
from mq_mover.policy import Policy, Turn, Work

# Limits: the interval of passes, messages that are removed at once, and queues that one turn
# checks.
MESSAGE_EXPIRY_EVERY_S: Final = 60.0
EXPIRED_PER_TURN_MAX: Final = 1000
EXPIRY_QUEUES_PER_TURN_MAX: Final = 100
EXPIRED_FAILED_KNOWN_MAX: Final = 10_000

_log = logger("mq-mover.policies")


class MessageExpiry(Policy):
    """Moves expired messages to remove/, or to their queues' sidelines, as `expired_to` says: one
    queue after another, reading only folders that are old enough.
    """

    name: ClassVar[str] = "message-expiry"
    every_s: ClassVar[float] = MESSAGE_EXPIRY_EVERY_S

    def __init__(self, work: Work) -> None:
        super().__init__(work)
        self._left: deque[QueueName] = deque()
        """The queues that this pass has not checked yet."""
        self._stayed: dict[MessageId, Exception | None] = {}
        """Messages of the first queue that this pass could not move, with their errors."""
        self._aside = 0
        self._own = OwnExpiry(work.root)

    def act(self) -> Turn:
        """Moves some messages of one queue. Raises OSError."""
        if not self._left:
            self._left.extend(queue for queue, _ in self.work.queues())
            self._own.begin()
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
        """Moves some messages. Returns their number (a bucket counts once), and whether the queue
        is done in this pass.
        """
        if not self.work.coordinator.has(queue):
            return 0, True
        settings = self.work.registry.settings(queue)
        if settings is None:
            return 0, True  # Unreadable settings: expiry is not guessed.
        if (own := self._take_own(queue)) is not None:
            return own, False
        if not settings.message_ttl_s:
            return 0, True
        if expire_bucket(self.root, queue):
            return 1, False
        goes_aside = settings.expired_to == SIDELINE and not queue.is_sideline
        most = GROUP_OPERATIONS_MAX if goes_aside else EXPIRED_PER_TURN_MAX
        found = expired_ready(self.root, queue, most, self._stayed)
        taken = self._take(queue, found)
        return taken, len(found) < most or len(self._stayed) >= EXPIRED_FAILED_KNOWN_MAX

    def _take_own(self, queue: QueueName) -> int | None:
        """Moves some messages past their own time to live. Returns their number; None: there are no
        more.
        """
        found = self._own.some(queue, GROUP_OPERATIONS_MAX)
        if found is None:
            return None
        taken = self._take(queue, found.ready)
        drop_stale(self.root, found.stale)
        return taken

    def _take(self, queue: QueueName, found: Sequence[tuple[str, MessageId]]) -> int:
        outcomes = self._run(queue, found)
        taken = 0
        for (_, message_id), outcome in zip(found, outcomes, strict=True):
            if outcome.value in (Expiry.REMOVED, Expiry.SIDELINED):
                messages = message_id.items or 1
                taken += messages
                self._aside += messages if outcome.value is Expiry.SIDELINED else 0
            else:
                self._stayed[message_id] = outcome.error
        return taken

    def _run(self, queue: QueueName, found: Sequence[tuple[str, MessageId]]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for first in range(0, len(found), GROUP_OPERATIONS_MAX):
            group = found[first : first + GROUP_OPERATIONS_MAX]
            moves = [expire(self.root, queue, message_id, spot) for spot, message_id in group]
            outcomes += run_group(moves, self.work.flusher)
        return outcomes

    def _tell(self, queue: QueueName) -> None:
        """Logs the messages that stay, and are tried again in the next pass."""
        errors = [error for error in self._stayed.values() if error is not None]
        self._stayed = {}
        if errors:
            fields = {"queue": queue.text, "count": len(errors), "error": repr(errors[0])}
            _log.warning(
                "could not remove expired messages yet; they are not delivered",
                extra={"fields": fields},
            )


QUEUE_EXPIRY_EVERY_S: Final = 60.0


class QueueExpiry(Policy):
    """Deletes queues whose `expires_at` has passed, as a DELETE does."""

    name: ClassVar[str] = "queue-expiry"
    every_s: ClassVar[float] = QUEUE_EXPIRY_EVERY_S

    def __init__(self, work: Work) -> None:
        super().__init__(work)
        self._uuids = UuidSource(self.root.clock)

    def act(self) -> Turn:
        """Deletes expired queues, up to EXPIRY_QUEUES_PER_TURN_MAX. Raises OSError."""
        deleted, again_in_s = 0, self.every_s
        for queue, known in self.work.queues():
            if known is not None and known.expires_at is None:
                continue  # It does not expire as of the last refresh: the usual case.
            settings = self.work.registry.settings(queue)
            if settings is None:
                continue  # Unreadable settings: expiry is not guessed.
            now_ms = self.root.now_ms()
            if is_over(self.root, settings):
                deleted += self._delete(queue)
                if deleted >= EXPIRY_QUEUES_PER_TURN_MAX:
                    return Turn(deleted, more=True)
            elif (change_ms := next_change_ms(settings, now_ms)) is not None:
                again_in_s = min(again_in_s, (change_ms - now_ms) / 1000)
        return Turn(deleted, again_in_s=again_in_s)

    def _delete(self, queue: QueueName) -> bool:
        """Returns whether it was deleted: its settings may have changed meanwhile."""
        flusher = self.work.flusher
        try:
            operation = delete_expired_queue(self.root, queue, self._uuids.next())
            if not run_alone(operation, flusher):
                return False
        except MqError as error:
            _tell("could not delete an expired queue yet", queue, error)
            return False
        _log.info("deleted an expired queue", extra={"fields": {"queue": queue.text}})
        try:
            retire_delayed(self.root, queue)
        except (MqError, OSError) as error:
            _tell("could not remove a deleted queue's messages from delay/ yet", queue, error)
        return True


def _tell(what: str, queue: QueueName, error: Exception) -> None:
    _log.warning(what, extra={"fields": {"queue": queue.text, "error": repr(error)}})
