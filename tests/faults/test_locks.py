"""What a request changes of a message's file it changes under the lock of its inode, and keeps that
until the change is on stable media: a process that is stopped in between keeps its claim.
"""

import pytest
from faults.requests import REQUESTS, Request
from harness.server import Serve
from harness.watched import WatchedFiles

# What is released is anyone's from its rename on, flushed or not.
RELEASES = ("release", "release-scheduled")


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: request.name)
async def test_a_message_is_stamped_and_flushed_under_its_lock(
    serve: Serve, request_: Request
) -> None:
    files = WatchedFiles()
    server = await serve(files=files, commit="fsync")
    case = request_.case(server, "q")
    await request_.prepare(case)
    files.unlocked.clear()
    files.seen.clear()
    reply = await request_.send(case)
    assert reply.status in request_.success
    assert set(files.unlocked) == ({"sync"} if request_.name in RELEASES else set())
    if request_.name in ("fetch", "postpone", "extend", "release", "sideline"):
        assert files.seen == ["stamp", "sync"]
