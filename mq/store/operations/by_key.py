"""Messages by their lookup keys."""

from mq.model.errors import KeyNotFound, MessageNotFound
from mq.model.limits import LINK_TRIES_MAX
from mq.model.names import Key, MessageId, QueueName
from mq.store.core.find import Precondition
from mq.store.core.root import Root
from mq.store.core.standing import no_such_queue, queue_exists
from mq.store.disk.steps import Steps
from mq.store.format.layout import Keys
from mq.store.keys.holders import lives
from mq.store.keys.keyed import settle
from mq.store.keys.links import linked_id, read_link
from mq.store.operations.remove import remove


def find_key(root: Root, queue: QueueName, key: Key) -> Steps[MessageId]:
    """The message that has the key and lives. Raises QueueNotFound, KeyNotFound.
    Durable on return: that it has the key.
    """
    holder = yield from _named(root, queue, key)
    if holder is None or not lives(root, queue, holder):
        raise KeyNotFound(key.text)
    return holder


def remove_by_key(
    root: Root, queue: QueueName, key: Key, if_receives: Precondition | None = None
) -> Steps[bool]:
    """Removes the message that has the key, as `remove` does by its id; False when it lay in
    remove/ already. Raises KeyNotFound, and what `remove` raises. Durable on return: yes.
    """
    last = None
    for _ in range(LINK_TRIES_MAX):
        holder = yield from _named(root, queue, key)
        if holder is None or holder == last:
            break
        try:
            return (yield from remove(root, queue, holder, if_receives))
        except MessageNotFound:
            last = holder  # Or another has the key now.
    raise KeyNotFound(key.text)


def _named(root: Root, queue: QueueName, key: Key) -> Steps[MessageId | None]:
    """The message that the key's link names, delivered when it was not yet; None: there is none."""
    if not queue_exists(root, queue):
        yield from no_such_queue(root, queue)
    place = root.layout.link(Keys.LOOKUP, queue, key)
    target = read_link(root, place)
    holder = None if target is None else linked_id(target)
    if holder is None:
        return None
    try:
        yield from settle(root, queue, place, holder)
    except FileNotFoundError:
        if not queue_exists(root, queue):
            yield from no_such_queue(root, queue)
        raise
    return holder
