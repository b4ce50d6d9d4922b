"""Spark sessions with `format("mq")`: on this machine, on a cluster, or on a server."""

import os
import site
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from pyspark import SparkContext
from pyspark.sql import SparkSession

import mq
from mq.spark.java import ensure_java
from mq.spark.listener import install
from mq.spark.source import MqDataSource

# Set if spark-submit has started both the JVM and this process.
_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"


def session(
    app_name: str = "mq",
    *,
    master: str | None = None,
    remote: str | None = None,
    **conf: str | float | bool,
) -> SparkSession:
    """The process's Spark session with `format("mq")`; makes one if there is none.

    `master`: where it runs; by default as spark-submit, MASTER or spark-defaults.conf say, else
    `local[*]`, on this machine. `remote`, or SPARK_REMOTE: a Spark Connect server
    (`sc://host:port`), on whose machines mq is installed. `conf`: Spark's own configuration,
    `**{"spark.driver.memory": "4g"}`. A local session has no web page unless `spark.ui.enabled` is
    set.

    Raises NoJava if a JVM is needed and no suitable one is found, and ValueError if both `master`
    and `remote` are given.
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
    """Like `session`, for a program without streams: no listener waits for queries to end."""
    if master is not None and remote is not None:
        raise ValueError("a session has a master or a remote server, not both")
    builder = SparkSession.builder.appName(app_name)
    if remote is not None:
        builder = builder.remote(remote)
    if master is not None:
        builder = builder.master(master)
    remote = remote or os.environ.get("SPARK_REMOTE")
    # This process starts a local "server".
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
    # Where Spark finds the format by itself, registering it again would only cause a warning.
    if remote is not None or not (told or find_spec("pyspark_mq") is not None):
        made.dataSource.register(MqDataSource)
    return made


def register(spark: SparkSession) -> None:
    """Adds `format("mq")` to a session, classic or of Spark Connect, that was not made by
    `session`. If mq is installed, and not only on the path, Spark finds the format by itself, and
    this only adds that a query's last batch is acknowledged when the query ends.
    """
    spark.dataSource.register(MqDataSource)
    install(spark)


def _is_local(master: str | None) -> bool:
    """Whether Spark will run in this machine's JVM alone. The machine's own Spark configuration
    takes precedence.
    """
    if master:
        return master.startswith("local") and not master.startswith("local-cluster")
    home = os.environ.get("SPARK_HOME")
    folder = os.environ.get("SPARK_CONF_DIR") or (f"{home}/conf" if home else None)
    return folder is None or not Path(folder, "spark-defaults.conf").exists()


def _told_of_checkout() -> bool:
    """If mq runs from a checkout that is only on this process's path, puts it on the path of the
    workers of the next JVM, with the module that makes the format known. Returns whether it did.
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
