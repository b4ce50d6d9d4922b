"""What a publish's query and headers say of its message: an envelope. Pure."""

import re
from typing import Final

from mq.model.errors import BadParameter
from mq.model.headers import is_beginning, kept
from mq.model.limits import DUE_IN_S_MAX, PRIORITY_MAX, VISIBILITY_S_MAX
from mq.model.message import Envelope
from mq.model.names import Key, extension_for
from mq.protocol import parameters
from mq.protocol.parameters import Fields, Query
from mq.protocol.query import KEY_SCHEMA, Header, KeyText, Seconds, Time, Whole

DELAY: Final = Seconds(
    "delay", 0, DUE_IN_S_MAX, "In how many seconds the message is ready; 0 is at once."
)
AT: Final = Time("at", "When the message is ready, a time to come. Not with `delay`.")
PRIORITY: Final = Whole(
    "priority", 0, PRIORITY_MAX, "The highest comes first; left out, the queue's default."
)
KEY: Final = KeyText("key", "A lookup key, which no other living message of the queue has.")
VISIBILITY: Final = Whole(
    "visibility", 1, VISIBILITY_S_MAX,
    "For how many seconds the message is its fetcher's; left out, as the queue says.",
)  # fmt: skip
IDEMPOTENCY: Final = Header(
    "Idempotency-Key", KEY_SCHEMA,
    "Publishes to one queue with one such key are one publish, and are answered as the first was. "
    "The value may stand in quotes.",
    example="42",
)  # fmt: skip
# Of RFC 9110, section 8.3.1; what its parameters are is their readers' concern.
_WORD: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_MEDIA_TYPE: Final = re.compile(rf"[\t ]*{_WORD}/{_WORD}[\t ]*(?:;|$)")
IDEMPOTENCY_HEADER: Final = IDEMPOTENCY.name


def envelope_of(query: Query, headers: Fields, now_ms: int) -> Envelope:
    """The envelope of a publish that came at `now_ms`. Raises BadParameter, HeadersTooLarge."""
    content_type = media_type_of(headers)
    return Envelope(
        extension=extension_for(content_type),
        priority=PRIORITY.of(query),
        key=KEY.of(query),
        visibility_s=VISIBILITY.of(query),
        due_ms=_due_ms(query, now_ms),
        headers=kept(headers.items()),
        idempotency=_idempotency(headers.getall(IDEMPOTENCY_HEADER, [])),
    )


def media_type_of(headers: Fields) -> str:
    """The Content-Type of what a message is to be, "" where there is none. Raises BadParameter for
    one that is no media type, and for a header without a name after its beginning.
    """
    if any(is_beginning(name.lower()) for name, _ in headers.items()):
        raise BadParameter("headers", "names with something after ce- or x-attribute-")
    found = parameters.first(headers, "Content-Type") or ""
    if found and _MEDIA_TYPE.match(found) is None:
        raise BadParameter("headers", "a Content-Type such as text/plain")
    return found


def envelope_of_each(query: Query, headers: Fields, now_ms: int) -> Envelope:
    """What is said of each of several messages. A key would be one message's, and so would be what
    makes one publish of several. Raises BadParameter, HeadersTooLarge.
    """
    envelope = envelope_of(query, headers, now_ms)
    if envelope.key is not None:
        raise BadParameter("key", "left out where the body is split")
    if envelope.idempotency is not None:
        raise BadParameter(IDEMPOTENCY_HEADER.lower(), "left out where the body is split")
    return envelope


def _due_ms(query: Query, now_ms: int) -> int | None:
    at_ms = AT.of(query)
    delay_s = DELAY.of(query)
    if at_ms is not None:
        if delay_s is not None:
            raise BadParameter("delay", "left out where there is an at")
        if at_ms <= now_ms:
            raise BadParameter("at", "a time to come")
        return at_ms
    if delay_s is None:
        return None
    return now_ms + round(delay_s * 1000)


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
