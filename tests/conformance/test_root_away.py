"""While the root is not at its path, requests are refused; mq goes on once it is back."""

from pathlib import Path

import pytest
from harness.api import assert_problem, assert_works, call, fetch, make_queue, publish
from harness.folders import make_root, message_files, nothing_anywhere
from harness.server import Server

REQUESTS = (
    ("POST", "/q/messages"),
    ("GET", "/q/messages"),
    ("GET", "/q/messages?wait=1"),
    ("PUT", "/other"),
    ("GET", "/q"),
    ("DELETE", "/q"),
    ("GET", "/q/peek"),
    ("GET", "/-/queues"),
    ("GET", "/-/readyz"),
)


@pytest.mark.parametrize("is_another_there", [False, True], ids=["none", "another"])
async def test_each_request_is_refused_until_the_root_is_back(
    server: Server, tmp_path: Path, is_another_there: bool
) -> None:
    await make_queue(server)
    kept = await publish(server)
    server.root.rename(tmp_path / "aside")
    if is_another_there:
        make_root(server.root)
        (server.root / "queues" / "q").mkdir()
    for method, path in REQUESTS:
        assert_problem(await call(server, method, path), 503, "root-away")
    for path in ("/-/livez", "/-/metrics", "/-/"):
        assert (await call(server, "GET", path)).status == 200
    if is_another_there:
        # What was under way when it went is not answered with a success.
        assert message_files(server.root).keys() == nothing_anywhere().keys()
        server.root.rename(tmp_path / "another")
    (tmp_path / "aside").rename(server.root)
    assert (await fetch(server)).headers["X-Message-Id"] == kept
    assert (await call(server, "GET", "/-/readyz")).status == 200
    await assert_works(server)


async def test_a_publish_to_another_root_is_no_success(server: Server, tmp_path: Path) -> None:
    """The first one after the change: no look has seen it yet."""
    await make_queue(server)
    server.root.rename(tmp_path / "aside")
    make_root(server.root)
    (server.root / "queues" / "q").mkdir()
    assert_problem(await call(server, "POST", "/q/messages", data=b"x"), 503, "root-away")
