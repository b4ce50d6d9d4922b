"""Kinds of query parameters and headers. Each parses its value and has the schema for
`/-/openapi.json`. Pure.

Each `of` returns None if the parameter is left out, and raises BadParameter for a value that the
schema does not allow.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

from mq.model.errors import BadName, BadParameter
from mq.model.limits import KEY_WRITTEN_BYTES_MAX, SELECT_CHARS_MAX
from mq.model.names import GROUP_PATTERN, Key, MessageId, QueueName
from mq.model.selection import GROUPS, KINDS, Selection
from mq.protocol import parameters
from mq.protocol.parameters import Query

T = TypeVar("T")

Schema: TypeAlias = dict[str, Any]
"""A JSON Schema, 2020-12, as OpenAPI 3.1 has them."""

KEY_SCHEMA: Final[Schema] = {
    "type": "string",
    "minLength": 1,
    "maxLength": KEY_WRITTEN_BYTES_MAX,
    "pattern": r"^[^\u0000-\u001f\u007f]+$",
}
"""A key. Its written form is bounded too, which JSON Schema cannot express."""


GROUP_SCHEMA: Final[Schema] = {"type": "string", "pattern": f"^{GROUP_PATTERN}$"}

_MILLISECOND: Final = 0.001


def reference(name: str) -> Schema:
    """A reference to a schema of the document."""
    return {"$ref": f"#/components/schemas/{name}"}


class Parameter(Protocol):
    """A query parameter of a request."""

    @property
    def name(self) -> str: ...

    @property
    def says(self) -> str: ...

    @property
    def schema(self) -> Schema: ...


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number within bounds; `default` if left out."""

    name: str
    least: int
    most: int
    says: str
    default: int | None = None

    def of(self, query: Query) -> int | None:
        return parameters.whole(query, self.name, self.least, self.most)

    @property
    def schema(self) -> Schema:
        schema: Schema = {"type": "integer", "minimum": self.least, "maximum": self.most}
        return schema if self.default is None else {**schema, "default": self.default}


@dataclass(frozen=True, slots=True)
class Seconds:
    """Seconds within bounds, to the millisecond."""

    name: str
    least: float
    most: float
    says: str

    def of(self, query: Query) -> float | None:
        return parameters.seconds(query, self.name, self.least, self.most)

    @property
    def schema(self) -> Schema:
        schema: Schema = {"type": "number", "minimum": self.least, "multipleOf": _MILLISECOND}
        return schema if math.isinf(self.most) else {**schema, "maximum": self.most}


@dataclass(frozen=True, slots=True)
class Time:
    """An RFC 3339 time."""

    name: str
    says: str

    def of(self, query: Query) -> int | None:
        """The query's value in milliseconds since the epoch."""
        return parameters.time_ms(query, self.name)

    @property
    def schema(self) -> Schema:
        return {"type": "string", "format": "date-time"}


@dataclass(frozen=True, slots=True)
class KeyText:
    name: str
    says: str

    def of(self, query: Query) -> Key | None:
        return parameters.key(parameters.one(query, self.name), self.name)

    @property
    def schema(self) -> Schema:
        return KEY_SCHEMA


@dataclass(frozen=True, slots=True)
class NameText(Generic[T]):
    """A name: of a group, of a consumer. `parse` raises BadName."""

    name: str
    parse: Callable[[str], T]
    schema: Schema
    says: str

    def of(self, query: Query) -> T | None:
        text = parameters.one(query, self.name)
        try:
            return None if text is None else self.parse(text)
        except BadName as error:
            raise BadParameter(self.name, error.expected) from None


@dataclass(frozen=True, slots=True)
class KeyTexts:
    """Several texts, each in a parameter of its own; at most `most`."""

    name: str
    most: int
    says: str

    def of(self, query: Query) -> tuple[Key, ...]:
        """The query's values, each once."""
        texts = query.getall(self.name, [])
        found = dict.fromkeys(filter(None, (parameters.key(each, self.name) for each in texts)))
        if len(found) > self.most:
            raise BadParameter(self.name, f"given at most {self.most} times")
        return tuple(found)

    @property
    def schema(self) -> Schema:
        return {"type": "array", "items": KEY_SCHEMA, "maxItems": self.most}


@dataclass(frozen=True, slots=True)
class Choice:
    name: str
    words: tuple[str, ...]
    says: str
    default: str | None = None

    def of(self, query: Query) -> str | None:
        word = parameters.one(query, self.name)
        if word is not None and word not in self.words:
            raise BadParameter(self.name, " or ".join(self.words))
        return word

    @property
    def schema(self) -> Schema:
        schema: Schema = {"type": "string", "enum": list(self.words)}
        return schema if self.default is None else {**schema, "default": self.default}


@dataclass(frozen=True, slots=True)
class Choices:
    """Some of several words, each at most once, separated by commas."""

    name: str
    words: tuple[str, ...]
    says: str
    default: tuple[str, ...]

    def of(self, query: Query) -> tuple[str, ...]:
        """The query's value, or the default."""
        text = parameters.one(query, self.name)
        if text is None:
            return self.default
        said = tuple(text.split(","))
        if len(set(said)) < len(said) or not set(said) <= set(self.words):
            raise BadParameter(
                self.name, f"some of {','.join(self.words)}, each once, separated by commas"
            )
        return said

    @property
    def schema(self) -> Schema:
        return {
            "type": "array",
            "items": {"type": "string", "enum": list(self.words)},
            "minItems": 1,
            "uniqueItems": True,
            "default": list(self.default),
        }


@dataclass(frozen=True, slots=True)
class Id:
    name: str
    says: str

    def of(self, query: Query) -> MessageId | None:
        text = parameters.one(query, self.name)
        try:
            return None if text is None else MessageId.parse(text)
        except BadName as error:
            raise BadParameter(self.name, f"an id, {error.expected}") from None

    @property
    def schema(self) -> Schema:
        return reference("MessageId")


@dataclass(frozen=True, slots=True)
class Ids:
    """Several ids, each in a parameter of its own; at most `most`."""

    name: str
    most: int
    says: str

    def of(self, query: Query) -> frozenset[MessageId]:
        """The query's values."""
        try:
            found = frozenset(map(MessageId.parse, query.getall(self.name, [])))
        except BadName as error:
            raise BadParameter(self.name, f"an id, {error.expected}") from None
        if len(found) > self.most:
            raise BadParameter(self.name, f"given at most {self.most} times")
        return found

    @property
    def schema(self) -> Schema:
        return {"type": "array", "items": reference("MessageId"), "maxItems": self.most}


@dataclass(frozen=True, slots=True)
class Name:
    name: str
    says: str

    def of(self, query: Query) -> QueueName | None:
        text = parameters.one(query, self.name)
        try:
            return None if text is None else QueueName.parse(text)
        except BadName as error:
            raise BadParameter(self.name, f"a queue's name, {error.expected}") from None

    @property
    def schema(self) -> Schema:
        return reference("QueueName")


@dataclass(frozen=True, slots=True)
class Text:
    """A text that another parser checks; `schema` describes it."""

    name: str
    schema: Schema
    says: str
    example: str = ""

    def of(self, query: Query) -> str | None:
        return parameters.one(query, self.name)


@dataclass(frozen=True, slots=True)
class Terms:
    """A selection's terms, separated by commas or in repeated parameters."""

    name: str
    says: str
    example: str = "priority:5..,key:eu-*"

    def of(self, query: Query) -> Selection | None:
        texts = query.getall(self.name, [])
        return Selection.parse(*texts) if texts else None

    @property
    def schema(self) -> Schema:
        # The parser checks the values of terms, and their number.
        return {
            "type": "string",
            "pattern": rf"^(?:(?:{'|'.join(KINDS)}):|(?:{'|'.join(GROUPS)})\()",
            "maxLength": SELECT_CHARS_MAX,
            "examples": [self.example],
        }


@dataclass(frozen=True, slots=True)
class Header:
    """A header that a request uses."""

    name: str
    schema: Schema
    says: str
    example: str
