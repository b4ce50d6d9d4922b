"""Queues whose time is over, by their `expires_at`, and the grace in which their names are kept."""

import logging
from typing import ClassVar

from mq.model.errors import MqError
from mq.model.expiry import next_change_ms
from mq.model.names import QueueName, UuidSource
from mq.model.upkeep_limits import EXPIRY_QUEUES_PER_TURN_MAX, QUEUE_EXPIRY_EVERY_S
from mq.store.disk.group import run_alone
from mq.store.operations.expire import delete_expired_queue, is_over
from mq.store.operations.queues import retire_delayed
from mq_mover.policy import Policy, Turn, Work

_log = logging.getLogger("mq-mover.policies")


class QueueExpiry(Policy):
    """Deletes them, as a DELETE does."""

    name: ClassVar[str] = "queue-expiry"
    every_s: ClassVar[float] = QUEUE_EXPIRY_EVERY_S

    def __init__(self, work: Work) -> None:
        super().__init__(work)
        self._uuids = UuidSource(self.root.clock)

    def act(self) -> Turn:
        """All that are over by now, but for so many. Raises OSError."""
        deleted, again_in_s = 0, self.every_s
        for queue, known in self.work.queues():
            if known is not None and known.expires_at is None:
                continue  # As was known at the last refresh: nearly no queue has an end.
            settings = self.work.registry.settings(queue)
            if settings is None:
                continue  # What cannot be understood is not guessed.
            now_ms = self.root.now_ms()
            if is_over(self.root, settings):
                deleted += self._delete(queue)
                if deleted >= EXPIRY_QUEUES_PER_TURN_MAX:
                    return Turn(deleted, more=True)
            elif (change_ms := next_change_ms(settings, now_ms)) is not None:
                again_in_s = min(again_in_s, (change_ms - now_ms) / 1000)
        return Turn(deleted, again_in_s=again_in_s)

    def _delete(self, queue: QueueName) -> bool:
        """Whether it was: its settings may be others by now."""
        flusher = self.work.flusher
        try:
            operation = delete_expired_queue(self.root, queue, self._uuids.next())
            if not run_alone(operation, flusher):
                return False
        except MqError as error:
            _tell("an expired queue is not deleted yet", queue, error)
            return False
        _log.info("an expired queue was deleted", extra={"fields": {"queue": queue.text}})
        try:
            run_alone(retire_delayed(self.root, queue), flusher)
        except MqError as error:
            _tell("a deleted queue's messages stay in delay/ for now", queue, error)
        return True


def _tell(what: str, queue: QueueName, error: Exception) -> None:
    _log.warning(what, extra={"fields": {"queue": queue.text, "error": repr(error)}})
