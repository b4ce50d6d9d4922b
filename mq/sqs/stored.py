"""How a message's typed attributes are kept: in headers that mq keeps, `X-Attribute-{name}`. Pure.

A text is the header's value, so that an attribute of one face of a queue is one of the other. Other
types, and values that a header cannot hold, are listed in a header of their own whose name no
attribute can have. Attributes that do not fit into the headers are in the message's body, a JSON
document with the sender's body: the header `X-Attribute-.whole` marks it.
"""

import base64
import contextlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from mq.model.errors import HeadersTooLarge
from mq.model.headers import GROUPED_BY, Headers, kept, with_own
from mq.model.names import Group
from mq.sqs.errors import SqsError
from mq.sqs.json_form import read, written
from mq.sqs.message_attributes import MESSAGE_BYTES_MAX, Attributes, check, check_text, size_of
from mq.sqs.shapes import DOCUMENT

# A message of 1 MiB, each byte escaped as JSON does.
DOCUMENT_BYTES_MAX: Final = 4 << 20
_PREFIX: Final = "X-Attribute-"
_TYPES: Final = _PREFIX + ".types"
SYSTEM: Final = _PREFIX + ".system"
_WHOLE: Final = _PREFIX + ".whole"
_TEXT: Final = "String"
_JSON: Final = "json"


class Stored(NamedTuple):
    """A message as mq keeps it."""

    headers: Headers
    body: bytes
    extension: str


def stored(
    body: bytes, attributes: Attributes, system: Mapping[str, str], group: Group | None
) -> Stored:
    """A sender's message, whose body is a text. Raises SqsError if its system attributes do not fit
    into the headers.
    """
    own = [] if not system else [(SYSTEM, json.dumps(system))]
    with contextlib.suppress(HeadersTooLarge):
        return Stored(_headers([*_fields(attributes), *own], group), body, "txt")
    document = written({"body": body.decode(), "attributes": attributes})
    try:
        return Stored(_headers([(_WHOLE, "1"), *own], group), document, "json")
    except HeadersTooLarge as error:
        raise SqsError(
            "InvalidParameterValueException",
            "One or more parameters are invalid. Reason: The message's system attributes must fit "
            f"into {error.bytes_max} bytes.",
        ) from None


def _headers(fields: Iterable[tuple[str, str]], group: Group | None) -> Headers:
    headers = kept(fields)
    return headers if group is None else with_own(headers, GROUPED_BY, group.text)


def _fields(attributes: Attributes) -> list[tuple[str, str]]:
    """The headers that keep attributes."""
    found: list[tuple[str, str]] = []
    types: dict[str, list[str]] = {}
    for name, value in attributes.items():
        kind, form, text = value["DataType"], "", ""
        if "BinaryValue" in value and kind.startswith("Binary"):
            text = base64.b64encode(value["BinaryValue"]).decode("ascii")
        else:
            text = value["StringValue"]
            if not text.isprintable() or text != text.strip() or not text.isascii():
                form, text = _JSON, json.dumps(text)
        if kind != _TEXT or form:
            types[name] = [kind, form] if form else [kind]
        found.append((_PREFIX + name, text))
    if types:
        found.append((_TYPES, json.dumps(types)))
    return found


def is_whole(headers: Iterable[tuple[str, str]]) -> bool:
    """Whether a message's body may be a document with its attributes. An HTTP client may have
    written the mark.
    """
    return any(name == _WHOLE for name, _ in headers)


def document_in(content: bytes) -> tuple[str, Attributes] | None:
    """The sender's body and attributes; None: the content is no document that `stored` writes."""
    try:
        found = read(content, DOCUMENT)
        body, attributes = found["body"], found["attributes"]
        check_text(body)
        check(attributes)
    except SqsError:
        return None
    is_small = len(body.encode()) + size_of(attributes) <= MESSAGE_BYTES_MAX
    return (body, attributes) if is_small else None


def attributes_in(
    headers: Iterable[tuple[str, str]],
) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """A message's attributes and its system attributes."""
    values: dict[str, str] = {}
    types: dict[str, Any] = {}
    system: dict[str, Any] = {}
    for name, value in headers:
        if not name.lower().startswith(_PREFIX.lower()):
            continue
        attribute = name[len(_PREFIX) :]
        if not attribute.startswith("."):
            values[attribute] = value
        elif name == _TYPES:
            types = _object(value)
        elif name == SYSTEM:
            system = _object(value)
    return (
        {name: _value(text, types.get(name)) for name, text in values.items()},
        {name: value for name, value in system.items() if isinstance(value, str)},
    )


def _value(text: str, types: object) -> dict[str, Any]:
    """An attribute's value. An HTTP client may have written the header: it is a text then."""
    try:
        match types:
            case [str(kind)] if kind.startswith("Binary"):
                return {"BinaryValue": base64.b64decode(text, validate=True), "DataType": kind}
            case [str(kind)]:
                return {"StringValue": text, "DataType": kind}
            case [str(kind), "json"] if isinstance(held := json.loads(text), str):
                return {"StringValue": held, "DataType": kind}
    except ValueError:
        pass
    return {"StringValue": text, "DataType": _TEXT}


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
