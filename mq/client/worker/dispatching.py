"""Which handler a message is for: by its queue, its type and its key. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, Protocol, TypeVar

from mq.model.worker_limits import HANDLERS_PER_QUEUE_MAX, WORKER_QUEUES_MAX

TYPE_HEADER: Final = "ce-type"
"""Where CloudEvents have an event's type."""

H = TypeVar("H")


class Told(Protocol):
    """What is asked of a message."""

    @property
    def headers(self) -> Mapping[str, str]:
        """By their names in lower case."""

    @property
    def key(self) -> str | None:
        """Its lookup key."""


class NoHandler(LookupError):
    """A message that none of its queue's handlers is for."""


@dataclass(frozen=True, slots=True)
class Fit:
    """Which messages of a queue a handler is for: those whose `type_header` is `type`, or begins as
    that does where it ends in an asterisk; and whose key begins with `key_prefix`. None: whatever.
    Raises ValueError.
    """

    type: str | None = None
    key_prefix: str | None = None
    type_header: str = TYPE_HEADER

    def __post_init__(self) -> None:
        if self.type is not None and (not self.type or "*" in self.type[:-1]):
            raise ValueError("a type is a text, with an asterisk at its end or nowhere")
        if not self.type_header:
            raise ValueError("type_header is a header's name")

    def takes(self, message: Told) -> bool:
        """Whether the handler is for this message."""
        return self._type_fits(message) and self._key_fits(message)

    @property
    def rank(self) -> tuple[int, bool, int, int]:
        """What fits more closely is greater: both a type and a key before one of them, a whole type
        before a beginning, a longer one before a shorter, a type before a key.
        """
        said = (self.type is not None) + (self.key_prefix is not None)
        is_whole = self.type is not None and not self.type.endswith("*")
        return said, is_whole, len(self.type or ""), len(self.key_prefix or "")

    @property
    def identity(self) -> tuple[str | None, str | None, str | None]:
        """The same for two that are for the same messages."""
        header = None if self.type is None else self.type_header.lower()
        return header, self.type, self.key_prefix

    def _type_fits(self, message: Told) -> bool:
        if self.type is None:
            return True
        found = message.headers.get(self.type_header.lower())
        if found is None:
            return False
        if self.type.endswith("*"):
            return found.startswith(self.type[:-1])
        return found == self.type

    def _key_fits(self, message: Told) -> bool:
        if self.key_prefix is None:
            return True
        return message.key is not None and message.key.startswith(self.key_prefix)


@dataclass(slots=True)
class Table(Generic[H]):
    """The handlers of a worker, by queue, those that fit most closely first."""

    _entries: dict[str, list[tuple[Fit, H]]] = field(default_factory=dict)

    @property
    def queues(self) -> tuple[str, ...]:
        """Those with a handler, in the order in which they were named first."""
        return tuple(self._entries)

    def add(self, queue: str, fit: Fit, handler: H) -> None:
        """Has this handler be for these messages of the queue. Raises ValueError where another one
        is, or there are too many.
        """
        entries = self._entries.get(queue, [])
        if any(each.identity == fit.identity for each, _ in entries):
            raise ValueError(f"the queue {queue} has a handler for these messages already")
        if len(entries) >= HANDLERS_PER_QUEUE_MAX:
            raise ValueError(f"a queue has at most {HANDLERS_PER_QUEUE_MAX} handlers")
        if queue not in self._entries and len(self._entries) >= WORKER_QUEUES_MAX:
            raise ValueError(f"a worker has at most {WORKER_QUEUES_MAX} queues")
        # Sorting is stable: of two that fit as closely the first one said comes first.
        self._entries[queue] = sorted(
            [*entries, (fit, handler)], key=lambda entry: entry[0].rank, reverse=True
        )

    def handler(self, queue: str, message: Told) -> H:
        """The one that fits most closely. Raises NoHandler."""
        for fit, handler in self._entries.get(queue, ()):
            if fit.takes(message):
                return handler
        raise NoHandler(f"no handler of the queue {queue} is for this message")
