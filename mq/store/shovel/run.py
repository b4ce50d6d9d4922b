"""One run of a queue's shovel: passes over the sideline, by several workers.

A run has a thread that checks whether to stop and writes the progress, and a thread for each
worker, with one batch of messages each. Renames decide about messages: a run that is killed, or
that wakes up late, has moved what it has moved, and the next run continues.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from mq.model.errors import MqError, QueueNotFound, ShovelRunning, Unavailable, unavailable
from mq.model.log import logger
from mq.model.names import MessageId, QueueName
from mq.model.shovel import (
    ALL,
    SHOVEL_AGAIN_MAX,
    SHOVEL_AGAIN_S,
    SHOVEL_BATCH_MAX,
    SHOVEL_ENDING_TRIES_MAX,
    SHOVEL_IN_HAND_MAX,
    SHOVEL_LOOK_S,
    SHOVEL_TOLD_EVERY_S,
    SHOVEL_TRIES_MAX,
    SHOVEL_TRY_WAIT_S,
    Criteria,
    Pacing,
    Progress,
    Record,
    RunState,
    Tally,
    Trigger,
    Why,
)
from mq.runtime.upkeep import Stop
from mq.store.core.root import Root
from mq.store.core.turns import Turn
from mq.store.disk.flush import Flusher
from mq.store.shovel.files import drop_stop, is_asked_to_stop, read_record, take_turn, write_record
from mq.store.shovel.shovel import Aim, Batch, Pass, Shovelled, look_at_many, shovel_many

_log = logger("mq.shovels")


def slug_of(error: Exception | None) -> str:
    """The error's problem type."""
    if isinstance(error, OSError):
        error = unavailable(error)
    if isinstance(error, QueueNotFound):
        return "queue-not-found"
    return error.slug if isinstance(error, Unavailable) else "internal"


def _at_once(concurrency: int) -> int:
    """The batch size of a worker; each message is an open file."""
    return max(1, min(SHOVEL_BATCH_MAX, SHOVEL_IN_HAND_MAX // concurrency))


def _may_pass(error: Exception) -> bool:
    return isinstance(error, Unavailable | OSError)


class Stopping(Enum):
    """Why a run stops before its end."""

    ASKED = "asked"
    LEFT = "left"
    """Its process ends, or another member keeps up the queue: the schedule does not count this run.
    """
    TAKEN = "taken"
    """Another process has taken its turn, and writes the progress."""


def _go_on() -> bool:
    return True


def _unheard(moved: Sequence[MessageId]) -> None:
    return


def _nothing() -> None:
    return


@dataclass(frozen=True, slots=True)
class Heard:
    """The callbacks of a run. `may_go_on` is called before each batch and now and then; `moved`
    gets moved messages; `over` is called at the end. The run's threads call them.
    """

    may_go_on: Callable[[], bool] = _go_on
    moved: Callable[[Sequence[MessageId]], None] = _unheard
    over: Callable[[], None] = _nothing


UNHEARD: Final = Heard()


class Run:
    """A run that has its turn: a pass, and the record that it writes."""

    def __init__(
        self,
        root: Root,
        flusher: Flusher,
        turn: Turn,
        passing: Pass,
        record: Record,
        heard: Heard = UNHEARD,
    ) -> None:
        self.queue = QueueName.parse(record.run.queue)
        self._root = root
        self._flusher = flusher
        self._turn = turn
        self._pass = passing
        self._record = record
        self._heard = heard
        lock = threading.RLock()
        self._changed = threading.Condition(lock)
        self._rested = threading.Condition(lock)
        """Signals a rest or the end to `goes_on_in_s`; a change that ends a rest need not notify
        it.
        """
        self._listing = threading.Lock()
        self._tally = Tally(record.run, passing.aim.criteria.limit)
        self._at_once = _at_once(record.run.concurrency)
        self._pacing = Pacing(record.run.rate, root.clock.steady_s())
        self.stopping: Stopping | None = None
        """Why it has to stop; None: it has not."""
        self._error: Exception | None = None
        self._is_listed = False
        self._again: list[Batch] = []
        """Batches that could not be moved, to be retried when the pass continues."""
        self._working = 0
        self._resting = 0
        """The number of workers that wait for the rate, or for the batches of others."""
        self._again_s = 0.0
        """The time of the retry after an error."""
        self._told_s = float("-inf")
        self._is_told = True
        self._folder = self._queue_folder()
        self.ended = threading.Event()
        """Set once the run has ended and its progress is written."""

    @property
    def progress(self) -> Progress:
        """The current progress. For any thread."""
        with self._changed:
            return self._tally.progress

    @property
    def scheduled_ms(self) -> int | None:
        """The time from which the schedule counts, in milliseconds since the epoch, if known."""
        return self._record.scheduled_ms

    def start(self) -> None:
        """Starts the run in a thread of its own, and writes its progress."""
        self._tell()
        name = f"shovel-{self.queue.text}"
        threading.Thread(target=self.run, name=name, daemon=True).start()

    def stop(self, why: Stopping = Stopping.ASKED) -> None:
        """Stops the run after the batches in flight. For any thread; the first call's reason
        counts.
        """
        with self._changed:
            self.stopping = self.stopping or why
            self._changed.notify_all()

    def goes_on_in_s(self) -> float | None:
        """Waits until the run has ended or rests (for its rate, or before a retry). Returns the
        seconds until it continues; None: it has ended. For any thread.
        """
        with self._changed:
            # Threads that the clock allows to continue must see that first.
            self._changed.notify_all()
            self._rested.wait_for(lambda: self.ended.is_set() or self._rests_s() > 0)
            return None if self.ended.is_set() else self._rests_s()

    def _rests_s(self) -> float:
        """The seconds in which nothing happens."""
        now_s = self._now_s()
        if self._tally.progress.state is RunState.WAITING:
            return max(0.0, self._again_s - now_s)
        is_at_rest = 0 < self._working == self._resting
        return self._pacing.wait_s(now_s) if is_at_rest else 0.0

    def run(self) -> Progress:
        """Runs to the end. Returns the result. Raises only on programming errors."""
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
            with self._changed:
                self._rested.notify_all()
            self._heard.over()

    def _make_pass(self) -> None:
        """Continues where the last pass ended, first with the batches that failed."""
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
        with self._changed:
            self._again_s = self._now_s() + SHOVEL_AGAIN_S
            self._tally.stands(RunState.WAITING)
            self._rested.notify_all()
            fields = self._fields() | {"cause": repr(self._error)}
        _log.warning("a shovel waits", extra={"fields": fields})
        self._is_told = False
        while True:
            self._look()
            with self._changed:
                left_s = self._again_s - self._now_s()
                if self.stopping is not None:
                    return False
                if left_s <= 0:
                    return True
                self._changed.wait(min(left_s, SHOVEL_LOOK_S))

    def _look(self) -> None:
        """Checks for requests to stop and for the turn, and writes the progress."""
        self._look_for_turn()
        if self.stopping is Stopping.TAKEN:
            return
        try:
            if is_asked_to_stop(self._root, self.queue, self._record.run.id):
                self.stop()
            if self._queue_folder() != self._folder:
                self._failed(QueueNotFound(self.queue.text))
        except OSError as error:
            _log.info(
                "a shovel could not check for changes", extra={"fields": {"error": repr(error)}}
            )
        if not self._heard.may_go_on():
            self.stop(Stopping.LEFT)
        if not self._is_told or self._now_s() - self._told_s >= SHOVEL_TOLD_EVERY_S:
            self._tell()

    def _queue_folder(self) -> int | None:
        """Identifies the target's folder, so that a new queue of the same name is detected; None:
        there is none.
        """
        status = self._root.files.status(self._root.layout.queue(self._pass.aim.queue))
        return None if status is None else status.st_ino

    def _tell(self) -> None:
        """Writes the progress. A failure to write is no reason to stop moving messages."""
        self._told_s, self._is_told = self._now_s(), True
        record = replace(self._record, run=self.progress)
        try:
            write_record(self._root, self.queue, record)
        except OSError as error:
            _log.warning(
                "could not write a shovel's progress",
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
            self._record = replace(self._record, scheduled_ms=now_ms)
        if self.stopping is not Stopping.TAKEN:
            self._tell()
            self._drop_stop()
        fields = self._fields()
        if state is RunState.FAILED:
            fields["cause"] = repr(self._error)
        _log.log(self._level(state), "a shovel ended", extra={"fields": fields})
        return self.progress

    def _look_for_turn(self) -> None:
        """Checks at the end too: a process that was stopped may find no work left before its next
        check.
        """
        try:
            if not self._turn.keep():
                self.stop(Stopping.TAKEN)
        except OSError as error:
            _log.info(
                "a shovel could not check for changes", extra={"fields": {"error": repr(error)}}
            )

    def _level(self, state: RunState) -> int:
        """A scheduled run without moves is not logged as an event: the next one is soon."""
        if state is RunState.FAILED:
            return logging.WARNING
        now = self.progress
        is_idle = now.by is Trigger.SCHEDULED and state is RunState.DONE and not now.moved
        return logging.DEBUG if is_idle and not now.failed else logging.INFO

    def _drop_stop(self) -> None:
        try:
            drop_stop(self._root, self.queue)
        except OSError as error:
            _log.info(
                "could not remove the request to stop a shovel",
                extra={"fields": {"error": repr(error)}},
            )

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
                self._rested.notify_all()

    def _take(self) -> Batch | None:
        """The next batch, after waiting if necessary; None: there are no more."""
        if not self._heard.may_go_on():
            self.stop(Stopping.LEFT)
        while (count := self._reserve()) > 0:
            batch, taken = None, 0
            try:
                if (batch := self._next(count)) is not None:
                    taken = batch.messages
            finally:
                with self._changed:
                    self._tally.gives_back(count - taken)
                    self._changed.notify_all()
            if batch is None:
                return None
            if self._wait_for(taken):
                return batch
            with self._listing:
                self._again.append(batch)
            with self._changed:
                self._tally.gives_back(taken)
        return None

    def _reserve(self) -> int:
        """Reserves a number of messages for a batch, after waiting if necessary. 0: nothing is left
        to do.
        """
        with self._changed:
            while self.stopping is None and self._error is None:
                count = self._tally.room(self._pacing.at_once(self._at_once))
                if count:
                    self._tally.takes(count)
                    return count
                if not self._tally.is_anything_in_hand:
                    return 0
                # Messages of other workers' batches may stay, which makes room for others.
                self._rest(SHOVEL_LOOK_S)
        return 0

    def _wait_for(self, count: int) -> bool:
        """Waits until the rate allows `count` messages; False: the run stops or failed."""
        with self._changed:
            while self.stopping is None and self._error is None:
                now_s = self._now_s()
                wait_s = self._pacing.wait_s(now_s)
                if not wait_s:
                    self._pacing.took(count, now_s)
                    return True
                self._rest(min(wait_s, SHOVEL_LOOK_S))
        return False

    def _rest(self, seconds: float) -> None:
        """Lets a worker wait, with the lock."""
        self._resting += 1
        self._rested.notify_all()
        self._changed.wait(seconds)
        self._resting -= 1

    def _next(self, count: int) -> Batch | None:
        with self._listing:
            if self._again:
                again, rest = self._again.pop(0).cut(count)
                if rest is not None:
                    self._again.insert(0, rest)
                return again
            batch = None if self._is_listed else self._pass.batch(count)
            self._is_listed = batch is None
            return batch

    def _move(self, batch: Batch) -> None:
        became, messages = self._act(batch), batch.messages
        moved = sum(each.items or 1 for each in became.moved)
        lost = became.stayed.get(Why.GONE, 0)
        stayed = {why.value: n for why, n in became.stayed.items() if why is not Why.GONE}
        failed, again = 0, 0
        if became.error is not None:
            # It is not known which message failed: all are decided again, and reported then.
            with self._listing:
                if (left := batch.without(set(became.moved))).candidates:
                    self._again.append(left)
            again = sum(became.stayed.values())
            failed = messages - moved - again
            lost, stayed = 0, {}
        with self._changed:
            self._tally.gives_back(again)
            self._tally.settles(moved, stayed, lost, failed)
            self._pacing.gave_back(messages - moved)
            self._changed.notify_all()
        if became.moved and not self._record.run.dry_run:
            self._heard.moved(became.moved)
        if became.error is not None:
            self._failed(became.error)

    def _act(self, batch: Batch) -> Shovelled:
        if self._queue_folder() != self._folder:
            # The queue was deleted and perhaps made again; the new one gets none of the old
            # messages.
            return Shovelled(error=QueueNotFound(self.queue.text))
        if self._record.run.dry_run:
            return look_at_many(self._root, batch.aim, batch.candidates)
        return shovel_many(self._root, self._flusher, batch.aim, batch.candidates)

    def _failed(self, error: Exception | None) -> None:
        """Ends the pass after the batches in flight."""
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


@dataclass(frozen=True, slots=True)
class Asked:
    """The request of a run. `rate`: messages a second at most. `into`: the queue that all messages
    of the sideline go to, whichever they came from; None: `queue`. `renews`: see Aim.
    """

    queue: QueueName
    by: Trigger
    criteria: Criteria = ALL
    rate: int | None = None
    concurrency: int = 1
    dry_run: bool = False
    into: QueueName | None = None
    renews: bool = False


def begin(root: Root, flusher: Flusher, asked: Asked, run_id: str, heard: Heard = UNHEARD) -> Run:
    """Begins a run in a thread of its own. Raises ShovelRunning, OSError."""
    queue = asked.queue
    turn = _take_turn(root, queue)
    try:
        drop_stop(root, queue)
        before = read_record(root, queue)
        now_ms = root.now_ms()
        criteria = asked.criteria
        progress = Progress(
            run_id,
            queue.text,
            asked.by,
            now_ms,
            asked.dry_run,
            criteria.as_json(),
            asked.rate,
            asked.concurrency,
            into=None if asked.into is None else asked.into.text,
        )
        record = Record(progress)
        if before is not None:
            record = Record(progress, before.scheduled_ms, before.before_next)
        run = Run(root, flusher, turn, _pass(root, asked, progress), record, heard)
        run.start()
    except BaseException:
        turn.end()
        raise
    return run


def _pass(root: Root, asked: Asked, progress: Progress) -> Pass:
    aim = Aim(asked.queue, asked.criteria, progress.began_ms, renews=asked.renews)
    if asked.into is not None:
        aim = replace(aim, queue=asked.into, of=asked.queue.sideline(), takes_all=True)
    return Pass(root, aim)


def _take_turn(root: Root, queue: QueueName) -> Turn:
    wait = Stop()
    tries = 0
    while (turn := take_turn(root, queue)) is None:
        tries += 1
        record = read_record(root, queue)
        known = record is not None and record.run.state.is_under_way
        # A run whose record says that it has ended releases its turn at once: wait for that.
        if tries >= (SHOVEL_TRIES_MAX if known or record is None else SHOVEL_ENDING_TRIES_MAX):
            raise ShovelRunning(queue.text, record.run.id if record is not None and known else "")
        wait.wait(SHOVEL_TRY_WAIT_S)
    return turn
