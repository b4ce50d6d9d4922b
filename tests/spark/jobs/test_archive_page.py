"""The page on the archive: its commands, and a process that is killed over one of them."""

import contextlib
import io
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from harness.archiving import DUE_MS, numbers_in, rows_of
from harness.folders import make_root
from harness.messages import make_body, put_entry
from harness.processes import eventually
from harness.spark import PATIENCE_S
from pyspark.sql import SparkSession

import mq.spark.jobs.archive as module
from mq.spark.commands.archive import archive
from mq.spark.jobs.archive_schema import ARCHIVE

PAGE = Path(module.__file__).with_name("ARCHIVE.md").read_text(encoding="utf-8")
ONCE, EVERY = (text.strip() for text in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL))
(PYTHON,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
(SAID,) = re.findall(r"```\n(.*?)```", PAGE.split("```python")[1].split("```", 1)[1], re.DOTALL)


class Commands:
    """The page's commands, with a root and an archive of the test's own."""

    def __init__(self, tmp_path: Path) -> None:
        self.root, self.to = make_root(tmp_path / "root"), tmp_path / "archive"

    def here(self, text: str) -> str:
        return text.replace("/tmp/mq", str(self.root)).replace("/tmp/archive", str(self.to))

    def begin(self, command: str) -> "subprocess.Popen[str]":
        words = [*self.here(command).split()[1:], "--master", "local[1]"]
        return subprocess.Popen(
            [sys.executable, "-m", "mq.tools.mqctl", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"},
        )

    def said(self, process: "subprocess.Popen[str]") -> str:
        out, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, err
        return out


@pytest.mark.certificate
def test_the_commands_also_after_a_kill(spark: SparkSession, tmp_path: Path) -> None:
    commands = Commands(tmp_path)
    root, to = commands.root, commands.to
    for number in range(10):
        put_entry(root / "remove", "orders", make_body(number), DUE_MS, receives=1)
    with commands.begin(ONCE) as process:
        eventually(lambda: list(to.glob("_staging/1-*")), "tasks", PATIENCE_S)
        process.send_signal(signal.SIGKILL)
    with commands.begin(EVERY) as process:
        eventually(lambda: to.exists() and len(rows_of(to)) == 10, "all", PATIENCE_S)
        process.terminate()
        assert "messages archived to" in commands.said(process)
    assert numbers_in(to) == list(range(10))
    with commands.begin(ONCE) as process:
        assert commands.said(process) == f"0 messages archived to {to}, in 0 batches\n"
    # In the session that there is.
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(commands.here(PYTHON).replace("spark.stop()\n", ""), {})
    assert out.getvalue() == SAID


def test_the_tables_name_all_options_and_columns() -> None:
    first_column = " ".join(line.split("|")[1] for line in PAGE.splitlines() if line[:1] == "|")
    named = set(re.findall(r"`([\w-]+)`", first_column))
    options = {option for parameter in archive.params for option in parameter.opts}
    assert {option for option in options if option.startswith("--")} - {"--compact"} <= named
    assert set(ARCHIVE.names) <= named
