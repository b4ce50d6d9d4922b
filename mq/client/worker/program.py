"""A program that runs a worker: its signals, and that its module is imported."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType
from typing import Final

from mq.client.errors import NotUsable

_IS_LOADING: Final = ContextVar("is_loading", default=False)
_HEARD: Final = (signal.SIGTERM, signal.SIGINT)
_EXIT_BASE: Final = 128


class RunsInImport(NotUsable):
    """A module runs its worker inside `loading`."""


@contextmanager
def loading() -> Iterator[None]:
    """Workers refuse to run inside the block."""
    token = _IS_LOADING.set(True)
    try:
        yield
    finally:
        _IS_LOADING.reset(token)


def refuse_while_loading() -> None:
    """Raises RunsInImport inside `loading`."""
    if _IS_LOADING.get():
        raise RunsInImport(
            "the module runs its worker when it is imported. mqctl worker runs it: put run() "
            'below `if __name__ == "__main__":`.'
        )


@contextmanager
def heard(ask: Callable[[], None]) -> Iterator[None]:
    """Inside, the first SIGTERM or SIGINT calls `ask`, and the second ends the process at once,
    with exit code 128 + its number. Only in the main thread; a signal that is ignored, as SIGINT of
    a shell's background jobs, stays so.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    was_asked = False

    def hear(number: int, _: FrameType | None) -> None:
        nonlocal was_asked
        if was_asked:
            # Without any clean-up, which may hang.
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
