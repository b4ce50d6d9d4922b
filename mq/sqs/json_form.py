"""The JSON form of SQS's protocol (AWS JSON 1.0): requests to values, results to bodies. Pure."""

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any, Final

from mq.sqs.errors import SqsError, missing
from mq.sqs.shapes import Fields, Many, Named, Shape

MEDIA_TYPE: Final = "application/x-amz-json-1.0"
TARGET: Final = "AmazonSQS."
"""How the header X-Amz-Target begins; the operation's name follows."""


def malformed(message: str) -> SqsError:
    """A request that is not of the form that its operation has."""
    return SqsError("SerializationException", message)


def read(body: bytes, shape: Fields) -> dict[str, Any]:
    """An operation's input. Fields that it does not have are ignored, as AWS does. Raises SqsError
    for another form, and for a required field that is not there.
    """
    try:
        found = _parsed(body.decode("utf-8", "surrogatepass") or "{}")
    except (ValueError, RecursionError):
        raise malformed("The request's body is not JSON.") from None
    values = _taken(shape, found, "")
    if not isinstance(values, dict):
        raise malformed("The request's body is not a JSON object.")
    return values


def _taken(shape: Shape, found: object, where: str) -> Any:
    if isinstance(shape, Fields) and isinstance(found, dict):
        return checked(shape, found, where)
    if isinstance(shape, Many) and isinstance(found, list):
        return [_taken(shape.of, each, where) for each in found]
    if isinstance(shape, Named) and isinstance(found, dict):
        return {name: _taken(shape.of, each, name) for name, each in found.items()}
    if shape == "whole" and isinstance(found, int) and not isinstance(found, bool):
        return found
    if shape == "flag" and isinstance(found, bool):
        return found
    if shape in ("text", "blob") and isinstance(found, str):
        return found if shape == "text" else blob(found)
    raise malformed(f"The parameter {where} has another type than {_type(shape)}.")


def checked(shape: Fields, found: Mapping[str, object], where: str = "") -> dict[str, Any]:
    """The fields of a structure. A null is an absent field."""
    values, fields = {}, shape.fields
    for name, value in found.items():
        of = fields.get(name)
        if of is not None and value is not None:
            is_text = of == "text" and isinstance(value, str)
            values[name] = value if is_text else _taken(of, value, name)
    if not shape.required <= values.keys():
        name = next(name for name in fields if name in shape.required and name not in values)
        raise missing(name if not where else f"{where}.{name}")
    return values


def _type(shape: Shape) -> str:
    if isinstance(shape, Many):
        return "a list"
    if isinstance(shape, Named | Fields):
        return "an object"
    return {"text": "a text", "whole": "an integer", "flag": "a boolean", "blob": "a text"}[shape]


def blob(text: str) -> bytes:
    """The bytes of a base64 text. Raises SqsError."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise malformed("A binary value is not base64.") from None


def written(result: Mapping[str, object]) -> bytes:
    """The body of a success. Bytes become base64; a lone surrogate stays escaped."""
    return _printed(result).encode("ascii")


def _base64(value: object) -> str:
    if not isinstance(value, bytes):
        raise TypeError(f"{type(value).__name__} has no JSON")
    return base64.b64encode(value).decode("ascii")


# Each request parses and prints.
_parsed: Final = json.JSONDecoder().decode
_printed: Final = json.JSONEncoder(default=_base64).encode


def failed(error: SqsError) -> tuple[dict[str, str], bytes]:
    """The headers and the body of a failure. SDKs take the kind of exception from both."""
    fault = "Sender" if error.is_senders else "Receiver"
    headers = {"x-amzn-query-error": f"{error.query_code};{fault}"}
    content = {"__type": error.json_type, "message": error.message}
    return headers, json.dumps(content).encode("ascii")
