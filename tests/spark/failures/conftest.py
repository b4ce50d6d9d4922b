"""Drivers that tests share until one kills them, and a root with its daemons for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.processes import Processes
from spark.failures.drivers import Drivers
from spark.failures.places import Place, opened


@pytest.fixture(scope="session")
def drivers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drivers]:
    """Two cores, tasks tried four times. On exit no process of any driver is there."""
    made = Drivers(tmp_path_factory.mktemp("drivers"), "local[2,4]")
    yield made
    made.end_all()


@pytest.fixture
def place(root: Path, tmp_path: Path, daemons: Processes) -> Iterator[Place]:
    """A root, its daemons, a queue."""
    made = opened(root, tmp_path / "work", daemons)
    yield made
    made.traffic.stop()
