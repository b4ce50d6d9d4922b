"""Fixtures: mqctl, and one mq for the tests of a file."""

from collections.abc import Iterator
from itertools import count

import pytest
from harness.mqctl import Mqctl, mqctl_for
from harness.processes import Process

_NUMBERS = count(1)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Mqctl, Process]]:
    with mqctl_for(tmp_path_factory.mktemp("mqctl"), "--standalone") as both:
        yield both


@pytest.fixture(scope="module")
def mqctl(both: tuple[Mqctl, Process]) -> Mqctl:
    """mqctl, against an mq that the file's tests share."""
    return both[0]


@pytest.fixture
def queue(mqctl: Mqctl) -> str:
    """A queue of the test's own, made."""
    name = f"orders-{next(_NUMBERS)}"
    assert mqctl("create", name).code == 0
    return name
