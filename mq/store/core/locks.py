"""The queues' lock, which is refused while another process has it; and short locks, which are held
for a few calls and waited for in turns.

The holder of a short lock does not flush. An operation that waits for one lets the others of its
group act, and tries again: a blocking wait in the commit thread could wait for an operation of the
same group, for ever.

There is no lock order, and no deadlock, since no lock is waited for without end. An operation that
holds a lock (the queues' lock, a link's lock or a message's) and cannot get the next one ends with
Busy, and gives its locks back. A blocking wait would need an order of all locks.
Bulk publishes alone block, outside of groups: for the job's lock, then for the journal's, in this
order.
"""

import contextlib
import os
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Final

from mq.model.errors import Busy
from mq.store.core.root import Root
from mq.store.disk.steps import Flush, Steps, T

# Attempts to take a lock that others hold for a few calls.
LOCK_TURNS_MAX: Final = 1000


def in_turn(root: Root, path: str, act: Callable[[], T]) -> Steps[T]:
    """Calls `act` under the lock of this file, which is made if it is missing. `act` must not flush
    or block. Raises Busy; FileNotFoundError when the file's folder is gone.
    """
    return (yield from all_in_turn(root, (path,), act))


def all_in_turn(root: Root, paths: Sequence[str], act: Callable[[], T]) -> Steps[T]:
    """Likewise, under the locks of all these files."""
    for _ in range(LOCK_TURNS_MAX):
        with contextlib.ExitStack() as held:
            if all(held.enter_context(_lock(root, path)) for path in paths):
                return act()
        yield from _a_turn()
    raise Busy("another process has the lock at each try")


def at_once(root: Root, path: str, act: Callable[[], object]) -> bool:
    """Calls `act` under the lock of this file. False when another process has the lock."""
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
            # The queue may have been deleted and made again, with a new lock file.
            status = root.files.status(path)
            is_ours = status is not None and os.path.samestat(
                status, root.files.descriptor_status(descriptor)
            )
        yield is_ours
    finally:
        root.files.close(descriptor)


@contextlib.contextmanager
def queues_locked(root: Root) -> Iterator[None]:
    """Only one process at a time is in the block. Raises Busy at once when it is another's turn."""
    descriptor = root.files.open_kept(root.layout.queues_lock)
    try:
        if not root.files.lock(descriptor):
            raise Busy("another process makes, deletes or changes a queue")
        yield
    finally:
        root.files.close(descriptor)
