"""What a publish's query and headers say of its message: an envelope. Pure."""

from typing import Final

from multidict import CIMultiDictProxy

from mq.errors import BadParameter
from mq.headers import kept
from mq.http import parameters
from mq.http.parameters import Query
from mq.limits import PRIORITY_MAX, PUBLISHED_MS_MAX, VISIBILITY_S_MAX
from mq.message import Envelope
from mq.names import Key, extension_for

PUBLISH_PARAMETERS: Final = frozenset({"delay", "at", "priority", "key", "visibility"})
IDEMPOTENCY_HEADER: Final = "Idempotency-Key"


def envelope_of(query: Query, headers: "CIMultiDictProxy[str]", now_ms: int) -> Envelope:
    """The envelope of a publish that came at `now_ms`. Raises BadParameter, HeadersTooLarge."""
    return Envelope(
        extension=extension_for(headers.get("Content-Type", "")),
        priority=parameters.whole(query, "priority", 0, PRIORITY_MAX),
        key=parameters.key(parameters.one(query, "key"), "key"),
        visibility_s=parameters.whole(query, "visibility", 1, VISIBILITY_S_MAX),
        due_ms=_due_ms(query, now_ms),
        headers=kept(headers.items()),
        idempotency=_idempotency(headers.getall(IDEMPOTENCY_HEADER, [])),
    )


def _due_ms(query: Query, now_ms: int) -> int | None:
    at_ms = parameters.time_ms(query, "at")
    delay_s = parameters.seconds(query, "delay", 0)
    if at_ms is not None:
        if delay_s is not None:
            raise BadParameter("delay", "left out where there is an at")
        if at_ms <= now_ms:
            raise BadParameter("at", "a time to come")
        return at_ms
    if delay_s is None:
        return None
    due_ms = now_ms + round(delay_s * 1000)
    if due_ms > PUBLISHED_MS_MAX:
        raise BadParameter("delay", "seconds that end before the year 10000")
    return due_ms


def _idempotency(values: list[str]) -> Key | None:
    """The header's value, with or without the quotes of a structured field (RFC 8941)."""
    if not values:
        return None
    if len(values) > 1:
        raise BadParameter("idempotency-key", "one value")
    text = values[0].strip()
    if len(text) >= 2 and text[0] == text[-1] == '"':
        text = text[1:-1]
    return parameters.key(text, "idempotency-key")
