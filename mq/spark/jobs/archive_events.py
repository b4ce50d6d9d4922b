"""What the histories of queues say of a batch's messages, found before they are archived: small
files in staging, one folder a part, that the tasks read.

Values never pass through Spark for it: names and lines alone are joined. A queue's history and that
of its sideline are one: a message's life may be in both.
"""

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from mq.model.errors import BadName
from mq.model.history import Event as Kind
from mq.model.limits import HISTORY_CLOCKS_APART_S, HISTORY_EVENTS_MAX
from mq.model.names import QueueName
from mq.spark.jobs.archive_rows import Event
from mq.spark.jobs.archive_urls import url
from mq.store.disk.files import Files
from mq.store.format.history import date_of
from mq.store.format.layout import Layout
from mq.store.history.sweep import history_files, recorded_queues

NAMES: Final = "part INT, base STRING, queue STRING, id STRING"
_LINE: Final = (
    "time STRING, event STRING, id STRING, receives INT, due STRING, lease STRING, "
    "reason STRING, process STRING"
)
_COLUMNS: Final = ("time", "event", "receives", "due", "lease", "reason", "process")
# Of one time: a life begins and ends so.
_RANK: Final = {Kind.PUBLISHED.value: 0, Kind.REMOVED.value: 2}


def base_of(queue: QueueName) -> str:
    """The queue that a queue's messages began in, or may have."""
    return queue.counterpart().text if queue.is_sideline else queue.text


def history_paths(layout: Layout, files: Files, since_ms: Mapping[str, int]) -> list[str]:
    """The files that may have lines of messages of these queues (by their bases), published then
    or later. Raises OSError.
    """
    found = []
    for queue in _queues(layout, files):
        base = base_of(queue)
        if base not in since_ms:
            continue
        since = date_of(max(0, since_ms[base] - HISTORY_CLOCKS_APART_S * 1000))
        found += [
            entry.path for date, entry in history_files(layout, files, queue.text) if date >= since
        ]
    return found


def _queues(layout: Layout, files: Files) -> Iterator[QueueName]:
    for name in recorded_queues(layout, files):
        with contextlib.suppress(BadName):
            yield QueueName.parse(name)


def write_events(spark: SparkSession, names: DataFrame, paths: Sequence[str], folder: str) -> None:
    """Writes what the lines of these files say of `names` (NAMES), by parts. Torn lines are passed
    over, and so are files that were swept meanwhile. Durable: no.
    """
    lines = spark.read.option("ignoreMissingFiles", "true").text([url(path) for path in paths])
    path = F.split(F.col("_metadata.file_path"), "/")
    base = F.regexp_replace(F.element_at(path, -3), "_SIDELINE$", "")
    said = lines.select(base.alias("base"), F.from_json("value", _LINE).alias("line"))
    events = said.select("base", "line.*").where("time IS NOT NULL AND event IS NOT NULL")
    timed = events.withColumns(
        {name: F.expr(f"unix_micros(try_to_timestamp({name}))") for name in ("time", "due")}
    ).where("time IS NOT NULL")
    joined = names.join(timed, ["base", "id"]).select("part", "queue", "id", *_COLUMNS)
    joined.write.partitionBy("part").parquet(url(folder))


def events_of(folder: str, number: int) -> dict[tuple[str, str], Sequence[Event]]:
    """What is known of a part's messages, by queue and id: by time, the latest of very many. Raises
    OSError.
    """
    part = f"{folder}/part={number}"
    if not os.path.isdir(part):
        return {}
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for name in sorted(os.listdir(part)):
        if not name.startswith((".", "_")):
            for row in _rows(f"{part}/{name}"):
                found.setdefault((row.pop("queue"), row.pop("id")), []).append(row)
    return {message: _in_order(events) for message, events in found.items()}


def _rows(path: str) -> Iterable[dict[str, Any]]:
    with pa.OSFile(path, "rb") as file:
        rows: list[dict[str, Any]] = pq.read_table(file).to_pylist()
    return rows


def _in_order(events: list[dict[str, Any]]) -> Sequence[Event]:
    events.sort(key=lambda event: (event["time"], _RANK.get(event["event"], 1)))
    return events[-HISTORY_EVENTS_MAX:]
