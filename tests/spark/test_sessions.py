"""A session wherever Spark is and whatever Java there is, each in a process of its own."""

import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.mounts import run_tool
from harness.processes import eventually
from harness.spark import (
    CHECKOUT,
    PATIENCE_S,
    SCRIPT,
    SPARK_HOME,
    environment,
    java_home,
    session_told,
    told_by,
)

import mq.spark
from deploy.bench.others.rival import free_port
from mq.spark.options import COLUMNS

# The time is for a machine that has much else to do.
pytestmark = [pytest.mark.certificate, pytest.mark.timeout(2 * PATIENCE_S)]

SMALL = '**{"spark.driver.memory": "512m", "spark.default.parallelism": 1}'


def path_without_java(folder: Path) -> str:
    """A PATH with what Spark's scripts call, and no Java."""
    folder.mkdir()
    for name in ("bash", "cat", "dirname", "env", "head", "ps", "rm", "sh"):
        found = shutil.which(name)
        assert found is not None
        (folder / name).symlink_to(found)
    return str(folder)


def test_without_any_java(tmp_path: Path) -> None:
    env = environment(PATH=path_without_java(tmp_path / "bin"), XDG_CACHE_HOME=str(tmp_path))
    told = session_told(SMALL, env)
    assert told["java"].startswith("21.")
    assert told["java_home"].startswith(f"{tmp_path}/mq/java/")
    assert told["columns"] == list(COLUMNS)
    assert told["sum"] == 45
    assert told["workers"] == [sys.executable]
    assert told["ui"] == "false"
    assert told["master"] == "local[*]"


@pytest.mark.parametrize("major", [17, 25])
def test_with_an_installed_java(major: int, tmp_path: Path) -> None:
    """The extra's, a 21, is what is taken without any."""
    home = java_home(major)
    env = environment(JAVA_HOME=str(home), XDG_CACHE_HOME=str(tmp_path))
    told = session_told(SMALL, env)
    assert told["java"].split(".")[0] == str(major)
    assert told["columns"] == list(COLUMNS)
    assert told["sum"] == 45


def test_with_spark_home_and_what_is_configured_there(tmp_path: Path) -> None:
    home = tmp_path / "spark"
    home.mkdir()
    for entry in SPARK_HOME.iterdir():
        (home / entry.name).symlink_to(entry)
    (home / "conf").mkdir()
    (home / "conf" / "spark-defaults.conf").write_text(
        "spark.master local[1]\nspark.driver.memory 512m\nspark.ui.port 0\n"
    )
    told = session_told("", environment(SPARK_HOME=str(home)))
    assert told["master"] == "local[1]"
    assert told["ui"] == "unset"
    assert told["columns"] == list(COLUMNS)
    assert told["sum"] == 45


def test_under_spark_submit(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(SCRIPT.format(arguments='"job"'))
    submit = [
        str(SPARK_HOME / "bin" / "spark-submit"),
        *("--master", "local[1]", "--driver-memory", "512m"),
        *("--conf", "spark.ui.enabled=true", "--conf", "spark.ui.port=0"),
        str(script),
    ]
    told = told_by(submit, environment(PYSPARK_PYTHON=sys.executable))
    assert told["master"] == "local[1]"
    assert told["ui"] == "true"
    assert told["columns"] == list(COLUMNS)
    assert told["sum"] == 45


@pytest.fixture(scope="module")
def connect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Spark Connect server with mq on its path; where it is."""
    env = environment()
    mq.spark.ensure_java(env)
    port = free_port()
    command = [
        str(SPARK_HOME / "bin" / "spark-submit"),
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
        *("--master", "local[1]", "--driver-memory", "512m", "--conf", "spark.ui.enabled=false"),
        *("--conf", f"spark.connect.grpc.binding.port={port}"),
        *("--conf", "spark.connect.grpc.binding.address=127.0.0.1"),
        "spark-internal",
    ]
    folder = tmp_path_factory.mktemp("server")
    log = folder / "log"
    with log.open("w") as lines:
        server = subprocess.Popen(command, env=env, stdout=lines, stderr=lines, cwd=folder)

    def listens() -> bool:
        assert server.poll() is None, log.read_text()
        with socket.socket() as tried:
            return tried.connect_ex(("127.0.0.1", port)) == 0

    try:
        eventually(listens, "a Connect server that listens", patience_s=PATIENCE_S)
        yield f"sc://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(PATIENCE_S)


@pytest.mark.parametrize("said", ["argument", "environment"])
def test_through_spark_connect(connect_server: str, said: str, tmp_path: Path) -> None:
    """The client needs no Java."""
    env = environment(PATH=path_without_java(tmp_path / "bin"), JAVA_HOME="/nowhere")
    if said == "environment":
        env["SPARK_REMOTE"] = connect_server
    told = session_told(f"remote={connect_server!r}" if said == "argument" else "", env)
    assert told["kind"] == "pyspark.sql.connect.session"
    assert told["java_home"] == "/nowhere"
    assert told["columns"] == list(COLUMNS)
    assert told["sum"] == 45


def test_a_master_and_a_remote_are_one_too_many() -> None:
    with pytest.raises(ValueError, match="not both"):
        mq.spark.session(master="local[1]", remote="sc://localhost")


def test_a_wheel_knows_the_format_by_itself(tmp_path: Path) -> None:
    """In a new environment, for a session of Spark's own making."""
    pip = (sys.executable, "-m", "pip", "-q")
    wheel_only = ("--no-deps", "--no-build-isolation", "-w", str(tmp_path))
    run_tool(*pip, "wheel", *wheel_only, str(CHECKOUT))
    (wheel,) = tmp_path.glob("mq-*.whl")
    run_tool(sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv"))
    python = tmp_path / "venv" / "bin" / "python"
    run_tool(*pip, "--python", str(python), "install", "--no-deps", str(wheel))
    (packages,) = (tmp_path / "venv" / "lib").glob("*/site-packages")
    # What mq needs is taken from this environment, behind what is installed.
    (packages / "needed.pth").write_text(f"{SPARK_HOME.parent}\n")
    assert (packages / "pyspark_mq.py").exists()
    assert not (packages / "mq" / "spark" / "toplevel").exists()
    assert (packages / "mq" / "spark" / "jobs" / "report" / "report.css").exists()
    script = SCRIPT.replace(
        "mq.spark.session({arguments})",
        "mq.spark.ensure_java() and __import__('pyspark').sql.SparkSession.builder.getOrCreate()",
    ).format()
    env = environment(PYTHONPATH=None, MASTER="local[1]")
    told = told_by([str(python), "-c", script], env)
    assert told["mq"] == str(packages / "mq" / "__init__.py")
    assert told["columns"] == list(COLUMNS)
    assert told["workers"] == [str(python)]
