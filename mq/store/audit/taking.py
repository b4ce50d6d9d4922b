"""Performs an auditor's checks: turns storage errors into findings, confirms a finding by a second
check, and sends checks to other processes.
"""

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from mq.model.errors import MqError
from mq.model.names import QueueName
from mq.store.audit.findings import Breach, Look, Violation
from mq.store.audit.looks import Looker
from mq.store.core.root import Root
from mq.store.format.layout import entry_prefix

OF_ALL: Final = (Breach.FORMAT, Breach.FOLDER, Breach.STORAGE)
"""Breaches that concern every queue."""


class Taking:
    """Performs checks of a root for an audit of these queues; None: of the whole root."""

    def __init__(self, root: Root, queues: Collection[QueueName] | None = None) -> None:
        self._root = root
        self._queues = None if queues is None else tuple(queues)

    def taken(self, look: Look) -> Sequence[Violation]:
        """The findings of a check. A storage error is a finding of the root."""
        try:
            return [each for each in look() if self.is_asked_for(each)]
        except OSError as error:
            path = error.filename if isinstance(error.filename, str) else self._root.layout.root
            return (Violation(Breach.STORAGE, path, os.strerror(error.errno or 0)),)
        except MqError as error:
            return (Violation(Breach.STORAGE, self._root.layout.root, str(error)),)

    def still(self, look: Look, seen: Violation) -> Violation | None:
        """The same breach of the same object, by a second check; None: it is gone."""
        return next(
            (
                each
                for each in self.taken(look)
                if (each.breach, each.path, each.other) == (seen.breach, seen.path, seen.other)
            ),
            None,
        )

    def is_asked_for(self, violation: Violation) -> bool:
        """Whether the finding concerns the audited queues; findings of the whole root do."""
        queues = self._queues
        if not queues or violation.queue in queues or violation.breach in OF_ALL:
            return True
        if violation.queue is not None:
            return False
        below = violation.path.removeprefix(self._root.layout.root).split("/")
        return any(
            queue.text in below or below[-1].startswith(entry_prefix(queue)) for queue in queues
        )


@dataclass(frozen=True, slots=True)
class SentLook:
    """A check in a form that another process can repeat with its own auditor: the auditor's method
    and its arguments.
    """

    method: str
    arguments: tuple[Any, ...] = ()
    named: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def of(cls, look: Look) -> "SentLook":
        """Makes one of an auditor's check."""
        if isinstance(look, partial):
            return cls(look.func.__name__, look.args, tuple(look.keywords.items()))
        return cls(look.__name__)

    def by(self, auditor: Looker) -> Look:
        """The check, by this auditor."""
        return partial(getattr(auditor, self.method), *self.arguments, **dict(self.named))


@dataclass(frozen=True, slots=True)
class Suspect:
    """A breach that was seen once, the time (milliseconds since the epoch), and the check that can
    confirm it.
    """

    seen_ms: int
    look: SentLook
    violation: Violation
