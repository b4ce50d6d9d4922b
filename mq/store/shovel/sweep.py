"""Taking away what is said of shovels of queues that are gone."""

import contextlib
import stat

from mq.model.errors import BadName
from mq.model.names import QueueName
from mq.store.core.root import Root
from mq.store.core.standing import queue_exists
from mq.store.format.shovels import parse_shovel_file, shovel_paths
from mq.store.shovel.files import take_turn


def sweep_shovels(root: Root) -> int:
    """Takes away files of shovels/ that mean nothing any more; how many. Foreign ones stay. Raises
    OSError. Durable on return: no; what a crash brings back is swept again.
    """
    gone: set[QueueName] = set()
    for entry in root.files.entries(root.layout.shovels):
        with contextlib.suppress(BadName):
            queue = parse_shovel_file(entry.name)
            if not queue_exists(root, queue):
                gone.add(queue)
    return sum(drop_shovel_files(root, queue) for queue in gone)


def drop_shovel_files(root: Root, queue: QueueName) -> int:
    """Takes away what is said of a queue's shovel, unless one runs; how many files. Raises OSError.
    Durable on return: no.
    """
    turn = take_turn(root, queue)
    if turn is None:
        return 0
    dropped = 0
    try:
        for path in shovel_paths(root.layout, queue):
            status = root.files.status(path)
            if status is not None and not stat.S_ISDIR(status.st_mode):
                with contextlib.suppress(FileNotFoundError):
                    root.files.unlink(path)
                    dropped += 1
    finally:
        turn.end()
    return dropped
