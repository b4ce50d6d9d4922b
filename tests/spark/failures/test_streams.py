"""A stream out of a queue while things fail, with daemons, publishers and consumers at work beside
it: nothing is lost, and what is delivered again is what `AGAIN` has, as PIPELINE.md promises.
"""

import os
import shutil
import signal
from enum import Enum, auto
from pathlib import Path

import pytest
from harness.points import Point
from spark.failures.drivers import Driver, Drivers, Job
from spark.failures.places import QUEUE, Place

MESSAGES = 120
PER_TRIGGER = 50

pytestmark = [pytest.mark.certificate, pytest.mark.timeout(300)]


class Again(Enum):
    """What may be delivered again."""

    NOTHING = auto()
    WHAT_THE_LEASE_HELD = auto()


AGAIN = {
    "a task fails and is retried": Again.NOTHING,
    "the driver dies in the middle of a claim": Again.NOTHING,
    "the driver dies between claim and manifest": Again.NOTHING,
    "the driver dies between manifest and offset log": Again.NOTHING,
    "the driver dies between sink write and commit log": Again.NOTHING,
    "the driver dies between commit log and acknowledgement": Again.NOTHING,
    "the driver dies between acknowledgement and the next batch": Again.NOTHING,
    "the checkpoint is lost": Again.WHAT_THE_LEASE_HELD,
    "a lease lapses while the job hangs": Again.WHAT_THE_LEASE_HELD,
    "the process dies in a block that has a lease": Again.WHAT_THE_LEASE_HELD,
    "two queries use one consumer name": Again.NOTHING,
}

DEATHS = {
    "the driver dies in the middle of a claim": Point(
        "rename", r" -> .*/leases/spark\.2/", passes=20
    ),
    "the driver dies between claim and manifest": Point("rename", r" -> .*/leases/spark\.2\.json$"),
    "the driver dies between manifest and offset log": Point(
        "rename", r" -> .*/leases/spark\.2\.json$", after=True
    ),
    "the driver dies between commit log and acknowledgement": Point(
        "rename", r"/leases/spark\.1 -> .*/remove/"
    ),
    "the driver dies between acknowledgement and the next batch": Point(
        "rename", r"/leases/spark\.1 -> .*/remove/", after=True
    ),
}


def _drain(driver: Driver, place: Place, **options: str) -> Job:
    options = {"maxMessagesPerTrigger": str(PER_TRIGGER), **options}
    return driver.start("drain", args=[place.out, place.checkpoint], **place.options, **options)


def _drain_rest(driver: Driver, place: Place) -> None:
    """All that is there, in a batch or two."""
    _drain(driver, place, maxMessagesPerTrigger="5000").result()


def _begin(place: Place, messages: int = MESSAGES) -> None:
    """Messages are there, and others come and go."""
    place.publish(messages)
    place.traffic.start()


def _settle(
    case: str, driver: Driver, place: Place, *outs: str, leased: set[int] = frozenset()
) -> set[int]:
    """The account is right; what came twice."""
    account = place.settle(driver, *(outs or (place.out,)))
    account.assert_balanced(leased if AGAIN[case] is Again.WHAT_THE_LEASE_HELD else set())
    assert account.written
    assert account.fetched
    return account.twice


def test_a_task_fails_and_is_retried(drivers: Drivers, place: Place) -> None:
    driver = drivers.get()
    _begin(place)
    driver.points.arm(Point("drain"))
    job = _drain(driver, place)
    os.kill(job.stopped(), signal.SIGKILL)
    job.result()
    _settle("a task fails and is retried", driver, place)


@pytest.mark.parametrize("case", DEATHS)
def test_the_driver_dies(drivers: Drivers, place: Place, case: str) -> None:
    driver = drivers.get()
    _begin(place)
    driver.points.arm(DEATHS[case])
    _drain(driver, place).stopped()
    driver.kill()
    driver = drivers.get()
    _drain_rest(driver, place)
    _settle(case, driver, place)


def _die_before_commit_log(driver: Driver, place: Place) -> set[int]:
    """Has the driver die once the first batch is in Parquet, and nothing says so but the folder
    itself; what its lease holds. The log cannot be written meanwhile: a file is in its place.
    """
    driver.points.arm(Point("drain"))
    job = _drain(driver, place)
    pid = job.stopped()
    commits, away = Path(place.checkpoint, "commits"), Path(place.checkpoint, "away")
    commits.rename(away)
    commits.write_text("in the way")
    os.kill(pid, signal.SIGCONT)
    driver.eventually(Path(place.out, "_spark_metadata", "0").exists, "the first batch in Parquet")
    driver.kill()
    commits.unlink()
    away.rename(commits)
    assert not list(commits.glob("[0-9]*"))
    leased = place.leased()
    assert len(leased) == PER_TRIGGER
    return leased


def test_the_driver_dies_between_sink_write_and_commit_log(drivers: Drivers, place: Place) -> None:
    _begin(place)
    _die_before_commit_log(drivers.get(), place)
    driver = drivers.get()
    _drain_rest(driver, place)
    _settle("the driver dies between sink write and commit log", driver, place)


def test_the_checkpoint_is_lost(drivers: Drivers, place: Place) -> None:
    """The next query writes elsewhere: Spark's file sink passes over batches whose numbers its
    folder has seen.
    """
    _begin(place)
    leased = _die_before_commit_log(drivers.get(), place)
    shutil.rmtree(place.checkpoint)
    driver = drivers.get()
    elsewhere = f"{place.out}.2"
    driver.run("drain", args=[elsewhere, place.checkpoint], **place.options)
    outs = (place.out, elsewhere)
    assert _settle("the checkpoint is lost", driver, place, *outs, leased=leased) == leased


@pytest.mark.parametrize("fail_on_data_loss", [True, False])
def test_a_lease_lapses_while_the_job_hangs(
    drivers: Drivers, place: Place, fail_on_data_loss: bool
) -> None:
    driver = drivers.get()
    _begin(place, 200)
    options = {
        "leaseSeconds": "2",
        "maxMessagesPerTrigger": "200",
        "maxMessagesPerPartition": "20",
        "failOnDataLoss": str(fail_on_data_loss).lower(),
    }
    driver.points.arm(Point("drain"))
    job = _drain(driver, place, **options)
    job.stopped()
    leased = place.leased()
    driver.signal(signal.SIGSTOP)
    try:
        place.wait_until_released()
    finally:
        driver.signal(signal.SIGCONT)
    if fail_on_data_loss:
        assert "LeaseLost" in job.error()
        _drain(driver, place, **options).result()
    else:
        job.result()
    _settle("a lease lapses while the job hangs", driver, place, leased=leased)


def test_two_queries_use_one_consumer_name(drivers: Drivers, place: Place) -> None:
    """Of two drivers."""
    driver = drivers.get()
    _begin(place)
    until = place.folder / "until"
    first = driver.start("follow", args=[place.out, place.checkpoint, str(until)], **place.options)
    driver.eventually(Path(place.out, "_spark_metadata", "0").exists, "the first batch in Parquet")
    others = [f"{place.folder}/{name}" for name in ("out.2", "checkpoint.2")]
    other = drivers.another()
    assert "ConsumerBusy" in other.start("drain", args=others, **place.options).error()
    published = len(place.account.published)
    place.wait_until_published(published + 20)
    until.touch()
    assert first.result()["batches"] > 1
    # The stop was in the middle of a batch, perhaps. The name is free, and another goes on with it.
    _drain_rest(driver, place)
    _settle("two queries use one consumer name", driver, place)


def test_the_process_dies_in_a_block_that_has_a_lease(drivers: Drivers, place: Place) -> None:
    driver = drivers.get()
    _begin(place)
    driver.points.arm(Point("block"))
    driver.start("lease", args=[str(place.root), QUEUE, place.out, 2]).stopped()
    leased = place.leased()
    driver.kill()
    place.wait_until_released()
    case = "the process dies in a block that has a lease"
    assert _settle(case, drivers.get(), place, leased=leased) == leased
