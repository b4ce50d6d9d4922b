"""Makes one consumer of a queue the active one, among all processes of a root: its process takes
the turn, and no earlier consumer may still have a message.

PROTOCOL.md, "take over", has the steps and what a crash after each leaves.
"""

import contextlib

from mq.model.names import QueueName
from mq.store.core.packed import committed_tries
from mq.store.core.root import Root, unlink_if_there
from mq.store.core.standing import queue_exists
from mq.store.core.turns import Turn, take
from mq.store.format.layout import parse_turn
from mq.store.format.walk import entries_if_there, named
from mq.store.scan.delayed_names import delayed_of


def take_over(root: Root, queue: QueueName) -> Turn | None:
    """Takes the turn at a queue with a single active consumer; None: another process has it.
    Blocking. Raises OSError. Durable on return: no; the turn ends with the process.
    """
    place = root.layout.active_turn(queue)
    try:
        return take(root, place)
    except FileNotFoundError:
        with contextlib.suppress(FileExistsError):
            root.files.mkdir(root.layout.active)
        return take(root, place)


def is_any_in_flight(root: Root, queue: QueueName) -> bool:
    """Whether a message of the queue is in flight, was postponed by a consumer, or is just being
    returned. Lists delay/. Blocking. Raises OSError.
    """
    if any(each.queue == queue for each in committed_tries(root)):
        return True  # Items of a pack are not at their places yet.
    now_ms = root.now_ms()
    # A due message may be a claim that is not stamped yet.
    return any(stamp.receives or stamp.due_ms <= now_ms for _, stamp in delayed_of(root, queue))


def sweep_turns(root: Root) -> int:
    """Removes files of turns whose queues are gone; foreign ones stay. Returns their number. Raises
    OSError. Durable on return: no; what a crash brings back is swept again.
    """
    swept = 0
    for entry, queue in named(entries_if_there(root.files, root.layout.active), parse_turn):
        if queue_exists(root, queue) or not entry.is_file(follow_symlinks=False):
            continue
        if (turn := take_over(root, queue)) is None:
            continue
        try:
            unlink_if_there(root.files, entry.path)
            swept += 1
        finally:
            turn.end()
    return swept
