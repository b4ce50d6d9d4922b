"""Makes missing sidelines for messages; logs once if one cannot be made."""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from mq.model.errors import MqError, SidelineMissing
from mq.model.log import logger
from mq.model.names import QueueName
from mq.store.core.root import Root
from mq.store.disk.flush import Flusher
from mq.store.disk.group import Outcome, run_alone, run_group
from mq.store.disk.steps import Steps
from mq.store.operations.sideline import make_sideline

_log = logger("mq-mover.sidelines")

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
        """Runs an operation for each of these messages as a group. Returns an outcome for each, in
        order. If a queue's sideline is missing, makes it and runs the operation again.
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
        """Makes the queue's sideline if it is missing. Returns whether it exists then. Durable on
        return: yes, if true.
        """
        try:
            run_alone(make_sideline(self._root, queue), self._flusher)
        except (MqError, OSError) as error:
            self.failed(queue, error)
            return False
        self._told_of.discard(queue)
        return True

    def failed(self, queue: QueueName, error: Exception) -> None:
        """Logs once for a queue that messages cannot go to its sideline: they stay."""
        if queue in self._told_of or len(self._told_of) >= _TOLD_OF_MAX:
            return
        self._told_of.add(queue)
        _log.warning(
            "cannot move messages to their queue's sideline; they stay where they are",
            extra={"fields": {"queue": queue.text, "error": repr(error)}},
        )


def _lacks_sideline(outcome: Outcome) -> bool:
    return isinstance(outcome.error, SidelineMissing)
