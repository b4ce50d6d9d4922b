"""The query parameters and headers that requests may have, each said once: what reads its value is
also what says in `/-/openapi.json` which values it takes. Pure.

Each `of` raises BadParameter for what the schema beside it does not allow.
"""

import math
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

from mq.model.errors import BadName, BadParameter
from mq.model.limits import KEY_WRITTEN_BYTES_MAX, SELECT_CHARS_MAX
from mq.model.names import Key, MessageId, QueueName
from mq.model.selection import KINDS, Selection
from mq.protocol import parameters
from mq.protocol.parameters import Query

Schema: TypeAlias = dict[str, Any]
"""A JSON Schema, 2020-12, as OpenAPI 3.1 has them."""

KEY_SCHEMA: Final[Schema] = {
    "type": "string",
    "minLength": 1,
    "maxLength": KEY_WRITTEN_BYTES_MAX,
    "pattern": r"^[^\u0000-\u001f\u007f]+$",
}
"""A key as it is said. What it takes in a name's written form is bounded, which JSON Schema cannot
say of a text that has other characters than letters and digits.
"""

_MILLISECOND: Final = 0.001


class Parameter(Protocol):
    """A query parameter of a request."""

    @property
    def name(self) -> str:
        """As it stands in the query."""

    @property
    def says(self) -> str:
        """What it is for, in a sentence."""

    @property
    def schema(self) -> Schema:
        """Which values it takes."""


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number between these; where it is left out it counts as `default`."""

    name: str
    least: int
    most: int
    says: str
    default: int | None = None

    def of(self, query: Query) -> int | None:
        """What a query says, None where it says nothing of it."""
        return parameters.whole(query, self.name, self.least, self.most)

    @property
    def schema(self) -> Schema:
        """Which values it takes."""
        schema: Schema = {"type": "integer", "minimum": self.least, "maximum": self.most}
        return schema if self.default is None else {**schema, "default": self.default}


@dataclass(frozen=True, slots=True)
class Seconds:
    """Seconds between these, to the millisecond."""

    name: str
    least: float
    most: float
    says: str

    def of(self, query: Query) -> float | None:
        """What a query says, None where it says nothing of it."""
        return parameters.seconds(query, self.name, self.least, self.most)

    @property
    def schema(self) -> Schema:
        """Which values it takes."""
        schema: Schema = {"type": "number", "minimum": self.least, "multipleOf": _MILLISECOND}
        return schema if math.isinf(self.most) else {**schema, "maximum": self.most}


@dataclass(frozen=True, slots=True)
class Time:
    """A moment, as RFC 3339 writes it."""

    name: str
    says: str

    def of(self, query: Query) -> int | None:
        """What a query says, in milliseconds since the epoch; None where it says nothing of it."""
        return parameters.time_ms(query, self.name)

    @property
    def schema(self) -> Schema:
        """Which values it takes."""
        return {"type": "string", "format": "date-time"}


@dataclass(frozen=True, slots=True)
class KeyText:
    """A key of a message."""

    name: str
    says: str

    def of(self, query: Query) -> Key | None:
        """What a query says, None where it says nothing of it."""
        return parameters.key(parameters.one(query, self.name), self.name)

    @property
    def schema(self) -> Schema:
        """Which values it takes."""
        return KEY_SCHEMA


@dataclass(frozen=True, slots=True)
class Choice:
    """One of some words."""

    name: str
    words: tuple[str, ...]
    says: str
    default: str | None = None

    def of(self, query: Query) -> str | None:
        """What a query says, None where it says nothing of it."""
        word = parameters.one(query, self.name)
        if word is not None and word not in self.words:
            raise BadParameter(self.name, " or ".join(self.words))
        return word

    @property
    def schema(self) -> Schema:
        """Which values it takes."""
        schema: Schema = {"type": "string", "enum": list(self.words)}
        return schema if self.default is None else {**schema, "default": self.default}


@dataclass(frozen=True, slots=True)
class Choices:
    """Some of some words, each at most once, with commas between."""

    name: str
    words: tuple[str, ...]
    says: str
    default: tuple[str, ...]

    def of(self, query: Query) -> tuple[str, ...]:
        """What a query says, and the default where it says nothing of it."""
        text = parameters.one(query, self.name)
        if text is None:
            return self.default
        said = tuple(text.split(","))
        if len(set(said)) < len(said) or not set(said) <= set(self.words):
            raise BadParameter(self.name, f"some of {','.join(self.words)}, each once")
        return said

    @property
    def schema(self) -> Schema:
        """Which values it takes."""
        return {
            "type": "array",
            "items": {"type": "string", "enum": list(self.words)},
            "minItems": 1,
            "uniqueItems": True,
            "default": list(self.default),
        }


@dataclass(frozen=True, slots=True)
class Id:
    """A message's id."""

    name: str
    says: str

    def of(self, query: Query) -> MessageId | None:
        """What a query says, None where it says nothing of it."""
        text = parameters.one(query, self.name)
        try:
            return None if text is None else MessageId.parse(text)
        except BadName as error:
            raise BadParameter(self.name, f"an id, {error.expected}") from None

    @property
    def schema(self) -> Schema:
        """Which values it takes."""
        return {"$ref": "#/components/schemas/MessageId"}


@dataclass(frozen=True, slots=True)
class Name:
    """A queue's name."""

    name: str
    says: str

    def of(self, query: Query) -> QueueName | None:
        """What a query says, None where it says nothing of it."""
        text = parameters.one(query, self.name)
        try:
            return None if text is None else QueueName.parse(text)
        except BadName as error:
            raise BadParameter(self.name, f"a queue's name, {error.expected}") from None

    @property
    def schema(self) -> Schema:
        """Which values it takes."""
        return {"$ref": "#/components/schemas/QueueName"}


@dataclass(frozen=True, slots=True)
class Text:
    """A text whose parser is somewhere below: what that takes is said by `schema`."""

    name: str
    schema: Schema
    says: str
    example: str = ""

    def of(self, query: Query) -> str | None:
        """What a query says, None where it says nothing of it."""
        return parameters.one(query, self.name)


@dataclass(frozen=True, slots=True)
class Terms:
    """A selection's terms, with commas between; they may be said in several values too."""

    name: str
    says: str
    example: str = "priority:5..,key:eu-*"

    def of(self, query: Query) -> Selection | None:
        """What a query says, None where it says nothing of it."""
        texts = query.getall(self.name, [])
        return Selection.parse(*texts) if texts else None

    @property
    def schema(self) -> Schema:
        """Which values it takes."""
        # Which values a term takes, and how often it stands there, its parser says.
        return {
            "type": "string",
            "pattern": f"^(?:{'|'.join(KINDS)}):",
            "maxLength": SELECT_CHARS_MAX,
            "examples": [self.example],
        }


@dataclass(frozen=True, slots=True)
class Header:
    """A header of a request that means something there."""

    name: str
    schema: Schema
    says: str
    example: str
