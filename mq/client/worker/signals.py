"""Hearing SIGTERM and SIGINT: the first asks for the end, the second is the end."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Final

_HEARD: Final = (signal.SIGTERM, signal.SIGINT)
_EXIT_BASE: Final = 128


@contextlib.contextmanager
def heard(ask: Callable[[], None]) -> Iterator[None]:
    """Inside, the first of these signals calls `ask`, and the second ends the process at once, with
    128 and its number. Only in the main thread; elsewhere signals are left as they are, and so is
    one that is ignored, as SIGINT of a shell's background jobs.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    was_asked = False

    def hear(number: int, _: FrameType | None) -> None:
        nonlocal was_asked
        if was_asked:
            # Whatever hangs, and whoever would still clean up: nobody is waited for any more.
            os._exit(_EXIT_BASE + number)
        was_asked = True
        ask()

    before = {each: signal.getsignal(each) for each in _HEARD}
    for each, handler in before.items():
        if handler != signal.SIG_IGN:
            signal.signal(each, hear)
    try:
        yield
    finally:
        for each, handler in before.items():
            if handler is not None:
                signal.signal(each, handler)
