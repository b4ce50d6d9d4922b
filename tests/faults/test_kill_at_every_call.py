"""A daemon is killed (-9) before each call on files that a request makes; another takes over.

What was acknowledged is so, what was not is done or not, and never half; start-up repairs nothing.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from faults.killing import QUEUE, Known
from faults.requests import REQUESTS, Request, drain
from harness.api import make_queue
from harness.audits import assert_audits_clean
from harness.folders import message_files
from harness.processes import PATIENCE_S
from harness.server import Serve
from harness.tally import tally

from mq.store.audit.findings import Breach

TESTS = Path(__file__).parent.parent

pytestmark = pytest.mark.certificate


def kills(request: Request, folder: Path) -> int:
    """Lets a daemon die before each call of the request; how many there are."""
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "faults.killing", request.name, str(folder)],
        capture_output=True,
        text=True,
        timeout=3 * PATIENCE_S,
        env=os.environ | {"PYTHONPATH": f"{TESTS.parent}:{TESTS}"},
    )
    assert done.returncode == 0, done.stderr
    return len(list(folder.glob("*.json"))) - 1


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: request.name)
async def test_a_kill_before_every_call_breaks_no_promise(
    serve: Serve, request_: Request, tmp_path: Path
) -> None:
    folder = tmp_path / "roots"
    count = kills(request_, folder)
    assert count > 0
    tally("kills", count)
    for calls in range(count + 1):
        root, known = folder / str(calls), Known.read(folder / f"{calls}.json")
        said = f"killed before call {calls} of {count}: {known.status}, {message_files(root)}"
        assert known.status in (None, *request_.success), said
        assert (known.status is not None) or calls < count, said
        # A claim that was not stamped waits in delay/ for the mover.
        assert_audits_clean(root, allowed=frozenset({Breach.OVERDUE}))
        server = await serve(root=root)
        bodies = {body.decode() for body in await drain(server, QUEUE)}
        assert set(known.owed) <= bodies <= {*known.owed, *known.possible}, said
        await make_queue(server, QUEUE)
        assert await drain(server, QUEUE) == [], said
        assert_audits_clean(root)
