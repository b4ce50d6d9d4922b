"""An mq in a test's own time."""

import pytest
from harness.api import make_queue
from harness.clock import FakeClock
from harness.server import Serve, Server


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def timed(serve: Serve, clock: FakeClock) -> Server:
    """An mq with the queue `q`, whose time a test moves on."""
    started = await serve(clock=clock)
    await make_queue(started)
    return started
