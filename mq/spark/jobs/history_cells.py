"""Cells: what many messages, or events, have in common, counted by Spark; a few rows per step.

A history's tables are made from the cells alone, queue by queue (history_assembly).
"""

from dataclasses import dataclass
from enum import StrEnum
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from mq.model.errors import MqError

STEPS_MAX: Final = 10_000
"""The most steps: more than a report can show."""
_STEPS_WANTED: Final = 200
_WEEK_S: Final = 7 * 24 * 3600
# Units in which people divide time; above these, whole weeks.
_LENGTHS_S: Final = (
    60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 2 * 86_400, _WEEK_S,
)  # fmt: skip


@dataclass(eq=False)
class BadSpan(MqError):
    """The span of time cannot be divided into such steps."""

    why: str

    def __str__(self) -> str:
        return f"no history: {self.why}"


@dataclass(frozen=True, slots=True)
class Steps:
    """`count` steps from `start_ms` on, in milliseconds since the epoch. Steps begin at multiples
    of their length since the epoch, so that two histories have the same ones. The last step ends at
    `until_ms`, even if that makes it shorter.
    """

    start_ms: int
    step_ms: int
    count: int
    until_ms: int

    @property
    def step_s(self) -> int:
        """The length of a step, in seconds."""
        return self.step_ms // 1000

    def start(self, number: int) -> int:
        """The start of a step, milliseconds since the epoch."""
        return self.start_ms + number * self.step_ms

    def end(self, number: int) -> int:
        """The end of a step: the first millisecond after it."""
        return min(self.start(number + 1), self.until_ms)


def steps_between(since_ms: int, until_ms: int, step_s: int | None = None) -> Steps:
    """The steps of [since_ms, until_ms). Without `step_s` their length is the shortest common unit
    of time, from a minute to whole weeks, that makes at most 200 steps.

    Raises BadSpan if the span is empty, or would have too many steps.
    """
    if since_ms >= until_ms:
        raise BadSpan("it would end before it begins")
    if step_s is not None and step_s < 1:
        raise BadSpan("a step is a second at least")
    steps = _divided(since_ms, until_ms, step_s or _length_s(since_ms, until_ms))
    if steps.count > STEPS_MAX:
        raise BadSpan(f"{steps.count} steps of {step_s} s; {STEPS_MAX} at most")
    return steps


def _length_s(since_ms: int, until_ms: int) -> int:
    for length_s in _LENGTHS_S:
        if _divided(since_ms, until_ms, length_s).count <= _STEPS_WANTED:
            return length_s
    weeks = 2
    while _divided(since_ms, until_ms, weeks * _WEEK_S).count > _STEPS_WANTED:
        weeks *= 2
    return weeks * _WEEK_S


def _divided(since_ms: int, until_ms: int, step_s: int) -> Steps:
    step_ms = step_s * 1000
    start_ms = since_ms // step_ms * step_ms
    return Steps(start_ms, step_ms, -(-(until_ms - start_ms) // step_ms), until_ms)


QUANTILES: Final = (0.5, 0.9, 0.99, 0.999)
EXACT_BITS: Final = 8
"""Latencies below 2**EXACT_BITS milliseconds are exact; longer ones keep this number of leading
bits, so that a quantile is less than 1/128 too long.
"""
FETCHED, REDELIVERED, SIDELINED = 0, 1, 2
TO_FETCH, TO_REMOVAL = 0, 1
_EVENTS: Final = {
    FETCHED: "event IN ('fetched', 'leased')",
    # The first delivery of a delayed message is not a redelivery.
    REDELIVERED: "event = 'redelivered' AND receives > 0",
    SIDELINED: "event = 'sidelined'",
}


class Kind(StrEnum):
    """The kind of a cell. `a` and `b` identify the messages or events, `v` holds their figures."""

    FLOW = "flow"
    """Published in step a, gone in step b: messages, bytes, messages of unknown size, and the
    earliest publish.
    """
    EVENT = "event"
    """Events in step a, of type b: their number."""
    DROPPED = "dropped"
    """Lines that could not be written, reported in step a: their number."""
    LATENCY = "latency"
    """Ended in step a (null: any step), of type b: messages, total milliseconds, the longest, and
    the QUANTILES. For all priorities (null) and for each.
    """
    RECEIVES = "receives"
    """Removed after a receives: messages."""
    SIZE = "size"
    """Published with bodies of at least 2**a and less than 2**(a + 1) bytes; a is -1 for empty
    ones: messages, bytes.
    """


# The driver fetches the cells of each place by a job of its own.
_PLACES_MAX: Final = 16
_COLUMNS: Final = ("queue", "kind", "priority", "a", "b", "v")
_KEYS: Final = ("home", "kind", "priority", "a", "b")
# The number of rows and, for kinds with a number: its sum, least, most, and how many rows lack it.
_COUNTED: Final = ("n", "total", "least", "most", "lacking")
# How far a latency is shifted right to keep EXACT_BITS.
_SHIFT: Final = f"greatest(length(bin(ms)) - {EXACT_BITS}, 0)"


def cells_of(
    lives: DataFrame, events: DataFrame | None, drops: DataFrame | None, steps: Steps, queues: int
) -> DataFrame:
    """All cells of the lives (history_lives.merged), the events and the drops (history_sources):
    queue, kind, priority, a, b, v; a queue's cells are consecutive. `queues`: the number of queues.
    """
    found = [_of_lives(lives, steps)]
    if events is not None:
        found.append(_of_events(events, steps))
    if drops is not None:
        found.append(_of_drops(drops, steps))
    # Few rows are left, and a queue's rows stay in one place from here on.
    places = max(1, min(queues, _PLACES_MAX))
    return _cells(reduce(DataFrame.unionByName, found).repartition(places, "home"))


def _step(time: str, steps: Steps) -> str:
    """SQL for the step of a time: -1 before the first, `count` after the last, null without
    a time.
    """
    return (
        f"CAST(CASE WHEN {time} < {steps.start_ms} THEN -1 WHEN {time} >= {steps.until_ms} "
        f"THEN {steps.count} ELSE ({time} - {steps.start_ms}) DIV {steps.step_ms} END AS long)"
    )


def _of_lives(lives: DataFrame, steps: Steps) -> DataFrame:
    """The cells that a life adds to: a flow; and if it ends in the steps, two latencies, receives,
    a size.
    """
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
    """Counts without a further number."""
    nothing = F.lit(None).cast("long")
    others = {name: nothing for name in ("bin", *_COUNTED) if name != "n"}
    return counted.withColumns(others)


def _cells(counted: DataFrame) -> DataFrame:
    """Adds latencies of all steps and all priorities, by summing their histograms."""
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
