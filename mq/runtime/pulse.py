"""Feeds the watchdog while the process makes progress, or while its root does not answer.

A restart mends a process that is stuck by a fault of its own. It does not mend one that waits for a
file system that answers no process: the next one would wait as well, and clients would lose their
connections for nothing. So silence counts only while the root answers.
"""

import threading
from collections.abc import Callable
from typing import Final

from mq.model.log import logger
from mq.runtime.notify import Notifier

_log = logger("mq.pulse")

# Fractions of the watchdog's time: the pause between two reports, the root's time to answer, and
# the pause between two beats. A root that answers again leaves time for the next beat.
_TELLS: Final = 4
_LOOKS: Final = 8
BEATS: Final = 8


class Pulse:
    """A thread that feeds the watchdog as long as `beat` is called."""

    def __init__(self, notifier: Notifier) -> None:
        self._notifier = notifier
        self._looked: threading.Event | None = None
        self._beaten = True
        self._is_silent = False
        self._is_ending = False
        self._stopped = threading.Event()

    @property
    def beat_every_s(self) -> float | None:
        """The longest pause between two beats, seconds; None: there is no watchdog."""
        watchdog_s = self._notifier.watchdog_s
        return None if watchdog_s is None else watchdog_s / BEATS

    def start(self, look: Callable[[], object]) -> None:
        """Begins, if there is a watchdog. `look` uses the root, blocking, without a beat; it may
        raise OSError, which is an answer too.
        """
        if self._notifier.watchdog_s is not None:
            given = (look, self._notifier.watchdog_s)
            threading.Thread(target=self._run, args=given, name="pulse", daemon=True).start()

    def beat(self) -> None:
        """Reports progress. For any thread, at any rate."""
        self._beaten = True

    def ending(self) -> None:
        """Reports that the process ends. The end has a limit of its own and needs no beats."""
        self._is_ending = True

    def stop(self) -> None:
        self._stopped.set()

    def _run(self, look: Callable[[], object], watchdog_s: float) -> None:
        while not self._stopped.is_set():
            if self._lives(look, watchdog_s / _LOOKS):
                self._notifier.alive()
            self._stopped.wait(watchdog_s / _TELLS)

    def _lives(self, look: Callable[[], object], patience_s: float) -> bool:
        beaten, self._beaten = self._beaten, False
        if beaten or self._is_ending:
            self._is_silent = False
            return True
        if not self._root_answers(look, patience_s):
            self._notifier.status("Waits: the root does not answer")
            return True
        if not self._is_silent:
            _log.warning(
                "no progress, though the root's file system answers; not feeding the watchdog"
            )
        self._is_silent = True
        return False

    def _root_answers(self, look: Callable[[], object], patience_s: float) -> bool:
        """Whether the root answers another thread. One look at a time: a call that hangs stays in
        the kernel.
        """
        if self._looked is None or self._looked.is_set():
            looked = threading.Event()
            try:
                threading.Thread(target=_look_once, args=(look, looked), daemon=True).start()
            except RuntimeError:  # No thread to be had: nothing is known of the root.
                return True
            self._looked = looked
        return self._looked.wait(patience_s)


def _look_once(look: Callable[[], object], looked: threading.Event) -> None:
    try:
        look()
    except OSError as error:
        _log.debug(
            "the root's file system answers with an error", extra={"fields": {"error": repr(error)}}
        )
    finally:
        looked.set()
