"""Names of what is said of shovels: one run's progress a queue, who runs, and who is to stop.

FORMAT.md, "Shovels", has them.
"""

import itertools
from typing import Final

from mq.model.errors import BadName
from mq.model.names import QueueName
from mq.store.format.layout import Layout, new_name

_PROGRESS: Final = ".json"
_LOCK: Final = ".lock"
_STOP: Final = ".stop"
_SUFFIXES: Final = (_PROGRESS, _LOCK, _STOP)
_WRITTEN: Final = itertools.count(1)


def progress_path(layout: Layout, queue: QueueName) -> str:
    """The file with what the queue's run is at, or what came of the last one."""
    return f"{layout.shovels}/{queue.text}{_PROGRESS}"


def lock_path(layout: Layout, queue: QueueName) -> str:
    """The file that whoever runs has locked, and whose mtime says that it still does something."""
    return f"{layout.shovels}/{queue.text}{_LOCK}"


def stop_path(layout: Layout, queue: QueueName) -> str:
    """The file with the id of a run that is to stop."""
    return f"{layout.shovels}/{queue.text}{_STOP}"


def new_path(layout: Layout, queue: QueueName) -> str:
    """Where one of these is written, each time another. A dotfile: it means nothing until it is
    renamed.
    """
    return f"{layout.shovels}/{new_name(f'{queue.text}-{next(_WRITTEN)}')}"


def turns_lock(layout: Layout) -> str:
    """What whoever takes a run's lock file away has locked."""
    return f"{layout.shovels}/{_LOCK}"


def shovel_paths(layout: Layout, queue: QueueName) -> tuple[str, ...]:
    """All that may be there of a queue, the lock's file last."""
    return (
        stop_path(layout, queue),
        progress_path(layout, queue),
        lock_path(layout, queue),
    )


def parse_shovel_file(entry: str) -> QueueName:
    """The queue that a file of shovels/ is of. Raises BadName: the file is foreign."""
    for suffix in _SUFFIXES:
        if entry.endswith(suffix):
            return QueueName.parse(entry.removesuffix(suffix))
    raise BadName("shovel", "{queue} and .json, .lock or .stop")
