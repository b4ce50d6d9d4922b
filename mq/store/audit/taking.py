"""Taking an auditor's looks: what they tell, also where the storage does not say; whether it is
still so at the second look; and looks that another process takes again.
"""

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from mq.model.errors import MqError
from mq.model.names import QueueName
from mq.store.audit.breaches import Breach, Look, Violation
from mq.store.audit.looks import Looker
from mq.store.core.root import Root
from mq.store.format.layout import entry_prefix

OF_ALL: Final = (Breach.FORMAT, Breach.FOLDER, Breach.STORAGE)
"""What concerns whoever asks for any queue."""


class Taking:
    """Looks of a root, taken for who asks for these queues; None: for all of it."""

    def __init__(self, root: Root, queues: Collection[QueueName] | None = None) -> None:
        self._root = root
        self._queues = None if queues is None else tuple(queues)

    def taken(self, look: Look) -> Sequence[Violation]:
        """What a look tells now. An error of the storage is told as one of the root."""
        try:
            return [each for each in look() if self.is_asked_for(each)]
        except OSError as error:
            path = error.filename if isinstance(error.filename, str) else self._root.layout.root
            return (Violation(Breach.STORAGE, path, os.strerror(error.errno or 0)),)
        except MqError as error:
            return (Violation(Breach.STORAGE, self._root.layout.root, str(error)),)

    def still(self, look: Look, seen: Violation) -> Violation | None:
        """The same breach of the same thing, as it is now; None: it is no more."""
        return next(
            (
                each
                for each in self.taken(look)
                if (each.breach, each.path, each.other) == (seen.breach, seen.path, seen.other)
            ),
            None,
        )

    def is_asked_for(self, violation: Violation) -> bool:
        """Whether it concerns the queues that were named; what all of them need does."""
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
    """A look as it is sent to another process, which has an auditor of its own: the auditor's
    method, and what that is called with.
    """

    method: str
    arguments: tuple[Any, ...] = ()
    named: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def of(cls, look: Look) -> "SentLook":
        """Of a look that an auditor has given."""
        if isinstance(look, partial):
            return cls(look.func.__name__, look.args, tuple(look.keywords.items()))
        return cls(look.__name__)

    def by(self, auditor: Looker) -> Look:
        """The same look, of this auditor."""
        return partial(getattr(auditor, self.method), *self.arguments, **dict(self.named))


@dataclass(frozen=True, slots=True)
class Suspect:
    """A breach that was seen once, when (milliseconds since the epoch), and the look that may see
    it again.
    """

    seen_ms: int
    look: SentLook
    violation: Violation
