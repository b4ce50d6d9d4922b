"""A server that waits for nobody for long, and what it must have given back in the end."""

import gc
import os
from collections.abc import AsyncIterator

import pytest
from harness.api import assert_works, make_queue
from harness.internals import connections
from harness.server import Serve
from harness.waiting import comes_true

from fuzz.fuzzed import Fuzzed


@pytest.fixture
async def fuzzed(serve: Serve, caplog: pytest.LogCaptureFixture) -> AsyncIterator[Fuzzed]:
    gc.collect()  # What other tests left complains now, not of this one.
    server = await serve(body_idle_s=0.1, durability="none", force=True)
    await make_queue(server)
    await assert_works(server)
    open_before = _open_files()
    yield Fuzzed(server, caplog)
    await comes_true(lambda: connections(server) <= 1, "the end of all connections")
    # What a daemon keeps open for a queue's sake is a handful.
    await comes_true(lambda: _open_files() <= open_before + 8, "the end of what was opened")
    await make_queue(server, "afterwards")
    await assert_works(server, "afterwards")


def _open_files() -> int:
    return len(os.listdir("/proc/self/fd"))
