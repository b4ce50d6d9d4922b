"""A fixture for pytest, which finds it where mq is installed."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from mq.testing import FakeMq


@pytest.fixture
def mq_server() -> "Iterator[FakeMq]":
    """An mq of the test's own, which listens at `mq_server.url`: the daemon, in memory, with a
    clock that the test moves.
    """
    # A run whose tests do not ask for it loads no daemon.
    from mq.testing import FakeMq  # noqa: PLC0415

    with FakeMq() as server:
        yield server
