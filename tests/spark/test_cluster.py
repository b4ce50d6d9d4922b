"""The example on a real cluster: a standalone master, two workers, and a Spark Connect server."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.cities import Account, run_cities
from harness.processes import Processes
from harness.spark_cluster import SPARK_HOME, Cluster, SparkDaemons, spark_daemons

pytestmark = [pytest.mark.certificate, pytest.mark.timeout(600)]

ROWS = 4_000
# Of each consumer's two batches one is not acknowledged, and comes again within a test's time.
FLAGS = ("--rows", str(ROWS), "--lose-acks", "2", "--visibility", "3")
# Two executors, whatever else the machine has; and no 200 tasks for some thousand rows.
EXECUTORS = (
    "spark.executor.memory=512m",
    "spark.executor.cores=1",
    "spark.ui.enabled=false",
    "spark.sql.shuffle.partitions=2",
)


@pytest.fixture(scope="module")
def spark_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The daemons' logs, and their workers' folders."""
    return tmp_path_factory.mktemp("spark")


@pytest.fixture(scope="module")
def started(spark_folder: Path) -> Iterator[SparkDaemons]:
    """What this module starts, ended with it."""
    with spark_daemons(spark_folder) as found:
        yield found


@pytest.fixture(scope="module")
def cluster(started: SparkDaemons) -> Cluster:
    """A master, and two workers with a core each."""
    return started.cluster(workers=2, memory="1g")


@contextlib.contextmanager
def logs_of(started: SparkDaemons) -> Iterator[None]:
    """Shows them when what is done here fails."""
    try:
        yield
    except BaseException:
        print(started.logs())
        raise


def all_there(account: Account) -> None:
    """Some were delivered twice, by either way, and all are there once."""
    assert account.verdict == "every row is there exactly once"
    assert account.figures["rows there exactly once"] == ROWS
    assert account.figures["messages, by their ids"] == ROWS
    assert min(account.delivered) > 0
    assert account.figures["of both, once more than once"] > 0


def test_on_a_standalone_cluster(
    cluster: Cluster,
    started: SparkDaemons,
    spark_folder: Path,
    daemons: Processes,
    root: Path,
    tmp_path: Path,
) -> None:
    mq = daemons.mq(root, "--standalone")
    settings = [word for setting in EXECUTORS for word in ("--conf", setting)]
    submit = (str(SPARK_HOME / "bin" / "spark-submit"), "--master", cluster.master, *settings)
    with logs_of(started):
        all_there(run_cities(mq.url, root, tmp_path / "out", *FLAGS, command=submit))
        for worker in (0, 1):
            assert list((spark_folder / f"work-{worker}").glob("app-*/*/stderr")), "it did nothing"


def test_through_spark_connect(
    cluster: Cluster, started: SparkDaemons, daemons: Processes, root: Path, tmp_path: Path
) -> None:
    mq = daemons.mq(root, "--standalone")
    with logs_of(started):
        server = started.connect_server(cluster.master, *EXECUTORS)
        all_there(run_cities(mq.url, root, tmp_path / "out", *FLAGS, "--spark", server))
