"""Requests: where they begin and end in a client's bytes, their heads, and their bodies.

Input that servers read differently allows request smuggling, so it is refused here, and only
`Framing` decides where a body ends.
"""

import asyncio
import functools
import re
from typing import Any, Final, Protocol
from urllib.parse import parse_qsl, urlsplit

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from multidict import CIMultiDict, CIMultiDictProxy, MultiDict

from mq.access.callers import ANONYMOUS, Caller
from mq.access.errors import Unauthenticated
from mq.http.access import Shown
from mq.model.errors import BodyUnreadable, HeadersTooLarge
from mq.model.limits import KIB
from mq.model.message import Envelope

# How long a refused body is still read, so that its sender gets the answer.
LINGERING_S: Final = 2.0
# A request's head in all.
HEAD_BYTES_MAX: Final = 32 * KIB
# Chunks and frames of one connection that are parsed before others have their turn.
FRAMED_PER_TURN_MAX: Final = 128

# The line before a chunk; all lines behind the last chunk.
CHUNK_LINE_BYTES_MAX: Final = KIB
TRAILER_BYTES_MAX: Final = 32 * KIB

_TOKEN: Final = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]"
_TARGET: Final = rb"[\x21-\x7e\x80-\xff]"
_REQUEST_LINE: Final = re.compile(_TOKEN + rb"{1,32} " + _TARGET + rb"+ HTTP/1\.[01]\r\n")
_LINE_BEGUN: Final = re.compile(
    _TOKEN + rb"{0,32}(?: (?:" + _TARGET + rb"*(?: H?T?T?P?/?1?\.?[01]?\r?)?)?)?"
)
_EMPTY_LINES: Final = re.compile(rb"(?:\r\n)+")
_CHUNK_BEGIN: Final = re.compile(rb"([0-9A-Fa-f]{1,15})(?:;[^\r\n\0]*)?\r\n")
_FIELD: Final = re.compile(_TOKEN + rb"+:[^\r\n\0]*\r\n")
_CRLF: Final = b"\r\n"
# The part of a request line that shows whether it is one.
_BEGUN_BYTES: Final = 64
_HEAD_END: Final = b"\r\n\r\n"

# One of a request's headers, and their number.
FIELD_BYTES_MAX: Final = 10 * KIB
FIELDS_MAX: Final = 128

# Clients repeat their headers: this many different ones, without request lines, and none longer,
# are kept parsed.
HEADS_KEPT_MAX: Final = 1024
KEPT_HEAD_BYTES_MAX: Final = KIB

# Unread bytes of a body: at this size the connection pauses reading.
BODY_AHEAD_BYTES_MAX: Final = 128 * KIB

# Small pieces cost more than their bytes.
_PIECES_MAX: Final = 64
_DEFAULT_PORTS: Final = {"http": ":80", "https": ":443"}
_HTTP_1_1: Final = "1.1"
_CLOSE: Final = "close"
_KEEP_ALIVE: Final = "keep-alive"
_CONNECT: Final = b"CONNECT"
_DIGITS: Final = re.compile("[0-9]{1,18}")
# Repeated, servers disagree about which value counts.
_ONCE: Final = frozenset(
    {"content-location", "content-range", "content-type", "etag", "host", "max-forwards",
     "user-agent"}
)  # fmt: skip
_NO_QUERY: Final[MultiDict[str]] = MultiDict()
# Request lines that httptools accepts, too.
_USUAL_LINE: Final = re.compile(
    rb"(GET|POST|DELETE|PUT|PATCH|HEAD) (/[!-\"$-~]*) HTTP/1\.1\r\n"
).match
_ANY_LINE: Final = b"GET / HTTP/1.1\r\n"


class Malformed(Exception):
    """A head that servers may read differently."""


class BodyBroken(Exception):
    """A chunked body that breaks its coding."""


def head_too_large() -> HeadersTooLarge:
    """The error of a head that is too long, or has too many or too long fields."""
    return HeadersTooLarge(FIELDS_MAX, HEAD_BYTES_MAX, FIELD_BYTES_MAX)


# The part of a body that the next byte belongs to.
_BODY: Final = 0
_CHUNK_LINE: Final = 1
_CHUNK: Final = 2
_CHUNK_END: Final = 3
_TRAILER: Final = 4


class Framing:
    """The unparsed bytes of one client. Pure. It returns heads whole, and bodies decoded, a bounded
    number of chunks at a time.
    """

    __slots__ = ("_at", "_left", "_trailer", "data", "is_at_head", "is_tired")

    def __init__(self) -> None:
        self._at = _BODY
        self.data = b""
        """The unparsed bytes."""
        self.is_at_head = True
        """Whether the next byte is part of a head."""
        self._left = 0
        self._trailer = 0
        self.is_tired = False
        """Whether more of a body waits for the loop's next turn."""

    @property
    def has_begun_head(self) -> bool:
        """Whether a head has begun. Empty lines do not count."""
        return self.is_at_head and bool(self.data.strip(_CRLF))

    def drop(self) -> bytes:
        """Removes and returns the unparsed bytes."""
        data, self.data, self.is_tired = self.data, b"", False
        return data

    def head(self) -> bytes:
        """The next head; empty until it is complete. Raises Malformed, HeadersTooLarge."""
        if self.data.startswith(_CRLF) and (empty := _EMPTY_LINES.match(self.data)):
            self.data = self.data[empty.end() :]
        data = self.data
        end = data.find(_HEAD_END) + len(_HEAD_END)
        if end < len(_HEAD_END):
            self._check_begun()
            return b""
        if end > HEAD_BYTES_MAX:
            raise head_too_large()
        if _REQUEST_LINE.match(data) is None:
            raise Malformed
        self.data = data[end:]
        return data[:end]

    def _check_begun(self) -> None:
        """Refuses an incomplete head that cannot become a request."""
        data = self.data
        if len(data) > HEAD_BYTES_MAX:
            raise head_too_large()
        ends = data.count(_CRLF)
        if data.count(b"\n") != ends or data.removesuffix(b"\r").count(b"\r") != ends:
            raise Malformed
        if data == b"\r":
            return  # The beginning of an empty line.
        line, ending, _ = data[:_BEGUN_BYTES].partition(_CRLF)
        found = _REQUEST_LINE.fullmatch(line + ending) if ending else _LINE_BEGUN.fullmatch(line)
        if found is None:
            raise Malformed

    def begin_body(self, length: int | None) -> None:
        """Expects a body of `length` bytes, or a chunked one if that is None."""
        if length is None:
            self._at, self._trailer, self.is_at_head = _CHUNK_LINE, 0, False
        elif length:
            self._at, self._left, self.is_at_head = _BODY, length, False

    def body(self) -> bytes:
        """The next part of the body, decoded. The body is complete once `is_at_head` is true again.
        Raises BodyBroken, after the sound part before it was returned.
        """
        if self._at != _BODY:
            return self._chunks()
        data, size = self.data, self._left
        if size <= len(data):
            self.data, self.is_at_head = data[size:], True
            return data[:size]
        self.data = b""
        self._left -= len(data)
        return data

    # Chunks

    def _chunks(self) -> bytes:
        at, found, self.is_tired = 0, [], False
        for _ in range(FRAMED_PER_TURN_MAX):
            before = at
            try:
                at, part = self._chunk_part(at)
            except BodyBroken:
                if not at:
                    raise
                self.is_tired = True
                break
            if part:
                found.append(part)
            if at == before or self.is_at_head:
                break
        else:
            self.is_tired = at < len(self.data)
        self.data = self.data[at:]
        return b"".join(found)

    def _chunk_part(self, at: int) -> tuple[int, bytes]:
        """The end of the next line or piece from `at` on, which is `at` if it is incomplete, and
        the body's bytes in it.
        """
        data = self.data
        if self._at == _CHUNK_LINE:
            return self._chunk_line(at)
        if self._at == _CHUNK:
            end = min(at + self._left, len(data))
            self._left -= end - at
            if not self._left:
                self._at = _CHUNK_END
            return end, data[at:end]
        if self._at == _CHUNK_END:
            ending = data[at : at + len(_CRLF)]
            if not _CRLF.startswith(ending):
                raise BodyBroken
            if ending != _CRLF:
                return at, b""
            self._at = _CHUNK_LINE
            return at + len(_CRLF), b""
        return self._trailer_line(at), b""

    def _chunk_line(self, at: int) -> tuple[int, bytes]:
        data = self.data
        end = self._line_end(at, CHUNK_LINE_BYTES_MAX)
        if end == at:
            return at, b""
        line = _CHUNK_BEGIN.fullmatch(data, at, end)
        if line is None:
            raise BodyBroken
        self._left = int(line[1], 16)
        last = end + self._left
        if self._left and data[last : last + len(_CRLF)] == _CRLF:
            self._left = 0
            return last + len(_CRLF), data[end:last]  # Usually the chunk is complete.
        self._at = _CHUNK if self._left else _TRAILER
        return end, b""

    def _trailer_line(self, at: int) -> int:
        data = self.data
        end = self._line_end(at, TRAILER_BYTES_MAX - self._trailer)
        if data[at:end] == _CRLF:
            self.is_at_head = True
        elif end > at and _FIELD.fullmatch(data, at, end) is None:
            raise BodyBroken
        self._trailer += end - at
        return end

    def _line_end(self, at: int, bytes_max: int) -> int:
        """The end of the line that begins at `at`; `at` if it is incomplete."""
        end = self.data.find(b"\n", at, at + bytes_max) + 1
        if not end and len(self.data) - at >= bytes_max:
            raise BodyBroken
        return end or at


class Upgraded(Protocol):
    """Receives a connection's bytes after an upgrade."""

    def came(self, data: bytes) -> None:
        """The client sent this, or has read enough."""

    def leave(self) -> None:
        """The server drains: end the connection."""


class Client(Protocol):
    """A request's connection, as handlers use it."""

    transport: asyncio.Transport | None
    """None once the client is gone."""
    shown: Shown

    @property
    def is_full(self) -> bool:
        """Whether the client has to read before more is written."""

    def write(self, data: bytes, held: object = None) -> None:
        """Sends bytes unless the client is gone; keeps `held` until they have left the process."""

    async def drained(self) -> None:
        """Waits until the client has read enough. Raises ConnectionError when it is gone."""

    def go_on(self) -> None:
        """Continues parsing what the client sent."""

    def hold_up(self, is_paused: bool) -> None: ...

    def upgrade(self, upgraded: Upgraded) -> None:
        """Passes the client's further bytes to `upgraded`."""


class Body:
    """A request's body. Unread bytes are bounded: the connection pauses reading."""

    __slots__ = ("_client", "_pieces", "_waiter", "is_broken", "is_dropped", "is_whole", "size")

    def __init__(self, client: Client | None) -> None:
        self._client = client
        self._pieces: list[bytes] = []
        self._waiter: asyncio.Future[None] | None = None
        self.size = 0
        """The unread bytes."""
        self.is_whole = False
        """Whether all of it has arrived."""
        self.is_broken = False
        """Whether it ended early."""
        self.is_dropped = False
        """Whether further bytes are dropped: the request is answered."""

    @property
    def is_full(self) -> bool:
        """Whether some must be read before more is accepted."""
        return self.size >= BODY_AHEAD_BYTES_MAX

    def feed(self, data: bytes, is_whole: bool) -> None:
        """Adds bytes that have arrived."""
        if data and not self.is_dropped:
            pieces = self._pieces
            if len(pieces) == _PIECES_MAX:
                pieces[:] = [b"".join(pieces)]
            pieces.append(data)
            self.size += len(data)
        self.is_whole = is_whole
        if self._waiter is not None:
            self._wake()

    def fail(self) -> None:
        """The client is gone, or broke the coding."""
        self.is_broken = not self.is_whole
        self._wake()

    def drop(self) -> None:
        """Drops its bytes, also those still to come."""
        self.is_dropped = True
        self._pieces.clear()
        self.size = 0

    def take(self) -> bytes:
        data = b"".join(self._pieces)  # Of one piece it is that piece.
        was_full = self.size >= BODY_AHEAD_BYTES_MAX
        self._pieces, self.size = [], 0
        if was_full and self._client is not None:
            self._client.go_on()
        return data

    async def read(self) -> bytes:
        """The next bytes; none at the end. Raises BodyUnreadable."""
        while not (self._pieces or self.is_whole or self.is_broken):
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        if not self._pieces and self.is_broken:
            raise BodyUnreadable
        return self.take()

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)


NO_BODY: Final = Body(None)
"""That of all requests without one."""
NO_BODY.is_whole = True


class Head:
    """A request's headers, and what follows from them alone. Requests share it: it never changes,
    but for the envelope, which is made at its first use.
    """

    __slots__ = (
        "envelope", "expects", "headers", "is_http_1_1", "keeps_alive", "length", "names_origin"
    )  # fmt: skip

    def __init__(self, headers: CIMultiDict[str], is_http_1_1: bool) -> None:
        """Raises Malformed."""
        self.headers = CIMultiDictProxy(headers)
        self.is_http_1_1 = is_http_1_1
        self.keeps_alive = is_http_1_1
        """Whether the connection may carry another request."""
        if "Connection" in headers:
            self.keeps_alive = _keeps_alive(headers, is_http_1_1)
        self.length = _length(headers, is_http_1_1)
        """The body's length in bytes; None: it is chunked."""
        self.expects = "Expect" in headers
        self.names_origin = "Sec-Fetch-Site" in headers or "Origin" in headers
        """Whether a browser says which page sends the request."""
        self.envelope: Envelope | None = None
        """That of a publish without parameters."""


class Sender(Protocol):
    """A request, for what others see of it."""

    def sender(self) -> tuple[str, str | None]:
        """The address that it came from, and its caller's name; None: anonymous, or unknown now."""


class Request:
    """A request: its head, its body, and the connection that it came on."""

    __slots__ = (
        "_query", "began_s", "body", "client", "head", "headers", "method", "operation", "path",
        "raw_query", "span", "target",
    )  # fmt: skip

    def __init__(self, client: Client, method: str, target: str, head: Head) -> None:
        """Raises Malformed."""
        self.client = client
        self.method = method
        self.target = target
        """The path and the query, undecoded."""
        if target[0] == "/" and "#" not in target:
            self.path, _, self.raw_query = target.partition("?")
        else:
            self.path, self.raw_query = _parts(target)
        self.head = head
        self.headers = head.headers
        self.body = NO_BODY if head.length == 0 else Body(client)
        self._query: MultiDict[str] | None = None
        # For metrics and traces.
        self.operation: int | None = None
        self.began_s = 0.0
        self.span: Any = None

    @property
    def query(self) -> MultiDict[str]:
        """The query's parameters, decoded."""
        if not self.raw_query:
            return _NO_QUERY
        if self._query is None:
            self._query = MultiDict(parse_qsl(self.raw_query, keep_blank_values=True))
        return self._query

    def caller(self) -> Caller:
        """Its caller now. Raises Unauthenticated."""
        values = self.headers.getall("Authorization", ())
        return self.client.shown.caller(values, self.client.transport)

    def sender(self) -> tuple[str, str | None]:
        """See Sender."""
        transport = self.client.transport
        peer = None if transport is None else transport.get_extra_info("peername")
        address = f"{peer[0]} port {peer[1]}" if isinstance(peer, tuple) else ""
        try:
            caller = self.caller()
        except Unauthenticated:
            return address, None
        return address, None if caller is ANONYMOUS else caller.name

    @property
    def is_foreign(self) -> bool:
        """Whether its Origin is another than the host that it was sent to."""
        origin = self.headers.get("Origin")
        if origin is None:
            return False
        try:
            said = urlsplit(origin)
        except ValueError:
            return True  # A malformed Origin is not this mq's.
        # A browser leaves out the default port; a proxy may add it to the Host that it passes on.
        port = _DEFAULT_PORTS.get(said.scheme, "")
        return said.netloc.lower() != self.headers.get("Host", "").lower().removesuffix(port)

    @property
    def content_type(self) -> str:
        """The media type that Content-Type names, without its parameters."""
        return self.headers.get("Content-Type", "").partition(";")[0].strip().lower()


class _Found:
    """Collects what httptools finds in a head."""

    __slots__ = ("headers", "is_ambiguous", "target")

    def __init__(self) -> None:
        self.target = b""
        self.is_ambiguous = False
        """Whether a single-valued header is repeated."""
        self.headers: CIMultiDict[str] = CIMultiDict()

    def on_url(self, url: bytes) -> None:
        self.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        field = name.decode("utf-8", "surrogateescape")
        if field in self.headers and field.lower() in _ONCE:
            self.is_ambiguous = True
        self.headers.add(field, value.decode("utf-8", "surrogateescape").strip(" \t"))


def parse(head: bytes, client: Client) -> Request:
    """The request of a whole head. Raises Malformed, HeadersTooLarge."""
    line = _USUAL_LINE(head)
    if line is None or len(head) > KEPT_HEAD_BYTES_MAX:
        return Request(client, *_parsed(head))
    method, target = line.groups()
    return Request(client, method.decode(), target.decode(), _kept_head(head[line.end() :]))


@functools.lru_cache(HEADS_KEPT_MAX)
def _kept_head(lines: bytes) -> Head:
    return _parsed(_ANY_LINE + lines)[2]


def _parsed(head: bytes) -> tuple[str, str, Head]:
    """The method, the target and the rest of a head. Each head gets a parser of its own, which
    never sees a body: Framing decides where that ends.
    """
    found = _Found()
    parser = HttpRequestParser(found)
    try:
        parser.feed_data(head)
    except HttpParserUpgrade:
        pass  # The handler decides about an upgrade.
    except HttpParserError:
        raise Malformed from None
    method, headers = parser.get_method(), found.headers
    if found.is_ambiguous or method == _CONNECT:
        raise Malformed
    if len(headers) > FIELDS_MAX or (
        len(head) > FIELD_BYTES_MAX and any(_is_too_long(*each) for each in headers.items())
    ):
        raise head_too_large()
    target = found.target.decode("utf-8", "surrogateescape")
    is_http_1_1 = parser.get_http_version() == _HTTP_1_1
    return method.decode("ascii"), target, Head(headers, is_http_1_1)


def _is_too_long(name: str, value: str) -> bool:
    return max(len(each.encode("utf-8", "surrogateescape")) for each in (name, value)) > (
        FIELD_BYTES_MAX
    )


def _parts(target: str) -> tuple[str, str]:
    """The path and the query of a target."""
    if not target.startswith("/") and target != "*":
        try:
            absolute = urlsplit(target)
        except ValueError:
            raise Malformed from None
        if not absolute.scheme:
            raise Malformed
        return absolute.path or "/", absolute.query
    path, _, query = target.partition("#")[0].partition("?")
    return path, query


def _keeps_alive(headers: CIMultiDict[str], is_http_1_1: bool) -> bool:
    values = ",".join(headers.getall("Connection")).lower().split(",")
    options = {each.strip() for each in values}
    return _CLOSE not in options and (is_http_1_1 or _KEEP_ALIVE in options)


def _length(headers: CIMultiDict[str], is_http_1_1: bool) -> int | None:
    if "Transfer-Encoding" in headers:
        codings = [each.lower() for each in headers.getall("Transfer-Encoding")]
        if "Content-Length" in headers or not is_http_1_1 or codings != ["chunked"]:
            raise Malformed
        return None
    lengths = headers.getall("Content-Length", ["0"])
    if len(lengths) > 1 or _DIGITS.fullmatch(lengths[0]) is None:
        raise Malformed
    return int(lengths[0])
