"""Runs a group of operations in step: all act, one flush serves all, all act again.

A failure concerns one operation: it is raised inside that operation, which cleans up, and the
others continue. An OSError that an operation does not handle ends it as Unavailable. Blocking; for
one thread.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from mq.model.errors import Unavailable, unavailable
from mq.store.disk.flush import Failures, Flusher
from mq.store.disk.steps import Flush, Steps, T

_log = logging.getLogger("mq.commit")

W = TypeVar("W")


class Outcome(NamedTuple):
    """The end of an operation: its value, or its error."""

    value: Any = None
    error: Exception | None = None


class Group(Generic[W]):
    """Operations in step, each with its waiter. Others may join between two flushes. A flush serves
    all of them, whatever step each is at. `leaves` takes one that is about to list folders.
    """

    def __init__(
        self, flusher: Flusher, leaves: Callable[[Steps[Any], W], None] | None = None
    ) -> None:
        self._leaves = leaves
        self.session = flusher.session()
        """It rests when no operation stands."""
        self._asked: dict[int, Flush] = {}
        self.standing: dict[int, tuple[Steps[Any], W]] = {}
        """The operations that wait for a flush."""
        self._next = 0

    def join(self, newcomers: Iterable[tuple[Steps[Any], W]]) -> list[tuple[W, Outcome]]:
        """Adds operations, and runs them up to their first flush. Returns those that ended before
        one.
        """
        numbers = []
        for each in newcomers:
            self.standing[self._next] = each
            numbers.append(self._next)
            self._next += 1
        return self._act(numbers, {})

    def run(self, operations: Iterable[tuple[Steps[Any], W]]) -> list[tuple[W, Outcome]]:
        """Runs operations to their ends. Durable on return: the flushes that each one asked for."""
        try:
            ended = self.join(operations)
            while self.standing:
                ended += self.flush()
        finally:
            self.session.rest()
        return ended

    def flush(self) -> list[tuple[W, Outcome]]:
        """Flushes for all operations, and runs them up to their next flush. Returns those that
        ended before one.

        Durable on return: the flushes that an ended operation asked for.
        """
        asked, self._asked = self._asked, {}
        try:
            failures = self.session.flush(asked)
        except Exception as error:  # A bug in the policy must fail operations, not hang them.
            _log.error("a flush failed", exc_info=error)
            return [self._failed(number, error) for number in asked]
        return self._act(asked, failures)

    def _act(self, numbers: Iterable[int], failures: Failures) -> list[tuple[W, Outcome]]:
        self.session.begin()
        ended: list[tuple[W, Outcome]] = []
        for number in numbers:
            operation, waits = self.standing[number]
            try:
                if failures and (failure := failures.get(number)) is not None:
                    asked = operation.throw(failure)
                else:
                    asked = next(operation)
                if asked.lists and self._leaves is not None:
                    self._leaves(operation, waits)
                    del self.standing[number]
                else:
                    self._asked[number] = asked
                continue
            except StopIteration as end:
                outcome = Outcome(end.value)
            except OSError as error:
                outcome = Outcome(error=unavailable(error))
            except Exception as error:  # Any error concerns this operation alone.
                outcome = Outcome(error=error)
            del self.standing[number]
            ended.append((waits, outcome))
        return ended

    def _failed(self, number: int, error: Exception) -> tuple[W, Outcome]:
        operation, waits = self.standing.pop(number)
        try:
            operation.close()
        except Exception as also:
            _log.error("an operation could not clean up", exc_info=also)
        return waits, Outcome(error=Unavailable(repr(error)))


def run_group(operations: Sequence[Steps[Any]], flusher: Flusher) -> list[Outcome]:
    """Runs the operations together. Returns their outcomes, in their order.

    Durable on return: the flushes that each operation asked for.
    """
    group: Group[int] = Group(flusher)
    outcomes = dict(group.run((each, index) for index, each in enumerate(operations)))
    return [outcomes[index] for index in range(len(operations))]


def run_alone(operation: Steps[T], flusher: Flusher) -> T:
    """Runs one operation. Returns its value, or raises its error."""
    outcome = run_group([operation], flusher)[0]
    if outcome.error is not None:
        raise outcome.error
    value: T = outcome.value
    return value
