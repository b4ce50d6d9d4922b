"""One run of a queue's shovel: passes over the sideline, by some workers side by side.

It has a thread of its own, which looks whether the run is to stop and says how far it is, and a
thread a worker, each with a batch of messages in hand. Renames decide what becomes of a message, so
a run that is killed, or that wakes up late, has moved what it has moved, and the next goes on.
"""

import logging
import threading
from collections.abc import Sequence

from mq.model.errors import MqError, QueueNotFound, Unavailable, unavailable
from mq.model.shovel import (
    SHOVEL_AGAIN_MAX,
    SHOVEL_AGAIN_S,
    SHOVEL_BATCH_MAX,
    SHOVEL_IN_HAND_MAX,
    SHOVEL_LOOK_S,
    SHOVEL_TOLD_EVERY_S,
    Pacing,
    Progress,
    Record,
    RunState,
    Tally,
    Trigger,
    Why,
)
from mq.store.core.root import Root
from mq.store.disk.flush import Flusher
from mq.store.scan.order import Candidate
from mq.store.shovel.files import Turn, drop_stop, is_asked_to_stop, write_record
from mq.store.shovel.hearing import NOBODY, Heard, Stopping
from mq.store.shovel.shovel import Shovelled, look_at_many, shovel_many
from mq.store.shovel.shovelling import Pass

_log = logging.getLogger("mq.shovels")


def slug_of(error: Exception | None) -> str:
    """An error as the type of its problem has it."""
    if isinstance(error, OSError):
        error = unavailable(error)
    if isinstance(error, QueueNotFound):
        return "queue-not-found"
    return error.slug if isinstance(error, Unavailable) else "internal"


def _at_once(concurrency: int) -> int:
    """How many messages a worker has in hand: each is a file that is open."""
    return max(1, min(SHOVEL_BATCH_MAX, SHOVEL_IN_HAND_MAX // concurrency))


def _may_pass(error: Exception) -> bool:
    return isinstance(error, Unavailable | OSError)


class Run:
    """A run that has its turn: a pass, of which a record says what it is for."""

    def __init__(
        self,
        root: Root,
        flusher: Flusher,
        turn: Turn,
        passing: Pass,
        record: Record,
        heard: Heard = NOBODY,
    ) -> None:
        self.queue = passing.aim.queue
        self._root = root
        self._flusher = flusher
        self._turn = turn
        self._pass = passing
        self._record = record
        self._heard = heard
        self._changed = threading.Condition()
        self._listing = threading.Lock()
        self._tally = Tally(record.run, passing.aim.criteria.limit)
        self._at_once = _at_once(record.run.concurrency)
        self._pacing = Pacing(record.run.rate, root.clock.steady_s())
        self.stopping: Stopping | None = None
        """Why it is to stop; None: it is not."""
        self._error: Exception | None = None
        self._is_listed = False
        self._again: list[Candidate] = []
        """Those that could not be moved, for when the pass goes on."""
        self._working = 0
        self._told_s = float("-inf")
        self._is_told = True
        self._folder = self._queue_folder()
        self.ended = threading.Event()
        """Set once all is over, and said so."""

    @property
    def progress(self) -> Progress:
        """How far it is, as of now. From any thread."""
        with self._changed:
            return self._tally.progress

    @property
    def scheduled_ms(self) -> int | None:
        """Since when the schedule counts, milliseconds since the epoch, as far as is known."""
        return self._record.scheduled_ms

    def start(self) -> None:
        """Says that it goes on, and has it do so in a thread of its own."""
        self._tell()
        name = f"shovel-{self.queue.text}"
        threading.Thread(target=self.run, name=name, daemon=True).start()

    def stop(self, why: Stopping = Stopping.ASKED) -> None:
        """Has it end after what is in hand. From any thread; the first who says so says why."""
        with self._changed:
            self.stopping = self.stopping or why
            self._changed.notify_all()

    def run(self) -> Progress:
        """Goes on to the end; what came of it. Raises nothing but what is a mistake of ours."""
        try:
            for again in range(1 + SHOVEL_AGAIN_MAX):
                if again and not self._wait_to_go_on():
                    break
                self._make_pass()
                if self._error is None or not _may_pass(self._error):
                    break
            return self._end()
        finally:
            self._turn.end()
            self.ended.set()
            self._heard.over()

    def _make_pass(self) -> None:
        """From where the last one ended, with what it could not move first."""
        with self._changed:
            self._error = None
            self._working = self._tally.progress.concurrency
            self._tally.stands(RunState.RUNNING)
        workers = [
            threading.Thread(target=self._work, name=f"{self.queue.text}-{index}", daemon=True)
            for index in range(self._working)
        ]
        for worker in workers:
            worker.start()
        while not self._are_done():
            self._look()
        for worker in workers:
            worker.join()

    def _are_done(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: not self._working, SHOVEL_LOOK_S)
            return not self._working

    def _wait_to_go_on(self) -> bool:
        """False: it is to stop."""
        again_s = self._now_s() + SHOVEL_AGAIN_S
        with self._changed:
            self._tally.stands(RunState.WAITING)
            fields = self._fields() | {"cause": repr(self._error)}
        _log.warning("a shovel waits", extra={"fields": fields})
        self._is_told = False
        while True:
            self._look()
            with self._changed:
                left_s = again_s - self._now_s()
                if self.stopping is not None:
                    return False
                if left_s <= 0:
                    return True
                self._changed.wait(min(left_s, SHOVEL_LOOK_S))

    def _look(self) -> None:
        """Whether it is to stop, and whether it still has its turn; says how far it is."""
        self._look_for_turn()
        if self.stopping is Stopping.TAKEN:
            return
        try:
            if is_asked_to_stop(self._root, self.queue, self._record.run.id):
                self.stop()
            if self._queue_folder() != self._folder:
                self._failed(QueueNotFound(self.queue.text))
        except OSError as error:
            _log.info("a shovel cannot look", extra={"fields": {"error": repr(error)}})
        if not self._heard.may_go_on():
            self.stop(Stopping.LEFT)
        if not self._is_told or self._now_s() - self._told_s >= SHOVEL_TOLD_EVERY_S:
            self._tell()

    def _queue_folder(self) -> int | None:
        """What tells the queue from another of its name; None: it is not there."""
        status = self._root.files.status(self._root.layout.queue(self.queue))
        return None if status is None else status.st_ino

    def _tell(self) -> None:
        """What cannot be said is no reason to leave messages where they are."""
        self._told_s, self._is_told = self._now_s(), True
        record = Record(self.progress, self._record.scheduled_ms)
        try:
            write_record(self._root, self.queue, record)
        except OSError as error:
            _log.warning(
                "a shovel's progress is not written",
                extra={"fields": {"queue": self.queue.text, "error": repr(error)}},
            )

    def _end(self) -> Progress:
        now_ms = self._root.now_ms()
        self._look_for_turn()
        with self._changed:
            if self.stopping is not None:
                state = RunState.STOPPED
            else:
                state = RunState.DONE if self._error is None else RunState.FAILED
            self._tally.ends(state, now_ms)
        if self._record.run.by is Trigger.SCHEDULED and self.stopping in (None, Stopping.ASKED):
            self._record = Record(self._record.run, now_ms)
        if self.stopping is not Stopping.TAKEN:
            self._tell()
            self._drop_stop()
        fields = self._fields()
        if state is RunState.FAILED:
            fields["cause"] = repr(self._error)
        _log.log(self._level(state), "a shovel ended", extra={"fields": fields})
        return self.progress

    def _look_for_turn(self) -> None:
        """One that was stopped may find nothing left to do before it looks again."""
        try:
            if not self._turn.keep():
                self.stop(Stopping.TAKEN)
        except OSError as error:
            _log.info("a shovel cannot look", extra={"fields": {"error": repr(error)}})

    def _level(self, state: RunState) -> int:
        """A schedule's run that found nothing to move is no event: the next one is soon."""
        if state is RunState.FAILED:
            return logging.WARNING
        now = self.progress
        is_idle = now.by is Trigger.SCHEDULED and state is RunState.DONE and not now.moved
        return logging.DEBUG if is_idle and not now.failed else logging.INFO

    def _drop_stop(self) -> None:
        try:
            drop_stop(self._root, self.queue)
        except OSError as error:
            _log.info("a word to stop stays", extra={"fields": {"error": repr(error)}})

    # The workers

    def _work(self) -> None:
        try:
            while batch := self._take():
                self._move(batch)
        except (MqError, OSError) as error:
            self._failed(error)
        except Exception as error:
            _log.exception("a shovel's worker failed", extra={"fields": self._fields()})
            self._failed(error)
        finally:
            with self._changed:
                self._working -= 1
                self._changed.notify_all()

    def _take(self) -> Sequence[Candidate]:
        """The next batch, once there may be one; empty where there is none to come."""
        if not self._heard.may_go_on():
            self.stop(Stopping.LEFT)
        while (count := self._reserve()) > 0:
            batch: Sequence[Candidate] = ()
            try:
                batch = self._next(count)
            finally:
                with self._changed:
                    self._tally.gives_back(count - len(batch))
                    self._changed.notify_all()
            if not batch:
                return ()
            if self._wait_for(len(batch)):
                return batch
            with self._listing:
                self._again += batch
            with self._changed:
                self._tally.gives_back(len(batch))
        return ()

    def _reserve(self) -> int:
        """How many may be taken in hand: waits until some may. 0: there is nothing left to do."""
        with self._changed:
            while self.stopping is None and self._error is None:
                count = self._tally.room(self._pacing.at_once(self._at_once))
                if count:
                    self._tally.takes(count)
                    return count
                if not self._tally.is_anything_in_hand:
                    return 0
                # What others have in hand may stay, and then another may be moved in its place.
                self._changed.wait(SHOVEL_LOOK_S)
        return 0

    def _wait_for(self, count: int) -> bool:
        """Waits until so many may be moved; False: they are not to be, for now."""
        with self._changed:
            while self.stopping is None and self._error is None:
                now_s = self._now_s()
                wait_s = self._pacing.wait_s(now_s)
                if not wait_s:
                    self._pacing.took(count, now_s)
                    return True
                self._changed.wait(min(wait_s, SHOVEL_LOOK_S))
        return False

    def _next(self, count: int) -> Sequence[Candidate]:
        with self._listing:
            if self._again:
                again, self._again = self._again[:count], self._again[count:]
                return again
            batch = None if self._is_listed else self._pass.batch(count)
            self._is_listed = batch is None
            return () if batch is None else batch.candidates

    def _move(self, candidates: Sequence[Candidate]) -> None:
        became = self._act(candidates)
        moved = set(became.moved)
        lost = became.stayed.get(Why.GONE, 0)
        stayed = {why.value: n for why, n in became.stayed.items() if why is not Why.GONE}
        failed, again = 0, 0
        if became.error is not None:
            # Which of them, nobody tells: all are decided about again, and told of then.
            with self._listing:
                self._again += [each for each in candidates if each.id not in moved]
            again = sum(became.stayed.values())
            failed = len(candidates) - len(moved) - again
            lost, stayed = 0, {}
        with self._changed:
            self._tally.gives_back(again)
            self._tally.settles(len(moved), stayed, lost, failed)
            self._pacing.gave_back(len(candidates) - len(moved))
            self._changed.notify_all()
        if became.moved and not self._record.run.dry_run:
            self._heard.moved(became.moved)
        if became.error is not None:
            self._failed(became.error)

    def _act(self, candidates: Sequence[Candidate]) -> Shovelled:
        if self._queue_folder() != self._folder:
            # Deleted, and perhaps made again: that one gets none of the old one's messages.
            return Shovelled(error=QueueNotFound(self.queue.text))
        if self._record.run.dry_run:
            return look_at_many(self._root, self._pass.aim, candidates)
        return shovel_many(self._root, self._flusher, self._pass.aim, candidates)

    def _failed(self, error: Exception | None) -> None:
        """The pass ends with what is in hand."""
        with self._changed:
            self._error = self._error or error
            self._tally.stands(RunState.RUNNING, slug_of(error))
            self._changed.notify_all()

    def _now_s(self) -> float:
        return self._root.clock.steady_s()

    def _fields(self) -> dict[str, object]:
        now = self.progress
        return {
            "queue": now.queue,
            "state": now.state.value,
            "by": now.by.value,
            "dry_run": now.dry_run,
            "moved": now.moved,
            "looked_at": now.looked_at,
            "error": now.error,
        }
