"""mq-mover's work on a fake's root, at each moment at which something is due."""

import math
from collections.abc import Iterable, Iterator
from typing import Final

from mq.coordination.coordinator import Alone
from mq.model.errors import QueueNotFound
from mq.model.expiry import lifetime_ms, next_change_ms
from mq.model.lifecycle import State
from mq.model.limits import SWEEP_EVERY_S
from mq.model.names import QueueName
from mq.model.shovel import due_in_s, interval_s
from mq.store.core.root import Root
from mq.store.disk.files import ClockFiles
from mq.store.disk.flush import Flusher
from mq.store.format.entries import Index, entries_in, entries_of, index_folder
from mq.store.format.walk import entries_if_there, queue_folders
from mq.store.operations.redeliver import Timer
from mq.store.scan.order import Candidate, list_after
from mq.store.settings.registry import Registry
from mq.store.shovel.files import read_record, scheduled_since_ms
from mq.store.shovel.run import Run
from mq_mover.mover import Mover
from mq_mover.policies.expiry import MessageExpiry, QueueExpiry
from mq_mover.policies.shovel import Shovel
from mq_mover.policies.sweeps import DeletedQueues, Histories, Purges, Totals
from mq_mover.policy import Policies, Work
from mq_mover.scheduler import Scheduler

_TURNS_MAX: Final = 1000
_AT_ONCE: Final = 1000
# The others clean up after crashes, other processes and programs of Spark.
_POLICIES: Final = (DeletedQueues, Purges, MessageExpiry, QueueExpiry, Histories, Totals, Shovel)


class Upkeep:
    """The only member of a root, in one thread. `files` count the changes of the root."""

    def __init__(self, root: Root, files: ClockFiles, flusher: Flusher) -> None:
        self._root = root
        self._files = files
        self._flusher = flusher
        self._registry = Registry(root)
        work = Work(root, flusher, Alone("fake"), self._registry)
        self._policies = [kind(work) for kind in _POLICIES]
        self._turns_ms = 0
        """When the policies ran last."""
        self._policies_ms = 0
        """When the policies run next."""
        self._known_ms: int | None = None
        """When something is due for the policies; None: nothing that is known."""
        self._seen = -1
        self._ran_ms = 0
        """When `run` was called last: what became due since is still to be done."""
        self._rescan()

    def _rescan(self) -> None:
        """Starts a mover and a scheduler anew, which scan for all that is due."""
        self._mover = Mover(self._root, self._flusher, Timer(), first_sight_s=0)
        self._scheduler = Scheduler(self._root, self._flusher)

    @property
    def has_news(self) -> bool:
        """Whether the root has changed since the last `run`."""
        return self._files.changes != self._seen

    def run(self) -> bool:
        """Does all that is due; whether it did anything. Policies run when something is due for
        them, and every SWEEP_EVERY_S.
        """
        now_ms = self._ran_ms = self._root.now_ms()
        acted = False
        is_changed = self.has_news
        if is_changed:
            self._rescan()
        if self._policies_ms <= now_ms:
            self._registry.refresh()
            self._run_policies()
            self._turns_ms = now_ms
            is_changed = acted = True
        for _ in range(_TURNS_MAX):
            moved, fired = self._mover.run_once(), self._scheduler.run_once()
            if fired:
                self._rescan()
            if not (moved or fired):
                break
            is_changed = acted = True
        if is_changed:
            every_ms = self._turns_ms + round(SWEEP_EVERY_S * 1000)
            self._known_ms = min(self._of_policies(), default=None)
            self._policies_ms = (
                every_ms if self._known_ms is None else min(self._known_ms, every_ms)
            )
        self._seen = self._files.changes
        return acted

    def next_ms(self, others: Iterable[Run]) -> int | None:
        """When something is due that the last `run` did not do, also for the shovels' runs
        `others`; None: nothing that is known.
        """
        now_ms = self._root.now_ms()
        known = [each.next_due_s() for each in (self._mover, self._scheduler)]
        known += [each.goes_on_in_s() for each in (*self.shovels, *others)]
        found = [now_ms + math.ceil(each * 1000) for each in known if each is not None]
        if self._known_ms is not None:
            found.append(self._known_ms)
        return min((each for each in found if each > self._ran_ms), default=None)

    @property
    def shovels(self) -> list[Run]:
        """The runs of shovels that policies have started."""
        return [
            going.run
            for policy in self._policies
            if isinstance(policy, Shovel)
            for going in policy.runs.values()
        ]

    def end(self) -> None:
        for each in self._policies:
            each.stop()

    def _run_policies(self) -> None:
        turns = Policies(self._root, self._policies)
        for _ in range(_TURNS_MAX):
            if not turns.run_once():
                break

    def _of_policies(self) -> Iterator[int]:
        """When something is due for the policies."""
        now_ms = self._root.now_ms()
        self._registry.refresh()
        for queue, _ in queue_folders(
            self._root.files, index_folder(self._root.layout, Index.EXPIRY)
        ):
            yield from self._outlive(queue, now_ms)
        for queue, registered in self._registry.queues.items():
            settings = registered.settings
            if settings is None:
                continue
            if (change_ms := next_change_ms(settings, now_ms)) is not None:
                yield change_ms
            if settings.message_ttl_s:
                yield from self._expires(queue, lifetime_ms(settings.message_ttl_s), now_ms)
            every_s = None if queue.is_sideline else interval_s(settings)
            if every_s is not None:
                since_ms = scheduled_since_ms(self._root, queue, read_record(self._root, queue))
                if (after_s := due_in_s(every_s, since_ms, now_ms)) > 0:
                    yield now_ms + round(after_s * 1000)

    def _outlive(self, queue: QueueName, now_ms: int) -> Iterator[int]:
        top = entries_of(self._root.layout, Index.EXPIRY, queue)
        for window in list(entries_if_there(self._root.files, top)):
            for _, message_id in entries_in(self._root.files, window.path):
                if (message_id.expires_ms or 0) > now_ms:
                    yield message_id.expires_ms or 0

    def _expires(self, queue: QueueName, lives_ms: int, now_ms: int) -> Iterator[int]:
        ends = (each.id.published_ms + lives_ms for each in ids_of(self._root, State.READY, queue))
        yield from (each for each in ends if each > now_ms)


def ids_of(root: Root, state: State, queue: QueueName) -> Iterator[Candidate]:
    """The messages of a queue in a state: ready ones in delivery order, others by id; none where
    the queue does not exist.
    """
    after, is_all = None, False
    while not is_all:
        try:
            found, is_all = list_after(root, state, queue, _AT_ONCE, after)
        except QueueNotFound:
            return
        yield from found
        if not found:
            return
        after = found[-1].id
