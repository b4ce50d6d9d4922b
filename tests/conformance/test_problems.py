"""Every refusal is an RFC 9457 problem that says what to do, and nothing about the machine."""

import errno
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from harness.api import UNKNOWN_ID, assert_problem, call, fetch, make_queue, publish
from harness.faults import FaultyFiles
from harness.raw import raw_head, raw_request
from harness.server import Serve, Server

from mq.model.settings import QueueSettings

Asking = Callable[[Server], Awaitable[Any]]


def asks(method: str, path: str, **more: Any) -> Asking:
    return lambda server: call(server, method, path, **more)


def says(data: bytes) -> Asking:
    return lambda server: raw_request(server.port, data)


# What is asked of a daemon with an empty queue `q`: status, slug, retryable, members beside.
REFUSALS: list[tuple[Asking, int, str, bool, dict[str, Any]]] = [
    (asks("GET", "/-x"), 400, "bad-name", False, {"parameter": "queue"}),
    (asks("DELETE", "/q/messages/x"), 400, "bad-name", False, {"parameter": "id"}),
    (asks("GET", "/q?x=1"), 400, "unknown-parameter", False, {"parameter": "x"}),
    (asks("PUT", "/q?x=1"), 400, "unknown-parameter", False, {"parameter": "x"}),
    (asks("DELETE", "/q?x=1"), 400, "unknown-parameter", False, {"parameter": "x"}),
    (asks("GET", "/-/livez?x=1"), 400, "unknown-parameter", False, {"parameter": "x"}),
    (
        asks("DELETE", f"/q/messages/{UNKNOWN_ID}", headers={"If-Match": "x"}),
        400,
        "bad-if-match",
        False,
        {},
    ),
    (says(b"no http\r\n\r\n"), 400, "bad-request", False, {}),
    (asks("GET", "/none"), 404, "queue-not-found", False, {"queue": "none"}),
    (asks("DELETE", "/none"), 404, "queue-not-found", False, {"queue": "none"}),
    (asks("GET", "/none/messages"), 404, "queue-not-found", False, {"queue": "none"}),
    (asks("POST", "/none/messages"), 404, "queue-not-found", False, {"queue": "none"}),
    (
        asks("DELETE", f"/none/messages/{UNKNOWN_ID}"),
        404,
        "queue-not-found",
        False,
        {"queue": "none"},
    ),
    (
        asks("DELETE", f"/q/messages/{UNKNOWN_ID}"),
        404,
        "message-not-found",
        False,
        {"id": UNKNOWN_ID},
    ),
    (asks("GET", "/q/r/s/t"), 404, "path-unknown", False, {}),
    (asks("PROPFIND", "/q"), 405, "method-not-allowed", False, {}),
    (says(raw_head("POST", "/q/messages", "Content-Length: 9")), 408, "body-too-slow", True, {}),
    (
        says(raw_head("POST", "/q/messages", "Content-Length: 9999")),
        413,
        "body-too-large",
        False,
        {"bytes_max": 1000},
    ),
    (
        says(raw_head("POST", "/q/messages", "Content-Length: 9", "Expect: tea")),
        417,
        "expectation-unknown",
        False,
        {},
    ),
]


def assert_says_nothing_of_the_machine(reply: Any, root: Path) -> None:
    text = reply.body.decode()
    for part in (str(root), "/tmp", "Errno", "Error(", "Traceback", ".py", "queues/", "new/"):
        assert part not in text


@pytest.mark.parametrize(
    ("asking", "status", "slug", "retryable", "members"),
    REFUSALS,
    ids=[f"{n}-{slug}" for n, (_, _, slug, _, _) in enumerate(REFUSALS)],
)
async def test_a_refusal_is_a_problem(
    serve: Serve,
    root: Path,
    asking: Asking,
    status: int,
    slug: str,
    retryable: bool,
    members: dict[str, Any],
) -> None:
    server = await serve(body_idle_s=0.1, queue=QueueSettings(body_bytes_max=1000))
    await make_queue(server)
    reply = await asking(server)
    problem = assert_problem(reply, status, slug)
    assert problem["retryable"] is retryable
    standard = {"type", "title", "status", "detail", "retryable"}
    assert {name: problem[name] for name in problem.keys() - standard} == members
    assert_says_nothing_of_the_machine(reply, root)


FAILURES = [
    (errno.ENOSPC, "no-space"),
    (errno.EDQUOT, "quota-exceeded"),
    (errno.EMFILE, "no-descriptors"),
    (errno.ENFILE, "no-descriptors"),
    (errno.EROFS, "read-only"),
    (errno.EACCES, "read-only"),
    (errno.EPERM, "read-only"),
    (errno.EIO, "storage-failed"),
    (errno.ENOENT, "storage-failed"),
    (errno.ENOTDIR, "storage-failed"),
    (errno.ENAMETOOLONG, "storage-failed"),
]


@pytest.mark.parametrize(("code", "slug"), FAILURES, ids=[errno.errorcode[c] for c, _ in FAILURES])
async def test_what_the_system_says_becomes_a_503_of_its_own_type(
    serve: Serve, root: Path, code: int, slug: str
) -> None:
    files = FaultyFiles()
    server = await serve(files=files)
    await make_queue(server)
    files.fail("create", code)
    reply = await call(server, "POST", "/q/messages", data=b"x")
    assert_problem(reply, 503, slug)
    assert_says_nothing_of_the_machine(reply, root)
    assert reply.headers["Server"].startswith("mq/")


async def test_a_failed_fetch_is_a_problem(serve: Serve, root: Path) -> None:
    files = FaultyFiles()
    server = await serve(files=files)
    await make_queue(server)
    await publish(server)
    files.fail("stamp", errno.EIO)
    reply = await fetch(server)
    assert_problem(reply, 503, "storage-failed")
    assert_says_nothing_of_the_machine(reply, root)


class BrokenFiles(FaultyFiles):
    """Has a fault in the program, which is no OSError."""

    broken = False

    def create(self, path: str) -> int:
        if self.broken:
            raise ZeroDivisionError(path)
        return super().create(path)


async def test_a_fault_of_the_program_is_a_500_that_tells_nothing(serve: Serve, root: Path) -> None:
    files = BrokenFiles()
    server = await serve(files=files)
    await make_queue(server)
    files.broken = True
    reply = await call(server, "POST", "/q/messages", data=b"x")
    assert_problem(reply, 500, "internal")
    assert_says_nothing_of_the_machine(reply, root)
    assert b"ZeroDivision" not in reply.body
    files.broken = False
    assert await publish(server)


async def test_a_problem_for_head_has_no_body(server: Server) -> None:
    reply = await call(server, "HEAD", "/none")
    assert (reply.status, reply.body) == (404, b"")
    assert reply.headers["Content-Type"].startswith("application/problem+json")
