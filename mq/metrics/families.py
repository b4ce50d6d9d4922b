"""Families of samples, as `prometheus_client` has them, of plain numbers; and a page of them."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import TypeAlias

from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

Family: TypeAlias = Metric
"""All samples of a name."""
Row: TypeAlias = tuple[Sequence[str], float]
"""The values of a sample's labels, and its own."""


def counter(name: str, says: str, labels: Sequence[str], rows: Iterable[Row]) -> Metric:
    """Counters; `_total` is put to the name."""
    family = CounterMetricFamily(name, says, labels=labels)
    for values, value in rows:
        family.add_metric(values, value)
    return family


def gauge(name: str, says: str, labels: Sequence[str], rows: Iterable[Row]) -> Metric:
    """Gauges."""
    family = GaugeMetricFamily(name, says, labels=labels)
    for values, value in rows:
        family.add_metric(values, value)
    return family


def one(name: str, says: str, value: float) -> Metric:
    """A gauge without labels."""
    return gauge(name, says, (), [((), value)])


def histogram(
    name: str,
    says: str,
    labels: Sequence[str],
    bounds: Sequence[float],
    rows: Iterable[tuple[Sequence[str], Sequence[float], float]],
) -> Metric:
    """Histograms: of each the values of its labels, how many values fell below each bound and not
    below the one before it, last those above all, and their sum.
    """
    family = HistogramMetricFamily(name, says, labels=labels)
    ends = [*map(floatToGoString, bounds), "+Inf"]
    for values, counts, total in rows:
        family.add_metric(values, list(zip(ends, accumulate(counts), strict=True)), total)
    return family


class Families(Collector):
    """Families that are there already, for what asks a registry for them."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = list(families)

    def collect(self) -> Iterator[Metric]:
        """All of them."""
        yield from self._families


def page_of(families: Iterable[Metric], accept: str) -> tuple[bytes, str]:
    """A page in the form that an Accept header asks for (Prometheus's text, version 0.0.4 where it
    says nothing, or OpenMetrics), and its media type.
    """
    encode, media_type = choose_encoder(accept)
    return encode(Families(families)), media_type
