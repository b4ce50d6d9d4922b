"""Making the sidelines that messages are to go to; of one that cannot be made it tells once."""

import logging
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from mq.model.errors import MqError, SidelineMissing
from mq.model.names import QueueName
from mq.store.core.root import Root
from mq.store.disk.flush import Flusher
from mq.store.disk.group import Outcome, run_alone, run_group
from mq.store.disk.steps import Steps
from mq.store.operations.queues import create_queue

_log = logging.getLogger("mq-mover.sidelines")

T = TypeVar("T")

_TOLD_OF_MAX: Final = 1000


class Sidelines:
    """The sidelines of one mover's queues. Blocking; for one thread."""

    def __init__(self, root: Root, flusher: Flusher) -> None:
        self._root = root
        self._flusher = flusher
        self._told_of: set[QueueName] = set()

    def run(
        self,
        messages: Sequence[T],
        operation: Callable[[T], Steps[Any]],
        of: Callable[[T], QueueName],
    ) -> list[Outcome]:
        """Runs an operation for each of these messages as a group; an outcome each, in their order.
        Where one lacks its queue's sideline that is made, and it is run once more.
        """
        outcomes = run_group([operation(each) for each in messages], self._flusher)
        lacking = [at for at, each in enumerate(outcomes) if _lacks_sideline(each)]
        there = {queue: self.make(queue) for queue in {of(messages[at]) for at in lacking}}
        again = [at for at in lacking if there[of(messages[at])]]
        rest = run_group([operation(messages[at]) for at in again], self._flusher) if again else []
        for at, outcome in zip(again, rest, strict=True):
            outcomes[at] = outcome
        return outcomes

    def make(self, queue: QueueName) -> bool:
        """Makes the queue's sideline, where it is missing; whether it is there then. Durable: yes,
        when it is.
        """
        try:
            run_alone(create_queue(self._root, queue.sideline()), self._flusher)
        except (MqError, OSError) as error:
            self.failed(queue, error)
            return False
        self._told_of.discard(queue)
        return True

    def failed(self, queue: QueueName, error: Exception) -> None:
        """Tells, once of a queue, that messages cannot go to its sideline: they stay."""
        if queue in self._told_of or len(self._told_of) >= _TOLD_OF_MAX:
            return
        self._told_of.add(queue)
        _log.warning(
            "messages cannot go to their queue's sideline; they stay where they are",
            extra={"fields": {"queue": queue.text, "error": repr(error)}},
        )


def _lacks_sideline(outcome: Outcome) -> bool:
    return isinstance(outcome.error, SidelineMissing)
