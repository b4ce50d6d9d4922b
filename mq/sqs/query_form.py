"""The Query form of SQS's protocol, for older SDKs: form parameters in, XML out. Pure."""

import base64
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

from mq.sqs.errors import SqsError, missing
from mq.sqs.json_form import blob, malformed
from mq.sqs.shapes import OPERATIONS, Fields, Many, Named, Shape

MEDIA_TYPE: Final = "text/xml"
NAMESPACE: Final = "http://queue.amazonaws.com/doc/2012-11-05/"
# Ten entries of ten attributes with four parameters each need some 500.
PARAMETERS_MAX: Final = 2000
# More than any name has. What follows stays in one part, which no operation knows.
PARTS_MAX: Final = 10
_ESCAPES: Final = {'"': "&quot;", "\r": "&#xD;"}
_NUMBER: Final = re.compile("[1-9][0-9]{0,3}")
_WHOLE: Final = re.compile("-?[0-9]{1,18}")
_FLAGS: Final = {"true": True, "false": False}

Tree = dict[str, Any]
"""Parameters by the parts of their names between dots; a leaf's text is at the key ""."""


def parameters(text: str) -> dict[str, str]:
    """The parameters of a form or of a URL's query. Raises SqsError for too many, or for bytes that
    are not UTF-8.
    """
    try:
        found = parse_qsl(
            text, keep_blank_values=True, errors="strict", max_num_fields=PARAMETERS_MAX
        )
    except ValueError:
        raise malformed(
            "The request has too many parameters, or some that are not UTF-8."
        ) from None
    return dict(found)


def read(operation: str, found: Mapping[str, str]) -> dict[str, Any]:
    """An operation's input. Unknown parameters are ignored. Raises SqsError."""
    return _fields(OPERATIONS[operation][0], _tree(found), "")


def _tree(found: Mapping[str, str]) -> Tree:
    tree: Tree = {}
    for name, value in found.items():
        at = tree
        for part in name.split(".", PARTS_MAX):
            at = at.setdefault(part, {})
        at[""] = value
    return tree


def _fields(shape: Fields, tree: Tree, where: str) -> dict[str, Any]:
    values = {}
    for name, each in shape.fields.items():
        value = _value(each, tree, name)
        if value is not None:
            values[name] = value
        elif name in shape.required:
            raise missing(f"{where}.{name}" if where else name)
    return values


def _value(shape: Shape, tree: Tree, name: str) -> Any:
    """The value of a field; None: absent."""
    if isinstance(shape, Many):
        return [_item(shape.of, each, name) for each in _numbered(tree, shape.name)] or None
    if isinstance(shape, Named):
        return dict(_pairs(shape, _numbered(tree, shape.name))) or None
    return _item(shape, tree[name], name) if name in tree else None


def _numbered(tree: Tree, name: str) -> list[Tree]:
    """A list's or a map's items, in the order of their numbers. SDKs differ in the plural, and in
    `member`.
    """
    found: Tree = tree.get(name) or tree.get(name + "s") or {}
    at: Tree = found.get("member", found)
    numbers = sorted((each for each in at if _NUMBER.fullmatch(each)), key=int)
    return [at[number] for number in numbers]


def _pairs(shape: Named, items: Iterable[Tree]) -> Iterable[tuple[str, Any]]:
    for item in items:
        key = item.get(shape.key, {}).get("")
        if key is None or shape.value not in item:
            raise missing(f"{shape.name}.{shape.key if key is None else shape.value}")
        yield key, _item(shape.of, item[shape.value], key)


def _item(shape: Shape, tree: Tree, name: str) -> Any:
    if isinstance(shape, Fields):
        return _fields(shape, tree, name)
    text = tree.get("")
    if shape == "text" and text is not None:
        return text
    if shape == "blob" and text is not None:
        return blob(text)
    if shape == "whole" and text is not None and _WHOLE.fullmatch(text):
        return int(text)
    if shape == "flag" and text in _FLAGS:
        return _FLAGS[text]
    raise malformed(f"The parameter {name} has another type than the operation takes.")


def written(operation: str, result: Mapping[str, object], request_id: str) -> bytes:
    """The body of a success."""
    output = OPERATIONS[operation][1]
    inner = _xml_fields(output, result)
    shown = f"<{operation}Result>{inner}</{operation}Result>" if output.fields else ""
    return _document(
        f'<{operation}Response xmlns="{NAMESPACE}">{shown}'
        f"<ResponseMetadata>{_element('RequestId', request_id)}</ResponseMetadata>"
        f"</{operation}Response>"
    )


def failed(error: SqsError, request_id: str) -> bytes:
    """The body of a failure."""
    fault = "Sender" if error.is_senders else "Receiver"
    return _document(
        f'<ErrorResponse xmlns="{NAMESPACE}"><Error>{_element("Type", fault)}'
        f"{_element('Code', error.query_code)}{_element('Message', error.message)}<Detail/></Error>"
        f"{_element('RequestId', request_id)}</ErrorResponse>"
    )


def _document(text: str) -> bytes:
    return f'<?xml version="1.0" encoding="UTF-8"?>{text}'.encode("utf-8", "xmlcharrefreplace")


def _xml_fields(shape: Fields, values: Mapping[str, Any]) -> str:
    return "".join(
        _xml(each, name, values[name]) for name, each in shape.fields.items() if name in values
    )


def _xml(shape: Shape, name: str, value: Any) -> str:
    if isinstance(shape, Many):
        return "".join(_xml(shape.of, shape.name, each) for each in value)
    if isinstance(shape, Named):
        return "".join(
            f"<{shape.name}>{_element(shape.key, key)}{_xml(shape.of, shape.value, each)}"
            f"</{shape.name}>"
            for key, each in value.items()
        )
    if isinstance(shape, Fields):
        return f"<{name}>{_xml_fields(shape, value)}</{name}>"
    if isinstance(value, bytes):
        value = base64.b64encode(value).decode("ascii")
    elif isinstance(value, bool):
        value = "true" if value else "false"
    return _element(name, str(value))


def _element(name: str, text: str) -> str:
    return f"<{name}>{escape(text, _ESCAPES)}</{name}>"
