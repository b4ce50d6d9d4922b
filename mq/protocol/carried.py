"""What an answer that carries a message says of it: its headers, also as a member of JSON. Pure."""

from collections.abc import Mapping
from typing import Final

from mq.model.clock import rfc3339
from mq.model.headers import Headers
from mq.model.message import Reason, Stamp
from mq.model.names import MessageId, QueueName
from mq.protocol.etags import etag

_NO_MORE: Final[Mapping[str, str]] = {}
_CONTENT_TYPE: Final = "content-type"

OWN_ORIGIN: Final = {"Cross-Origin-Resource-Policy": "same-origin"}
"""Of an answer with messages: a page of another origin has it not among its pictures or scripts."""


def fact_headers(
    queue: QueueName, message_id: MessageId, stamp: Stamp, more: Mapping[str, str] = _NO_MORE
) -> dict[str, str]:
    """Those that say what the message is, and `more` of the answer; without those that it keeps,
    of which a Content-Type takes the place of the one here.
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
        # A browser that is led here shows what somebody published, and runs nothing of it: it would
        # run as a page of this mq's.
        "Content-Security-Policy": "sandbox",
        **OWN_ORIGIN,
        **more,
    }
    reason = sidelined_for(queue, stamp)
    if reason is not None:
        headers["X-Message-Sidelined"] = reason
    return headers


def named_headers(content_type: str, kept: Headers) -> dict[str, str]:
    """A message's Content-Type and those that it keeps, as a member of JSON: by names in lower
    case; what stands there twice is one value, with a comma (RFC 9110, section 5.3).
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
    """Why a message of a sideline was sidelined; None: it is no sideline's, or nobody knows."""
    if not queue.is_sideline or not (reason := Reason(stamp.reason)):
        return None
    return reason.name.lower()
