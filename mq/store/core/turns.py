"""A lock that is held for a few calls, and waited for by turns: nobody flushes while he has it, so
whoever else wants it lets the others of his group act, and tries again.
"""

import contextlib
import os
from collections.abc import Callable, Generator, Iterator

from mq.model.errors import Busy
from mq.model.limits import LOCK_TURNS_MAX
from mq.store.core.root import Root
from mq.store.disk.steps import Flush, Steps, T


def in_turn(root: Root, path: str, act: Callable[[], T]) -> Steps[T]:
    """Does it under the lock of this file, which is made where it is missing; `act` must not take
    long. Raises Busy; FileNotFoundError when the file's folder is gone.
    """
    for _ in range(LOCK_TURNS_MAX):
        with _lock(root, path) as is_ours:
            if is_ours:
                return act()
        yield from _a_turn()
    raise Busy("another process has the lock each time")


def at_once(root: Root, path: str, act: Callable[[], None]) -> bool:
    """Does it under the lock of this file; False when that is not free now."""
    with _lock(root, path) as is_ours:
        if is_ours:
            act()
        return is_ours


def _a_turn() -> Generator[Flush, None, None]:
    """Lets the others of a group act."""
    yield Flush()


@contextlib.contextmanager
def _lock(root: Root, path: str) -> Iterator[bool]:
    descriptor = root.files.open_kept(path)
    try:
        is_ours = root.files.lock(descriptor)
        if is_ours:
            # Its folder may have gone, with its queue, and another have come.
            status = root.files.status(path)
            is_ours = status is not None and os.path.samestat(
                status, root.files.descriptor_status(descriptor)
            )
        yield is_ours
    finally:
        root.files.close(descriptor)
