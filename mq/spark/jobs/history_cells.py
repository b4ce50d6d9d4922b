"""Cells: what many messages, or events, have in common, counted by Spark; of a few rows a step.

What a history's tables say follows from these alone, queue by queue (history_assembly).
"""

from enum import StrEnum
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from mq.spark.jobs.history_steps import Steps

QUANTILES: Final = (0.5, 0.9, 0.99, 0.999)
EXACT_BITS: Final = 8
"""Latencies below 2 to so many milliseconds are told apart; longer ones by so many of their bits,
so that a quantile is less than 1/128 too long.
"""
FETCHED, REDELIVERED, SIDELINED = 0, 1, 2
TO_FETCH, TO_REMOVAL = 0, 1
_EVENTS: Final = {
    FETCHED: "event IN ('fetched', 'leased')",
    # The first delivery of what was published for later is none again.
    REDELIVERED: "event = 'redelivered' AND receives > 0",
    SIDELINED: "event = 'sidelined'",
}


class Kind(StrEnum):
    """What a cell is of. `a` and `b` say of which messages or events, `v` what they come to."""

    FLOW = "flow"
    """Published in step a, gone in step b: messages, bytes, of how many the size is not known, and
    the earliest publish.
    """
    EVENT = "event"
    """Events in step a, of what b says: how many."""
    DROPPED = "dropped"
    """Lines that could not be written, told in step a: how many."""
    LATENCY = "latency"
    """Ended in step a (null: in any), of what b says: messages, milliseconds in all, the longest,
    and the QUANTILES. Of all priorities (null) and of each.
    """
    RECEIVES = "receives"
    """Removed, received a times: messages."""
    SIZE = "size"
    """Published, with bodies of 2 to the a bytes and less than twice that; a is -1: empty ones.
    Messages, bytes.
    """


# The driver asks for the cells of each place by a job of its own.
_PLACES_MAX: Final = 16
_COLUMNS: Final = ("queue", "kind", "priority", "a", "b", "v")
_KEYS: Final = ("home", "kind", "priority", "a", "b")
# How often, and of a number that is of the kind: its sum, its least and most, and how often it is
# not known.
_COUNTED: Final = ("n", "total", "least", "most", "lacking")
# How far a latency is shifted to the right, so that so many bits are left.
_SHIFT: Final = f"greatest(length(bin(ms)) - {EXACT_BITS}, 0)"


def cells_of(
    lives: DataFrame,
    events: DataFrame | None,
    drops: DataFrame | None,
    steps: Steps,
    queues: int,
) -> DataFrame:
    """All cells of the lives (history_lives.merged), the events and the drops (history_lines):
    queue, kind, priority, a, b, v; those of a queue come one after the other. `queues`: how many
    there are of these.
    """
    found = [_of_lives(lives, steps)]
    if events is not None:
        found.append(_of_events(events, steps))
    if drops is not None:
        found.append(_of_drops(drops, steps))
    # What comes now is of few rows, and a queue's rows are at one place for all of it.
    places = max(1, min(queues, _PLACES_MAX))
    return _cells(reduce(DataFrame.unionByName, found).repartition(places, "home"))


def _step(time: str, steps: Steps) -> str:
    """SQL for the step of a time: -1 before the first, `count` after the last, null without a
    time.
    """
    return (
        f"CAST(CASE WHEN {time} < {steps.start_ms} THEN -1 WHEN {time} >= {steps.until_ms} "
        f"THEN {steps.count} ELSE ({time} - {steps.start_ms}) DIV {steps.step_ms} END AS long)"
    )


def _of_lives(lives: DataFrame, steps: Steps) -> DataFrame:
    """What each life adds to: a flow; where it is of the steps, two latencies, receives, a size."""
    lives = lives.select(
        "*",
        F.expr(_step("published", steps)).alias("came_in"),
        F.expr(f"coalesce({_step('gone', steps)}, {steps.count})").alias("gone_in"),
        F.expr(_step("removed", steps)).alias("removed_in"),
        F.expr(_step("fetched", steps)).alias("fetched_in"),
    )
    is_removed, is_fetched, is_published = (
        f"{name} >= 0 AND {name} < {steps.count}"
        for name in ("removed_in", "fetched_in", "came_in")
    )
    power = "CAST(if(size = 0, -1, length(bin(size)) - 1) AS long)"
    adds = F.array(
        _added(f"came_in < {steps.count} AND gone_in >= 0", Kind.FLOW, "came_in", "gone_in"),
        _added(is_removed, Kind.LATENCY, "removed_in", f"{TO_REMOVAL}", "removed - published"),
        _added(is_fetched, Kind.LATENCY, "fetched_in", f"{TO_FETCH}", "fetched - published"),
        _added(f"{is_removed} AND receives IS NOT NULL", Kind.RECEIVES, "CAST(receives AS long)"),
        _added(f"{is_published} AND size IS NOT NULL", Kind.SIZE, power),
    )
    each = lives.select("home", "priority", "published", "size", F.explode(adds).alias("added"))
    each = each.where("added IS NOT NULL").select(
        "home", "priority", "published", "size", "added.*"
    )
    number = f"if(kind = '{Kind.LATENCY}', ms, size)"
    binned = each.select(
        *_KEYS,
        F.expr(f"({_SHIFT} << {EXACT_BITS}) + (ms >> {_SHIFT})").alias("bin"),
        F.expr(number).alias("number"),
        "published",
    )
    return binned.groupBy(*_KEYS, "bin").agg(
        F.count("*").alias("n"),
        F.sum("number").alias("total"),
        F.min("published").alias("least"),
        F.max("number").alias("most"),
        F.expr("count_if(number IS NULL)").alias("lacking"),
    )


def _added(holds: str, kind: Kind, a: str, b: str = "NULL", ms: str = "NULL") -> Column:
    return F.expr(
        f"if({holds}, named_struct('kind', '{kind}', 'a', {a}, 'b', CAST({b} AS long), "
        f"'ms', CAST({ms} AS long)), NULL)"
    )


def _of_events(events: DataFrame, steps: Steps) -> DataFrame:
    what = " ".join(f"WHEN {holds} THEN {code}" for code, holds in _EVENTS.items())
    rows = events.select(
        "home",
        F.lit(Kind.EVENT.value).alias("kind"),
        "priority",
        F.expr(_step("at", steps)).alias("a"),
        F.expr(f"CAST(CASE {what} END AS long)").alias("b"),
    )
    rows = rows.where(f"b IS NOT NULL AND a >= 0 AND a < {steps.count}")
    return _plain(rows.groupBy(*_KEYS).agg(F.count("*").alias("n")))


def _of_drops(drops: DataFrame, steps: Steps) -> DataFrame:
    rows = drops.select(
        "home",
        F.lit(Kind.DROPPED.value).alias("kind"),
        F.lit(None).cast("int").alias("priority"),
        F.expr(_step("at", steps)).alias("a"),
        F.lit(None).cast("long").alias("b"),
        F.col("count").alias("n"),
    )
    rows = rows.where(f"a >= 0 AND a < {steps.count}")
    return _plain(rows.groupBy(*_KEYS).agg(F.sum("n").alias("n")))


def _plain(counted: DataFrame) -> DataFrame:
    """Counts of what has no number beside."""
    nothing = F.lit(None).cast("long")
    others = {name: nothing for name in ("bin", *_COUNTED) if name != "n"}
    return counted.withColumns(others)


def _cells(counted: DataFrame) -> DataFrame:
    """Latencies are told of all steps and all priorities too, by their histograms' sums."""
    own = "named_struct('priority', priority, 'a', a)"
    of_all = "named_struct('priority', CAST(NULL AS int), 'a', a)"
    in_any = "named_struct('priority', priority, 'a', CAST(NULL AS long))"
    both = "named_struct('priority', CAST(NULL AS int), 'a', CAST(NULL AS long))"
    everywhere = F.expr(
        f"if(kind = '{Kind.LATENCY}', array({own}, {of_all}, {in_any}, {both}), array({own}))"
    )
    each = counted.withColumn("of", F.explode(everywhere)).drop("priority", "a")
    summed = (
        each.select("home", "kind", "b", "bin", *_COUNTED, "of.*")
        .groupBy(*_KEYS, "bin")
        .agg(
            F.sum("n").alias("n"),
            F.sum("total").alias("total"),
            F.min("least").alias("least"),
            F.max("most").alias("most"),
            F.sum("lacking").alias("lacking"),
        )
    )
    group = Window.partitionBy(*_KEYS)
    ranked = summed.withColumn("upto", F.sum("n").over(group.orderBy("bin"))).withColumn(
        "among", F.sum("n").over(group)
    )
    quantiles = ", ".join(
        f"min(if(upto >= ceil(among * CAST({q} AS decimal(4, 3))), most, NULL))" for q in QUANTILES
    )
    values = (
        f"CASE kind WHEN '{Kind.LATENCY}' THEN array(sum(n), sum(total), max(most), {quantiles}) "
        f"WHEN '{Kind.FLOW}' THEN array(sum(n), coalesce(sum(total), 0), sum(lacking), min(least)) "
        "ELSE array(sum(n), coalesce(sum(total), 0)) END"
    )
    told = ranked.groupBy(*_KEYS).agg(F.expr(values).alias("v"))
    return told.withColumnRenamed("home", "queue").select(*_COLUMNS).sortWithinPartitions("queue")
