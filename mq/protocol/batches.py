"""Rows of requests that are about many messages: what each publishes, or settles. Pure."""

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from multidict import CIMultiDict, MultiDict

from mq.model.errors import BadBody, BadParameter, BodyTooLarge, UnknownField
from mq.model.failure import Failure
from mq.model.headers import is_kept_name
from mq.model.limits import BATCH_MESSAGES_MAX, RECEIVES_MAX, ROW_BYTES_MAX
from mq.model.message import Posted, Reason
from mq.protocol.bodies import FAILURE
from mq.protocol.envelopes import (
    ATTRIBUTES,
    DUE_IN_S_MAX,
    IDEMPOTENCY,
    IDEMPOTENCY_HEADER,
    envelope_of,
)
from mq.protocol.parameters import Fields, Query
from mq.protocol.query import Parameter, Schema
from mq.protocol.sidelines import why_of

_ROW: Final = (
    "JSON lines, each an object with exactly one of body (text), body_base64 (RFC 4648, with "
    "padding) and json"
)
_TEXT_TYPE: Final = "text/plain"
_JSON_TYPE: Final = "application/json"
_TRACE: Final = ("traceparent", "tracestate")


def row_properties() -> dict[str, Schema]:
    """The schemas of a row's fields, by their names."""
    text: Schema = {"type": "string"}
    return {
        "body": text,
        "body_base64": {"type": "string", "contentEncoding": "base64"},
        "json": {},
        **{name: parameter.schema for name, parameter in ATTRIBUTES.items()},
        "content_type": text,
        "headers": {"type": "object", "additionalProperties": text},
        "idempotency_key": IDEMPOTENCY.schema,
    }


ROW_FIELDS: Final = tuple(row_properties())


def check_rows(query: Query, headers: Fields, in_packs: bool = False) -> None:
    """Raises BadParameter for an attribute beside the rows, which each say their own. `in_packs`:
    they may have an idempotency key together.
    """
    for parameter in ATTRIBUTES.values():
        if query.getall(parameter.name, []):
            raise BadParameter(
                parameter.name, "left out with split=rows, since each row has its own"
            )
    if headers.getall(IDEMPOTENCY_HEADER, []) and not in_packs:
        raise BadParameter(
            IDEMPOTENCY_HEADER.lower(),
            "left out with split=rows, since each row has its own, or given with pack=true",
        )
    for name in dict(headers.items()):
        if is_kept_name(name.lower()) and name.lower() not in _TRACE:
            raise BadParameter("headers", "in the rows, of which each has its own")


def posted(line: bytes, now_ms: int) -> Posted:
    """The message of a row that came at `now_ms`. Raises BodyTooLarge, BadBody, UnknownField, and
    what `envelope_of` does.
    """
    if len(line) > ROW_BYTES_MAX:
        raise BodyTooLarge(ROW_BYTES_MAX)
    try:
        said = json.loads(line, parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise BadBody(_ROW) from None
    if not isinstance(said, dict):
        raise BadBody(_ROW)
    for name in said:
        if name not in ROW_FIELDS:
            raise UnknownField(name, ROW_FIELDS)
    body, default_type = _body(said)
    query = MultiDict(
        (parameter.name, text)
        for name, parameter in ATTRIBUTES.items()
        if (value := said.get(name)) is not None
        for text in _texts(parameter, value)
    )
    headers = _headers(said.get("headers"))
    content_type = _text(said, "content_type")
    headers["Content-Type"] = default_type if content_type is None else content_type
    key = _text(said, "idempotency_key")
    if key is not None:
        # In quotes, so that any of its own are part of it.
        headers[IDEMPOTENCY_HEADER] = f'"{key}"'
    return Posted(envelope_of(query, headers, now_ms), body)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


def _body(said: Mapping[str, Any]) -> tuple[bytes, str]:
    """The row's body, and its Content-Type unless the row says another."""
    given = [name for name in ("body", "body_base64") if said.get(name) is not None]
    if len(given) + ("json" in said) != 1:
        raise BadBody(_ROW)
    try:
        if not given:
            # RFC 8259 has no infinite numbers; 1e999 is one to Python.
            found = json.dumps(
                said["json"], ensure_ascii=False, allow_nan=False, separators=(",", ":")
            )
            return found.encode(), _JSON_TYPE
        text = said[given[0]]
        if not isinstance(text, str):
            raise BadBody(_ROW)
        if given == ["body"]:
            return text.encode(), _TEXT_TYPE
        return base64.b64decode(text, validate=True), ""
    except ValueError:  # Half a surrogate pair, or no base64.
        raise BadBody(_ROW) from None


def _texts(parameter: Parameter, value: object) -> Sequence[str]:
    """A field's value as the publish's query has it; more than one of a list."""
    kind = parameter.schema.get("type")
    if kind == "array":
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise BadParameter(parameter.name, "a list of texts")
        return value
    if kind not in ("integer", "number"):
        if not isinstance(value, str):
            raise BadParameter(parameter.name, "text")
        return (value,)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return (json.dumps(value),)  # No number: the parameter's own refusal says its bounds.
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return (format(value, "f") if "e" in repr(value) else repr(value),)


def _text(said: Mapping[str, Any], name: str) -> str | None:
    value = said.get(name)
    if value is not None and not isinstance(value, str):
        raise BadParameter("headers" if name == "content_type" else "idempotency-key", "text")
    return value


def _headers(said: object) -> CIMultiDict[str]:
    headers: CIMultiDict[str] = CIMultiDict()
    if said is None:
        return headers
    if not isinstance(said, dict):
        raise BadParameter("headers", "an object of texts by the names of headers")
    for name, value in said.items():
        if not isinstance(value, str) or not is_kept_name(name.lower()):
            raise BadParameter(
                "headers",
                "an object of texts by the names of headers that a message keeps: ce-*, "
                "x-attribute-*, traceparent, tracestate, content-encoding",
            )
        headers.add(name, value)
    return headers


_RECEIVES: Final[Schema] = {"type": "integer", "minimum": 0, "maximum": RECEIVES_MAX}
ACKED: Final[Mapping[str, Schema]] = {"id": {"type": "string"}, "receives": _RECEIVES}
"""The fields of a message that is to be deleted, by their names."""
EXTENDED: Final[Mapping[str, Schema]] = {
    **ACKED,
    "due_in_s": {"type": "number", "minimum": 0, "maximum": DUE_IN_S_MAX},
}
RELEASED: Final[Mapping[str, Schema]] = {
    **EXTENDED,
    "unhandled": {"const": True},
    "reason": FAILURE,
}
# A word of a sidelining request's `reason`, too.
SIDELINED: Final[Mapping[str, Schema]] = {**ACKED, "reason": FAILURE}


@dataclass(frozen=True, slots=True)
class Settlement:
    """What a request that settles many messages says of one. `receives`: the delivery that it is
    about; None: whichever.
    """

    id: str
    receives: int | None = None
    due_in_s: float = 0.0
    unhandled: bool = False
    reason: Reason = Reason.REJECTED
    failure: Failure | None = None


def settlements_of(
    said: Mapping[str, Any], fields: Mapping[str, Schema], *needed: str
) -> list[Settlement]:
    """What a body says of each message, in order: `{"messages": [...]}` of objects with these
    fields, an id and those that are `needed` among them; to acknowledge also `{"ids": [...]}`.
    Raises BadBody, BadParameter, UnknownField.
    """
    name = "ids" if fields is ACKED and "ids" in said else "messages"
    rows = said.get(name)
    if len(said) != 1 or not isinstance(rows, list) or not 1 <= len(rows) <= BATCH_MESSAGES_MAX:
        raise _unsettled(fields)
    if name == "ids":
        rows = [{"id": each} for each in rows]
    found = [_settlement(row, fields, needed) for row in rows]
    if len({each.id for each in found}) < len(set(found)):
        raise BadBody("about each message in one way: an id occurs with different fields")
    return found


def _unsettled(fields: Mapping[str, Schema]) -> BadBody:
    ids = f'{{"ids": [1 to {BATCH_MESSAGES_MAX} message ids]}} or ' if fields is ACKED else ""
    return BadBody(
        f'{ids}{{"messages": [1 to {BATCH_MESSAGES_MAX} objects]}} with no other member; '
        f"the fields of an object: {', '.join(fields)}"
    )


def _settlement(row: object, fields: Mapping[str, Schema], needed: Sequence[str]) -> Settlement:
    if not isinstance(row, dict):
        raise _unsettled(fields)
    for name in row:
        if name not in fields:
            raise UnknownField(name, fields)
    receives, due_in_s = row.get("receives"), row.get("due_in_s", 0.0)
    if not isinstance(row.get("id"), str) or not all(name in row for name in needed):
        raise _unsettled(fields)
    if "receives" in row and not _is_within(receives, RECEIVES_MAX, is_whole=True):
        raise BadBody(f"with receives that are a whole number from 0 to {RECEIVES_MAX}")
    if not _is_within(due_in_s, DUE_IN_S_MAX):
        raise BadBody(f"with due_in_s in seconds from 0 to {DUE_IN_S_MAX}")
    unhandled = "unhandled" in row
    if unhandled and (row["unhandled"] is not True or receives is None or "due_in_s" in row):
        raise BadBody("with unhandled, if it is there, true, with receives and without due_in_s")
    if unhandled and "reason" in row:
        raise BadBody("with unhandled or with a reason")
    whole = None if receives is None else int(receives)
    due_in_s = round(due_in_s, 3)
    reason, failure = why_of(row, is_sidelined=fields is SIDELINED)
    return Settlement(row["id"], whole, due_in_s, unhandled, reason, failure)


def _is_within(value: object, most: int, *, is_whole: bool = False) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= most:
        return False
    return not is_whole or float(value).is_integer()
