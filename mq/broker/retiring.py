"""What a deleted queue has left in delay/ and in leases goes to remove/, in the background."""

import logging

from mq.broker.turns import Turns
from mq.model.names import QueueName
from mq.store.core.root import Root
from mq.store.disk.commit import Committer
from mq.store.operations.queues import retire_delayed

_log = logging.getLogger("mq.broker")


async def retire(root: Root, committer: Committer, turns: Turns, name: QueueName) -> None:
    """Takes it away; where that fails mq-mover and the next PUT do it again. Never raises."""
    try:
        await turns.take(lambda: committer.commit_alone(retire_delayed(root, name)))
    except Exception as error:
        _log.warning(
            "a deleted queue's messages stay in delay/ for now",
            extra={"fields": {"queue": name.text, "error": repr(error)}},
        )
