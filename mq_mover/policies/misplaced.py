"""Moves messages out of wrong buckets, where an older mq or an operator has put them: they cannot
be found by their ids. Scans each bucket once, when no more messages come to it.
"""

from typing import ClassVar, Final

from mq.model.errors import MqError, StaysAsItIs
from mq.model.limits import GROUP_OPERATIONS_MAX
from mq.model.log import logger
from mq.model.names import MessageId, QueueName
from mq.store.audit.misplaced import look_for_misplaced
from mq.store.audit.repair import put_in_place
from mq.store.disk.files import is_gone
from mq.store.disk.group import run_group
from mq.store.format.bucket_names import parse_bucket
from mq.store.format.layout import Place
from mq.store.format.walk import buckets
from mq_mover.policy import Policy, Turn, Work

# Limits: the interval of searches for new buckets, and the names and moves of one turn.
MISPLACED_EVERY_S: Final = 300.0
MISPLACED_LOOKED_AT_MAX: Final = 10_000
MISPLACED_MOVED_MAX: Final = 1_000

_log = logger("mq-mover.policies")


class Misplaced(Policy):
    name: ClassVar[str] = "misplaced"
    every_s: ClassVar[float] = MISPLACED_EVERY_S

    def __init__(self, work: Work) -> None:
        super().__init__(work)
        self._waiting: list[tuple[QueueName, str]] = []
        """Folders of buckets that this pass has not scanned yet."""
        self._looked_through: set[tuple[QueueName, str]] = set()
        """Buckets that earlier passes scanned."""
        self._stayed: dict[MessageId, Exception | None] = {}
        """Messages of the current folder that could not be moved, with their errors."""

    def act(self) -> Turn:
        """Scans some folders. Raises OSError if a queue's folder cannot be listed."""
        self._waiting = self._waiting or self._buckets()
        looked_at = moved = 0
        while self._waiting and looked_at < MISPLACED_LOOKED_AT_MAX and moved < MISPLACED_MOVED_MAX:
            queue, bucket = self._waiting[-1]
            try:
                names, more = self._look(queue, bucket, MISPLACED_MOVED_MAX - moved)
            except (MqError, OSError) as error:
                fields = {"queue": queue.text, "bucket": bucket, "error": repr(error)}
                _log.info(
                    "could not scan a bucket for misplaced messages; trying again",
                    extra={"fields": fields},
                )
                self._leave(queue, bucket, again=True)
                continue
            looked_at, moved = looked_at + names, moved + more
        if moved:
            _log.warning(
                "moved misplaced messages to their places", extra={"fields": {"count": moved}}
            )
        return Turn(moved, more=bool(self._waiting))

    def _buckets(self) -> list[tuple[QueueName, str]]:
        """The buckets of this member's queues that were not scanned and get no more messages."""
        now_ms = self.root.now_ms()
        there: set[tuple[QueueName, str]] = set()
        for queue, _ in self.work.queues():
            try:
                found = list(buckets(self.root.files, self.root.layout.queue(queue)))
            except OSError as error:
                if not is_gone(error):
                    raise
                continue  # Deleted since the last refresh.
            for bucket in found:
                parsed = parse_bucket(bucket.name)
                if parsed is not None and not parsed.may_be_written(now_ms):
                    there.add((queue, bucket.spot))
        new = there - self._looked_through
        self._looked_through = there
        return sorted(new)

    def _look(self, queue: QueueName, bucket: str, most: int) -> tuple[int, int]:
        """Scans a folder, and moves up to `most` messages. Returns the numbers of names and of
        moved messages. Raises SettingsUnreadable, OSError.
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

    def _move(self, spots: list[Place]) -> int:
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
            _log.warning("could not move misplaced messages", extra={"fields": fields})

    def _leave(self, queue: QueueName, bucket: str, *, again: bool) -> None:
        """Finishes a folder; with `again` the next pass scans it once more."""
        self._waiting.remove((queue, bucket))
        self._stayed.clear()
        if again:
            self._looked_through.discard((queue, bucket[: bucket.index("/") + 1]))
