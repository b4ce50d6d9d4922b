"""The jobs on a standalone cluster: by spark-submit, and by a Spark Connect server."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.leases import QUEUE, LeasingRoot
from harness.spark_cluster import CHECKOUT, SITE, SPARK_HOME, TOPLEVEL, SparkDaemons, spark_daemons

import mq.spark.commands.submit
from mq.model.names import QueueName
from mq.store.operations.remove import remove

pytestmark = [pytest.mark.certificate, pytest.mark.timeout(600)]

LATER = QueueName.parse("later")


@pytest.fixture
def started(tmp_path: Path) -> Iterator[SparkDaemons]:
    with spark_daemons(tmp_path / "spark") as found:
        yield found


def pipeline(*words: object, command: tuple[str, ...] = ()) -> Any:
    """What a job says that ended well."""
    is_mqctl = not command
    command = command or (sys.executable, "-m", "mq.tools.mqctl", "pipeline")
    done = subprocess.run(
        [*command, *map(str, words), "--json", "--quiet"],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (SITE, CHECKOUT, TOPLEVEL)))},
    )
    assert done.returncode == 0, (words, done.stderr[-5000:])
    if is_mqctl:
        assert done.stderr == "", words
    return json.loads(done.stdout.splitlines()[-1])


def test_every_job(started: SparkDaemons, tmp_path: Path) -> None:
    place = LeasingRoot(tmp_path / "root")
    place.make_queue(LATER)
    ids = place.publish(30)
    for message_id in ids[:20]:
        place.run(remove(place.root, QUEUE, message_id))
    settings = (
        "spark.executor.memory=512m",
        "spark.executor.cores=1",
        "spark.ui.enabled=false",
        # For a few rows.
        "spark.sql.shuffle.partitions=2",
    )
    cluster = started.cluster(workers=1, memory="1g")
    flags = [word for setting in settings for word in ("--conf", setting)]
    submitted = mq.spark.commands.submit.__file__
    submit = (str(SPARK_HOME / "bin/spark-submit"), "--master", cluster.master, *flags, submitted)
    audited = pipeline("audit", "--root", place.top, "--again-after", 0, command=submit)
    assert audited["outcome"] == "clean"

    where = ("--root", place.top, "--remote", started.connect_server(cluster.master, *settings))
    archive, drained = tmp_path / "archive", tmp_path / "drained"

    assert pipeline("archive", *where, "--to", archive)["messages"] == 20
    chosen = ("--from", QUEUE, "--to", LATER, "--where", "text is not null", "--limit", 4)
    assert pipeline("shovel", *where, *chosen)["moved"] == 4
    again = ("--archive", archive, "--where", "size >= 0", "--to", LATER, "--limit", 5)
    assert pipeline("replay", *where, *again)["chosen"]["messages"] == 5
    assert pipeline("drain", *where, "--queue", QUEUE, "--to", drained)["messages"] == 6
    assert pipeline("load", *where, "--from", drained)["messages"] == 6
    told = pipeline("history", *where, "--archive", archive, "--to", tmp_path / "history")
    assert told["messages"] >= 35
    audited = pipeline("audit", *where, "--archive", archive, "--bodies", "--again-after", 0)
    assert audited["outcome"] == "clean"
