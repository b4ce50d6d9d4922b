"""The board's numbers as families: sums over all processes of one mq."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from prometheus_client.metrics_core import Metric
from prometheus_client.process_collector import ProcessCollector

from mq.metrics.families import counter, gauge, histogram, one
from mq.metrics.meter import Meter
from mq.metrics.plan import KEPT, Kept, Key
from mq.runtime.histogram import FLUSH_SECONDS, SECONDS, SIZES


def families_of(meter: Meter) -> Iterator[Metric]:
    """The families of all processes. Counters and histograms include processes that have ended,
    gauges only living ones.
    """
    plan, board = meter.plan, meter.board
    living = board.living()
    ever = board.summed(0, plan.numbers)
    now = dict(zip(plan.keys, board.summed(plan.kept, plan.numbers, list(living)), strict=True))
    counted = dict(zip(plan.keys, ever[plan.kept :], strict=True))
    yield _histogram(
        "mq_request_seconds",
        "How long requests took until their answers were made, by operation and outcome.",
        ("operation", "outcome"),
        SECONDS,
        plan.request_rows(),
        ever,
    )
    yield _histogram(
        "mq_flush_seconds",
        "How long the system calls took that put files, folders or the file system on the disk.",
        ("kind", "result"),
        FLUSH_SECONDS,
        plan.flush_rows(),
        ever,
        is_whole=True,  # So that the first failure shows as an increase from zero.
    )
    yield _histogram(
        "mq_commit_seconds",
        "How long a commit group's flush took.",
        (),
        FLUSH_SECONDS,
        [((), plan.commit_seconds)],
        ever,
    )
    yield _histogram(
        "mq_commit_operations",
        "How many operations a flush was for.",
        (),
        SIZES,
        [((), plan.commit_sizes)],
        ever,
    )
    for kept in KEPT:
        yield _kept(kept, counted if kept.is_counter else now)
    yield one("mq_processes", "Processes that serve.", len(living))
    yield from _processes(living)


def _histogram(
    name: str,
    says: str,
    labels: Sequence[str],
    bounds: Sequence[float],
    rows: Iterable[tuple[Sequence[str], int]],
    numbers: Sequence[float],
    is_whole: bool = False,
) -> Metric:
    width = len(bounds) + 1
    found = [
        (values, counts, numbers[at + width])
        for values, at in rows
        # Leaves out rows of zeros where there are many.
        if any(counts := numbers[at : at + width]) or is_whole or not labels
    ]
    return histogram(name, says, labels, bounds, found)


def _kept(kept: Kept, found: Mapping[Key, float]) -> Metric:
    labels = (kept.label,) if kept.label else ()
    rows = [((value,) if kept.label else (), found[kept.name, value]) for value in kept.values]
    return (counter if kept.is_counter else gauge)(kept.name, kept.says, labels, rows)


def _processes(living: Mapping[int, int]) -> Iterator[Metric]:
    """The system's figures of each process, under its number."""
    made: dict[str, Metric] = {}
    for index, pid in living.items():
        collector = ProcessCollector(pid=lambda pid=pid: pid, registry=None)  # type: ignore[misc]
        for found in collector.collect():
            family = made.setdefault(
                found.name, Metric(found.name, found.documentation, found.type)
            )
            for sample in found.samples:
                family.add_sample(sample.name, {"process": str(index)}, sample.value)
    yield from made.values()
