"""Makes `prometheus_client`'s families of plain numbers, and a page of them."""

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
"""All samples of one name."""
Row: TypeAlias = tuple[Sequence[str], float]
"""The values of a sample's labels, and the sample's own value."""


def counter(name: str, says: str, labels: Sequence[str], rows: Iterable[Row]) -> Metric:
    """A family of counters. The library adds `_total` to the name."""
    family = CounterMetricFamily(name, says, labels=labels)
    for values, value in rows:
        family.add_metric(values, value)
    return family


def gauge(name: str, says: str, labels: Sequence[str], rows: Iterable[Row]) -> Metric:
    family = GaugeMetricFamily(name, says, labels=labels)
    for values, value in rows:
        family.add_metric(values, value)
    return family


def one(name: str, says: str, value: float) -> Metric:
    return gauge(name, says, (), [((), value)])


def histogram(
    name: str,
    says: str,
    labels: Sequence[str],
    bounds: Sequence[float],
    rows: Iterable[tuple[Sequence[str], Sequence[float], float]],
) -> Metric:
    """A family of histograms. A row has the values of its labels, the number of values between each
    two bounds (last those above all bounds), and their sum.
    """
    family = HistogramMetricFamily(name, says, labels=labels)
    ends = [*map(floatToGoString, bounds), "+Inf"]
    for values, counts, total in rows:
        family.add_metric(values, list(zip(ends, accumulate(counts), strict=True)), total)
    return family


class Families(Collector):
    """A collector of ready families."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = list(families)

    def collect(self) -> Iterator[Metric]:
        yield from self._families


def page_of(families: Iterable[Metric], accept: str) -> tuple[bytes, str]:
    """A page and its media type: OpenMetrics, or Prometheus's text 0.0.4, as an Accept header
    asks.
    """
    encode, media_type = choose_encoder(accept)
    return encode(Families(families)), media_type
