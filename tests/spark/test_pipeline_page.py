"""The page on the pipeline: each of its examples as it stands there, and its tables of options and
columns.
"""

import contextlib
import io
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pyarrow.parquet
import pytest
from harness.archives_by_hand import write_archive
from harness.archiving import DUE_MS, numbers_in, rows_of
from harness.folders import make_root, published_by_hand
from harness.leases import LeasingRoot
from harness.messages import make_body, put_entry
from harness.pages import section
from harness.processes import Processes, eventually
from harness.spark import PATIENCE_S
from harness.spark_programs import Programs
from pyspark.sql import SparkSession

import mq.spark
from deploy.bench.others.rival import free_port
from mq.model.clock import SystemClock
from mq.model.message import Reason
from mq.model.names import QueueName
from mq.spark.commands.archive import archive
from mq.spark.commands.audit import audit
from mq.spark.commands.drain import drain
from mq.spark.commands.history import history
from mq.spark.commands.load import load
from mq.spark.commands.replay import replay
from mq.spark.commands.shovel import shovel
from mq.spark.jobs.archive_rows import ARCHIVE, FILE_SCHEMA
from mq.spark.jobs.history_folder import TABLES
from mq.spark.options import COLUMNS
from mq.store.disk.files import Files
from mq.store.opening import open_root
from mq.store.operations.sideline import sideline

ARCHIVED = (*FILE_SCHEMA.names, "queue", "day")
PAGE = "mq/spark/PIPELINE.md"
BLOCK = re.compile(r"^```(?P<kind>sh|python|)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)
JOBS = (archive, audit, drain, history, load, replay, shovel)
# JVMs that do little, and not for long.
SPARK = {
    "JDK_JAVA_OPTIONS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "SPARK_LOCAL_IP": "127.0.0.1",
}
# Tested elsewhere: the installed package, a daemon, the example.
DONE_ELSEWHERE = ("pip install", "tests/examples/cities.py")
ORDERS, LATER = QueueName.parse("orders"), QueueName.parse("later")


def blocks(*headings: str) -> list[tuple[str, str]]:
    """Kind and text of each block in these sections; what a command prints has the kind ""."""
    return [(found["kind"], found["text"]) for found in BLOCK.finditer(section(PAGE, *headings))]


def of_kind(kind: str, *headings: str) -> list[str]:
    return [text for each, text in blocks(*headings) if each == kind]


def as_shown(text: str) -> "re.Pattern[str]":
    return re.compile(".*".join(map(re.escape, text.strip("\n").split("..."))), re.DOTALL)


def here(text: str, root: Path, tmp_path: Path) -> str:
    return re.sub(r"/tmp/(mq\b)?", lambda path: str(root) if path[1] else f"{tmp_path}/", text)


def run(*command: str, **environment: str) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=170,
        env={**os.environ, **SPARK, **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


def shell(programs: Programs, script: str, **environment: str) -> str:
    return run("bash", "-euo", "pipefail", "-c", programs.functions + script, **environment)


@pytest.mark.certificate
def test_get_started(daemons: Processes, programs: Programs, root: Path, tmp_path: Path) -> None:
    mq = daemons.mq(root, "--standalone")
    said = ""
    for kind, shown in blocks("Get started"):
        text = here(shown, root, tmp_path).replace("localhost:8080", mq.url)
        if kind == "python":
            (tmp_path / "drain.py").write_text(text)
        elif kind == "":
            assert as_shown(text).search(said), f"not {text} but {said}"
        elif not any(words in text for words in DONE_ELSEWHERE):
            said = shell(programs, text)
    assert '"ready": 0,' in run("curl", "-sSf", f"{mq.url}/orders")
    # Again: it continues where it stopped.
    again = run(*programs.command("python"), str(tmp_path / "drain.py"))
    assert as_shown(of_kind("", "Get started")[-1]).search(again), again


def test_the_first_request_waits_for_the_server(daemons: Processes, root: Path) -> None:
    texts = [text for text in of_kind("sh", "Get started") if "curl" in text]
    request, port = texts[0].splitlines()[0], free_port()
    with subprocess.Popen(
        ["bash", "-c", request.replace("localhost:8080", f"127.0.0.1:{port}")],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as asks:
        daemons.mq(root, port=port)
        said, _ = asks.communicate(timeout=PATIENCE_S)
    assert asks.returncode == 0, said
    assert (root / "queues" / "orders").is_dir()


@pytest.mark.certificate
@pytest.mark.timeout(400)
def test_write_read_and_lease(spark: SparkSession, tmp_path: Path) -> None:
    place = LeasingRoot(tmp_path / "var/lib/mq")
    place.make_queue(ORDERS)
    given = tmp_path / "data/orders"
    spark.range(3).selectExpr("cast(id as string) as customer").write.parquet(str(given))
    names: dict[str, Any] = {"spark": spark, "mq": mq}

    def do(heading: str, number: int = 0) -> None:
        code = of_kind("python", heading)[number]
        exec(re.sub(r"/(var|data|archive)/", rf"{tmp_path}/\1/", code), names)

    do("Write to a queue")
    do("Read a queue")
    do("Read a queue", 1)
    do("Lease a batch")
    lease = names["lease"]
    assert lease.messages == 3
    leased = spark.read.parquet(f"{tmp_path}/archive/orders/{lease.name}").collect()
    assert len({row["id"] for row in leased}) == 3


@pytest.mark.certificate
@pytest.mark.timeout(400)
def test_a_folder_for_every_reader(spark: SparkSession, tmp_path: Path) -> None:
    given = tmp_path / "given"
    spark.range(7).write.parquet(str(given))
    orders = spark.readStream.schema("id long").parquet(str(given))
    names: dict[str, Any] = {"orders": orders, "mq": mq}
    code, parsed = of_kind("python", "Stream a queue")
    exec(parsed, names)
    exec(code.replace("/tmp/", f"{tmp_path}/"), names)
    names["query"].awaitTermination()
    assert pyarrow.parquet.read_table(tmp_path / "orders-lake").num_rows == 7


@pytest.mark.certificate
def test_drain_and_load(spark: SparkSession, programs: Programs, tmp_path: Path) -> None:
    (_, commands), (_, shown) = blocks("Drain")
    there = tmp_path / "here"
    there.mkdir()
    open_root(str(there / "root"), Files(), SystemClock())
    said = shell(programs, commands.replace("/tmp/mq-drain", str(there)))
    wanted = shown.replace("/tmp/mq-drain", str(there)).strip().splitlines()
    for line, pattern in zip(said.strip().splitlines(), map(as_shown, wanted), strict=True):
        assert pattern.fullmatch(line), said
    assert mq.spark.load(spark, there / "root", there / "out").messages == 2
    assert mq.spark.drain(spark, there / "root", ["orders"], there / "parquet").messages == 2
    assert mq.spark.load(spark, there / "root", there / "parquet").messages == 2


@pytest.mark.certificate
def test_archive_also_after_a_kill(spark: SparkSession, programs: Programs, tmp_path: Path) -> None:
    root, to = make_root(tmp_path / "mq"), tmp_path / "archive"
    (once,) = of_kind("sh", "Archive")
    (code,) = of_kind("python", "Archive")
    assert "`--every 60`" in section(PAGE, "Archive")
    every = f"{once.rstrip()} --every 60"

    def begin(command: str) -> "subprocess.Popen[str]":
        words = [*shlex.split(here(command, root, tmp_path))[1:], "--master", "local[1]"]
        return subprocess.Popen(
            [sys.executable, "-m", "mq.tools.mqctl", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | SPARK,
        )

    def said_by(process: "subprocess.Popen[str]") -> str:
        out, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, err
        return out

    for number in range(10):
        put_entry(root / "remove", "orders", make_body(number), DUE_MS, receives=1)
    with begin(once) as process:
        eventually(lambda: list(to.glob("_staging/1-*")), "tasks", PATIENCE_S)
        process.send_signal(signal.SIGKILL)
    with begin(every) as process:
        eventually(lambda: to.exists() and len(rows_of(to)) == 10, "all", PATIENCE_S)
        process.terminate()
        assert "messages archived to" in said_by(process)
    assert numbers_in(to) == list(range(10))
    said = shell(programs, here(once, root, tmp_path))
    assert said == f"0 messages archived to {to}, in 0 batches\n"
    # In the session that there is.
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(here(code, root, tmp_path), {})
    assert out.getvalue() == "10\n"


@pytest.mark.certificate
def test_history(daemons: Processes, programs: Programs, root: Path, tmp_path: Path) -> None:
    url = daemons.mq(root, "--standalone").url
    (commands,), (shown,) = of_kind("sh", "History"), of_kind("", "History")
    said = shell(programs, here(commands, root, tmp_path), MQ_URL=url)
    lines = here(shown, root, tmp_path).strip().split("\n")
    # Of several steps, since minutes may end meanwhile.
    patterns = [re.escape(line).replace(r"\.\.\.", ".*") for line in lines]
    pattern = "\n".join(patterns).replace(r"1\ steps", r"\d\ steps")
    assert re.search(pattern, said), said
    rates, queues = (
        pyarrow.parquet.read_table(tmp_path / "history" / table).to_pylist()
        for table in ("rates", "queues")
    )
    of_all = [row for row in rates if row["priority"] is None]
    figures = {
        name: sum(row[name] for row in of_all) for name in ("published", "fetched", "removed")
    }
    assert figures == {"published": 100, "fetched": 60, "removed": 60}
    assert queues[0]["ready"] == 40
    refused = subprocess.run(
        [*programs.command("mqctl"), "pipeline", "history", "--json", "--queue", "missing",
         "--master", "local[1]", "--root", root, "--to", tmp_path / "other"],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert refused.returncode == 1
    assert '{"error": {"exit": 1, "message": ' in refused.stderr
    assert "missing" in refused.stderr
    assert not (tmp_path / "other" / "queues").exists()


@pytest.mark.certificate
@pytest.mark.timeout(400)
def test_audit(programs: Programs, tmp_path: Path) -> None:
    root = make_root(tmp_path / "mq")
    message = published_by_hand(root, 0o600)
    said = shell(programs, f"mqctl pipeline audit --root {root} --again-after 0")
    assert re.search(r"^orders +0 +1 +0 +0 +0$", said, re.MULTILINE), said
    assert said.endswith(f"{root}: clean\n")
    shutil.copy(message, message.parent / "0192f3a2-7c4e-7d2a-9b1e")
    message.chmod(0o644)
    (commands,), (shown,) = of_kind("sh", "Audit"), of_kind("", "Audit")
    said = shell(programs, here(commands, root, tmp_path))
    lines = iter(said.splitlines())
    for wanted in here(shown, root, tmp_path).splitlines():
        assert wanted in lines, f"no {wanted} in:\n{said}"


@pytest.mark.parametrize(
    "arguments", [("--root", "/nowhere"), ("--root", "/"), ("--root", "/", "--queue", "a b"), ()]
)
def test_an_audit_that_cannot_look_ends_with_2(arguments: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "mq.tools.mqctl", "pipeline", "audit", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr


def to_shovel(top: Path) -> None:
    place = LeasingRoot(top)
    for queue in (ORDERS, ORDERS.sideline(), LATER):
        place.make_queue(queue)
    body = json.dumps({"customer": {"id": "x-7"}}).encode()
    for message_id in place.publish(2, ORDERS, body=body):
        place.run(sideline(place.root, ORDERS, message_id, Reason.EXCEPTION))
    place.publish(1, ORDERS, body=b"not now, later")


def to_replay(spark: SparkSession, folder: Path) -> None:
    row = {
        "id": "019b7000-0000-7000-8000-000000000001",
        "value": b'{"customer": {"id": "x-7"}}',
        "headers": {},
        "priority": 0,
        "queue": "orders",
    }
    frame = spark.createDataFrame([row], ARCHIVE)
    times = "timestamp '2026-01-02'"
    frame = frame.selectExpr(
        *(f"{times} as {name}" if name == "published" else name for name in ARCHIVED)
    )
    days = ("date '2026-01-02' as day" if name == "day" else name for name in ARCHIVED)
    write_archive(folder, frame.selectExpr(*days))


@pytest.mark.certificate
@pytest.mark.timeout(300)
def test_shovel_and_replay(spark: SparkSession, programs: Programs, tmp_path: Path) -> None:
    to_shovel(tmp_path / "mq")
    to_replay(spark, tmp_path / "archive")
    text = "".join(of_kind("sh", "Shovel", "Replay"))
    text += "mqctl pipeline shovel --root /tmp/mq --from orders --to later "
    text += """--where "priority = 0 and text like '%later%'"\n"""
    said = shell(programs, text.replace("/tmp/", f"{tmp_path}/"))
    shown = of_kind("", "Shovel", "Replay")
    assert len(shown) == 2
    for each in shown:
        assert each in said
    assert "2 messages, 54 bytes, would go from orders_SIDELINE to orders" in said
    assert "1 of 1 messages moved from orders to later" in said


def named(heading: str) -> set[str]:
    """What the first column of a section's tables names."""
    rows = [line.split("|")[1] for line in section(PAGE, heading).splitlines() if line[:1] == "|"]
    return set(re.findall(r"`(--[a-z-]+|\w+)", " ".join(rows)))


def test_every_option_of_a_job_is_in_its_table() -> None:
    shared = {name for name in named("Jobs") if name.startswith("--")}
    assert shared == {"--root", "--master", "--remote", "--conf", "--json", "--quiet"}
    for job in JOBS:
        assert job.name is not None
        there = {name for name in named(job.name.capitalize()) if name.startswith("--")}
        known = set()
        for parameter in job.params:
            names = {*parameter.opts, *parameter.secondary_opts}
            assert isinstance(parameter, click.Option)
            assert names & (there | shared), (job.name, names)
            known |= names
        assert there <= known, job.name


def test_the_schedulers_examples_are_programs_with_commands_that_parse() -> None:
    """Their packages are not installed here."""
    examples = of_kind("python", "Jobs")
    assert len(examples) == 2
    for code in examples:
        compile(code, PAGE, "exec")
        (command,) = re.findall(r'"mqctl pipeline drain (.*)"', code)
        drain.make_context("drain", shlex.split(command.replace("/var/lib/mq", "/tmp")))


def test_the_tables_have_every_column() -> None:
    assert set(COLUMNS) <= named("Reference")
    assert set(ARCHIVED) <= named("Archive")
    assert set(TABLES) <= named("History")
