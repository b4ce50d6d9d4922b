"""Why a publish by Spark is refused, in words for whoever wrote the query.

Pure Python, no pyspark.
"""

from dataclasses import dataclass

from mq.model.errors import KeyTaken, MqError, PublishPurged, QueueExpired, QueueNotFound
from mq.model.names import QueueName
from mq.store.core.expired import refuse_expired
from mq.store.core.root import Root
from mq.store.core.standing import queue_exists


@dataclass(eq=False)
class PublishFailed(MqError):
    """A publish that cannot be committed; nothing of it is published."""

    detail: str

    def __str__(self) -> str:
        return f"mq: nothing was published: {self.detail}"


def check_queue(root: Root, queue: QueueName | None) -> None:
    """Raises PublishFailed when a queue that is named is not there, or has expired."""
    if queue is None:
        return
    if not queue_exists(root, queue):
        raise explained(QueueNotFound(queue.text))
    try:
        refuse_expired(root, queue)
    except QueueExpired as error:
        raise explained(error) from error


def explained(error: MqError) -> MqError:
    """What says to whoever publishes why nothing was; another error as it is."""
    if isinstance(error, QueueNotFound):
        return PublishFailed(f"there is no queue {error.queue}")
    if isinstance(error, QueueExpired):
        return PublishFailed(f"the queue {error.queue} has expired at {error.expired_at}")
    if isinstance(error, KeyTaken):
        taken = f"key {error.key!r} is taken by message {error.id}"
        return PublishFailed(f"{taken} (onKeyTaken=skip passes such rows by)")
    if isinstance(error, PublishPurged):
        return PublishFailed("a queue was purged since its messages were written; publish again")
    return error
