"""Messages in a bucket that is not their own, where an older mq or a hand has put them: their ids
do not find them. Each bucket is looked through once, when no more comes to it.
"""

import logging
from typing import ClassVar

from mq.model.errors import MqError, StaysAsItIs
from mq.model.limits import GROUP_OPERATIONS_MAX
from mq.model.names import MessageId, QueueName
from mq.model.upkeep_limits import MISPLACED_EVERY_S, MISPLACED_LOOKED_AT_MAX, MISPLACED_MOVED_MAX
from mq.store.audit.breaches import Spot
from mq.store.audit.misplaced import look_for_misplaced
from mq.store.audit.putting_right import put_in_place
from mq.store.disk.files import is_gone
from mq.store.disk.group import run_group
from mq.store.format.bucket_names import parse_bucket
from mq.store.format.walk import buckets
from mq_mover.policy import Policy, Turn, Work

_log = logging.getLogger("mq-mover.policies")


class Misplaced(Policy):
    """Moves them to their places."""

    name: ClassVar[str] = "misplaced"
    every_s: ClassVar[float] = MISPLACED_EVERY_S

    def __init__(self, work: Work) -> None:
        super().__init__(work)
        self._waiting: list[tuple[QueueName, str]] = []
        """Buckets, and what lies below them, that this pass has not come to."""
        self._looked_through: set[tuple[QueueName, str]] = set()
        """Buckets of passes before."""
        self._stayed: dict[MessageId, Exception | None] = {}
        """What could not be moved of the folder that is next, and why."""

    def act(self) -> Turn:
        """Some folders. Raises OSError when a queue's folder cannot be listed."""
        self._waiting = self._waiting or self._buckets()
        looked_at = moved = 0
        while self._waiting and looked_at < MISPLACED_LOOKED_AT_MAX and moved < MISPLACED_MOVED_MAX:
            queue, bucket = self._waiting[-1]
            try:
                names, more = self._look(queue, bucket, MISPLACED_MOVED_MAX - moved)
            except (MqError, OSError) as error:
                fields = {"queue": queue.text, "bucket": bucket, "error": repr(error)}
                _log.info("a bucket is not looked through now", extra={"fields": fields})
                self._leave(queue, bucket, again=True)
                continue
            looked_at, moved = looked_at + names, moved + more
        if moved:
            _log.warning("messages put in their places", extra={"fields": {"count": moved}})
        return Turn(moved, more=bool(self._waiting))

    def _buckets(self) -> list[tuple[QueueName, str]]:
        """Those of this member's queues that were not looked through, and are not written to any
        more.
        """
        now_ms = self.root.now_ms()
        there: set[tuple[QueueName, str]] = set()
        for queue, _ in self.work.queues():
            try:
                found = list(buckets(self.root.files, self.root.layout.queue(queue)))
            except OSError as error:
                if not is_gone(error):
                    raise
                continue  # Deleted since the queues were looked at.
            for bucket, _ in found:
                parsed = parse_bucket(bucket[:-1])
                if parsed is not None and not parsed.may_be_written(now_ms):
                    there.add((queue, bucket))
        new = there - self._looked_through
        self._looked_through = there
        return sorted(new)

    def _look(self, queue: QueueName, bucket: str, most: int) -> tuple[int, int]:
        """Looks through a folder, and moves up to so many messages; how many names it has, and how
        many messages were moved. Raises SettingsUnreadable, OSError.
        """
        found = look_for_misplaced(self.root, queue, bucket)
        spots = [spot for spot in found.misplaced if spot.id not in self._stayed]
        moved = 0
        for first in range(0, min(most, len(spots)), GROUP_OPERATIONS_MAX):
            moved += self._move(spots[first : first + min(GROUP_OPERATIONS_MAX, most - first)])
        if len(spots) <= most or len(self._stayed) >= MISPLACED_LOOKED_AT_MAX:
            self._tell_of_stayed()
            again = any(not isinstance(error, StaysAsItIs) for error in self._stayed.values())
            self._leave(queue, bucket, again=again)
            self._waiting += [(queue, below) for below in found.below]
        return found.names, moved

    def _move(self, spots: list[Spot]) -> int:
        outcomes = run_group([put_in_place(self.root, spot) for spot in spots], self.work.flusher)
        left = {
            spot.id: outcome.error
            for spot, outcome in zip(spots, outcomes, strict=True)
            if outcome.value is None
        }
        self._stayed |= left
        return len(spots) - len(left)

    def _tell_of_stayed(self) -> None:
        failed = [error for error in self._stayed.values() if error is not None]
        if failed:
            fields = {"count": len(failed), "error": repr(failed[0])}
            _log.warning("misplaced messages stay", extra={"fields": fields})

    def _leave(self, queue: QueueName, bucket: str, *, again: bool) -> None:
        """Goes on behind a folder, which the next pass looks through `again`."""
        self._waiting.remove((queue, bucket))
        self._stayed.clear()
        if again:
            self._looked_through.discard((queue, bucket[: bucket.index("/") + 1]))
