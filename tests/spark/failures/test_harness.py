"""That drivers stop where they are told, die whole, and leave nothing behind."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.points import Point, state_of
from harness.processes import eventually
from spark.failures.drivers import Driver


@pytest.fixture
def driver(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Driver]:
    made = Driver(tmp_path / "driver", request.param)
    yield made
    made.kill()


@pytest.mark.slow
@pytest.mark.parametrize("driver", ["local[2,4]"], indirect=True)
def test_a_worker_stops_at_its_point_and_goes_on_or_dies(driver: Driver, tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in "abcd"]
    driver.points.arm(Point("mkdir", "b$"))
    job = driver.start("calls", paths=paths)
    pid = job.stopped()
    assert not (tmp_path / "b").exists()
    assert job.outcome is None
    os.kill(pid, signal.SIGCONT)
    assert job.result()["made"] == paths
    driver.points.arm(Point("mkdir", "f$", after=True))
    job = driver.start("calls", paths=[str(tmp_path / name) for name in "efgh"])
    os.kill(job.stopped(), signal.SIGKILL)
    assert (tmp_path / "f").exists()
    assert len(job.result()["made"]) == 4
    driver.points.arm(Point("mkdir", "x$"))
    job = driver.start("calls", paths=[str(tmp_path / "x")])
    job.stopped()
    assert len(driver.pids("java")) == 1
    driver.kill()
    assert not (tmp_path / "x").exists()
    assert not driver.pids()


@pytest.mark.slow
@pytest.mark.parametrize("driver", ["local-cluster[2,1,1024]"], indirect=True)
def test_an_executor_of_a_local_cluster_dies_alone(driver: Driver, tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in "abcd"]
    driver.points.arm(Point("mkdir", "b$", after=True))
    job = driver.start("calls", paths=paths)
    pid = job.stopped()
    executor = driver.executor_above(pid)
    os.kill(executor, signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: state_of(executor) in ("", "Z"), "its end")
    assert job.result()["made"] == paths
