"""Selects the handler of a message by its queue, its type and its key. Pure."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final, Generic, Protocol, TypeVar

from mq.model.limits import SIDELINE_SUFFIX

# Each queue of a worker has a request waiting.
WORKER_QUEUES_MAX: Final = 100
HANDLERS_PER_QUEUE_MAX: Final = 1000

TYPE_HEADER: Final = "ce-type"
"""The header of a CloudEvent's type."""

TASK_HEADER: Final = "x-attribute-task"
"""The header that names the task of a message."""

H = TypeVar("H")

_WILD: Final = re.compile(r"[*?\[]")
_PATTERN: Final = re.compile(r"[0-9A-Za-z_.\-*?\[\]!]{1,255}")


def is_pattern(queue: str) -> bool:
    """Whether this is a pattern of queue names, as `orders.*`, and not a name."""
    return _WILD.search(queue) is not None and _PATTERN.fullmatch(queue) is not None


def fits(queue: str, pattern: str) -> bool:
    """Whether the queue's name matches the pattern (`*`, `?`, `[a-z]`). A sideline's name matches
    only patterns that end in `_SIDELINE`.
    """
    is_chosen = pattern.endswith(SIDELINE_SUFFIX) or not queue.endswith(SIDELINE_SUFFIX)
    return is_chosen and fnmatchcase(queue, pattern)


class Described(Protocol):
    """A message, as far as selecting its handler needs it."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Its headers, by names in lower case."""

    @property
    def key(self) -> str | None: ...


class NoHandler(LookupError):
    """None of the queue's handlers takes the message."""


@dataclass(frozen=True, slots=True)
class Fit:
    """Which messages of a queue a handler takes: those whose header `type_header` is `type` (`a.*`:
    of any type that begins so), and whose key begins with `key_prefix`. None: any. Raises
    ValueError.
    """

    type: str | None = None
    key_prefix: str | None = None
    type_header: str = TYPE_HEADER

    def __post_init__(self) -> None:
        if self.type is not None and (not self.type or "*" in self.type[:-1]):
            raise ValueError(
                f"type must be a text with an asterisk at its end or none, not {self.type!r}"
            )
        if not self.type_header:
            raise ValueError("type_header must be a header's name, not ''")

    def takes(self, message: Described) -> bool:
        """Whether the handler takes this message."""
        return self._type_fits(message) and self._key_fits(message)

    @property
    def rank(self) -> tuple[int, bool, int, int]:
        """Greater for a closer fit: type and key before one of them, a whole type before a
        beginning, longer before shorter, a type before a key.
        """
        count = (self.type is not None) + (self.key_prefix is not None)
        is_whole = self.type is not None and not self.type.endswith("*")
        return count, is_whole, len(self.type or ""), len(self.key_prefix or "")

    @property
    def identity(self) -> tuple[str | None, str | None, str | None]:
        """Equal for two fits that take the same messages."""
        header = None if self.type is None else self.type_header.lower()
        return header, self.type, self.key_prefix

    def _type_fits(self, message: Described) -> bool:
        if self.type is None:
            return True
        found = message.headers.get(self.type_header.lower())
        if found is None:
            return False
        if self.type.endswith("*"):
            return found.startswith(self.type[:-1])
        return found == self.type

    def _key_fits(self, message: Described) -> bool:
        if self.key_prefix is None:
            return True
        return message.key is not None and message.key.startswith(self.key_prefix)


@dataclass(slots=True)
class Table(Generic[H]):
    """The handlers of a worker, by queue or pattern, the closest fit first."""

    _entries: dict[str, list[tuple[Fit, H]]] = field(default_factory=dict)
    _known: dict[str, list[tuple[Fit, H]]] = field(default_factory=dict)
    """The handlers of each queue, its patterns' too."""

    @property
    def queues(self) -> tuple[str, ...]:
        """The queues and patterns that have a handler, in the order of their first one."""
        return tuple(self._entries)

    @property
    def names(self) -> tuple[str, ...]:
        """The queues that are named, without patterns."""
        return tuple(each for each in self._entries if not is_pattern(each))

    @property
    def has_patterns(self) -> bool:
        """Whether there are patterns, whose queues must be searched for."""
        return len(self.names) < len(self._entries)

    def chosen(self, queues: Iterable[str]) -> list[str]:
        """The queues among these that fit a pattern."""
        patterns = self._entries.keys() - set(self.names)
        return [each for each in queues if any(fits(each, pattern) for pattern in patterns)]

    def of(self, queue: str) -> list[H]:
        """All handlers that may get messages of the queue."""
        return [handler for _, handler in self._entries_of(queue)]

    def add(self, queue: str, fit: Fit, handler: H) -> None:
        """Adds a handler. Raises ValueError for a second one of the same messages, and for too
        many.
        """
        entries = self._entries.get(queue, [])
        if any(each.identity == fit.identity for each, _ in entries):
            raise ValueError(
                f"the queue {queue} has a handler for these messages already: change its "
                "type or key_prefix, or the task's name"
            )
        if len(entries) >= HANDLERS_PER_QUEUE_MAX:
            raise ValueError(f"the queue {queue} has {HANDLERS_PER_QUEUE_MAX} handlers, the most")
        if queue not in self._entries and len(self._entries) >= WORKER_QUEUES_MAX:
            raise ValueError(f"the worker has {WORKER_QUEUES_MAX} queues, the most")
        self._known.clear()
        # Sorting is stable: of two equal fits the first added comes first.
        self._entries[queue] = sorted(
            [*entries, (fit, handler)], key=lambda entry: entry[0].rank, reverse=True
        )

    def handler(self, queue: str, message: Described) -> H | None:
        """The handler with the closest fit: of the queue itself, else of its patterns, the longest
        first.
        """
        fitting = (handler for fit, handler in self._entries_of(queue) if fit.takes(message))
        return next(fitting, None)

    def _entries_of(self, queue: str) -> list[tuple[Fit, H]]:
        if queue not in self._known:
            patterns = [each for each in self._entries if is_pattern(each) and fits(queue, each)]
            by_length = sorted(patterns, key=len, reverse=True)
            named = [self._entries[each] for each in (queue, *by_length) if each in self._entries]
            self._known[queue] = [entry for entries in named for entry in entries]
        return self._known[queue]

    def forget(self, queue: str) -> None:
        """The queue is gone: forgets all that it remembers of it."""
        self._known.pop(queue, None)
