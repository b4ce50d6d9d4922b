"""The page on drain and load: its commands as they stand there, its functions, its options."""

import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from pyspark.sql import SparkSession

import mq.spark.jobs
from mq.model.clock import SystemClock
from mq.spark.commands.drain import drain
from mq.spark.commands.load import load
from mq.spark.jobs.load import load as load_back
from mq.store.core.root import open_root
from mq.store.disk.files import Files

PAGE = Path(mq.spark.jobs.__file__).with_name("DRAIN.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(sh|python|)\n(.*?)```", PAGE, re.DOTALL)
MQCTL = f'mqctl() {{ {sys.executable} -m mq.tools.mqctl "$@"; }}'
# JVMs that do little, and not for long.
SHORT_LIVED = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
# Those that every job has.
SHARED = {"--master", "--remote", "--conf", "--quiet", "--json", "--no-json", "--root"}


@pytest.mark.certificate
def test_the_commands_and_the_functions(spark: SparkSession, tmp_path: Path) -> None:
    (_, commands), (_, shown), (_, code) = BLOCKS[:3]
    here = tmp_path / "here"
    here.mkdir()
    open_root(str(here / "root"), Files(), SystemClock())
    script = f"{MQCTL}\n{commands}".replace("/tmp/mq-drain", str(here))
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "JDK_JAVA_OPTIONS": SHORT_LIVED, "SPARK_LOCAL_IP": "127.0.0.1"},
        timeout=170,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    wanted = shown.replace("/tmp/mq-drain", str(here)).strip().splitlines()
    for said, line in zip(done.stdout.strip().splitlines(), wanted, strict=True):
        assert re.fullmatch(".*".join(map(re.escape, line.split("..."))), said), done.stdout
    assert "Traceback" not in done.stderr
    assert load_back(spark, here / "root", here / "out").messages == 2
    exec(code.replace("/tmp/mq-drain", str(here)))


@pytest.mark.parametrize("command", [drain, load])
def test_every_option_is_told_of(command: click.Command) -> None:
    section = PAGE.partition(f"\n## {command.name}\n")[2].partition("\n## ")[0]
    for option in command.params:
        for name in option.opts:
            if name.startswith("--") and name not in SHARED:
                assert f"| `{name}` |" in section, name
    for name in re.findall(r"^\| `(--[a-z-]+)`", section, re.MULTILINE):
        assert any(name in option.opts for option in command.params), name
