"""Headers that a message keeps: returned as they came, by whatever way, and the body's bytes
untouched behind them.
"""

import gzip
import os
from pathlib import Path

import pytest
from harness.api import assert_problem, call, fetch, make_queue, publish
from harness.folders import files_below
from harness.raw import RawResponse, raw_connection, raw_head, raw_request
from harness.server import Serve, Server

from mq.http.request import FIELD_BYTES_MAX, FIELDS_MAX, HEAD_BYTES_MAX
from mq.model.limits import HEADER_BLOCK_BYTES_MAX, HEADERS_MAX

LARGE = b"0123456789abcdef" * (3 << 16)
KEPT = ("ce-", "x-attribute-", "traceparent", "tracestate", "content-type", "content-encoding")


async def post(server: Server, lines: list[bytes], body: bytes = b"hello") -> RawResponse:
    """A publish with these very header lines."""
    length = f"Content-Length: {len(body)}"
    head = raw_head("POST", "/q/messages", length).removesuffix(b"\r\n")
    return await raw_request(
        server.port, head + b"".join(each + b"\r\n" for each in lines) + b"\r\n" + body
    )


async def lines_of(server: Server, path: str, *more: str) -> tuple[list[bytes], bytes]:
    """The header lines of an answer that its message kept, as they stand there; and the body."""
    async with raw_connection(server.port) as connection:
        await connection.send(raw_head("GET", path, "Connection: close", *more))
        head, _, body = (await connection.ended()).partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")[1:]
    return [line for line in lines if line.decode().lower().startswith(KEPT)], body


async def direct_lines(server: Server) -> list[bytes]:
    """The same of a fetch that goes the direct way."""
    async with raw_connection(server.port) as connection:
        await connection.send(raw_head("GET", "/-/livez"))
        await connection.response()
        await connection.send(
            raw_head("GET", "/q/messages") + raw_head("GET", "/-/livez", "Connection: close")
        )
        head = (await connection.ended()).partition(b"\r\n\r\n")[0]
    lines = head.split(b"\r\n")[1:]
    return [line for line in lines if line.decode().lower().startswith(KEPT)]


def the_file(root: Path) -> Path:
    (found,) = (path for folder in ("queues", "delay") for path in files_below(root / folder))
    return found


OCTETS = b"Content-Type: application/octet-stream"
CLOUD_EVENT = [
    b"ce-specversion: 1.0", b"ce-type: com.example.order", b"ce-source: /shop/1",
    b"ce-id: A234-1234-1234", b"ce-time: 2026-04-05T17:31:00Z", b"Ce-Subject: Z\xc3\xbcrich",
]  # fmt: skip
CASES = {
    "a CloudEvent in binary mode": [b"Content-Type: application/cloudevents", *CLOUD_EVENT],
    "trace context": [
        b"traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        b"tracestate: rojo=00f067aa0ba902b7,congo=t61rcWkgMzE", b"tracestate: more=1", OCTETS,
    ],
    "attributes": [b"x-attribute-a: 1", b"X-Attribute-B: ", b"x-attribute-a: 2", OCTETS],
    "a type that no extension stands for": [b"Content-Type: application/vnd.acme.order+json"],
    "a type with parameters": [b"Content-Type: application/json; charset=utf-8; q=\"a;b\""],
    "an encoding": [b"Content-Type: application/vnd.acme", b"Content-Encoding: gzip"],
    "an encoding and a listed type": [b"Content-Type: application/json", b"Content-Encoding: br"],
}  # fmt: skip


@pytest.mark.parametrize("lines", CASES.values(), ids=CASES)
@pytest.mark.parametrize("body", [b"hello", gzip.compress(b"hello"), b"", LARGE],
                         ids=["text", "gzip", "empty", "streamed"])  # fmt: skip
async def test_headers_come_back_as_they_came(
    server: Server, lines: list[bytes], body: bytes
) -> None:
    await make_queue(server)
    answer = await post(server, lines, body)
    assert answer.status == 201
    message_id = answer.headers["x-message-id"]
    # A Content-Type stands where it stands in every answer.
    expected = sorted(lines)
    found, read_body = await lines_of(server, f"/q/messages/{message_id}")
    assert (sorted(found), read_body) == (expected, body)
    found, fetched = await lines_of(server, "/q/messages", "X-Unlisted: 1")
    assert (sorted(found), fetched) == (expected, body)
    # Those of one name in their order.
    twice = [line for line in found if line.lower().startswith((b"tracestate", b"x-attribute-a"))]
    assert twice == [line for line in lines if line in twice]


@pytest.mark.parametrize("lines", CASES.values(), ids=CASES)
@pytest.mark.parametrize("body", [b"hello", LARGE], ids=["held", "streamed"])
async def test_both_ways_give_the_same_headers(
    server: Server, lines: list[bytes], body: bytes
) -> None:
    await make_queue(server)
    for _ in range(2):
        assert (await post(server, lines, body)).status == 201
    long_way, _ = await lines_of(server, "/q/messages", "X-Unlisted: 1")
    assert await direct_lines(server) == long_way
    assert sorted(long_way) == sorted(lines)


async def test_a_fetch_that_goes_the_direct_way_streams_with_its_headers(server: Server) -> None:
    await make_queue(server)
    await post(server, CASES["attributes"], LARGE)
    async with raw_connection(server.port) as connection:
        await connection.send(raw_head("GET", "/-/livez"))
        await connection.response()
        await connection.send(raw_head("GET", "/q/messages"))
        answer = await connection.response()
    assert answer.body == LARGE
    assert answer.headers["x-attribute-a"] == "2"  # The last of the two lines.


@pytest.mark.parametrize("body", [b"\x00\xffbody\r\n", b"", LARGE], ids=["held", "empty", "large"])
async def test_the_body_lies_untouched_behind_the_block(server: Server, body: bytes) -> None:
    await make_queue(server)
    answer = await post(server, [*CLOUD_EVENT, b"x-attribute-a: 1", b"X-Other: left out"], body)
    path = the_file(server.root)
    block = b"".join(line + b"\n" for line in [*CLOUD_EVENT, b"x-attribute-a: 1"])
    assert path.name == answer.headers["x-message-id"]
    assert path.name.endswith(f",h={len(block)}")
    assert path.read_bytes() == block + body


async def test_what_a_name_can_say_stands_in_no_block(server: Server) -> None:
    await make_queue(server)
    await publish(server, b"{}", headers={"Content-Type": "Application/JSON", "X-Other": "a"})
    path = the_file(server.root)
    assert (path.name[36:], path.read_bytes()) == (".json", b"{}")
    assert (await fetch(server)).headers["Content-Type"] == "application/json"


async def test_a_type_that_was_kept_is_the_only_one(server: Server) -> None:
    await make_queue(server)
    await post(server, [b"content-type: text/weird; a=b"])
    lines, _ = await lines_of(server, "/q/messages")
    assert lines == [b"Content-Type: text/weird; a=b"]


async def test_headers_that_are_not_kept_are_ignored(server: Server) -> None:
    """Proxies and libraries add headers (RFC 9110, 5.1)."""
    await make_queue(server)
    ignored = {
        "User-Agent": "curl", "X-Forwarded-For": "::1", "Priority": "u=1", "X-Priority": "9",
        "X-Delay": "60", "X-Attributes-A": "1", "X_Attribute_A": "1",
    }  # fmt: skip
    reply = await call(server, "POST", "/q/messages", data=b"a", headers=dict(ignored))
    assert reply.status == 201
    assert ",p=" not in reply.id
    fetched = await fetch(server)
    assert fetched.id == reply.id
    assert not {name.lower() for name in ignored} & {name.lower() for name in fetched.headers}


async def test_a_full_block_is_kept(server: Server) -> None:
    await make_queue(server)
    as_many = [b"ce-%d: x" % number for number in range(HEADERS_MAX)]
    assert (await post(server, as_many)).status == 201
    lines, _ = await lines_of(server, "/q/messages")
    assert sorted(lines) == sorted([*as_many, OCTETS])
    as_long = [b"ce-a: " + b"x" * (HEADER_BLOCK_BYTES_MAX - 7)]
    assert (await post(server, as_long)).status == 201
    lines, _ = await lines_of(server, "/q/messages")
    assert sorted(lines) == sorted([*as_long, OCTETS])


@pytest.mark.parametrize(
    "lines",
    [
        [b"ce-%d: x" % number for number in range(HEADERS_MAX + 1)],
        [b"ce-a: " + b"x" * (HEADER_BLOCK_BYTES_MAX - 6)],
        [b"ce-%d: " % number + b"x" * 600 for number in range(20)],
        # What the parser gives up on.
        [b"ce-%d: x" % number for number in range(FIELDS_MAX + 1)],
        [b"ce-a: " + b"x" * FIELD_BYTES_MAX],
        [b"ce-" + b"a" * FIELD_BYTES_MAX + b": x"],
        [b"X-Other: " + b"x" * 2 * FIELD_BYTES_MAX],
    ],
    ids=["too many", "too long", "together", "far too many", "far too long", "name", "not kept"],
)
@pytest.mark.parametrize("body", [b"hello", LARGE], ids=["held", "streamed"])
async def test_more_than_there_is_room_for(server: Server, lines: list[bytes], body: bytes) -> None:
    await make_queue(server)
    members = assert_problem(await post(server, lines, body), 431, "headers-too-large")
    said = (members["headers_max"], members["bytes_max"], members["detail"].split(": ")[1])
    kept = f"a message keeps at most {HEADER_BLOCK_BYTES_MAX} bytes of headers, and at most 64."
    of_each = f"{FIELDS_MAX} headers of {FIELD_BYTES_MAX} bytes"
    asked = f"a request's head has at most {HEAD_BYTES_MAX} bytes, with at most {of_each}."
    longest = max(len(part) for line in lines for part in line.split(b": "))
    if len(lines) <= FIELDS_MAX and longest <= FIELD_BYTES_MAX:
        assert said == (HEADERS_MAX, HEADER_BLOCK_BYTES_MAX, kept)
    else:
        assert said == (FIELDS_MAX, HEAD_BYTES_MAX, asked)
    assert members["parameter"] == "headers"
    assert list(files_below(server.root / "queues" / "q")) == []
    assert list((server.root / "new").iterdir()) == []


async def test_a_request_s_line_is_as_long_as_its_head_allows(server: Server) -> None:
    answer = await raw_request(server.port, raw_head("GET", "/-/livez?" + "q" * 20_000))
    assert_problem(answer, 400, "unknown-parameter")
    answer = await raw_request(server.port, raw_head("GET", "/" + "q" * HEAD_BYTES_MAX))
    assert_problem(answer, 431, "headers-too-large")


@pytest.mark.parametrize(
    "line", [b"ce-a: \xff", b"x-attribute-a: \xe4", b"Content-Type: text/plain; charset=\xff"]
)
async def test_values_that_are_no_utf_8(server: Server, line: bytes) -> None:
    await make_queue(server)
    members = assert_problem(await post(server, [line]), 400, "bad-headers")
    assert members["parameter"] == "headers"
    # In a header that is not kept nobody minds.
    assert (await post(server, [b"X-Other: \xff"])).status == 201


@pytest.mark.parametrize(
    "line",
    [b"ce-a: \x01", b"ce-a: \x00", b"ce-a: a\x7f", b"ce-a: a\rb", b"ce-(: a", b"ce-\xc3\xa4: a",
     b"ce-a : b", b"ce-a: b\r\n folded"],
)  # fmt: skip
async def test_what_is_no_header_line_is_no_request(server: Server, line: bytes) -> None:
    await make_queue(server)
    assert_problem(await post(server, [line]), 400, "bad-request")


async def test_a_type_that_is_said_twice_is_no_request(server: Server) -> None:
    await make_queue(server)
    lines = [b"Content-Type: application/json", b"Content-Type: text/weird"]
    assert_problem(await post(server, lines), 400, "bad-request")


DAMAGE = {
    "another header": b"Set-Cookie: a=b\n",
    "a framing header": b"Content-Length: 99\nTransfer-Encoding: chunked\n",
    "a line break": b"ce-a: b\r\nX-Evil: yes\r\n\r\n",
    "no text": bytes(range(256)),
    "zeros": bytes(60),
    "no lines": b"x" * 60,
}
UNREADABLE = (DAMAGE["no text"], DAMAGE["zeros"])


@pytest.mark.parametrize("block", DAMAGE.values(), ids=DAMAGE)
@pytest.mark.parametrize("body", [b"hello", LARGE], ids=["held", "streamed"])
async def test_a_damaged_block_gets_nothing_into_an_answer(
    server: Server, block: bytes, body: bytes
) -> None:
    await make_queue(server)
    await post(server, [b"ce-a: " + b"x" * (len(block) - 7)], body)
    path = the_file(server.root)
    with path.open("r+b") as file:
        file.write(block)
    # What is no text at all is not given out, but sidelined: test_unreadable.
    ways = [f"/q/messages/{path.name}", "/q/messages"]
    for way in ways[: 1 if block in UNREADABLE else 2]:
        async with raw_connection(server.port) as connection:
            await connection.send(raw_head("GET", way, "Connection: close"))
            head, _, found = (await connection.ended()).partition(b"\r\n\r\n")
        assert found == body
        names = [line.partition(b":")[0].lower() for line in head.split(b"\r\n")[1:]]
        assert len(names) == len(set(names))
        assert not {b"set-cookie", b"x-evil", b"transfer-encoding", b"ce-a"} & set(names)
    rows = await call(server, "GET", "/q/peek?state=ready,delayed")
    assert (rows.status, len(rows.body.splitlines())) == (200, 1)


async def test_a_file_cut_within_its_block_holds_nothing_up(serve: Serve) -> None:
    server = await serve()
    await make_queue(server)
    await post(server, [b"ce-a: " + b"x" * 50])
    os.truncate(the_file(server.root), 20)
    await publish(server, b"well")
    assert (await fetch(server)).body == b"well"
