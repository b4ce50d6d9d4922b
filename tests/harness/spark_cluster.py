"""Spark's own daemons as processes: a standalone master, its workers, a Spark Connect server.

They are pyspark's, from its jars, on ports that they choose themselves and say in their logs.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyspark

from harness.processes import eventually
from mq.spark import ensure_java

CHECKOUT = Path(__file__).parents[2]
SPARK_HOME = Path(pyspark.__file__).parent
# Beside the checkout, what makes `format("mq")` known by itself, as an installed mq does.
TOPLEVEL = CHECKOUT / "mq" / "spark" / "toplevel"
# Spark compiled, for each Python that it starts.
SITE = Path(__file__).parent / "spark_site"
PATIENCE_S = 90.0
STANDALONE = "org.apache.spark.deploy"
# For the executors too, which inherit it: JVMs that do little, and not for long.
SHORT_LIVED = os.environ.get("SPARK_SUBMIT_OPTS", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")
CONNECT = "org.apache.spark.sql.connect.service.SparkConnectServer"


@dataclass(frozen=True)
class Cluster:
    """A standalone cluster that runs."""

    master: str
    page: str

    def workers(self) -> int:
        """So many are alive, as the master says."""
        with urllib.request.urlopen(f"{self.page}/json/", timeout=PATIENCE_S) as answer:
            return int(json.load(answer)["aliveworkers"])


class SparkDaemons:
    """Starts them in a folder of their own, and ends them all, executors too."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started: list[tuple[Path, subprocess.Popen[bytes]]] = []
        folder.mkdir(parents=True, exist_ok=True)

    def cluster(self, workers: int, memory: str) -> Cluster:
        """A master and so many workers with one core each."""
        log = self._start("master", f"{STANDALONE}.master.Master", "--port", "0", *PAGE_OF_ITS_OWN)
        master = self._said(log, r"Starting Spark master at (spark://\S+)").rstrip(".")
        page = self._said(log, r"started at (http://\S+:[0-9]+)")
        found = Cluster(master, page)
        for number in range(workers):
            self._start(
                f"worker-{number}", f"{STANDALONE}.worker.Worker", "--cores", "1",
                "--memory", memory, "--work-dir", str(self._folder / f"work-{number}"),
                *PAGE_OF_ITS_OWN, master,
            )  # fmt: skip
        eventually(lambda: found.workers() == workers, "a cluster with all its workers", PATIENCE_S)
        return found

    def connect_server(self, master: str, *configured: str) -> str:
        """A Spark Connect server whose jobs run at `master`; its `sc://` address."""
        settings = (
            "spark.connect.grpc.binding.address=127.0.0.1",
            "spark.connect.grpc.binding.port=0",
            "spark.ui.enabled=false",
            *configured,
        )
        flags = [word for setting in settings for word in ("--conf", setting)]
        log = self._start(
            "connect", f"{STANDALONE}.SparkSubmit", "--class", CONNECT, "--master", master,
            *flags, "spark-internal", memory="1g",
        )  # fmt: skip
        return "sc://127.0.0.1:" + self._said(log, r"Connect server started at: \S+:([0-9]+)")

    def _start(self, name: str, *command: str, memory: str = "256m") -> Path:
        environment = dict(os.environ)
        ensure_java(environment)
        environment |= {
            "SPARK_HOME": str(SPARK_HOME),
            "JDK_JAVA_OPTIONS": SHORT_LIVED,
            "SPARK_DAEMON_MEMORY": memory,
            # Its port is not one that it chooses.
            "SPARK_DAEMON_JAVA_OPTS": "-Dspark.master.rest.enabled=false",
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(self._folder / "local"),
            "SPARK_NO_DAEMONIZE": "1",
            "PYTHONPATH": os.pathsep.join(
                filter(
                    None, [str(SITE), str(CHECKOUT), str(TOPLEVEL), os.environ.get("PYTHONPATH")]
                )
            ),
        }
        log = self._folder / f"{name}.log"
        with log.open("wb") as sink:
            popen = subprocess.Popen(
                [str(SPARK_HOME / "bin" / "spark-class"), *command],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
                env=environment,
                # With its executors in one group, which ends as a whole.
                start_new_session=True,
            )
        self._started.append((log, popen))
        return log

    def _said(self, log: Path, pattern: str) -> str:
        [popen] = [popen for of, popen in self._started if of == log]

        def said() -> str:
            match = re.search(pattern, log.read_text(errors="replace"))
            if match is None and popen.poll() is not None:
                raise AssertionError(f"{log.stem} ended with {popen.returncode}")
            return match[1] if match else ""

        return eventually(said, f"{pattern!r} in {log}", PATIENCE_S)

    def logs(self) -> str:
        """The end of what each has said, executors too: for a test that failed."""
        found = [*self._folder.glob("*.log"), *self._folder.glob("work-*/*/*/std*")]
        return "\n".join(
            f"=== {path.relative_to(self._folder)}\n{path.read_text(errors='replace')[-4000:]}"
            for path in sorted(found)
        )

    def end_all(self) -> None:
        """Kills each with its whole group: nothing of theirs is worth waiting for."""
        for _, popen in reversed(self._started):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(popen.pid, signal.SIGKILL)
        for _, popen in self._started:
            popen.wait()


PAGE_OF_ITS_OWN = ("--host", "127.0.0.1", "--webui-port", "0")


@contextlib.contextmanager
def spark_daemons(folder: Path) -> Iterator[SparkDaemons]:
    """Ended at the end, whatever happens."""
    daemons = SparkDaemons(folder)
    try:
        yield daemons
    finally:
        daemons.end_all()
