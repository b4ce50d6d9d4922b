"""That a driver's processes stop where they are told, and nowhere else."""

import os
import signal
from pathlib import Path

import pytest
from harness.points import Point
from spark.failures.drivers import Drivers


@pytest.mark.certificate
@pytest.mark.timeout(300)
def test_a_worker_stops_at_its_point_and_goes_on_or_dies(drivers: Drivers, tmp_path: Path) -> None:
    driver = drivers.get()
    paths = [str(tmp_path / name) for name in "abcd"]
    driver.points.arm(Point("mkdir", "b$"))
    job = driver.start("calls", paths=paths)
    pid = job.stopped()
    assert pid in driver.pids("pyspark")
    assert not (tmp_path / "b").exists()
    assert job.outcome is None
    os.kill(pid, signal.SIGCONT)
    assert job.result()["made"] == paths
    driver.points.arm(Point("mkdir", "f$", after=True))
    job = driver.start("calls", paths=[str(tmp_path / name) for name in "efgh"])
    os.kill(job.stopped(), signal.SIGKILL)
    assert (tmp_path / "f").exists()
    # Its task is tried again, and passes by.
    assert len(job.result()["made"]) == 4
