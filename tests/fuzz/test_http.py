"""Whatever bytes come over a connection: no answer is a 500, each connection ends, and the next one
is served.
"""

import asyncio
import itertools

import pytest
from harness.api import call

from fuzz.fuzzed import Fuzzed, fuzz
from fuzz.requests import streams

SMUGGLED = b"PUT /smuggled HTTP/1.1\r\nHost: mq\r\n\r\n"
LENGTHS = (
    "Content-Length: {size}",
    "content-length: {size}",
    "Content-Length: {size}, {size}",
    "Content-Length: 0\r\nContent-Length: {size}",
    "Content-Length: {size}\r\nContent-Length: 0",
    "Content-Length: +{size}",
    "Content-Length: {size}\r\n Content-Length: 0",
)
CODINGS = (
    "Transfer-Encoding: chunked",
    "transfer-encoding: CHUNKED",
    "Transfer-Encoding : chunked",
    "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
    "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked",
    "Transfer-Encoding: identity, chunked",
    "Transfer-Encoding: xchunked",
    "Transfer-Encoding:\tchunked",
    "Transfer-Encoding:\x0bchunked",
    "Transfer-Encoding: \r\n chunked",
    "X: x\nTransfer-Encoding: chunked",
    "X: x\rTransfer-Encoding: chunked",
    "Transfer-Encoding: chunked;x",
    'Transfer-Encoding: "chunked"',
)


async def test_whatever_comes_is_answered_or_ended(fuzzed: Fuzzed) -> None:
    def throw(stream: tuple[list[bytes], bool]) -> None:
        parts, ends = stream
        fuzzed.check(fuzzed.talk(*parts, ends=ends))

    await asyncio.to_thread(fuzz(streams(), throw, 300))


@pytest.mark.parametrize("first", ["length", "coding"])
async def test_no_request_hides_in_another_s_body(fuzzed: Fuzzed, first: str) -> None:
    """With a length and a coding, one server sees one request, and another two."""
    body = b"0\r\n\r\n" + SMUGGLED

    def throw_all() -> None:
        for length, coding in itertools.product(LENGTHS, CODINGS):
            said = [length.format(size=len(body)), coding]
            if first == "coding":
                said.reverse()
            head = "\r\n".join(["POST /q/messages HTTP/1.1", "Host: mq", *said]) + "\r\n\r\n"
            answer = fuzzed.talk(head.encode() + body)
            assert b"/smuggled" not in answer, head
            fuzzed.check(answer)

    await asyncio.to_thread(throw_all)
    assert (await call(fuzzed.server, "GET", "/smuggled")).status == 404


@pytest.mark.parametrize(
    "chunks",
    [
        b"5\nhello\n0\n\n",
        b"5;\nx\r\nhello\r\n0\r\n\r\n",
        b"5;x\nhello\r\n0\r\n\r\n",
        b"2\r\nhello\r\n0\r\n\r\n",
        b"FFFFFFFFFFFFFFFF5\r\nhello\r\n0\r\n\r\n",
        b"-5\r\nhello\r\n0\r\n\r\n",
        b"0x5\r\nhello\r\n0\r\n\r\n",
        b" 5\r\nhello\r\n0\r\n\r\n",
        b"5_0\r\nhello\r\n0\r\n\r\n",
    ],
)
async def test_chunks_that_servers_read_differently_are_refused(
    fuzzed: Fuzzed, chunks: bytes
) -> None:
    head = b"POST /q/messages HTTP/1.1\r\nHost: mq\r\nTransfer-Encoding: chunked\r\n\r\n"
    answer = await asyncio.to_thread(fuzzed.talk, head + chunks + SMUGGLED, ends=False)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.") == 1
    assert (await call(fuzzed.server, "GET", "/smuggled")).status == 404
