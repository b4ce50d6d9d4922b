"""A page of samples at a port of its own, for daemons that serve nothing else."""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from prometheus_client import start_http_server
from prometheus_client.metrics_core import Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector, CollectorRegistry

from mq.metrics.families import Family
from mq.model.errors import StartupError

_PATIENCE_S: Final = 5.0


class _Asked(Collector):
    """What somebody says each time that it is asked for."""

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
    """Answers scrapes at an address and a port, in threads, until the end of the block; the port,
    which is a free one where 0 was said. None, for both: nowhere. `collect` is called in these
    threads. Raises StartupError.
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
        raise StartupError(f"cannot show metrics on {address} port {port}: {error}") from error
    try:
        yield int(server.server_port)
    finally:
        server.shutdown()
        server.server_close()
        thread.join(_PATIENCE_S)
