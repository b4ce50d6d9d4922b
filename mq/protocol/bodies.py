"""JSON objects that requests carry, and what each is to say: pure."""

import json
from collections.abc import Sequence
from typing import Any, Final, cast

from mq.model.errors import BadBody, MediaTypeUnknown
from mq.model.limits import BATCH_MESSAGES_MAX, DUE_IN_S_MAX
from mq.model.message import GivenBack

JSON_TYPES: Final = ("application/json", "application/merge-patch+json")
_IDS_EXPECTED: Final = f'{{"ids": [1 to {BATCH_MESSAGES_MAX} ids]}}, and nothing else'
_DUE_EXPECTED: Final = (
    f'{{"due_in_s": seconds from 0 to {DUE_IN_S_MAX}}}, perhaps with "release": true, or, with 0, '
    '"unhandled": true, for which If-Match names the delivery, and nothing else'
)


def check_json(content_type: str) -> None:
    """Raises MediaTypeUnknown for a media type, without its parameters, that is none of JSON's."""
    if content_type not in JSON_TYPES:
        raise MediaTypeUnknown


def object_of(text: bytes) -> dict[str, Any]:
    """The JSON object that a body is. Raises BadBody."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise BadBody("a JSON object") from None
    if not isinstance(found, dict):
        raise BadBody("a JSON object")
    return found


def ids_of(said: dict[str, Any]) -> list[str]:
    """The ids that are to be acknowledged. Raises BadBody."""
    ids = said.get("ids")
    if len(said) != 1 or not isinstance(ids, list) or not 1 <= len(ids) <= BATCH_MESSAGES_MAX:
        raise BadBody(_IDS_EXPECTED)
    if not all(isinstance(each, str) for each in ids):
        raise BadBody(_IDS_EXPECTED)
    return ids


def due_in_s_of(said: dict[str, Any], if_match: Sequence[str]) -> tuple[float, GivenBack]:
    """In how many seconds a message is to be due, and whether its delivery is given back; unhandled
    is only what is ready at once, and only where the request names the delivery, not `*`. Raises
    BadBody.
    """
    due_in_s = said.get("due_in_s")
    unhandled, released = said.get("unhandled", False), said.get("release", False)
    is_number = isinstance(due_in_s, int | float) and not isinstance(due_in_s, bool)
    is_known = said.keys() <= {"due_in_s", "unhandled", "release"}
    is_known = is_known and isinstance(unhandled, bool) and isinstance(released, bool)
    if not is_known or not is_number or not 0 <= cast(float, due_in_s) <= DUE_IN_S_MAX:
        raise BadBody(_DUE_EXPECTED)
    if unhandled and due_in_s:
        raise BadBody(_DUE_EXPECTED)
    if unhandled and not any(each.strip() not in ("", "*") for each in if_match):
        raise BadBody(_DUE_EXPECTED)
    given = GivenBack.YES if released else GivenBack.NO
    return round(cast(float, due_in_s), 3), GivenBack.UNHANDLED if unhandled else given


def patch_of(said: dict[str, Any]) -> dict[str, object]:
    """A patch of settings. JSON has one kind of number: 9.0 is whole, as 9 is."""
    return {field: _number(value) for field, value in said.items()}


def _number(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value
