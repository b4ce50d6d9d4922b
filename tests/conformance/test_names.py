"""Names from the network: none of them becomes a path that its sender chose."""

from pathlib import Path

import pytest
from harness.api import UNKNOWN_ID, assert_problem, call, fetch, publish
from harness.folders import tree
from harness.raw import raw_head, raw_request
from harness.server import Server

BAD_NAMES = {
    "dot": "/.",
    "dot dot": "/..",
    "escaped dots": "/%2e%2e",
    "climbing": "/..%2f..%2fetc",
    "climbing, in capitals": "/%2E%2E%2Fdelay",
    "escaped slash": "/a%2Fb",
    "escaped slash first": "/%2Ftmp",
    "twice escaped": "/a%252Fb",
    "backslash": "/a%5Cb",
    "nul": "/a%00b",
    "nul last": "/a%00",
    "newline": "/a%0a",
    "carriage return": "/a%0d%0aX:%20y",
    "colon": "/a:b",
    "space": "/a%20b",
    "plus": "/a+b",
    "percent and nothing": "/a%",
    "percent and no hex": "/%zz",
    "hidden": "/.hidden",
    "dash first": "/-x",
    "underscore first": "/_x",
    "dash alone, escaped": "/%2D",
    "letter with accent": "/%C3%A9",
    "digit of another script": "/%D9%A1",
    "full-width letter": "/%EF%BD%81",
    "surrogate": "/%ED%A0%80",
    "invalid UTF-8": "/%ff",
    "overlong UTF-8 slash": "/a%C0%AFb",
    "56 characters": "/" + "a" * 56,
    "300 characters": "/" + "a" * 300,
    "a sideline's suffix alone": "/_SIDELINE",
    "a sideline of 56 characters": "/" + "a" * 56 + "_SIDELINE",
    "a sideline of a sideline of 55": "/" + "a" * 55 + "_SIDELINE_SIDELINE",
}

GOOD_NAMES = {
    "a letter": "a",
    "a digit": "0",
    "everything": "Az09_.-",
    "dots inside": "a..b",
    "dot last": "a.",
    "55 characters": "a" * 55,
    "a sideline of 55 characters": "a" * 55 + "_SIDELINE",
    "a folder's name": "delay",
    "a route's name": "messages",
    "looks like a file": "format",
    "the deleted folder's suffix": "a.d",
}


@pytest.mark.parametrize("path", BAD_NAMES.values(), ids=BAD_NAMES.keys())
async def test_a_bad_queue_name_is_400_everywhere(
    server: Server, tmp_path: Path, path: str
) -> None:
    before = tree(tmp_path)
    for method, rest in (
        ("PUT", ""),
        ("GET", ""),
        ("DELETE", ""),
        ("POST", "/messages"),
        ("GET", "/messages"),
        ("DELETE", f"/messages/{UNKNOWN_ID}"),
    ):
        reply = await raw_request(
            server.port, raw_head(method, path + rest, "Content-Length: 5") + b"hello"
        )
        assert assert_problem(reply, 400, "bad-name")["parameter"] == "queue"
    assert tree(tmp_path) == before


@pytest.mark.parametrize("name", GOOD_NAMES.values(), ids=GOOD_NAMES.keys())
async def test_a_good_queue_name_works_all_the_way(server: Server, root: Path, name: str) -> None:
    assert (await call(server, "PUT", f"/{name}")).status == 201
    message_id = await publish(server, b"x", name)
    assert (root / "queues" / name / message_id).is_file()
    assert (await fetch(server, name)).body == b"x"
    assert (root / "delay" / f"{name}:{message_id}").is_file()
    reply = await call(server, "DELETE", f"/{name}/messages/{message_id}")
    assert reply.status == 202
    assert (root / "remove" / f"{name}:{message_id}").is_file()
    assert (await call(server, "DELETE", f"/{name}")).status == 200
    assert (root / "deleted" / name).is_file()


@pytest.mark.parametrize(
    "path", ["/../../etc", "/q/../../format", "/q/messages/../../../format", "/-/../q"]
)
async def test_dots_between_slashes_are_not_resolved(
    server: Server, tmp_path: Path, path: str
) -> None:
    await call(server, "PUT", "/q")
    before = tree(tmp_path)
    for method in ("PUT", "DELETE"):
        reply = await raw_request(server.port, raw_head(method, path))
        assert reply.status in (404, 405)
        assert_problem(
            reply, reply.status, ("path-unknown", "method-not-allowed")[reply.status - 404]
        )
    assert tree(tmp_path) == before


@pytest.mark.parametrize(
    "data",
    [
        b"hello\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"\x00" * 100 + b"\r\n\r\n",
        b"GET /q HTTP/9.9\r\n\r\n",
        b"GET q HTTP/1.1\r\nHost: mq\r\n\r\n",
        b"GET http://[::bad/q HTTP/1.1\r\nHost: mq\r\n\r\n",
        b"GET /q HTTP/1.1\r\nHost: mq\r\nno colon\r\n\r\n",
        b"PUT /\xff\xfe HTTP/1.1\r\nHost: mq\r\n\r\n",
        b"PUT /a\x00b HTTP/1.1\r\nHost: mq\r\n\r\n",
        b"POST /q/messages HTTP/1.1\r\nHost: mq\r\nContent-Length: -1\r\n\r\n",
        b"POST /q/messages HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        # What one server takes for two requests and another for one.
        b"POST /q/messages HTTP/1.1\r\nHost: mq\r\nContent-Length: 3\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ],
    ids=range(12),
)
async def test_what_is_no_http_gets_a_problem(server: Server, root: Path, data: bytes) -> None:
    await call(server, "PUT", "/q")
    before = tree(root)
    assert_problem(await raw_request(server.port, data), 400, "bad-request")
    assert tree(root) == before
    assert (await call(server, "GET", "/q")).status == 200
