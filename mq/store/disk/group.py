"""Drives a group of operations in step: all act, one flush for all, all act again.

One operation's failure is its own: it is raised inside that operation, which cleans up, and the
others go on. An OSError that an operation does not decide about itself ends it as Unavailable.
Blocking; for one thread.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from mq.model.errors import unavailable
from mq.store.disk.flush import Failures, Flusher
from mq.store.disk.steps import Flush, Steps, T


class Outcome(NamedTuple):
    """What became of an operation: its value, or the error that it ended with."""

    value: Any = None
    error: Exception | None = None


def run_group(operations: Sequence[Steps[Any]], flusher: Flusher) -> list[Outcome]:
    """Runs the operations to their ends together; an outcome each, in their order.

    Durable on return: whatever each operation asked to be flushed before it returned a value.
    """
    outcomes: dict[int, Outcome] = {}
    standing = dict(enumerate(operations))
    failures: Failures = {}
    session = flusher.session()
    try:
        while standing:
            begun = session.begin()
            asked = advance(standing, failures, outcomes)
            standing = {index: standing[index] for index in asked}
            failures = session.flush(asked, begun) if asked else {}
    finally:
        session.rest()
    return [outcomes[index] for index in range(len(operations))]


def run_alone(operation: Steps[T], flusher: Flusher) -> T:
    """Runs one operation; returns its value, or raises what it ended with."""
    outcome = run_group([operation], flusher)[0]
    if outcome.error is not None:
        raise outcome.error
    value: T = outcome.value
    return value


def advance(
    standing: Mapping[int, Steps[Any]], failures: Failures, outcomes: dict[int, Outcome]
) -> dict[int, Flush]:
    """Lets each operation act until it ends or asks for a flush; what they ask for. Those whose
    last flush failed hear of it. The ends are added to `outcomes`.
    """
    asked: dict[int, Flush] = {}
    for index, operation in standing.items():
        try:
            failure = failures.get(index)
            asked[index] = next(operation) if failure is None else operation.throw(failure)
        except StopIteration as end:
            outcomes[index] = Outcome(value=end.value)
        except OSError as error:
            outcomes[index] = Outcome(error=unavailable(error))
        except Exception as error:  # Whatever it is, it is this operation's alone.
            outcomes[index] = Outcome(error=error)
    return asked
