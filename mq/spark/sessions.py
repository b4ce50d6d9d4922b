"""Spark sessions that know `format("mq")`: on this machine, on a cluster, or a server's."""

import os
import site
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from pyspark import SparkContext
from pyspark.sql import SparkSession

import mq
from mq.spark.java import ensure_java
from mq.spark.listener import install
from mq.spark.source import MqDataSource

# Set where spark-submit has started both the JVM and this process.
_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"


def session(
    app_name: str = "mq",
    *,
    master: str | None = None,
    remote: str | None = None,
    **conf: str | float | bool,
) -> SparkSession:
    """The process's Spark session, made where there is none; `format("mq")` is known to it.

    `master` is where it runs: without one it is what spark-submit, MASTER or spark-defaults.conf
    say, and else `local[*]`, in this process's machine. `remote`, or SPARK_REMOTE, is a Spark
    Connect server (`sc://host:port`), whose machines have mq installed. `conf` is Spark's own
    configuration, `**{"spark.driver.memory": "4g"}`. A local session has no web page unless
    `spark.ui.enabled` is set.

    Raises NoJava where a JVM is needed and there is none that does, and ValueError when both
    `master` and `remote` are given.
    """
    made = batch_session(app_name, master=master, remote=remote, **conf)
    install(made)
    return made


def batch_session(
    app_name: str = "mq",
    *,
    master: str | None = None,
    remote: str | None = None,
    **conf: str | float | bool,
) -> SparkSession:
    """Like `session`, for a program that streams nothing: no listener waits for queries' ends."""
    if master is not None and remote is not None:
        raise ValueError("a session has a master or a remote server, not both")
    builder = SparkSession.builder.appName(app_name)
    if remote is not None:
        builder = builder.remote(remote)
    if master is not None:
        builder = builder.master(master)
    remote = remote or os.environ.get("SPARK_REMOTE")
    # A local "server" is begun by this process.
    here = (remote is None or remote.startswith("local")) and _SUBMITTED not in os.environ
    told = False
    if here and SparkContext._gateway is None:  # noqa: SLF001
        ensure_java()
        told = _told_of_checkout()
    if here and "spark.ui.enabled" not in conf and SparkSession.getActiveSession() is None:
        master = master or str(conf.get("spark.master", "")) or remote or os.environ.get("MASTER")
        if _is_local(master):
            builder = builder.config("spark.ui.enabled", False)
    for name, value in conf.items():
        builder = builder.config(name, value)
    made = builder.getOrCreate()
    # Where Spark finds it as this process does, to register it again would only make it warn.
    if remote is not None or not (told or find_spec("pyspark_mq") is not None):
        made.dataSource.register(MqDataSource)
    return made


def register(spark: SparkSession) -> None:
    """Makes `format("mq")` known to a session, classic or of Spark Connect, that was made without
    `session`. Where mq is installed, and not only on the path, Spark knows the format by itself,
    and this adds that a query's last batch is acknowledged when the query ends.
    """
    spark.dataSource.register(MqDataSource)
    install(spark)


def _is_local(master: str | None, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the JVM to be started is all of Spark. What is configured for the machine is let
    be: it may say otherwise.
    """
    if master:
        return master.startswith("local") and not master.startswith("local-cluster")
    home = environment.get("SPARK_HOME")
    folder = environment.get("SPARK_CONF_DIR") or (f"{home}/conf" if home else None)
    return folder is None or not Path(folder, "spark-defaults.conf").exists()


def _told_of_checkout() -> bool:
    """Where mq runs from a checkout that is only on this process's path, the JVM that starts next
    has it on its workers' path, and what makes the format known beside it: whether that was so.
    """
    package = Path(mq.__file__).resolve().parent
    installed = [Path(folder) for folder in (*site.getsitepackages(), site.getusersitepackages())]
    if package.parent in installed:
        return False
    mine = [str(package.parent), str(package / "spark" / "toplevel")]
    found = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    others = [folder for folder in found if folder and folder not in mine]
    os.environ["PYTHONPATH"] = os.pathsep.join([*mine, *others])
    return True
