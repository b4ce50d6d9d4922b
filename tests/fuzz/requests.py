"""Bytes that are nearly HTTP: requests as clients send them, with something wrong about them."""

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from mq.protocol.endpoints import TABLE

ID = "0192f3a2-7c4e-7d2a-9b1e-0123456789ab"
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "x", "")
PATTERNS = tuple(sorted(TABLE))

# Of each header what it may say, and what it may not.
_HEADERS = (
    "Host: mq", "Host: a, b", "Host:", "Connection: close", "Connection: upgrade",
    "Connection: keep-alive, upgrade", "Upgrade: websocket", "Upgrade: h2c", "Expect: 100-continue",
    "Expect: x", "Content-Length: 0", "Content-Length: 5", "Content-Length: 05",
    "Content-Length: +5", "Content-Length: -5", "Content-Length: 5, 5", "Content-Length: 0x5",
    "Content-Length: 99999999999999999999", "Content-Length: 1000000000000", "Content-Length:",
    "Transfer-Encoding: chunked", "Transfer-Encoding: gzip, chunked", "Transfer-Encoding: x",
    "Transfer-Encoding: chunked, chunked", "Transfer-Encoding : chunked", "Transfer-Encoding:",
    "Content-Encoding: gzip", "Content-Encoding: x", "Content-Type: application/json",
    "Content-Type: application/x-ndjson", "Content-Type: x", "Content-Type: a/b; c=\u00fc",
    "If-Match: \"1\"", "If-Match: *", "If-Match: x", "Range: bytes=0-", "Range: bytes=9-1,x",
    "Range: bytes=-0", "If-Range: \"x\"", "Idempotency-Key: k", "Idempotency-Key: \u00fc",
    "Prefer: wait=0", "Prefer: wait=x", "ce-id: 7", "ce-: x", "traceparent: 00-x",
    "x-attribute-a: \u00ff", "X-Attribute-" + "a" * 300 + ": x", "Accept: \x01", "no colon",
    ": no name", " folded", "a b: c", "A: " + "x" * 9000, "Sec-WebSocket-Key: x",
    "Sec-WebSocket-Version: 13", "\x00: \x00",
)  # fmt: skip
_QUERIES = (
    "", "?", "?x=1", "?delay=0", "?delay=-1", "?delay=nan", "?delay=1e400", "?at=x", "?priority=9",
    "?priority=10", "?key=k", "?key=%00", "?key=%ff", "?visibility=0", "?visibility=1e-9",
    "?split=lines", "?split=x", "?count=5", "?count=0", "?count=1e9", "?wait=0", "?wait=0.01",
    "?wait=-1", "?wait=nan", "?select=a", "?select=%27", "?select=header:x", "?state=ready",
    "?state=x", "?after=x", "?every=60", "?every=0", "?cron=*", "?cron=%2A", "?bucket=7",
    "?shards=x", "?delay=1&delay=2", "?%ff=1", "?a=%", "?#", "?" + "a" * 9000,
)  # fmt: skip
_CHUNKED = (
    b"0\r\n\r\n", b"5\r\nhello\r\n0\r\n\r\n", b"5;x=y\r\nhello\r\n0\r\n\r\n", b"5\nhello\n0\n\n",
    b"FFFFFFFFFFFFFFFFFF\r\n", b"7fffffff\r\nx", b"-5\r\nhello\r\n", b"0x5\r\nhello\r\n0\r\n\r\n",
    b"5 \r\nhello\r\n0\r\n\r\n", b"5\r\nhello0\r\n\r\n", b"5\r\nhello\r\n0\r\nX: y\r\n\r\n",
    b"5;" + b"x" * 20_000 + b"\r\nhello\r\n0\r\n\r\n", b"\r\n", b"g\r\n", b"5\r\nhel",
    b"5\r\nhello\r\n0\r\nContent-Length: 9\r\n\r\n", b"00000000000000000005\r\nhello\r\n0\r\n\r\n",
)  # fmt: skip
_BODIES = (
    b"", b"hello", b"{}", b"[]", b"null", b'{"visibility": 5}', b'{"visibility": 1e999}',
    b'{"ids": ["x"]}', b'{"ids": [[]]}', b"[" * 5000, b'"\\ud800"', b"\xff\xfe", b"{}\n{}\n",
    b'{"priority_default": -1}', b'{"history": "x"}', b"1" * 5000, b"\x00" * 100, b'{"a":1,"a":2}',
)  # fmt: skip
_SEGMENTS = ("q", "other", ID, "x", "-", "..", "%2e%2e", "%00", "%ff", "q_SIDELINE", "a" * 300, "")
_ENDS = ("\r\n", "\r\n", "\r\n", "\n", "\r", "\r\n ")
_VERSIONS = ("HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.0", "HTTP/2.0", "HTTP/0.9", "http/1.1", "")


@st.composite
def _paths(draw: Callable[..., Any]) -> str:
    pattern = draw(st.sampled_from(PATTERNS))
    segments = [
        draw(st.sampled_from(_SEGMENTS)) if each.startswith("{") else each
        for each in pattern.split("/")
    ]
    return "/".join(segments) + draw(st.sampled_from(_QUERIES))


@st.composite
def _requests(draw: Callable[..., Any]) -> bytes:
    """A request, of which some things are wrong."""
    method, path = draw(st.sampled_from(METHODS)), draw(_paths())
    lines = [f"{method} {path} {draw(st.sampled_from(_VERSIONS))}"]
    lines += draw(st.lists(st.sampled_from(_HEADERS), max_size=6))
    end = draw(st.sampled_from(_ENDS))
    head = end.join(lines) + end + end
    body = draw(st.sampled_from((*_BODIES, *_CHUNKED)))
    return head.encode("latin-1", "replace") + bytes(body)


@st.composite
def _sound_requests(draw: Callable[..., Any]) -> bytes:
    """A request as a client sends it; what it asks for may be wrong."""
    method, path = draw(st.sampled_from(METHODS[:7])), draw(_paths())
    body = draw(st.sampled_from(_BODIES))
    if draw(st.booleans()):
        length = f"Content-Length: {len(body)}"
    else:
        length = "Transfer-Encoding: chunked"
        body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if body else b"0\r\n\r\n"
    kind = draw(st.sampled_from(("application/json", "application/x-ndjson", "text/plain")))
    head = f"{method} {path} HTTP/1.1\r\nHost: mq\r\n{length}\r\nContent-Type: {kind}\r\n\r\n"
    return head.encode("latin-1") + bytes(body)


@st.composite
def _mutated(draw: Callable[..., Any]) -> bytes:
    """A sound request, of which bytes went, came, or changed."""
    data = bytearray(draw(_sound_requests()))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(0, len(data) - 1)))
        match draw(st.integers(0, 3)):
            case 0:
                del data[at : at + draw(st.integers(1, 20))]
            case 1:
                data[at:at] = draw(st.binary(min_size=1, max_size=4))
            case 2:
                data[at : at + 1] = draw(st.sampled_from((b"\x00", b"\xff", b"\r", b"\n", b" ")))
            case _:
                data[at:at] = data[: draw(st.integers(1, 40))]
    return bytes(data)


def streams() -> st.SearchStrategy[tuple[list[bytes], bool]]:
    """Requests one behind the other, in the pieces that they come in; and whether the client then
    says nothing more, or asks for the last time.
    """
    one = st.one_of(_requests(), _sound_requests(), _mutated(), st.binary(max_size=200))
    return st.tuples(st.lists(one, min_size=1, max_size=4), st.booleans())
