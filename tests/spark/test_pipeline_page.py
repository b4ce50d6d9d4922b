"""The page on the pipeline: its five minutes, as they stand there, one command after the other."""

import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from harness.processes import PATIENCE_S, Processes
from pyspark.sql import SparkSession

import mq.spark
from deploy.bench.others.rival import free_port

PAGE = Path(mq.spark.__file__).with_name("PIPELINE.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"```(?P<kind>sh|python|)\n(?P<text>.*?)```", re.DOTALL)
PYTHON = f'python() {{ {sys.executable} "$@"; }}'
# Done by who runs the tests: the installed package, a daemon; and the test of the example.
DONE_ELSEWHERE = ("pip install", "tests/examples/cities.py")


def five_minutes() -> list[tuple[str, str]]:
    section = re.search(r"^## From nothing .*?(?=^## )", PAGE, re.DOTALL | re.MULTILINE)
    assert section is not None
    return [(block["kind"], block["text"]) for block in BLOCK.finditer(section[0])]


def as_shown(text: str) -> "re.Pattern[str]":
    return re.compile(".*".join(re.escape(part) for part in text.strip().split("...")), re.DOTALL)


@pytest.mark.certificate
def test_the_five_minutes(daemons: Processes, root: Path, tmp_path: Path) -> None:
    mq = daemons.mq(root, "--standalone")
    said = ""
    for kind, text in five_minutes():
        here = re.sub(r"/tmp/(mq\b)?", lambda path: str(root) if path[1] else f"{tmp_path}/", text)
        here = here.replace("localhost:8080", mq.url)
        if kind == "python":
            (tmp_path / "drain.py").write_text(here)
        elif kind == "":
            assert as_shown(here).search(said), f"not {here} but {said}"
        elif not any(words in text for words in DONE_ELSEWHERE):
            said = run("bash", "-euo", "pipefail", "-c", f"{PYTHON}\n{here}")
    # The last of Python: back into the queue that is empty.
    run(sys.executable, str(tmp_path / "drain.py"))
    assert '"ready": 10000' in run("curl", "-sSf", f"{mq.url}/orders")


def test_the_first_request_waits_for_the_server(daemons: Processes, root: Path) -> None:
    texts = [text for kind, text in five_minutes() if kind == "sh" and "curl" in text]
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


def test_the_committed_files_are_read_without_spark(spark: SparkSession, tmp_path: Path) -> None:
    """A part as a killed task leaves it is none of them."""
    given, to = tmp_path / "given", tmp_path / "orders, all"
    spark.range(7).write.parquet(str(given))
    stream = spark.readStream.schema("id long").parquet(str(given)).writeStream.format("parquet")
    for option, path in (("path", to), ("checkpointLocation", tmp_path / "checkpoint")):
        stream = stream.option(option, str(path))
    stream.trigger(availableNow=True).start().awaitTermination()
    left = to / "part-00000-9d0c1a2e-0000-4000-8000-000000000000-c000.snappy.parquet"
    left.touch()
    with pytest.raises(pa.ArrowInvalid):
        pyarrow.parquet.read_table(to)
    (code,) = [block["text"] for block in BLOCK.finditer(PAGE) if "def committed" in block["text"]]
    printed = run(sys.executable, "-c", code.replace("/tmp/orders", str(to)))
    assert printed == "7\n"


def run(*command: str) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
