"""A bulk publish while things fail: it is published as a whole, and once, or not at all; a publish
id makes it safe to try again.
"""

import os
import signal

import pytest
from harness.points import Point
from harness.processes import eventually
from spark.failures.drivers import Driver, Drivers, Job
from spark.failures.places import QUEUE, Place

FIRST, END = 0, 400
NUMBERS = set(range(FIRST, END))

pytestmark = [pytest.mark.certificate, pytest.mark.timeout(300)]

COMMIT_POINT = r" -> .*/journal/[^/]+\.json$"


def _publish(driver: Driver, place: Place, **options: str) -> Job:
    """All numbers, by four tasks."""
    args = [str(place.root), QUEUE, FIRST, END, 4]
    return driver.start("publish", args=args, **options)


def _settle(driver: Driver, place: Place, left: int = 0) -> None:
    """Each number was delivered once, and so was everything else; of how many jobs something is
    staged still.
    """
    place.account.published.update(NUMBERS)
    place.settle(driver).assert_balanced(set())
    assert place.account.fetched.keys() >= NUMBERS
    jobs = [path for path in (place.root / "new" / ".spark").iterdir() if len(path.name) == 32]
    assert len(jobs) == left


def test_a_task_fails_and_is_retried(drivers: Drivers, place: Place) -> None:
    driver = drivers.get()
    place.traffic.start()
    driver.points.arm(Point("create", r"/new/\.spark/[^/]+/1-", passes=30))
    job = _publish(driver, place)
    os.kill(job.stopped(), signal.SIGKILL)
    job.result()
    _settle(driver, place)


def test_the_driver_dies_before_the_commit_point(drivers: Drivers, place: Place) -> None:
    """Nothing is published; the same publish id then publishes all, once."""
    driver = drivers.get()
    place.traffic.start()
    driver.points.arm(Point("rename", COMMIT_POINT))
    _publish(driver, place, publishId="night-1").stopped()
    driver.kill()
    place.restart_mover()
    assert not place.account.fetched.keys() & NUMBERS
    driver = drivers.get()
    _publish(driver, place, publishId="night-1").result()
    # What the first one had staged is never delivered; mq-mover takes it away a day later.
    _settle(driver, place, left=1)


@pytest.mark.parametrize(
    "point",
    [
        Point("rename", COMMIT_POINT, after=True),
        Point("rename", r"/new/\.spark/.* -> .*/queues/", passes=30),
    ],
    ids=["at once", "while it rolls forward"],
)
def test_the_driver_dies_after_the_commit_point(
    drivers: Drivers, place: Place, point: Point
) -> None:
    """mq-mover's start goes on with it; a user who does not know tries again, in vain."""
    driver = drivers.get()
    place.traffic.start()
    driver.points.arm(point)
    _publish(driver, place, publishId="night-1").stopped()
    driver.kill()
    place.restart_mover()
    eventually(lambda: not place.journals(), "the end of the roll forward")
    driver = drivers.get()
    _publish(driver, place, publishId="night-1").result()
    _settle(driver, place)


def test_two_jobs_publish_with_one_publish_id(drivers: Drivers, place: Place) -> None:
    """Of two drivers; one stands still before its commit point until the other has published."""
    driver = drivers.get()
    place.traffic.start()
    driver.points.arm(Point("open_kept", r"/new/\.spark/[^/]+/\.lock$"))
    first = _publish(driver, place, publishId="night-1")
    pid = first.stopped()
    other = drivers.another()
    _publish(other, place, publishId="night-1").result()
    os.kill(pid, signal.SIGCONT)
    first.result()
    _settle(driver, place)


def test_a_stream_into_a_queue_dies_between_commit_point_and_commit_log(
    drivers: Drivers, place: Place
) -> None:
    """The batch is read and staged again, and its ledger says that it was published."""
    place.publish(END)
    place.make_queue("copies")
    place.traffic.start()
    driver = drivers.get()
    args = [place.checkpoint, str(place.root), "copies"]
    options = {**place.options, "maxMessagesPerTrigger": "150"}
    driver.points.arm(Point("rename", COMMIT_POINT, after=True))
    driver.start("forward", args=args, **options).stopped()
    driver.kill()
    driver = drivers.get()
    driver.run("forward", args=args, **options)
    _settle(driver, place)
