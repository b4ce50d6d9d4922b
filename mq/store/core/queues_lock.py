"""The one lock for what concerns a queue as a whole: whoever makes, deletes, changes or purges one
holds it.
"""

import contextlib
from collections.abc import Iterator

from mq.model.errors import Busy
from mq.store.core.root import Root


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
