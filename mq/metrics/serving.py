"""Serves a page of samples at its own port, for mq-mover and mq-reaper."""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from prometheus_client import start_http_server
from prometheus_client.metrics_core import Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector, CollectorRegistry

from mq.metrics.families import Family, counter, histogram, one
from mq.runtime.activation import cannot_listen
from mq.runtime.histogram import Histogram
from mq.runtime.upkeep import Passes

_PATIENCE_S: Final = 5.0


class _Asked(Collector):
    """Makes the families anew for each scrape."""

    def __init__(self, collect: Callable[[], Iterable[Family]]) -> None:
        self._collect = collect

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterable[Metric]:
        return self._collect()


@contextlib.contextmanager
def shown(
    place: tuple[str, int] | None, collect: Callable[[], Iterable[Family]]
) -> Iterator[int | None]:
    """Answers scrapes in threads until the end of the block, and yields the port; 0 asks for a free
    one, None serves nothing. The threads call `collect`. Raises StartupError.
    """
    if place is None:
        yield None
        return
    address, port = place
    registry = CollectorRegistry()
    registry.register(_Asked(collect))
    ProcessCollector(registry=registry)
    try:
        server, thread = start_http_server(port, address, registry)
    except (OSError, OverflowError) as error:
        raise cannot_listen(address, port, error, "serve metrics") from error
    try:
        yield int(server.server_port)
    finally:
        server.shutdown()
        server.server_close()
        thread.join(_PATIENCE_S)


def of_passes(daemon: str, passes: Passes) -> Iterator[Family]:
    """The families of a daemon's passes, with names that begin with the daemon's."""
    yield plain(f"{daemon}_pass_seconds", "How long passes took that ended well.", passes.seconds)
    yield counter(f"{daemon}_passes_failed", "Passes that failed.", (), [((), passes.failed)])
    yield one(
        f"{daemon}_last_pass_timestamp_seconds",
        "When the last pass ended well, since the epoch; 0: there was none.",
        passes.last_ms / 1000,
    )


def plain(name: str, says: str, found: Histogram) -> Family:
    return histogram(name, says, (), found.bounds, [((), found.counts, found.total)])
