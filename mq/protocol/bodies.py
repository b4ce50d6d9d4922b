"""Bodies of requests: JSON objects, and lines that are messages. Pure."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, cast

from mq.model.errors import BadBody, MediaTypeUnknown
from mq.model.failure import EXPECTED, FAILURE_BYTES_MAX, NAMES, Failure
from mq.model.message import GivenBack
from mq.protocol.envelopes import DUE_IN_S_MAX
from mq.protocol.query import Choice, Schema

JSON_TYPES: Final = ("application/json", "application/merge-patch+json")
_DUE_EXPECTED: Final = (
    f'{{"due_in_s": seconds from 0 to {DUE_IN_S_MAX}}}, optionally with "release": true, or with '
    '"unhandled": true if due_in_s is 0 and If-Match names the delivery, and a release with a '
    '"reason"; no other member is known'
)
_REASON: Final = "reason"
_TEXTS: Final[dict[str, object]] = {
    name: {"type": "string", "maxLength": FAILURE_BYTES_MAX} for name in sorted(NAMES)
}
FAILURE: Final[Schema] = {
    "oneOf": [
        {"type": "string", "minLength": 1, "maxLength": FAILURE_BYTES_MAX},
        {
            "type": "object",
            "properties": _TEXTS,
            "additionalProperties": False,
            "anyOf": [
                {"properties": {name: {"minLength": 1}}, "required": [name]} for name in _TEXTS
            ],
        },
    ]
}
"""What a consumer says of its failure."""


def check_json(content_type: str) -> None:
    """Raises MediaTypeUnknown unless the media type, without parameters, is one of JSON."""
    if content_type not in JSON_TYPES:
        raise MediaTypeUnknown


def object_of(text: bytes) -> dict[str, Any]:
    """A body as a JSON object. Raises BadBody."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise BadBody("a JSON object") from None
    if not isinstance(found, dict):
        raise BadBody("a JSON object")
    return found


def failure_of(said: object) -> Failure:
    """What a consumer says of its failure. Raises BadBody."""
    try:
        return Failure.of(said)
    except ValueError:
        raise BadBody(f"a reason that is {EXPECTED}") from None


def sideline_of(said: dict[str, Any]) -> Failure | None:
    """What a request that sidelines a message says of the failure. Raises BadBody."""
    if not said.keys() <= {_REASON}:
        raise BadBody('{"reason": why}, with no other member')
    return failure_of(said[_REASON]) if _REASON in said else None


def due_in_s_of(
    said: dict[str, Any], if_match: Sequence[str]
) -> tuple[float, GivenBack, Failure | None]:
    """In how many seconds a message is due, whether its delivery is given back, and its failure: as
    unhandled only if it is ready at once, has not failed, and If-Match names the delivery, not `*`.
    Raises BadBody.
    """
    said = dict(said)
    failure = failure_of(said.pop(_REASON)) if _REASON in said else None
    due_in_s = said.get("due_in_s")
    unhandled, released = said.get("unhandled", False), said.get("release", False)
    is_number = isinstance(due_in_s, int | float) and not isinstance(due_in_s, bool)
    is_known = said.keys() <= {"due_in_s", "unhandled", "release"}
    is_known = is_known and isinstance(unhandled, bool) and isinstance(released, bool)
    if not is_known or not is_number or not 0 <= cast(float, due_in_s) <= DUE_IN_S_MAX:
        raise BadBody(_DUE_EXPECTED)
    if unhandled and (due_in_s or failure is not None):
        raise BadBody(_DUE_EXPECTED)
    if failure is not None and not released:
        raise BadBody(_DUE_EXPECTED)
    if unhandled and not any(each.strip() not in ("", "*") for each in if_match):
        raise BadBody(_DUE_EXPECTED)
    given = GivenBack.YES if released else GivenBack.NO
    given = GivenBack.UNHANDLED if unhandled else given
    return round(cast(float, due_in_s), 3), given, failure


def patch_of(said: dict[str, Any]) -> dict[str, object]:
    """A patch of settings. JSON has one kind of number: 9.0 is as whole as 9."""
    return {field: _number(value) for field, value in said.items()}


def _number(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value


# Lines between line feeds; one with only a carriage return is empty. The pattern skips empty lines,
# so that a body of nothing else takes no loop turn a line.
_LINE: Final = re.compile(rb"[^\r\n][^\n]*|\r[^\n]+")
_RETURN: Final = b"\r"

SPLIT: Final = Choice(
    "split",
    ("lines", "rows"),
    "Publish a batch: each line of the body is a message, or a JSON object that describes one.",
)


PACK: Final = Choice(
    "pack",
    ("true", "false"),
    "With `split`: store messages with equal attributes in shared files (packs), as far as the "
    "queue's `pack_messages_max` allows. A message with a key, group, tags or `ttl` has its own. "
    "With an Idempotency-Key the messages must be one pack, and are published together or not at "
    "all.",
    "false",
)


def lines_of(body: bytes | bytearray) -> Iterator[bytes]:
    """The lines of a body without their line ends. Empty lines are left out, and a final line feed
    begins none.
    """
    for match in _LINE.finditer(body):
        yield match.group().removesuffix(_RETURN)
