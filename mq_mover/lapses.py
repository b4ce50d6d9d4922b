"""Lapsed leases: their messages return to their queues, some at a time."""

from typing import Final

from mq.model.errors import MqError
from mq.model.limits import LOOK_INTERVAL_S
from mq.model.log import logger
from mq.store.core.root import Root
from mq.store.disk.flush import Flusher
from mq.store.disk.group import run_alone
from mq.store.format.pipeline import LeaseName
from mq.store.format.walk import is_settled
from mq.store.leases.lapses import Lapse, adopt, lapses
from mq.store.leases.releasing import Release, Released, give_back

# The number of a lapsed lease's messages that return before other work gets its turn.
RETURNED_PER_PASS_MAX: Final = 20_000

_log = logger("mq-mover.leases")

# The pauses before a lease that could not be released is tried again.
_BUSY_AGAIN_MS: Final = 1_000
_STUCK_AGAIN_MS: Final = 10_000


class LeaseMover:
    """Releases lapsed leases. Any number of movers may share a root: locks and renames decide
    between them.
    """

    def __init__(self, root: Root, flusher: Flusher) -> None:
        self._root = root
        self._flusher = flusher
        self._lapses: dict[LeaseName, Lapse] = {}
        self._not_before_ms: dict[LeaseName, int] = {}
        self._mtime_ns: int | None = None
        """The mtime of leases/ at the last scan; None: too recent to trust."""
        self._look_again_s = float("-inf")

    def run_once(self) -> int:
        """Scans leases/ if that is due, and releases lapsed leases. Returns the number of moved
        messages. Raises OSError if the folder cannot be listed.
        """
        self._look_if_due()
        moved = 0
        for lease, lapse in list(self._lapses.items()):
            if self._due_ms(lapse) <= self._root.now_ms():
                moved += self._release(lease, lapse)
        return moved

    def next_due_s(self) -> float | None:
        """Seconds until the next known lease lapses; None: none is open."""
        if not self._lapses:
            return None
        next_ms = min(map(self._due_ms, self._lapses.values()))
        return max(0, next_ms - self._root.now_ms()) / 1000

    def _due_ms(self, lapse: Lapse) -> int:
        return max(lapse.due_ms, self._not_before_ms.get(lapse.lease, 0))

    def _look_if_due(self) -> None:
        """Scans leases/. A renewal changes no name; the mover sees it when the lease would have
        lapsed.
        """
        now_s = self._root.clock.steady_s()
        if now_s < self._look_again_s:
            return
        self._look_again_s = now_s + LOOK_INTERVAL_S
        status = self._root.files.status(self._root.layout.leases)
        if status is None:
            raise FileNotFoundError(2, "the folder of leases is gone", self._root.layout.leases)
        if status.st_mtime_ns == self._mtime_ns:
            return
        self._mtime_ns = status.st_mtime_ns if is_settled(status, self._root.now_ms()) else None
        self._lapses = {lapse.lease: lapse for lapse in lapses(self._root)}
        for lease in set(self._not_before_ms) - set(self._lapses):
            del self._not_before_ms[lease]

    def _release(self, lease: LeaseName, lapse: Lapse) -> int:
        try:
            if lapse.is_orphan:
                since_ms = lapse.due_ms or self._root.now_ms()
                run_alone(adopt(self._root, lease, since_ms), self._flusher)
            released = run_alone(
                give_back(self._root, lease, only_due=True, limit=RETURNED_PER_PASS_MAX),
                self._flusher,
            )
        except (MqError, OSError) as error:
            self._again(lease, _BUSY_AGAIN_MS)
            fields = {"lease": lease.text, "error": repr(error)}
            _log.warning("could not release a lapsed lease; trying again", extra={"fields": fields})
            return 0
        if not isinstance(released, Released):
            self._not_released(lease, released)
            return 0
        if released.stuck:
            self._again(lease, _STUCK_AGAIN_MS)
        elif not released.more:
            del self._lapses[lease]
        self._report(lease, released)
        return released.returned + released.removed

    def _not_released(self, lease: LeaseName, why: Release) -> None:
        if why is Release.ENDED:
            del self._lapses[lease]
        elif why is Release.BUSY:
            self._again(lease, _BUSY_AGAIN_MS)
        else:
            # The lease was renewed: its manifest has the new time.
            known = {lapse.lease: lapse for lapse in lapses(self._root)}
            if lease in known:
                self._lapses[lease] = known[lease]
            else:
                del self._lapses[lease]

    def _again(self, lease: LeaseName, after_ms: int) -> None:
        self._not_before_ms[lease] = self._root.now_ms() + after_ms

    def _report(self, lease: LeaseName, released: Released) -> None:
        fields = {
            "lease": lease.text,
            "returned": released.returned,
            "removed": released.removed,
            "stuck": released.stuck,
        }
        if released.stuck:
            _log.warning(
                "messages of a lapsed lease stay in it: their queue is missing or unreadable",
                extra={"fields": fields},
            )
        else:
            _log.info("a lease lapsed", extra={"fields": fields})
