"""The words of the schemas: JSON Schemas of values, lists and objects, in one short form each.

A member whose name ends with a question mark is one that an object may lack.
"""

from collections.abc import Iterable, Mapping
from dataclasses import fields
from types import UnionType
from typing import Any, Final, get_args, get_type_hints

from mq.model.limits import BATCH_MESSAGES_MAX, RECEIVES_MAX
from mq.model.message import Reason
from mq.protocol.fetching import STATES
from mq.protocol.query import Schema, reference

_TYPES: Final[dict[type, Schema]] = {
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
}
_OPTIONAL: Final = "?"

TIME: Final[Schema] = {"type": "string", "format": "date-time"}
COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
NUMBER: Final[Schema] = {"type": "number", "minimum": 0}
TEXT: Final[Schema] = {"type": "string"}
TRUTH: Final[Schema] = {"type": "boolean"}
NO_VALUE: Final[Schema] = {"type": "null"}


def of_type(annotation: Any) -> Schema:
    """The JSON schema of a field's type."""
    if isinstance(annotation, UnionType):
        return {"anyOf": [of_type(each) for each in get_args(annotation)]}
    return dict(_TYPES[annotation])


def of_dataclass(kind: type) -> dict[str, Schema]:
    """The schemas of a dataclass's fields, by their names."""
    hints = get_type_hints(kind)
    return {each.name: of_type(hints[each.name]) for each in fields(kind)}


def opened(members: Mapping[str, Schema]) -> Schema:
    """An object with these members and perhaps others, for answers."""
    return {
        "type": "object",
        "properties": {name.removesuffix(_OPTIONAL): each for name, each in members.items()},
        "required": [name for name in members if not name.endswith(_OPTIONAL)],
    }


def closed(members: Mapping[str, Schema]) -> Schema:
    """An object with only these members, for requests."""
    return {**opened(members), "additionalProperties": False}


def perhaps(members: Mapping[str, Schema], needed: Iterable[str] = ()) -> dict[str, Schema]:
    """The members as those that an object may lack, but for the `needed` ones."""
    kept = set(needed)
    return {name if name in kept else f"{name}{_OPTIONAL}": each for name, each in members.items()}


def listed(items: Schema, most: int | None = None) -> Schema:
    """A list in an answer, with `most` items at most."""
    made = {"type": "array", "items": items}
    return made if most is None else {**made, "maxItems": most}


def some(items: Schema, most: int = BATCH_MESSAGES_MAX, least: int = 1) -> Schema:
    """A list in a request."""
    return {"type": "array", "items": items, "minItems": least, "maxItems": most}


def whole(least: int, most: int) -> Schema:
    return {"type": "integer", "minimum": least, "maximum": most}


def word(words: Iterable[str]) -> Schema:
    """One of these words."""
    return {"type": "string", "enum": list(words)}


def mapping(values: Schema, **bounds: Any) -> Schema:
    """An object whose names are data."""
    return {"type": "object", "additionalProperties": values, **bounds}


def or_null(schema: Schema) -> Schema:
    if "enum" in schema:
        found = {name: value for name, value in schema.items() if name != "type"}
        return {**found, "enum": [*schema["enum"], None]}
    if "type" not in schema:
        return {"anyOf": [schema, NO_VALUE]}
    return {**schema, "type": [schema["type"], "null"]}


ID: Final = reference("MessageId")
QUEUE: Final = reference("QueueName")
UUID: Final[Schema] = {"type": "string", "format": "uuid"}
BASE64: Final[Schema] = {"type": "string", "contentEncoding": "base64"}
HEADERS: Final = mapping(TEXT)
RECEIVES: Final[Schema] = {**COUNT, "maximum": RECEIVES_MAX}
STATE: Final = word(STATES)
REASON: Final = word(reason.name.lower() for reason in Reason)
