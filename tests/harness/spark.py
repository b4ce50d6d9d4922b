"""Processes with a Spark of their own: what a user's script would find."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyspark

from harness.needs import cannot_run

SPARK_HOME = Path(pyspark.__file__).parent
CHECKOUT = Path(__file__).parent.parent.parent
# What starting a JVM may take on a machine that has much else to do.
PATIENCE_S = 170.0

SCRIPT = """
import json, os, sys
import mq.spark

spark = mq.spark.session({arguments})
read = spark.read.format("mq").option("path", "/nowhere").option("subscribe", "orders").load()
told = {{
    "columns": read.columns,
    "mq": mq.__file__,
    "kind": type(spark).__module__,
    "java_home": os.environ.get("JAVA_HOME"),
    "ui": spark.conf.get("spark.ui.enabled", "unset"),
}}
if "connect" not in told["kind"]:
    context = spark.sparkContext
    told |= {{
        "java": context._jvm.java.lang.System.getProperty("java.version"),
        "master": context.master,
        "workers": context.parallelize([0], 1).map(lambda _: sys.executable).collect(),
    }}
told["sum"] = spark.range(10).agg({{"id": "sum"}}).first()[0]
print("TOLD" + json.dumps(told), flush=True)
spark.stop()
"""


def environment(**changed: str | None) -> dict[str, str]:
    """This process's, on the loopback interface, without what says which Spark and Java there
    are; and changed as told: None takes a variable away.
    """
    removed = {"JAVA_HOME", "SPARK_HOME", "MASTER", "SPARK_REMOTE", "PYSPARK_PYTHON"}
    made = {name: value for name, value in os.environ.items() if name not in removed}
    made |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": str(CHECKOUT)}
    for name, value in changed.items():
        if value is None:
            made.pop(name, None)
        else:
            made[name] = value
    return made


def told_by(command: list[str], env: Mapping[str, str]) -> dict[str, Any]:
    """What a script that is like SCRIPT tells of its session. It finds what the environment says,
    and nothing by where it runs.
    """
    done = subprocess.run(
        command,
        env=env,
        cwd="/",
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        stdin=subprocess.DEVNULL,
    )
    found = [line for line in done.stdout.splitlines() if line.startswith("TOLD")]
    assert done.returncode == 0, done.stderr
    assert found, done.stderr
    told: dict[str, Any] = json.loads(found[0].removeprefix("TOLD"))
    return told


def session_told(arguments: str, env: Mapping[str, str]) -> dict[str, Any]:
    """What `mq.spark.session(arguments)` is in a process of its own."""
    return told_by([sys.executable, "-c", SCRIPT.format(arguments=arguments)], env)


def java_home(major: int) -> Path:
    """An installed Java of this version: as JAVA_{major}_HOME says, or where Debian has them."""
    said = os.environ.get(f"JAVA_{major}_HOME")
    if said:
        return Path(said)
    for release in sorted(Path("/usr/lib/jvm").glob("*/release")):
        if f'JAVA_VERSION="{major}' in release.read_text(encoding="utf-8"):
            return release.parent
    cannot_run(f"no Java {major} under /usr/lib/jvm, and JAVA_{major}_HOME is not set")
    raise AssertionError("not reached")
