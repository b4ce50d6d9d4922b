"""Recording: what becomes of messages goes to their queues' histories, where those are on.

Whoever moves a message says so once that is on stable media. Nothing here raises for the storage's
sake, or keeps an operation waiting that somebody waits for: what cannot be written is counted.
"""

import itertools
import logging
import threading
from collections import deque
from collections.abc import Iterable, Mapping

from mq.model.clock import Clock, ClockSteps
from mq.model.history import Event, Line, dropped
from mq.model.limits import (
    HISTORY_BYTES_MIN,
    HISTORY_END_S,
    HISTORY_FILE_IDLE_S,
    HISTORY_LINES_HELD_MAX,
    HISTORY_LINES_PER_WRITE_MAX,
    HISTORY_QUEUES_KNOWN_MAX,
    HISTORY_WRITE_EVERY_S,
    SWEEP_EVERY_S,
)
from mq.model.names import MessageId, QueueName
from mq.store.core.known_settings import KnownSettings
from mq.store.disk.files import Files
from mq.store.disk.space import Space
from mq.store.format.history import Day, date_of, process_name
from mq.store.format.layout import Layout
from mq.store.history.files import HistoryFiles
from mq.store.history.sweep import Kept, sweep_history

_log = logging.getLogger("mq.history")


class Recorder:
    """Writes a process's lines; `kind` says which of the programs it is. Threads share it.

    Lines are written at once, by who brings them, until `begin` has a thread do it.
    """

    def __init__(
        self,
        layout: Layout,
        files: Files,
        clock: Clock,
        space: Space,
        kind: str = "mq",
        settings: KnownSettings | None = None,
        steps: ClockSteps | None = None,
    ) -> None:
        self.process = process_name(kind)
        self._layout = layout
        self._files = files
        self._clock = clock
        self._steps = steps or ClockSteps(clock)
        self._space = space
        self._settings = settings or KnownSettings(layout, files, clock)
        self._open = HistoryFiles(layout, files, self.process)
        self._held: deque[tuple[str, Line]] = deque()
        self._dropped: dict[str, int] = {}
        self.dropped_total = 0
        """How many lines could not be written so far."""
        self._writing = threading.Lock()
        self._counting = threading.Lock()
        self._has_thread = False
        self._thread: threading.Thread | None = None
        self._wake = threading.Event()
        self._ends = threading.Event()
        self._complain_again_s = float("-inf")

    def is_on(self, queue: QueueName) -> bool:
        """Whether the queue has a history, as its settings said half a second ago at most.
        Blocking, now and then, for a look at them.
        """
        return self._settings.is_on(queue)

    def look_again(self, queue: QueueName) -> None:
        """The queue's settings have just been changed: the next look is at them."""
        self._settings.look_again(queue)

    def record(
        self,
        queue: QueueName,
        event: Event,
        message_id: MessageId,
        receives: int | None = None,
        due_ms: int | None = None,
        lease: str = "",
        reason: str = "",
    ) -> None:
        """Has a line say so, where the queue has a history. Durable on return: no."""
        if not self._settings.is_on(queue):
            return
        line = Line(self._clock.now_ms(), event, message_id.text, receives, due_ms, lease, reason)
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
        self,
        queue: QueueName,
        event: Event,
        messages: Iterable[tuple[str, int | None, int | None]],
        lease: str = "",
    ) -> None:
        """Has lines say so of many messages, each with receives and due time, where the queue has a
        history; blocking, until they are written. Durable on return: no.
        """
        if not self.is_on(queue):
            return
        now_ms, rest = self._clock.now_ms(), iter(messages)
        while some := list(itertools.islice(rest, HISTORY_LINES_PER_WRITE_MAX)):
            self._write_lines(queue.text, [Line(now_ms, event, *each, lease) for each in some])

    def begin(self) -> None:
        """From here on `record` writes nothing itself: a thread does, from the first line on."""
        self._has_thread = True

    def write_out(self) -> None:
        """Writes what is held, unless another does for a while; blocking."""
        if self._writing.acquire(timeout=HISTORY_END_S):
            try:
                self._write_held()
            finally:
                self._writing.release()

    def close_idle(self) -> None:
        """Closes files that nothing was written to for a while."""
        with self._writing:
            self._open.close_idle(self._clock.steady_s())

    def end(self) -> None:
        """Writes what is held, for a while at most, and closes all files; blocking."""
        self._ends.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(HISTORY_END_S)
        self.write_out()
        if self._writing.acquire(timeout=HISTORY_END_S):
            self._open.close()
            self._writing.release()

    def kept(self, queue: QueueName) -> Kept | None:
        """The bounds of the queue's history, the defaults' where it is gone; None: nobody can tell.
        Blocking, now and then.
        """
        return self._settings.kept(queue)

    def _drop(self, queue: str, count: int, is_told: bool = False) -> None:
        """`is_told`: they were counted before."""
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
                except RuntimeError:  # None can be started now: the next line tries again.
                    self._wake.clear()
                else:
                    self._thread = thread

    def _run(self) -> None:
        while not self._ends.is_set():
            # Without open files there is nothing to do before the next line.
            if self._wake.wait(HISTORY_FILE_IDLE_S if len(self._open) else None):
                # Some come together, so that a line costs no turn of a thread.
                self._ends.wait(HISTORY_WRITE_EVERY_S)
            self._wake.clear()
            try:
                with self._writing:
                    self._write_held()
                    self._open.close_idle(self._clock.steady_s())
            except Exception:
                _log.exception("history was not written")

    def _write_held(self) -> None:
        """What is held now, not what comes meanwhile. Under the lock."""
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
        """Says how many could not be written, once that can be."""
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
        """Whether they are written."""
        try:
            kept = self.kept(QueueName(day.queue))
            bytes_max = HISTORY_BYTES_MIN if kept is None else kept.bytes_max
            has_begun = self._open.append(day, lines, bytes_max, self._clock.steady_s())
            if has_begun and kept is not None:
                self._sweep(day.queue, kept)
        except OSError as error:
            self._complain(day.queue, error)
            return False
        return True

    def _sweep(self, queue: str, kept: Kept) -> None:
        """A file was begun: what is too much goes, also where no mover sweeps."""
        try:
            now_ms = self._steps.aged_ms(kept.seconds)
            sweep_history(self._layout, self._files, queue, kept, now_ms)
        except OSError as error:
            self._complain(queue, error)

    def _has_room(self) -> bool:
        try:
            return not self._space.is_low()
        except OSError:
            return True  # A write says more.

    def _complain(self, queue: str, error: OSError) -> None:
        now_s = self._clock.steady_s()
        if now_s >= self._complain_again_s:
            self._complain_again_s = now_s + SWEEP_EVERY_S
            fields = {"queue": queue, "error": repr(error)}
            _log.warning("a history cannot be written", extra={"fields": fields})
