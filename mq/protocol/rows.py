"""Messages as lines of JSON (NDJSON): a batch that was fetched, a peek, what a split published."""

import base64
import binascii
import codecs
import json
from collections.abc import AsyncIterator, Mapping
from typing import Final

from mq.model.clock import rfc3339
from mq.model.headers import Headers
from mq.model.message import Delivery, Stamp
from mq.model.names import MessageId, QueueName
from mq.protocol.carried import named_headers, sidelined_for

MEDIA_TYPE: Final = "application/x-ndjson"

_BASE64_GROUP: Final = 3


def row(members: Mapping[str, object], body: bytes | None = None) -> bytes:
    """One line: the members, then the body as `body` where it is UTF-8, else as `body_base64`."""
    content = dict(members) if body is None else {**members, **body_member(body)}
    return json.dumps(content, ensure_ascii=False).encode() + b"\n"


def body_member(body: bytes) -> dict[str, str]:
    """A body as a member: `body` where it is UTF-8, else `body_base64`."""
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"body_base64": base64.b64encode(body).decode("ascii")}


def delivered(delivery: Delivery) -> dict[str, object]:
    """The members of a message that was fetched, but for its body."""
    return members(delivery.queue, delivery.id, delivery.stamp, delivery.headers)


def members(
    queue: QueueName, message_id: MessageId, stamp: Stamp, kept: Headers, *, is_ready: bool = False
) -> dict[str, object]:
    """What every row of a message says of it; of what `is_ready` in a sideline, also since when."""
    found: dict[str, object] = {
        "id": message_id.text,
        "receives": stamp.receives,
        "published": rfc3339(message_id.published_ms),
        "due": rfc3339(stamp.due_ms),
        "headers": named_headers(message_id.content_type, kept),
    }
    reason = sidelined_for(queue, stamp)
    if reason is not None:
        since = {"at": rfc3339(stamp.due_ms)} if is_ready else {}
        found["sidelined"] = {"reason": reason, **since}
    return found


async def is_text(chunks: AsyncIterator[bytes]) -> bool:
    """Whether a body that is read in chunks is UTF-8."""
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
    """The same line as `row` for a body that is read in chunks, bit by bit."""
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
