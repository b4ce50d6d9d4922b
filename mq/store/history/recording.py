"""Records the events of messages in their queues' histories, where these are enabled.

An operation records its event once that is on stable media. A storage error here neither raises nor
delays an operation: lines that cannot be written are counted.
"""

import itertools
import threading
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from mq.model.clock import Clock, ClockSteps
from mq.model.headers import tags_in_block
from mq.model.history import Event, Line, Told, dropped
from mq.model.limits import HISTORY_BYTES_MIN, SWEEP_EVERY_S
from mq.model.log import logger
from mq.model.names import MessageId, QueueName
from mq.store.core.facts import Facts
from mq.store.core.recording import HISTORY_LINES_PER_WRITE_MAX
from mq.store.core.root import History
from mq.store.core.totals import Tally
from mq.store.disk.files import Files
from mq.store.disk.space import Space
from mq.store.format.history import Day, date_of, process_name
from mq.store.format.layout import Layout
from mq.store.history.files import HISTORY_FILE_IDLE_S, HistoryFiles
from mq.store.history.sweep import Kept, kept_of, sweep_history

# Lines that may wait for the writer thread.
HISTORY_LINES_HELD_MAX: Final = 50_000
HISTORY_WRITE_EVERY_S: Final = 0.1
# Queues known to have a history or none. Forgetting one costs a read of its settings.
HISTORY_QUEUES_KNOWN_MAX: Final = 10_000
# How long an ending process waits until its lines are written.
HISTORY_END_S: Final = 2.0

_log = logger("mq.history")


class Recorded(NamedTuple):
    """The root whose messages are recorded."""

    layout: Layout
    files: Files
    clock: Clock
    space: Space
    facts: Facts
    steps: ClockSteps


class Recorder(History):
    """Writes a process's lines; `kind`: the program's name. Thread-safe.

    The calling thread writes lines at once, until `begin` hands them to a writer thread.
    """

    def __init__(self, of: Recorded, kind: str, tally: Tally) -> None:
        self.process = process_name(kind)
        self._tally = tally
        self._layout, self._files, self._clock, self._space, self._facts, self._steps = of
        self._open = HistoryFiles(of.layout, of.files, self.process)
        self._held: deque[tuple[str, Line]] = deque()
        self._dropped: dict[str, int] = {}
        self.dropped_total = 0
        self._writing = threading.Lock()
        self._counting = threading.Lock()
        self._has_thread = False
        self._thread: threading.Thread | None = None
        self._wake = threading.Event()
        self._ends = threading.Event()
        self._complain_again_s = float("-inf")

    def is_on(self, queue: QueueName) -> bool:
        return self._facts.settings(queue).history

    def record(
        self,
        queue: QueueName,
        event: Event,
        message_id: MessageId,
        receives: int | None = None,
        due_ms: int | None = None,
        lease: str = "",
        reason: str = "",
        block: bytes = b"",
    ) -> None:
        self._tally.add_event(queue, event, receives, reason, message_id.items or 1)
        if not self._facts.settings(queue).history:
            return
        now_ms, name = self._clock.now_ms(), message_id.text
        tags = tags_in_block(block) if message_id.tags else ()
        line = Line(now_ms, event, name, receives, due_ms, lease, reason, tags)
        if not self._has_thread:
            self._write_lines(queue.text, (line,))
        elif len(self._held) >= HISTORY_LINES_HELD_MAX:
            self._drop(queue.text, 1)
        else:
            self._held.append((queue.text, line))
            if not self._wake.is_set():
                self._wake.set()
                self._begin_thread()

    def record_many(
        self, queue: QueueName, event: Event, messages: Iterable[Told], lease: str = ""
    ) -> None:
        if not self.is_on(queue):
            return
        now_ms, rest = self._clock.now_ms(), iter(messages)
        while some := list(itertools.islice(rest, HISTORY_LINES_PER_WRITE_MAX)):
            lines = [
                Line(now_ms, event, each.id, each.receives, each.due_ms, lease, tags=each.tags)
                for each in some
            ]
            self._write_lines(queue.text, lines)

    def begin(self) -> None:
        self._has_thread = True

    def write_out(self) -> None:
        if self._writing.acquire(timeout=HISTORY_END_S):
            try:
                self._write_held()
            finally:
                self._writing.release()

    def close_idle(self) -> None:
        with self._writing:
            self._open.close_idle(self._clock.steady_s())

    def end(self) -> None:
        self._ends.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(HISTORY_END_S)
        self.write_out()
        if self._writing.acquire(timeout=HISTORY_END_S):
            self._open.close()
            self._writing.release()

    def _drop(self, queue: str, count: int, is_told: bool = False) -> None:
        """Counts lines that cannot be written. `is_told`: they are part of the total already."""
        with self._counting:
            self.dropped_total += 0 if is_told else count
            if queue in self._dropped or len(self._dropped) < HISTORY_QUEUES_KNOWN_MAX:
                self._dropped[queue] = self._dropped.get(queue, 0) + count

    def _begin_thread(self) -> None:
        if self._thread is not None:
            return
        with self._counting:
            if self._thread is None and not self._ends.is_set():
                thread = threading.Thread(target=self._run, name="history", daemon=True)
                try:
                    thread.start()
                except RuntimeError:  # No thread can be started; the next line tries again.
                    self._wake.clear()
                else:
                    self._thread = thread

    def _run(self) -> None:
        while not self._ends.is_set():
            # Without open files there is no work before the next line.
            if self._wake.wait(HISTORY_FILE_IDLE_S if len(self._open) else None):
                # Collect some lines, so that one line does not cost a thread switch.
                self._ends.wait(HISTORY_WRITE_EVERY_S)
            self._wake.clear()
            try:
                with self._writing:
                    self._write_held()
                    self._open.close_idle(self._clock.steady_s())
            except Exception:
                _log.exception("could not write histories")

    def _write_held(self) -> None:
        """Writes the lines held now, not later ones. The caller holds the lock."""
        left = len(self._held)
        while left:
            lines: dict[str, list[Line]] = {}
            some = min(left, HISTORY_LINES_PER_WRITE_MAX)
            for _ in range(some):
                queue, line = self._held.popleft()
                lines.setdefault(queue, []).append(line)
            self._write_all(lines)
            left -= some
        self._write_dropped()

    def _write_lines(self, queue: str, lines: Iterable[Line]) -> None:
        with self._writing:
            self._open.close_idle(self._clock.steady_s())
            self._write_all({queue: lines})
            self._write_dropped()

    def _write_all(self, lines: Mapping[str, Iterable[Line]]) -> None:
        has_room = self._has_room()
        for queue, of_queue in lines.items():
            for date, of_day in itertools.groupby(of_queue, lambda line: date_of(line.time_ms)):
                written = [line.written(self.process) for line in of_day]
                if not has_room or not self._append(Day(queue, date), b"".join(written)):
                    self._drop(queue, len(written))

    def _write_dropped(self) -> None:
        """Writes the number of lost lines, once that is possible."""
        if not self._dropped or not self._has_room():
            return
        with self._counting:
            counts, self._dropped = self._dropped, {}
        now_ms = self._clock.now_ms()
        for queue, count in counts.items():
            line = dropped(now_ms, count, self.process)
            if not self._append(Day(queue, date_of(now_ms)), line):
                self._drop(queue, count, is_told=True)

    def _append(self, day: Day, lines: bytes) -> bool:
        try:
            kept = kept_of(self._facts, QueueName(day.queue))
            bytes_max = HISTORY_BYTES_MIN if kept is None else kept.bytes_max
            has_begun = self._open.append(day, lines, bytes_max, self._clock.steady_s())
            if has_begun and kept is not None:
                self._sweep(day.queue, kept)
        except OSError as error:
            self._complain(day.queue, error)
            return False
        return True

    def _sweep(self, queue: str, kept: Kept) -> None:
        """A file was begun: remove old files beyond the bounds, since no mover may be running."""
        try:
            now_ms = self._steps.aged_ms(kept.seconds)
            sweep_history(self._layout, self._files, queue, kept, now_ms)
        except OSError as error:
            self._complain(queue, error)

    def _has_room(self) -> bool:
        try:
            return not self._space.is_low()
        except OSError:
            return True  # The write itself will tell.

    def _complain(self, queue: str, error: OSError) -> None:
        now_s = self._clock.steady_s()
        if now_s >= self._complain_again_s:
            self._complain_again_s = now_s + SWEEP_EVERY_S
            fields = {"queue": queue, "error": repr(error)}
            _log.warning("could not write a queue's history", extra={"fields": fields})
