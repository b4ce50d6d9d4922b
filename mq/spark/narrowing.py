"""The option `where` of a read: conditions that decide by a message's folder, name or status,
before its file is opened. No Spark here.

    priority >= 5 and published > '2026-01-31T12:00:00Z' and key like 'order-%'

Spark's own pushdown to Python's sources cannot be used: in Spark 4.3 a DataFrame that is read with
two conditions, as in a union, gives both parts the rows of the last.
"""

import operator
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol, Self

from mq.model.errors import BadName
from mq.model.names import Group
from mq.store.format.bucket_names import Bucket

_TIMES: Final = ("published", "due")
_NUMBERS: Final = ("priority",)
_EXACT: Final = ("group", "tag")
"""Columns that only equality decides: a name has a group's digits, and a message several tags."""
_OF_NAMES: Final = ("id", "key", "priority", "published", *_EXACT)
"""The columns that a name gives; of tags it says only whether there are any."""
_COLUMNS: Final = ("queue", *_OF_NAMES, "due")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_US: Final = timedelta(microseconds=1)
_US_PER_MS: Final = 1000
_NO_US: Final = 1 << 62
_TOKEN: Final = re.compile(
    r"\s*(?:(?P<text>'(?:[^']|'')*')|(?P<number>-?[0-9]{1,9}\b)|(?P<word>[A-Za-z_]+)"
    r"|(?P<sign><=|>=|<>|!=|=|<|>|\(|\)|,))"
)
_NO_PREFIX: Final = re.compile(r"[_\\%]")

_COMPARED: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<>": operator.ne,
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "in": lambda found, values: found in values,
    "like": str.startswith,
    "is null": lambda found, _: found is None,
}


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on one column. `kind`: one of _COMPARED. Times are microseconds since the
    epoch.
    """

    column: str
    kind: str
    value: Any
    is_negated: bool = False

    def holds(self, found: Any) -> bool:
        """Whether it is true of this value, as in SQL; None: null."""
        if found is None and self.kind != "is null":
            return False
        return _COMPARED[self.kind](found, self.value) is not self.is_negated


_ANY_TAG: Final = Condition("tag", "is null", None, is_negated=True)


class Named(Protocol):
    """The attributes in a name (rows.Attributes)."""

    @property
    def priority(self) -> int: ...

    @property
    def key(self) -> str | None: ...

    @property
    def group(self) -> str: ...

    @property
    def tags(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Narrowed:
    """All conditions of a read; without any it takes everything."""

    conditions: tuple[Condition, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises ValueError, which names the accepted form."""
        return cls(tuple(_Parser(text).conditions()))

    def of(self, *columns: str) -> "Narrowed":
        """The conditions on these columns."""
        return Narrowed(tuple(each for each in self.conditions if each.column in columns))

    def take(self, **found: Any) -> bool:
        """Whether the conditions on these columns hold for these values."""
        return all(
            each.holds(found[each.column]) for each in self.conditions if each.column in found
        )

    def takes_queue(self, queue: str) -> bool:
        return self.take(queue=queue)

    def takes_bucket(self, bucket: Bucket) -> bool:
        """Whether a message of the bucket may hold. An unsaid priority is any."""
        if bucket.priority and not self.take(priority=bucket.priority):
            return False
        first_us, last_us = self._published_us()
        return not (
            bucket.begins_after(last_us // _US_PER_MS)
            or bucket.ends_by(-(-first_us // _US_PER_MS) - 1)
        )

    def _published_us(self) -> tuple[int, int]:
        """The first and the last publish time that may hold."""
        first, last = 0, _NO_US
        for each in self.conditions:
            if each.column != "published" or each.is_negated:
                continue
            if each.kind in (">", ">=", "="):
                first = max(first, each.value)
            if each.kind in ("<", "<=", "="):
                last = min(last, each.value)
        return first, last

    def of_names(self) -> "Narrowed":
        """The conditions that a name decides. Of a condition on a tag: whether there is any."""
        return Narrowed(
            tuple(
                _ANY_TAG if each.column == "tag" and each.kind != "is null" else each
                for each in self.of("queue", *_OF_NAMES).conditions
            )
        )

    def of_headers(self) -> "Narrowed":
        """The conditions that a file's headers decide."""
        return Narrowed(tuple(each for each in self.of("tag").conditions if each.kind != "is null"))

    def takes_tags(self, tags: Collection[str]) -> bool:
        """Whether each condition holds for one of the tags."""
        return all(any(map(each.holds, tags)) for each in self.conditions)

    def takes_name(self, queue: str, text: str, attributes: Named) -> bool:
        """Whether the message with this id and these attributes holds; also a name that is no
        id.
        """
        try:
            return all(
                each.holds(_named(each.column, queue, text, attributes)) for each in self.conditions
            )
        except ValueError:
            return True


def _named(column: str, queue: str, text: str, attributes: Named) -> Any:
    """The value that a name gives a column. Raises ValueError if it is no id."""
    if column == "published":
        return int(text[:8] + text[9:13], 16) * _US_PER_MS
    if column in ("queue", "id"):
        return queue if column == "queue" else text
    found = getattr(attributes, "tags" if column == "tag" else column)
    return found or None if column in _EXACT else found


def _check_exact(column: str, kind: str, *, is_negated: bool) -> None:
    """Raises ValueError for a comparison that the column does not have."""
    is_unequal = is_negated or kind in ("!=", "<>")
    if column in _EXACT and (
        kind not in ("=", "!=", "<>", "in") or (column == "tag" and is_unequal)
    ):
        raise ValueError(f"=, IN or IS [NOT] NULL for {column}")


def _digits(group: str) -> str:
    """A group's digits, as names have them. Raises ValueError."""
    try:
        return Group.parse(group).digits
    except BadName as error:
        raise ValueError(f"for group {error.expected}") from None


NO_CONDITION: Final = Narrowed()


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, str]] = []
        at, text = 0, text.rstrip()
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None or found.lastgroup is None:
                raise ValueError(f"conditions joined by AND; {text[at:].strip()!r:.40} is none")
            self._tokens.append((found.lastgroup, found[found.lastgroup]))
            at = found.end()

    def conditions(self) -> Iterator[Condition]:
        yield self._condition()
        while self._tokens:
            self._take("and")
            yield self._condition()

    def _condition(self) -> Condition:
        column = self._word(*_COLUMNS)
        kind = self._word("=", "!=", "<>", "<=", ">=", "<", ">", "is", "not", "in", "like")
        is_negated = kind == "not"
        if kind == "is":
            is_negated = self._word("not", "null") == "not"
            if is_negated:
                self._take("null")
            return Condition(column, "is null", None, is_negated)
        if is_negated:
            kind = self._word("in", "like")
        _check_exact(column, kind, is_negated=is_negated)
        if kind == "in":
            self._take("(")
            values = [self._literal(column)]
            while self._word(",", ")") == ",":
                values.append(self._literal(column))
            return Condition(column, kind, frozenset(values), is_negated)
        value = self._literal(column)
        if kind == "like":
            if not isinstance(value, str) or not value.endswith("%"):
                raise ValueError("LIKE with a beginning, such as 'order-%'")
            value = value[:-1]
            if _NO_PREFIX.search(value):
                raise ValueError("LIKE with a beginning, such as 'order-%'")
        return Condition(column, kind, value, is_negated)

    def _word(self, *expected: str) -> str:
        kind, found = self._tokens.pop(0) if self._tokens else ("", "its end")
        if kind not in ("word", "sign") or found.lower() not in expected:
            raise ValueError(f"one of {' '.join(expected)} where {found} is")
        return found.lower()

    def _take(self, word: str) -> None:
        self._word(word)

    def _literal(self, column: str) -> Any:
        if column in _TIMES and self._tokens[:1] == [("word", "timestamp")]:
            del self._tokens[0]
        kind, found = self._tokens.pop(0) if self._tokens else ("", "")
        if column in _NUMBERS:
            if kind == "number":
                return int(found)
            raise ValueError(f"a number for {column}")
        if kind != "text":
            raise ValueError(f"a text in single quotes for {column}")
        text = found[1:-1].replace("''", "'")
        if column == "group":
            return _digits(text)
        if column not in _TIMES:
            return text
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            moment = datetime.min
        if moment.tzinfo is None:
            raise ValueError(f"a time with its zone for {column}, such as '2026-01-31T12:00:00Z'")
        return (moment - _EPOCH) // _US
