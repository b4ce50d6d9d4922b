"""Drives a group of operations in step: all act, one flush for all, all act again.

One operation's failure is its own: it is raised inside that operation, which cleans up, and the
others go on. An OSError that an operation does not decide about itself ends it as Unavailable.
Blocking; for one thread.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mq.errors import unavailable
from mq.store.flush import Failures, Flusher
from mq.store.steps import Flush, Steps, T


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of an operation: its value, or the error that it ended with."""

    value: Any = None
    error: Exception | None = None


def run_group(operations: Sequence[Steps[Any]], flusher: Flusher) -> list[Outcome]:
    """Runs the operations to their ends together; an outcome each, in their order.

    Durable on return: whatever each operation asked to be flushed before it returned a value.
    """
    outcomes: dict[int, Outcome] = {}
    with flusher.group() as flush:
        standing = dict(enumerate(operations))
        failures: Failures = {}
        while standing:
            asked: dict[int, Flush] = {}
            for index, operation in standing.items():
                _advance(index, operation, failures, asked, outcomes)
            standing = {index: standing[index] for index in asked}
            failures = flush(asked) if asked else {}
    return [outcomes[index] for index in range(len(operations))]


def run_alone(operation: Steps[T], flusher: Flusher) -> T:
    """Runs one operation; returns its value, or raises what it ended with."""
    outcome = run_group([operation], flusher)[0]
    if outcome.error is not None:
        raise outcome.error
    value: T = outcome.value
    return value


def _advance(
    index: int,
    operation: Steps[Any],
    failures: Failures,
    asked: dict[int, Flush],
    outcomes: dict[int, Outcome],
) -> None:
    try:
        failure = failures.get(index)
        asked[index] = next(operation) if failure is None else operation.throw(failure)
    except StopIteration as end:
        outcomes[index] = Outcome(value=end.value)
    except OSError as error:
        outcomes[index] = Outcome(error=unavailable(error))
    except Exception as error:  # Whatever it is, it is this operation's alone.
        outcomes[index] = Outcome(error=error)
