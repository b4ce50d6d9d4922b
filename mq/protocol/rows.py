"""A message in an answer: its headers, and its line of JSON (NDJSON)."""

import base64
import binascii
import codecs
import json
from collections.abc import AsyncIterator, Mapping
from typing import Final

from mq.model.clock import rfc3339
from mq.model.headers import GROUPED_BY, Headers, tags_in
from mq.model.message import Delivery, Reason, Stamp
from mq.model.names import MessageId, QueueName
from mq.protocol.conditions import etag

MEDIA_TYPE: Final = "application/x-ndjson"

_BASE64_GROUP: Final = 3


def row(members: Mapping[str, object], body: bytes | None = None) -> bytes:
    """One line: the members, then the body as `body` if it is UTF-8, else as `body_base64`."""
    content = dict(members) if body is None else {**members, **body_member(body)}
    return json.dumps(content, ensure_ascii=False).encode() + b"\n"


def body_member(body: bytes) -> dict[str, str]:
    """A body as a member: `body` if it is UTF-8, else `body_base64`."""
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"body_base64": base64.b64encode(body).decode("ascii")}


def delivered(delivery: Delivery) -> dict[str, object]:
    """The members of a fetched message without its body."""
    found = members(delivery.queue, delivery.id, delivery.stamp, delivery.headers)
    return {**found, "reason": delivery.failure} if delivery.failure else found


def members(
    queue: QueueName, message_id: MessageId, stamp: Stamp, kept: Headers, *, is_ready: bool = False
) -> dict[str, object]:
    """The members of every row; of a message that `is_ready` in a sideline also since when."""
    found: dict[str, object] = {
        "id": message_id.text,
        "receives": stamp.receives,
        "published": rfc3339(message_id.published_ms),
        "due": rfc3339(stamp.due_ms),
        "headers": named_headers(message_id.content_type, kept),
    }
    if message_id.group:
        group, found["headers"] = _without_group(message_id, kept)
        found |= {} if group is None else {"group": group}
    if message_id.tags:
        found["tags"] = [tag.text for tag in tags_in(kept)]
    if stamp.returned:
        found["attempts"] = stamp.attempts
    reason = sidelined_for(queue, stamp)
    if reason is not None:
        since = {"at": rfc3339(stamp.due_ms)} if is_ready else {}
        found["sidelined"] = {"reason": reason, **since}
    return found


def _without_group(message_id: MessageId, kept: Headers) -> tuple[str | None, dict[str, str]]:
    """The name of its group, where its header block says it, and its other headers."""
    others = tuple(each for each in kept if each[0] != GROUPED_BY)
    group = next((value for name, value in kept if name == GROUPED_BY), None)
    return group, named_headers(message_id.content_type, others)


async def is_text(chunks: AsyncIterator[bytes]) -> bool:
    """Whether a streamed body is UTF-8."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        async for chunk in chunks:
            decoder.decode(chunk)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


async def row_in_parts(
    members: Mapping[str, object], chunks: AsyncIterator[bytes], as_text: bool
) -> AsyncIterator[bytes]:
    """The same line as `row` for a streamed body, in parts."""
    head = json.dumps(dict(members), ensure_ascii=False).removesuffix("}")
    yield f'{head}, "{"body" if as_text else "body_base64"}": "'.encode()
    if as_text:
        decoder = codecs.getincrementaldecoder("utf-8")()
        async for chunk in chunks:
            # Without the quotes around it.
            yield json.dumps(decoder.decode(chunk), ensure_ascii=False)[1:-1].encode()
    else:
        rest = b""
        async for chunk in chunks:
            rest += chunk
            whole = len(rest) - len(rest) % _BASE64_GROUP
            yield binascii.b2a_base64(rest[:whole], newline=False)
            rest = rest[whole:]
        yield binascii.b2a_base64(rest, newline=False)
    yield b'"}\n'


_NO_MORE: Final[Mapping[str, str]] = {}
_CONTENT_TYPE: Final = "content-type"

OWN_ORIGIN: Final = {"Cross-Origin-Resource-Policy": "same-origin"}
"""For answers with messages: pages of other origins cannot embed them."""


def fact_headers(
    queue: QueueName, message_id: MessageId, stamp: Stamp, more: Mapping[str, str] = _NO_MORE
) -> dict[str, str]:
    """A message's own headers and `more`, without its kept headers, of which a Content-Type
    replaces the one here.
    """
    headers = {
        "X-Message-Id": message_id.text,
        "X-Message-Receives": str(stamp.receives),
        "X-Message-Published": rfc3339(message_id.published_ms),
        "X-Message-Due": rfc3339(stamp.due_ms),
        "ETag": etag(stamp.receives),
        "Content-Type": message_id.content_type,
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
        # A browser shows a message, but runs nothing in it: scripts would run with the rights of
        # mq's own page.
        "Content-Security-Policy": "sandbox",
        **OWN_ORIGIN,
        **more,
    }
    if stamp.returned:
        headers["X-Message-Attempts"] = str(stamp.attempts)
    if stamp.reason and (reason := sidelined_for(queue, stamp)) is not None:
        headers["X-Message-Sidelined"] = reason
    return headers


def named_headers(content_type: str, kept: Headers) -> dict[str, str]:
    """A message's Content-Type and kept headers for JSON, by lower-case names; repeated headers are
    joined with commas (RFC 9110, section 5.3).
    """
    found = {_CONTENT_TYPE: content_type}
    named: dict[str, list[str]] = {}
    for name, value in kept:
        named.setdefault(name.lower(), []).append(value)
    return found | {name: ", ".join(values) for name, values in named.items()}


def is_content_type(name: str) -> bool:
    """Whether a header of this name, in any case, is the Content-Type."""
    return name.lower() == _CONTENT_TYPE


def sidelined_for(queue: QueueName, stamp: Stamp) -> str | None:
    """Why a message was sidelined; None: the queue is not a sideline, or the reason is unknown."""
    if not queue.is_sideline or not (reason := Reason(stamp.reason)):
        return None
    return reason.name.lower()
