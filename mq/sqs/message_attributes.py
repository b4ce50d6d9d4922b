"""A message's typed attributes: their checks, their digest, and the choice of a receive. Pure.

A value is SQS's structure: `DataType` with `StringValue` or `BinaryValue`.
"""

import hashlib
import re
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from mq.sqs.errors import SqsError

Attributes: TypeAlias = Mapping[str, Mapping[str, Any]]

ATTRIBUTES_MAX: Final = 10
NAME_CHARS_MAX: Final = 256
TYPE_CHARS_MAX: Final = 256
MESSAGE_BYTES_MAX: Final = 1 << 20
"""A message with its attributes, and a batch of messages."""
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]+")
_RESERVED: Final = ("aws.", "amazon.")
_TYPE: Final = re.compile(r"(String|Number|Binary)(\..+)?", re.DOTALL)
# XML 1.0's characters.
_OUTSIDE: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NUMBER: Final = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_STRING: Final = 1
_BINARY: Final = 2


def check_text(text: str) -> None:
    """Raises SqsError for characters that XML does not have."""
    if _OUTSIDE.search(text):
        raise SqsError(
            "InvalidMessageContents",
            "Invalid characters found. Valid unicode characters are #x9 | #xA | #xD | #x20 to "
            "#xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF",
        )


def check(attributes: Attributes) -> None:
    """Raises SqsError for attributes that SQS refuses."""
    if len(attributes) > ATTRIBUTES_MAX:
        raise _bad(f"Number of message attributes [{len(attributes)}] exceeds the allowed maximum "
                   f"[{ATTRIBUTES_MAX}].")  # fmt: skip
    for name, value in attributes.items():
        _check_name(name)
        _check_value(name, value)


def _check_name(name: str) -> None:
    if len(name) > NAME_CHARS_MAX:
        raise _bad(f"Length of message attribute name must be less than {NAME_CHARS_MAX} bytes.")
    if (
        _NAME.fullmatch(name) is None
        or name.startswith(".")
        or name.endswith(".")
        or ".." in name
        or name.lower().startswith(_RESERVED)
    ):
        raise _bad(
            f"The message attribute name '{name}' is invalid. Attribute name can contain A-Z, a-z, "
            "0-9, underscore (_), hyphen (-), and period (.) characters."
        )


def _check_value(name: str, value: Mapping[str, Any]) -> None:
    kind = value["DataType"]
    if not kind:
        raise _bad(f"The message attribute '{name}' must contain non-empty message attribute type.")
    found = _TYPE.fullmatch(kind)
    if found is None:
        raise _bad(f"The message attribute '{name}' has an invalid message attribute type, the set "
                   "of supported type prefixes is Binary, Number, and String.")  # fmt: skip
    check_text(kind)
    if len(kind) > TYPE_CHARS_MAX:
        raise _bad(f"Length of message attribute type must be less than {TYPE_CHARS_MAX} bytes.")
    for unsupported in ("StringListValues", "BinaryListValues"):
        if value.get(unsupported):
            raise SqsError(
                "UnsupportedOperation",
                f"Message attribute list values in SendMessage operation are not supported: "
                f"'{name}'.",
            )
    field = "BinaryValue" if found[1] == "Binary" else "StringValue"
    held = value.get(field)
    if not held:
        raise _bad(f"Message (user) attribute '{name}' must contain a non-empty value of type "
                   f"'{found[1]}'.")  # fmt: skip
    if field == "StringValue":
        check_text(held)
    if found[1] == "Number" and _NUMBER.fullmatch(held) is None:
        raise _bad(f"Can't cast the value of message (user) attribute '{name}' to a number.")


def _bad(message: str) -> SqsError:
    return SqsError("InvalidParameterValueException", message)


def value_of(value: Mapping[str, Any]) -> bytes:
    """An attribute's value, in bytes."""
    if "BinaryValue" in value and value["DataType"].startswith("Binary"):
        held: bytes = value["BinaryValue"]
        return held
    return str(value.get("StringValue", "")).encode("utf-8", "surrogatepass")


def size_of(attributes: Attributes) -> int:
    """The bytes that attributes count towards their message's limit."""
    return sum(
        len((name + value["DataType"]).encode("utf-8", "surrogatepass")) + len(value_of(value))
        for name, value in attributes.items()
    )


def digest(attributes: Attributes) -> str:
    """The MD5 that SDKs compare: of names, types and values, each behind its length."""
    found = hashlib.md5(usedforsecurity=False)
    for name in sorted(attributes):
        value = attributes[name]
        for part in (name.encode(), value["DataType"].encode()):
            found.update(struct.pack(">I", len(part)) + part)
        held = value_of(value)
        kind = _BINARY if value["DataType"].startswith("Binary") else _STRING
        found.update(struct.pack(">BI", kind, len(held)) + held)
    return found.hexdigest()


def text_digest(text: str) -> str:
    """The MD5 of a body."""
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def chosen(attributes: Attributes, names: Sequence[str]) -> Attributes:
    """The attributes that a receive asks for: by name, by `prefix.*`, or all."""
    if "All" in names or ".*" in names:
        return attributes
    exact = set(names)
    prefixes = tuple(each[:-2] for each in names if each.endswith(".*"))
    return {
        name: value
        for name, value in attributes.items()
        if name in exact or name.startswith(prefixes)
    }
