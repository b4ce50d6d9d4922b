"""When a watchdog is told that a process lives: while it gets on, or while nothing could.

A process that is stuck by a fault of its own is to be started again; one that waits for a
file system which answers nobody is not: the next one would wait as well, and who waits for this one
would have lost its connection for nothing. So silence counts only while the root answers.
"""

import logging
import threading
from collections.abc import Callable
from typing import Final

from mq.runtime.notify import Notifier

_log = logging.getLogger("mq.pulse")

# How often in the watchdog's time it is told, how long the root has to answer, and how often who
# is watched should beat at least. From a root that answers again to the next beat there is time.
_TELLS: Final = 4
_LOOKS: Final = 8
BEATS: Final = 8


class Pulse:
    """A thread that tells the watchdog. It hears of life by `beat`, from whoever gets on."""

    def __init__(self, notifier: Notifier) -> None:
        self._notifier = notifier
        self._looked: threading.Event | None = None
        self._beaten = True
        self._is_silent = False
        self._is_ending = False
        self._stopped = threading.Event()

    @property
    def beat_every_s(self) -> float | None:
        """How often to `beat` at least, seconds; None: nobody listens."""
        watchdog_s = self._notifier.watchdog_s
        return None if watchdog_s is None else watchdog_s / BEATS

    def start(self, look: Callable[[], object]) -> None:
        """Begins, where there is a watchdog. `look` uses the root, blocking, beats nothing, and may
        raise OSError, which is an answer too.
        """
        if self._notifier.watchdog_s is not None:
            given = (look, self._notifier.watchdog_s)
            threading.Thread(target=self._run, args=given, name="pulse", daemon=True).start()

    def beat(self) -> None:
        """Who is watched gets on. From any thread, as often as it likes."""
        self._beaten = True

    def ending(self) -> None:
        """From here on the end has a limit of its own, and no beats are asked for."""
        self._is_ending = True

    def stop(self) -> None:
        """Tells nothing any more."""
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
            _log.warning("gets on no more, though the root answers")
        self._is_silent = True
        return False

    def _root_answers(self, look: Callable[[], object], patience_s: float) -> bool:
        """Whether somebody else who uses the root gets on. One look at a time: what hangs in the
        system stays there.
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
        _log.debug("the root answers", extra={"fields": {"error": repr(error)}})
    finally:
        looked.set()
