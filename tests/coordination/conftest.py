"""Members by each kind of coordinator."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.members import Bench, FileBench, ZooKeeperBench
from harness.zookeeper import ZooKeeper, zookeeper


@pytest.fixture(scope="session")
def zookeeper_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    """One for all of this process's tests that do it no harm."""
    with zookeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture
def file_bench(root: Path) -> Iterator[FileBench]:
    bench = FileBench(root)
    yield bench
    bench.end()


@pytest.fixture
def zookeeper_bench(zookeeper_server: ZooKeeper, root: Path) -> Iterator[ZooKeeperBench]:
    bench = ZooKeeperBench(zookeeper_server, root)
    yield bench
    bench.end()


@pytest.fixture(params=["file", pytest.param("zookeeper", marks=pytest.mark.certificate)])
def bench(request: pytest.FixtureRequest) -> Bench:
    """Members by each kind of coordinator."""
    made: Bench = request.getfixturevalue(f"{request.param}_bench")
    return made
