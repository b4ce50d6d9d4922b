"""The names in shovels/: a queue's progress file, its turn, and its stop request.

FORMAT.md, "Shovels".
"""

import itertools
from typing import Final

from mq.model.errors import BadName
from mq.model.names import QueueName
from mq.store.format.layout import TURN_SUFFIX, Layout, TurnPlace, new_name

_PROGRESS: Final = ".json"
_STOP: Final = ".stop"
_SUFFIXES: Final = (_PROGRESS, TURN_SUFFIX, _STOP)
_WRITTEN: Final = itertools.count(1)


def progress_path(layout: Layout, queue: QueueName) -> str:
    """The file with the progress of the queue's run, or the result of the last one."""
    return f"{layout.shovels}/{queue.text}{_PROGRESS}"


def turn_place(layout: Layout, queue: QueueName) -> TurnPlace:
    """The file that a run keeps locked, and whose mtime shows that it is alive."""
    return TurnPlace(f"{layout.shovels}/{queue.text}{TURN_SUFFIX}", turns_lock(layout))


def stop_path(layout: Layout, queue: QueueName) -> str:
    """The file with the id of a run that has to stop."""
    return f"{layout.shovels}/{queue.text}{_STOP}"


def new_path(layout: Layout, queue: QueueName) -> str:
    """Where such a file is written, another name each time. A dotfile: it means nothing until it is
    renamed.
    """
    return f"{layout.shovels}/{new_name(f'{queue.text}-{next(_WRITTEN)}')}"


def turns_lock(layout: Layout) -> str:
    """The lock file for removing a run's lock file."""
    return f"{layout.shovels}/{TURN_SUFFIX}"


def shovel_paths(layout: Layout, queue: QueueName) -> tuple[str, ...]:
    """All shovel files of a queue, the lock's file last."""
    return (stop_path(layout, queue), progress_path(layout, queue), turn_place(layout, queue).path)


def parse_shovel_file(entry: str) -> QueueName:
    """The queue of a file of shovels/. Raises BadName for a foreign file."""
    for suffix in _SUFFIXES:
        if entry.endswith(suffix):
            return QueueName.parse(entry.removesuffix(suffix))
    raise BadName("shovel", "{queue} and .json, .lock or .stop")
