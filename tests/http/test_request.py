"""Heads as requests: what is refused, how long a body is, and whether the client stays."""

from typing import cast

import pytest

from mq.http.request import (
    FIELD_BYTES_MAX,
    FIELDS_MAX,
    KEPT_HEAD_BYTES_MAX,
    Client,
    Malformed,
    Request,
    parse,
)
from mq.model.errors import HeadersTooLarge


def parsed(*lines: str, line: str = "GET /q HTTP/1.1") -> Request:
    head = "".join(f"{each}\r\n" for each in (line, "Host: mq", *lines, ""))
    return parse(head.encode(), cast(Client, None))


@pytest.mark.parametrize(
    ("target", "path", "query"),
    [
        ("/q/messages?wait=1&x", "/q/messages", "wait=1&x"),
        ("/a%2Fb#f?x", "/a%2Fb", ""),
        ("http://mq:80/q?a=b", "/q", "a=b"),
        ("http://mq", "/", ""),
    ],
)
def test_a_target_is_a_path_and_a_query(target: str, path: str, query: str) -> None:
    found = parsed(line=f"GET {target} HTTP/1.1")
    assert (found.path, found.raw_query) == (path, query)


def test_a_query_is_decoded_and_what_is_empty_is_kept() -> None:
    query = parsed(line="GET /q?a=1&a=%C3%BC+x&b&c= HTTP/1.1").query
    assert list(query.items()) == [("a", "1"), ("a", "\u00fc x"), ("b", ""), ("c", "")]


@pytest.mark.parametrize(
    ("line", "connection", "keeps"),
    [
        ("GET /q HTTP/1.1", None, True),
        ("GET /q HTTP/1.1", "x, Close", False),
        ("GET /q HTTP/1.0", None, False),
        ("GET /q HTTP/1.0", "Keep-Alive", True),
    ],
)
def test_who_may_send_another_request(line: str, connection: str | None, keeps: bool) -> None:
    lines = [] if connection is None else [f"Connection: {connection}"]
    assert parsed(*lines, line=line).head.keeps_alive is keeps


@pytest.mark.parametrize(
    "lines",
    [
        ("Content-Length: 5", "Content-Length: 5"),
        ("Content-Length: 5, 5",),
        ("Content-Length: +5",),
        ("Content-Length: \u0665",),
        ("Content-Length: " + "1" * 19,),
        ("Content-Length:",),
        ("Content-Type: a/b", "content-type: a/b"),
        ("Host: mq",),
        ("Content-Length: 0", "Transfer-Encoding: chunked"),
        ("Transfer-Encoding: chunked", "Transfer-Encoding: chunked"),
        ("Transfer-Encoding: gzip, chunked",),
        ("Transfer-Encoding: identity",),
        ("Transfer-Encoding : chunked",),
        ("X: a\nY: b",),
        ("X: a\r Y: b",),
        ("X: a", " b"),
        ("X: \x00",),
        (": x",),
        ("no colon",),
    ],
)
def test_what_servers_read_differently_is_malformed(lines: tuple[str, ...]) -> None:
    with pytest.raises(Malformed):
        parsed(*lines, line="POST /q HTTP/1.1")


def test_how_long_a_body_is() -> None:
    assert parsed().head.length == 0
    assert parsed("Content-Length: 0012").head.length == 12
    assert parsed("transfer-encoding: Chunked").head.length is None


def test_what_is_too_long() -> None:
    assert parsed(f"X: {'x' * FIELD_BYTES_MAX}").headers["x"] == "x" * FIELD_BYTES_MAX
    with pytest.raises(HeadersTooLarge):
        parsed(f"X: {'x' * (FIELD_BYTES_MAX + 1)}")
    with pytest.raises(HeadersTooLarge):
        parsed(*["X: y"] * FIELDS_MAX)


@pytest.mark.parametrize(
    "line", ["POST /q?x HTTP/1.1", "POST /q?x HTTP/1.0", "POST http://mq/q?x HTTP/1.1"]
)
@pytest.mark.parametrize("more", ["", "x" * KEPT_HEAD_BYTES_MAX])
def test_a_head_is_parsed_alike_whether_it_is_kept_or_not(line: str, more: str) -> None:
    lines = (f"X: {more}", "Content-Type: a/b", "Origin: http://mq", "Content-Length: 7")
    for _ in range(2):
        found = parsed(*lines, line=line)
        assert (found.method, found.path, found.raw_query) == ("POST", "/q", "x")
        head = found.head
        assert (head.length, head.expects, head.names_origin) == (7, False, True)
        assert [*head.headers.items()] == [
            ("Host", "mq"), ("X", more), *(tuple(each.split(": ")) for each in lines[1:])
        ]  # fmt: skip
        assert head.is_http_1_1 is head.keeps_alive is line.endswith("1.1")


def test_a_refused_head_is_refused_again() -> None:
    for _ in range(2):
        with pytest.raises(Malformed):
            parsed("Content-Length: 5", "Content-Length: 5")
