"""Lives: all that archive, inodes and history files know about each message, as one row; and the
facts about each queue.
"""

from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from mq.model.lifecycle import State
from mq.spark.jobs.history_sources import RANKS, SIDELINED_RANK, home_column

ARCHIVE: Final = 1
INODES: Final = 2
HISTORY: Final = 4
SOURCES: Final = {ARCHIVE: "archive", INODES: "inodes", HISTORY: "history"}
"""The sources by their bits."""

_GONE_RANK: Final = RANKS[State.REMOVED]
# The two events in which a consumer gets a message.
_FETCHES: Final = ("fetched", "leased")
_AT: Final = {
    "h_fetched": f"event IN {_FETCHES} AND receives = 1",
    "h_removed": "event = 'removed'",
    "h_sidelined": "event = 'sidelined'",
    "h_shovelled": "event = 'shovelled'",
}
# The columns of the sources' rows besides home, id, priority and published, and how several rows of
# one message are merged.
_MERGED: Final = {
    "source": "bit_or(source)",
    "a_removed": "max(a_removed)",
    "rank": "max(rank)",
    "i_removed": "max(i_removed)",
    "i_sidelined": "max(i_sidelined)",
    "h_fetched": "min(h_fetched)",
    "h_removed": "max(h_removed)",
    "h_sidelined": "max(h_sidelined)",
    "h_shovelled": "max(h_shovelled)",
    "h_first": "min(h_from)",
    "h_last": "max(h_at)",
    "receives": "max(greatest(a_receives, i_receives, h_receives))",
    "size": "coalesce(max(a_size), max(i_size))",
}
_TYPES: Final = {
    "source": "int", "rank": "int", "a_receives": "int", "i_receives": "int", "h_receives": "int",
}  # fmt: skip
_SOURCE_COLUMNS: Final = (
    "home", "id", "priority", "published", "source", "a_removed", "a_receives", "a_size", "rank",
    "i_removed", "i_sidelined", "i_receives", "i_size", "h_fetched", "h_removed", "h_sidelined",
    "h_shovelled", "h_from", "h_at", "h_receives",
)  # fmt: skip


def archive_rows(archived: DataFrame) -> DataFrame:
    """The rows of an archive. A damaged message has no size."""
    return archived.select(
        home_column(F.col("queue")).alias("home"),
        "id",
        F.coalesce("priority", F.lit(0)).alias("priority"),
        F.unix_millis("published").alias("published"),
        F.lit(ARCHIVE).alias("source"),
        F.unix_millis("removed").alias("a_removed"),
        F.col("receives").alias("a_receives"),
        F.coalesce("size", F.lit(0)).alias("a_size"),
    )


def inode_rows(rows: DataFrame) -> DataFrame:
    """Rows of inodes, from history_sources.ROWS."""
    return rows.withColumn("source", F.lit(INODES))


def told(events: DataFrame) -> DataFrame:
    """Events (history_sources.EVENTS) with the priority and publish time in their ids."""
    return events.select(
        "*",
        F.expr("if(substr(id, 37, 3) = ',p=', try_cast(substr(id, 40, 1) AS int), 0)").alias(
            "priority"
        ),
        F.expr("CAST(conv(concat(substr(id, 1, 8), substr(id, 10, 4)), 16, 10) AS long)").alias(
            "published"
        ),
    )


def event_rows(events: DataFrame) -> DataFrame:
    """The rows of events that `told` returned, one per event."""
    return events.select(
        "home",
        "id",
        "priority",
        "published",
        "source",
        *(F.expr(f"if({holds}, at, NULL)").alias(name) for name, holds in _AT.items()),
        # A bulk publish writes its lines at its end, long after its ids were made.
        F.expr("if(event = 'published', least(at, published), at)").alias("h_from"),
        F.col("at").alias("h_at"),
        F.col("receives").alias("h_receives"),
    )


def merged(sources: "list[DataFrame]", now_ms: int) -> DataFrame:
    """A row per message, by home and id, as it was at `now_ms`, from all sources.

    home, priority; published, fetched (the first time, if known), removed, `gone` (when it left the
    queue: removed or sidelined), h_first and h_last (its lines), milliseconds since the epoch;
    rank, null if only a history knows it; receives, size, source.
    """
    rows = _aligned(sources[0])
    for each in sources[1:]:
        rows = rows.unionByName(_aligned(each))
    lives = rows.groupBy("home", "id").agg(
        F.max("priority").alias("priority"),
        F.min("published").alias("published"),
        *(F.expr(how).alias(name) for name, how in _MERGED.items()),
    )
    # Leaves out lines of messages published after the listing, which has no inode of theirs.
    lives = lives.where(F.expr(f"source <> {HISTORY} OR published <= {now_ms}"))
    return _decided(lives, now_ms)


def _aligned(rows: DataFrame) -> DataFrame:
    """Adds null for the columns of other sources."""
    return rows.select(
        *(
            F.col(name)
            if name in rows.columns
            else F.lit(None).cast(_TYPES.get(name, "long")).alias(name)
            for name in _SOURCE_COLUMNS
        )
    )


def _decided(lives: DataFrame, now_ms: int) -> DataFrame:
    """Decides between the sources. Brings times of a wrong clock into order: published, then
    removed, not in the future.
    """
    published = f"least(published, {now_ms})"

    def ordered(name: str) -> str:
        # Neither function returns null unless all its arguments are null.
        return f"if({name} IS NULL, NULL, least(greatest({name}, {published}), {now_ms}))"

    is_living = f"a_removed IS NULL AND rank < {_GONE_RANK}"
    is_lost = "a_removed IS NULL AND rank IS NULL AND h_removed IS NULL"
    decided = lives.select(
        "*",
        F.expr(published).alias("came"),
        F.expr(
            "if(a_removed IS NOT NULL, a_removed, if(rank IS NOT NULL, i_removed, h_removed))"
        ).alias("went"),
        F.expr(
            f"if(rank = {SIDELINED_RANK}, coalesce(h_sidelined, i_sidelined, {now_ms}), "
            "if(h_shovelled >= h_sidelined, NULL, h_sidelined))"
        ).alias("aside"),
        F.expr(is_living).alias("is_living"),
        F.expr(is_lost).alias("is_lost"),
    )
    # If it returned from the sideline without a line, its file is right.
    aside = f"if(is_living AND rank < {SIDELINED_RANK}, NULL, aside)"
    # A message known only by lines, none of its end, existed at least until the last one.
    return decided.select(
        "home",
        "priority",
        F.expr("came").alias("published"),
        F.expr(ordered("h_fetched")).alias("fetched"),
        F.expr(ordered("went")).alias("removed"),
        F.expr(ordered(f"if(is_lost, h_last, least(went, {aside}))")).alias("gone"),
        "h_first",
        "h_last",
        F.expr("if(is_living, rank, NULL)").alias("rank"),
        "receives",
        "size",
        "source",
    )


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """Facts about a queue: a field for each column of `facts_of`. Times are milliseconds since the
    epoch, None if there is none; `sources`: bits, see SOURCES. `removal_ms`: the earliest removal
    in archive or inodes.
    """

    queue: str
    sources: int = 0
    first_ms: int | None = None
    last_ms: int | None = None
    published: int = 0
    removed: int = 0
    ready: int = 0
    delayed: int = 0
    leased: int = 0
    sidelined: int = 0
    bytes: int = 0
    oldest_ms: int | None = None
    removal_ms: int | None = None
    line_first_ms: int | None = None
    line_last_ms: int | None = None


_WAITS: Final = f"rank < {SIDELINED_RANK}"
_FACTS: Final = {
    "sources": "bit_or(source)",
    "first_ms": "min(published)",
    "last_ms": "max(greatest(published, fetched, removed, gone, h_last))",
    "published": "count(1)",
    "removed": "count_if(rank IS NULL)",
    "ready": f"count_if(rank = {RANKS[State.READY]})",
    "delayed": f"count_if(rank = {RANKS[State.DELAYED]})",
    "leased": f"count_if(rank = {RANKS[State.LEASED]})",
    "sidelined": f"count_if(rank = {SIDELINED_RANK})",
    "bytes": f"coalesce(sum(size) FILTER (WHERE {_WAITS}), 0)",
    "oldest_ms": f"min(published) FILTER (WHERE {_WAITS})",
    "removal_ms": f"min(removed) FILTER (WHERE source <> {HISTORY})",
    "line_first_ms": "min(h_first)",
    "line_last_ms": "max(h_last)",
}


def facts_of(lives: DataFrame) -> dict[str, QueueFacts]:
    """The facts about each queue, by name. The driver gets a row per queue."""
    frame = lives.groupBy("home").agg(*(F.expr(how).alias(name) for name, how in _FACTS.items()))
    return {row[0]: QueueFacts(*row) for row in frame.collect()}
