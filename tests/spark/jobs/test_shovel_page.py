"""The page on shovel and replay: its commands, as they stand there, in one process."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from harness.archives_by_hand import write_archive
from harness.leases import LeasingRoot
from pyspark.sql import SparkSession

import mq.spark.jobs
from mq.model.message import Reason
from mq.model.names import QueueName
from mq.spark.jobs.archive_schema import ARCHIVE
from mq.store.operations.sideline import sideline

PAGE = Path(mq.spark.jobs.__file__).with_name("SHOVEL.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"```(?P<kind>sh|)\n(?P<text>.*?)```", re.DOTALL)
ORDERS, LATER = QueueName.parse("orders"), QueueName.parse("later")
RUN_ALL = """
import json, sys
from mq.tools.mqctl import cli
for line in json.load(sys.stdin):
    sys.argv[1:] = line
    try:
        cli.main()
    except SystemExit as end:
        assert not end.code, line
"""


def made(top: Path) -> None:
    place = LeasingRoot(top)
    for queue in (ORDERS, ORDERS.sideline(), LATER):
        place.make_queue(queue)
    body = json.dumps({"customer": {"id": "x-7"}}).encode()
    for message_id in place.publish(2, ORDERS, body=body):
        place.run(sideline(place.root, ORDERS, message_id, Reason.EXCEPTION))
    place.publish(1, ORDERS, body=b"not now, later")


def archived(spark: SparkSession, archive: Path) -> None:
    row: tuple[object, ...] = (
        "019b7000-0000-7000-8000-000000000001", None, b'{"customer": {"id": "x-7"}}', {}, 0,
        *(None,) * 7, None, None, None, None, "orders", None,
    )  # fmt: skip
    frame = spark.createDataFrame([row], ARCHIVE)
    times = "timestamp '2026-01-02'"
    frame = frame.selectExpr(
        *(f"{times} as {name}" if name == "published" else name for name in ARCHIVE.names)
    )
    days = ("date '2026-01-02' as day" if name == "day" else name for name in ARCHIVE.names)
    write_archive(archive, frame.selectExpr(*days))


@pytest.mark.certificate
@pytest.mark.timeout(300)
def test_the_page(spark: SparkSession, tmp_path: Path) -> None:
    made(tmp_path / "mq")
    archived(spark, tmp_path / "archive")
    commands, shown = [], []
    for block in BLOCK.finditer(PAGE):
        text = block["text"].replace("/tmp/", f"{tmp_path}/").replace("\\\n", " ")
        if block["kind"] == "sh":
            commands += [shlex.split(line)[1:] for line in text.splitlines()]
        else:
            shown.append(text)
    done = subprocess.run(
        [sys.executable, "-c", RUN_ALL], input=json.dumps(commands), capture_output=True,
        text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len(shown) == 2
    for text in shown:
        assert text in done.stdout
    assert "2 messages, 54 bytes, would go from orders_SIDELINE to orders" in done.stdout
    assert "1 of 1 messages moved from orders to later" in done.stdout
