"""Looking at a queue's messages without consuming them: a page in order, with their bodies' first
bytes. No more folders are listed, and no more files opened, than the page needs.
"""

from dataclasses import replace

from mq.model.errors import QueueNotFound, Unavailable
from mq.model.lifecycle import State
from mq.model.limits import PEEK_BODY_BYTES
from mq.model.looking import Page, Part, cut
from mq.model.message import Stamp
from mq.model.names import MessageId, QueueName
from mq.store.core.moves import message_status
from mq.store.core.root import Root
from mq.store.core.standing import queue_seen
from mq.store.operations.read import Reading, read_at
from mq.store.scan.paging import list_after


def peek(root: Root, queue: QueueName, page: Page) -> list[Reading]:
    """The page's messages: ready ones in the order of delivery, others by id. Bodies end after
    PEEK_BODY_BYTES, or a little before where that is in the middle of a character.

    Blocking. What moves meanwhile may be seen in two states or in none. Raises QueueNotFound,
    Unavailable, OSError.
    """
    if not queue_seen(root, queue):
        raise QueueNotFound(queue.text)
    found: list[Reading] = []
    for state in page.states:
        found += _of_state(root, queue, state, page.count - len(found), page.after)
    return found


def _of_state(
    root: Root, queue: QueueName, state: State, count: int, after: MessageId | None
) -> list[Reading]:
    """One state's first messages. A look may end early, and what it found may be gone by then:
    then the next one begins behind what it found.
    """
    found: list[Reading] = []
    while len(found) < count:
        candidates, complete = list_after(root, state, queue, count - len(found), after)
        for candidate in candidates:
            after = candidate.id
            reading = _first_bytes(root, state, queue, after, candidate.bucket or "")
            if reading is not None:
                found.append(reading)
        if complete or not candidates:
            break
    return found


def _first_bytes(
    root: Root, state: State, queue: QueueName, message_id: MessageId, bucket: str
) -> Reading | None:
    try:
        reading = read_at(root, state, queue, message_id, bucket, _choose)
    except Unavailable:
        return _damaged(root, state, queue, message_id, bucket)
    if reading is None or reading.state is not state:
        return None
    if reading.body is not None and len(reading.body) < reading.size:
        return replace(reading, body=cut(reading.body))
    return reading


def _damaged(
    root: Root, state: State, queue: QueueName, message_id: MessageId, bucket: str
) -> Reading | None:
    """What is known of a message whose file is shorter than it says: no bytes, but it is shown, and
    hides no other.
    """
    status = message_status(root, root.layout.path(state, queue, message_id, bucket))
    if status is None:
        return None
    stamp = Stamp.from_mtime_ns(status.st_mtime_ns)
    return Reading(state, message_id, stamp, (), 0, None, None, None)


def _choose(size: int, receives: int) -> Part:
    return Part(0, min(size, PEEK_BODY_BYTES))
