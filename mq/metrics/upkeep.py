"""Families that the daemons beside mq have in common: those of their passes."""

from collections.abc import Iterator

from mq.metrics.families import Family, counter, histogram, one
from mq.runtime.histogram import Histogram
from mq.runtime.passes import Passes


def of_passes(daemon: str, passes: Passes) -> Iterator[Family]:
    """Of a daemon whose names begin so."""
    yield plain(f"{daemon}_pass_seconds", "How long passes took that ended well.", passes.seconds)
    yield counter(f"{daemon}_passes_failed", "Passes that failed.", (), [((), passes.failed)])
    yield one(
        f"{daemon}_last_pass_timestamp_seconds",
        "When the last pass ended well, since the epoch; 0: there was none.",
        passes.last_ms / 1000,
    )


def plain(name: str, says: str, found: Histogram) -> Family:
    """A histogram without labels."""
    return histogram(name, says, (), found.bounds, [((), found.counts, found.total)])
