"""Publishes archived messages again that an SQL condition chooses, as new messages.

A run is one bulk publish, whose publish id is made from the replay id: it is published once,
however often it is tried, and all of it or nothing. PIPELINE.md is its users' page.
"""

import functools
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameWriter, Row, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from mq.model.clock import rfc3339
from mq.model.errors import MqError
from mq.model.names import Key, QueueName, ReplayId
from mq.spark.jobs.archive_rows import ARCHIVE
from mq.spark.jobs.archived import archived
from mq.spark.jobs.choosing import check_condition, with_bodies
from mq.spark.jobs.tasks import Unwatched, Watcher
from mq.spark.opening import check_queue, opened_root
from mq.store.bulk.journal import is_published
from mq.store.core.root import Root
from mq.store.disk.flush import Flusher
from mq.store.shovel.crossing_files import held

KeyTaken = Literal["fail", "skip", "drop"]

ID_HEADER: Final = "x-attribute-replay-id"
OF_HEADER: Final = "x-attribute-replay-of"
_SHOWN: Final = 10
_SAID: Final = re.compile(r"\bmq: .+")
_PUBLISH: Final = "replay-"
# The least time for publishing at a rate, so that its first messages are not all due at once.
_LEAD_MS: Final = 10_000
_STAGED_PER_S: Final = 2000
_PUBLISHED: Final = ("value", "queue", "key", "priority", "at", "headers")


class ReplayRefused(MqError):
    """The replay cannot be published as requested; nothing is published."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """The messages that a condition chose in an archive; `oldest_ms`: the publish time of the
    oldest, milliseconds since the epoch, None if there is none.
    """

    messages: int = 0
    size_bytes: int = 0
    damaged: int = 0
    by_queue: Mapping[str, int] = field(default_factory=dict)
    by_priority: Mapping[str, int] = field(default_factory=dict)
    oldest_ms: int | None = None
    first_ids: tuple[str, ...] = ()

    def facts(self) -> dict[str, Any]:
        return {
            "messages": self.messages,
            "bytes": self.size_bytes,
            "damaged": self.damaged,
            "by_queue": dict(self.by_queue),
            "by_priority": dict(self.by_priority),
            "oldest": None if self.oldest_ms is None else rfc3339(self.oldest_ms),
            "first": list(self.first_ids),
        }


@dataclass(frozen=True, slots=True)
class Replayed:
    """The result of a run. `was_over`: it was published before, nothing was done, and nothing is
    `chosen`. If messages with taken keys are skipped, fewer than the chosen ones may be published.
    """

    replay_id: str | None
    target: str | None
    chosen: Chosen | None = None
    skipped_damaged: int = 0
    was_over: bool = False

    def facts(self) -> dict[str, Any]:
        return {
            "replay_id": self.replay_id,
            "to": self.target,
            "skipped_damaged": self.skipped_damaged,
            "was_over": self.was_over,
            "chosen": None if self.chosen is None else self.chosen.facts(),
        }


def replay(
    spark: SparkSession,
    root: Path,
    archive: Path,
    where: str,
    *,
    to: str | None = None,
    dry_run: bool = False,
    rate: int | None = None,
    limit: int | None = None,
    replay_id: str | None = None,
    key_taken: KeyTaken = "fail",
    skip_damaged: bool = False,
    watcher: Watcher | None = None,
) -> Replayed:
    """Publishes the archived messages for which the condition holds, as new ones, to `to`, or each
    to its own queue: body, priority, key and headers, and two headers with the original message's
    id and the replay id. Idempotency keys have no effect.

    `rate`: how many become ready per second, in the order of their first publish; `limit`: how many
    at most, the oldest first. `key_taken`: if a living message has the key, `fail` (nothing is
    published), `skip` such messages, or `drop` all keys.

    Raises BadCondition, ReplayRefused, PublishFailed, BadName, Busy (another process uses the
    replay id), and what a publish raises: then nothing is published. Durable on return: yes.
    """
    watching = watcher or Unwatched()
    target = None if to is None else QueueName.parse(to)
    name = ReplayId.new() if replay_id is None else ReplayId.parse(replay_id)
    with opened_root(root) as (here, flusher):
        check_queue(here, target)
        run = _Run(spark, here, archive, where, target, limit, watching)
        if dry_run:
            return Replayed(None, to, run.count())
        return run.publish(flusher, name, rate, key_taken, skip_damaged)


@dataclass(frozen=True, slots=True)
class _Run:
    spark: SparkSession
    root: Root
    archive: Path
    where: str
    target: QueueName | None
    limit: int | None
    watcher: Watcher

    def publish(
        self,
        flusher: Flusher,
        name: ReplayId,
        rate: int | None,
        key_taken: KeyTaken,
        skip_damaged: bool,
    ) -> Replayed:
        """Publishes once in the life of the replay id, which is 7 days."""
        to = None if self.target is None else self.target.text
        publish_id = Key.parse(_PUBLISH + name.text)
        with held(self.root, name):
            if is_published(self.root, publish_id):
                return Replayed(name.text, to, was_over=True)
            chosen = self.count()
            whole = chosen.messages - chosen.damaged
            if chosen.damaged and not skip_damaged:
                raise ReplayRefused(
                    f"{chosen.damaged} of {chosen.messages} messages are damaged: pass them by "
                    "with --skip-damaged, or leave them out by `not damaged`"
                )
            if whole:
                self.watcher.noted(f"the replay id is {name}")
                self.watcher.began(f"publishes {whole} messages")
                rows = self._published(name, rate, key_taken, whole)
                writing = (
                    rows.write.format("mq")
                    .mode("append")
                    .options(
                        path=self.root.layout.root,
                        publishId=publish_id.text,
                        onKeyTaken="skip" if key_taken == "skip" else "fail",
                    )
                )
                _save(writing)
                self.watcher.advanced(whole)
        return Replayed(name.text, to, chosen, chosen.damaged)

    def count(self) -> Chosen:
        """Counts the chosen messages. Raises BadCondition; PublishFailed if one of their queues is
        missing.
        """
        self.watcher.began("chooses")
        rows = self._chosen()
        facts = rows.groupBy("queue", "priority").agg(
            F.count("*").alias("messages"),
            F.coalesce(F.sum("size"), F.lit(0)).alias("bytes"),
            F.sum(F.when(F.expr(_DAMAGED), 1).otherwise(0)).alias("damaged"),
            F.min(F.expr("unix_millis(published)")).alias("oldest"),
        )
        found = facts.collect()
        by_queue = _sums(found, "queue")
        for queue in by_queue if self.target is None else ():
            check_queue(self.root, QueueName.parse(queue))
        first = rows.select("id").orderBy("id").limit(_SHOWN).collect() if found else []
        return Chosen(
            sum(row["messages"] for row in found),
            sum(row["bytes"] for row in found),
            sum(row["damaged"] for row in found),
            by_queue,
            _sums(found, "priority"),
            min((row["oldest"] for row in found), default=None),
            tuple(row["id"] for row in first),
        )

    def _chosen(self) -> DataFrame:
        nothing = self.spark.createDataFrame([], ARCHIVE)
        check_condition(with_bodies(nothing), self.where)
        rows = with_bodies(self._whole(archived(self.spark, self.archive)))
        rows = rows.where(F.expr(self.where))
        return rows if self.limit is None else rows.orderBy("id").limit(self.limit)

    def _whole(self, rows: DataFrame) -> DataFrame:
        """The rows with the bodies that are in files of their own; tasks read only those that are
        used.
        """
        read = F.udf(
            functools.partial(_body, os.path.abspath(self.archive)), "binary", useArrow=False
        )
        from_file = F.col("body").isNotNull()
        return rows.withColumn("value", F.when(from_file, read("body")).otherwise(F.col("value")))

    def _published(
        self, name: ReplayId, rate: int | None, key_taken: KeyTaken, count: int
    ) -> DataFrame:
        rows = self._chosen().where(f"not ({_DAMAGED})")
        if rate is None:
            rows = rows.withColumn("at", F.lit(None).cast("timestamp"))
        else:
            rows = self._paced(rows, rate, count)
        if key_taken == "drop":
            rows = rows.withColumn("key", F.lit(None).cast("string"))
        if self.target is not None:
            rows = rows.withColumn("queue", F.lit(self.target.text))
        ours = F.create_map(F.lit(ID_HEADER), F.lit(name.text), F.lit(OF_HEADER), F.col("id"))
        kept = F.expr(
            "map_filter(coalesce(headers, map()), "
            f"(name, value) -> lower(name) not in ('{ID_HEADER}', '{OF_HEADER}'))"
        )
        return rows.withColumn("headers", F.map_concat(kept, ours)).select(*_PUBLISHED)

    def _paced(self, rows: DataFrame, rate: int, count: int) -> DataFrame:
        """Adds to each row when it becomes ready, the first one once all are likely published. Only
        ids, no bodies, are collected for sorting.
        """
        order = Window.orderBy("id")
        turns = rows.select("id", F.row_number().over(order).alias("turn"))
        start_ms = self.root.now_ms() + _LEAD_MS + count * 1000 // _STAGED_PER_S
        at = F.timestamp_millis((F.lit(start_ms) + F.col("turn") * 1000 / rate).cast("long"))
        return rows.join(turns, "id").withColumn("at", at).drop("turn")


_DAMAGED: Final = "coalesce(damaged, false) or value is null"


def _save(writing: DataFrameWriter) -> None:
    try:
        writing.save()
    except PySparkException as error:
        # The sink's own message, among all frames of Python and Java.
        if found := _SAID.findall(str(error)):
            raise ReplayRefused(found[-1].strip()) from error
        raise


def _sums(rows: list[Row], by: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for row in sorted(rows, key=lambda row: str(row[by])):
        found[str(row[by])] = found.get(str(row[by]), 0) + row["messages"]
    return found


def _body(archive: str, body: str | None) -> bytes | None:
    """The content of a file below the archive; None if it is missing or lies elsewhere; in
    a task.
    """
    if body is None:
        return None
    path = os.path.realpath(os.path.join(archive, body))
    if not path.startswith(os.path.realpath(archive) + os.sep):
        return None
    try:
        return Path(path).read_bytes()
    except OSError:
        return None
