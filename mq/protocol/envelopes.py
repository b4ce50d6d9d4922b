"""A message's envelope, from a publish's query and headers. Pure."""

import re
from collections.abc import Mapping
from typing import Final

from mq.model.errors import BadParameter
from mq.model.headers import GROUPED_BY, KEPT_BEGINNINGS, kept, with_own, with_tags
from mq.model.limits import MESSAGE_TTL_S_MAX, PRIORITY_MAX, TAGS_MAX, VISIBILITY_S_MAX
from mq.model.message import Envelope
from mq.model.names import Group, Key, extension_for
from mq.protocol import parameters
from mq.protocol.parameters import Fields, Query
from mq.protocol.query import (
    GROUP_SCHEMA,
    KEY_SCHEMA,
    Header,
    KeyText,
    KeyTexts,
    NameText,
    Parameter,
    Seconds,
    Time,
    Whole,
)  # fmt: skip

# A due time in seconds is at most a thousand years from now.
DUE_IN_S_MAX: Final = 1000 * 366 * 24 * 3600

DELAY: Final = Seconds(
    "delay", 0, DUE_IN_S_MAX,
    "Time until the message is ready, to within a second. Default: the queue's.",
)  # fmt: skip
AT: Final = Time("at", "When the message is ready, in the future. Instead of `delay`.")
PRIORITY: Final = Whole("priority", 0, PRIORITY_MAX, "9 is delivered first. Default: the queue's.")
KEY: Final = KeyText(
    "key", "A lookup key, unique in the queue until its message is deleted, purged or sidelined."
)
GROUP: Final = NameText(
    "group",
    Group.parse,
    GROUP_SCHEMA,
    "A message group of 1 to 128 characters without spaces, delivered one at a time, in order.",
)
VISIBILITY: Final = Whole(
    "visibility", 1, VISIBILITY_S_MAX,
    "Visibility timeout in seconds. Default: the queue's.",
)  # fmt: skip
TTL: Final = Whole(
    "ttl", 1, MESSAGE_TTL_S_MAX,
    "Time to live in seconds from the publish. Default: the queue's.",
)  # fmt: skip
TAG: Final = KeyTexts(
    "tag", TAGS_MAX,
    "A tag to find messages by, which many may share.",
)  # fmt: skip
ATTRIBUTES: Final[Mapping[str, Parameter]] = {
    "delay_s": DELAY,
    "at": AT,
    "priority": PRIORITY,
    "key": KEY,
    "group": GROUP,
    "visibility_s": VISIBILITY,
    "ttl_s": TTL,
    "tags": TAG,
}
"""The parameters of a publish, by the names that a batch's rows have for them."""
IDEMPOTENCY: Final = Header(
    "Idempotency-Key", KEY_SCHEMA,
    "Deduplicates for the queue's `idempotency_s`: a repeated publish stores nothing and gets the "
    "first one's answer, even if its body differs or the message is gone. A failed publish counts "
    "only if its message is there after all. It has the bounds of a key, and may be in quotes.",
    example="42",
)  # fmt: skip
# RFC 9110, section 8.3.1. Parameters are not checked.
_WORD: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_MEDIA_TYPE: Final = re.compile(rf"[\t ]*{_WORD}/{_WORD}[\t ]*(?:;|$)")
IDEMPOTENCY_HEADER: Final = IDEMPOTENCY.name


def envelope_of(query: Query, headers: Fields, now_ms: int) -> Envelope:
    """The envelope of a publish that came at `now_ms`. Raises BadParameter, HeadersTooLarge."""
    extension, keeps = extension_for(media_type_of(headers)), kept(headers.items())
    idempotency = idempotency_of(headers)
    if not query:
        return Envelope(extension, headers=keeps, idempotency=idempotency)
    group = GROUP.of(query)
    if group is not None:
        keeps = with_own(keeps, GROUPED_BY, group.text)
    tags = TAG.of(query)
    return Envelope(
        extension=extension,
        priority=PRIORITY.of(query),
        key=KEY.of(query),
        visibility_s=VISIBILITY.of(query),
        due_ms=_due_ms(query, now_ms),
        headers=with_tags(keeps, tags) if tags else keeps,
        idempotency=idempotency,
        ttl_s=TTL.of(query),
        group=group,
        tags=len(tags),
    )


def media_type_of(headers: Fields) -> str:
    """The message's Content-Type, "" without one. Raises BadParameter for a malformed one, and for
    a bare `ce-` or `x-attribute-`.
    """
    if any(headers.getall(name, []) for name in KEPT_BEGINNINGS):
        raise BadParameter("headers", "named with at least one character after ce- or x-attribute-")
    values = headers.getall("Content-Type", [])
    found = values[0] if values else ""
    if found and _MEDIA_TYPE.match(found) is None:
        raise BadParameter("headers", "sent with a media type such as text/plain as Content-Type")
    return found


def envelope_of_each(
    query: Query, headers: Fields, now_ms: int, in_packs: bool = False
) -> Envelope:
    """The envelope of each of several messages, which cannot share a key. Raises BadParameter,
    HeadersTooLarge. `in_packs`: they may have an idempotency key together.
    """
    envelope = envelope_of(query, headers, now_ms)
    if envelope.key is not None:
        raise BadParameter("key", "left out with split, since it names one message")
    if envelope.idempotency is not None and not in_packs:
        raise BadParameter(
            IDEMPOTENCY_HEADER.lower(),
            "left out with split, since it names one message, or given with pack=true",
        )
    return envelope


def _due_ms(query: Query, now_ms: int) -> int | None:
    at_ms = AT.of(query)
    delay_s = DELAY.of(query)
    if at_ms is not None:
        if delay_s is not None:
            raise BadParameter("delay", "left out with at")
        if at_ms <= now_ms:
            raise BadParameter("at", "a time in the future")
        return at_ms
    if delay_s is None:
        return None
    return now_ms + round(delay_s * 1000)


def idempotency_of(headers: Fields) -> Key | None:
    """The idempotency key of a request. Raises BadParameter."""
    return _idempotency(headers.getall(IDEMPOTENCY_HEADER, []))


def _idempotency(values: list[str]) -> Key | None:
    """The header's value, with or without the quotes of a structured field (RFC 8941)."""
    if not values:
        return None
    if len(values) > 1:
        raise BadParameter("idempotency-key", "given once")
    text = values[0].strip()
    if len(text) >= 2 and text[0] == text[-1] == '"':
        text = text[1:-1]
    return parameters.key(text, "idempotency-key")
