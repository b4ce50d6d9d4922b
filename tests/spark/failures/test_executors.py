"""An executor's JVM is killed, of a cluster of two: the other does its work again."""

import os
import signal
from pathlib import Path

import pytest
from harness.points import Point
from spark.failures.drivers import Driver, Job
from spark.failures.places import QUEUE, Place

PUBLISHED = range(400)
# Messages that a stream takes at a time.
PER_TRIGGER = 300


def _kill_executor(driver: Driver, job: Job) -> None:
    """The one whose worker stands still at the point, and the worker with it."""
    worker = job.stopped()
    executor = driver.executor_above(worker)
    os.kill(executor, signal.SIGKILL)
    os.kill(worker, signal.SIGKILL)


@pytest.mark.certificate
@pytest.mark.timeout(400)
def test_an_executor_is_killed_while_it_flushes_and_while_it_reads(
    place: Place, tmp_path: Path
) -> None:
    driver = Driver(tmp_path / "driver", "local-cluster[2,1,1024]")
    try:
        place.traffic.start()
        driver.points.arm(Point("sync", r"/new/\.spark/", after=True))
        args = [str(place.root), QUEUE, PUBLISHED.start, PUBLISHED.stop, 2]
        job = driver.start("publish", args=args, sync="fsync")
        _kill_executor(driver, job)
        job.result()
        place.account.published.update(PUBLISHED)
        driver.points.arm(Point("drain"))
        job = driver.start(
            "drain",
            args=[place.out, place.checkpoint],
            **place.options,
            maxMessagesPerTrigger=str(PER_TRIGGER),
            minPartitions="2",
        )
        _kill_executor(driver, job)
        job.result()
        account = place.settle(driver, place.out)
        account.assert_balanced(set())
        assert account.written
        assert account.fetched
    finally:
        driver.kill()
