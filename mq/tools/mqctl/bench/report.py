"""What a bench found, for people and for machines. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from mq.client.values import Readiness
from mq.tools.mqctl.bench.keeping import Left
from mq.tools.mqctl.bench.plan import Plan
from mq.tools.mqctl.bench.tally import Tally

PERCENTS: Final = (50, 95, 99)
_COLUMNS: Final = ("messages", "messages/s", "requests/s", "MiB/s", "errors")
_TIMES: Final = (*(f"p{percent}" for percent in PERCENTS), "max")
_NAME_CHARS: Final = 9
_MIB: Final = 1 << 20
# From here on it is the bench that is measured.
_BUSY_SHARE: Final = 0.9


@dataclass(frozen=True, slots=True)
class Outcome:
    """`busy_share`: of one core, what the bench itself used. `stopped_by`: the signal; `gave_up`:
    why it ended before its end. `missing`: messages that were published and not fetched though they
    were to be.
    """

    plan: Plan
    url: str
    server: Readiness | None
    tallies: tuple[Tally, ...]
    busy_share: float
    left: Left
    missing: int = 0
    stopped_by: str | None = None
    gave_up: str | None = None
    has_ended_early: bool = False
    """Whether the time was over before all that was published was fetched, as it may be."""

    @property
    def is_whole(self) -> bool:
        """Whether all was done that was to be, without an error, and nothing is left."""
        return (
            self.gave_up is None
            and self.stopped_by is None
            and self.left.queue is None
            and not self.missing
            and not any(tally.failed for tally in self.tallies)
        )


def lines(outcome: Outcome) -> list[str]:
    """The report, line by line."""
    said = [*_conditions(outcome), "", *_table(outcome.tallies, outcome.plan.size_bytes)]
    for tally in outcome.tallies:
        for kind, count in sorted(tally.errors.items()):
            said.append(f"  {tally.name}: {count:,} x {kind}")
    return [*said, *(f"  {note}" for note in notes(outcome))]


def _conditions(outcome: Outcome) -> list[str]:
    plan = outcome.plan
    found = [f"mqctl bench {outcome.url}, queue {plan.name}"]
    if (server := outcome.server) is not None:
        found.append(
            f"a success is: durability {server.durability}, {server.file_system}, "
            f"commit {server.commit}"
        )
    asked = f"{plan.connections} connections, {plan.size_bytes:,} bytes a message"
    asked += ", one a request" if plan.batch == 1 else f", {plan.batch} a request"
    if plan.is_idempotent:
        asked += ", with idempotency keys"
    found.append(asked)
    if plan.rate_per_s is None:
        pace = "as fast as it goes: a connection sends when the one before was answered"
    else:
        pace = f"{plan.rate_per_s:,.10g} messages/s: a latency begins when its request is due"
    found.append(f"{pace}; {plan.warm_up_s:g} s of warm-up are left out")
    return found


def _table(tallies: Sequence[Tally], size_bytes: int) -> list[str]:
    heads = [*_COLUMNS, *(f"{each} ms" for each in _TIMES)]
    rows = [_cells(tally, size_bytes) for tally in tallies]
    widths = [
        max(len(head), *(len(row[place]) for row in rows)) for place, head in enumerate(heads)
    ]
    table = [("", heads), *zip([tally.name for tally in tallies], rows, strict=True)]
    return [
        name.ljust(_NAME_CHARS)
        + "".join("  " + cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
        for name, cells in table
    ]


def _cells(tally: Tally, size_bytes: int) -> list[str]:
    times_s = [*(tally.latencies.percentile_s(each) for each in PERCENTS), _most_s(tally)]
    return [
        f"{tally.messages:,}",
        _rate(tally.messages_per_s),
        _rate(tally.requests_per_s),
        _rate(_mib_per_s(tally, size_bytes)),
        f"{tally.failed:,}",
        *("-" if each is None else f"{each * 1000:,.2f}" for each in times_s),
    ]


def _most_s(tally: Tally) -> float | None:
    return tally.latencies.most_s if tally.latencies.count else None


def _mib_per_s(tally: Tally, size_bytes: int) -> float | None:
    """Of bodies."""
    rate = tally.messages_per_s
    return None if rate is None else rate * size_bytes / _MIB


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}"


def notes(outcome: Outcome) -> list[str]:
    """What whoever reads the figures is to know."""
    found = []
    if outcome.stopped_by is not None:
        found.append(
            f"stopped by {outcome.stopped_by}: the figures are of what was done until then"
        )
    if outcome.gave_up is not None:
        found.append(f"gave up: {outcome.gave_up}")
    if outcome.missing:
        found.append(
            f"{outcome.missing:,} messages were published and never came: does anybody else "
            "consume the queue?"
        )
    if outcome.has_ended_early:
        found.append("the time was over before all that was published was fetched")
    for tally in outcome.tallies:
        if tally.unsent:
            found.append(
                f"{tally.name}: {tally.unsent:,} requests were due and never sent: the rate is "
                "more than mq, or these connections, can do"
            )
        if tally.uncertain:
            found.append(
                f"{tally.name}: of the errors, {tally.uncertain:,} may be done all the same"
            )
    if outcome.busy_share >= _BUSY_SHARE:
        found.append(
            f"the bench itself used {outcome.busy_share:.0%} of a core: mq may do more than this. "
            "Run several at once"
        )
    if outcome.left.queue is not None:
        found.append(f"LEFT: queue {outcome.left.queue}: {outcome.left.why}")
    return found


def document(outcome: Outcome) -> dict[str, Any]:
    """The same for machines. Durations in seconds; what there is none of is null."""
    plan = outcome.plan
    return {
        "url": outcome.url,
        "queue": plan.name,
        "connections": plan.connections,
        "size_bytes": plan.size_bytes,
        "batch": plan.batch,
        "idempotent": plan.is_idempotent,
        "rate_per_s": plan.rate_per_s,
        "warm_up_s": plan.warm_up_s,
        "server": outcome.server,
        "operations": {tally.name: _operation(tally, plan.size_bytes) for tally in outcome.tallies},
        "missing": outcome.missing,
        "busy_share": round(outcome.busy_share, 3),
        "stopped_by": outcome.stopped_by,
        "gave_up": outcome.gave_up,
        "ended_early": outcome.has_ended_early,
        "queue_left": outcome.left.queue,
        "queue_left_why": outcome.left.why,
        "whole": outcome.is_whole,
        "notes": notes(outcome),
    }


def _operation(tally: Tally, size_bytes: int) -> dict[str, Any]:
    times = {f"p{each}_s": _rounded(tally.latencies.percentile_s(each)) for each in PERCENTS}
    return {
        "messages": tally.messages,
        "requests": tally.requests,
        "passed_s": _rounded(tally.passed_s),
        "messages_per_s": _rounded(tally.messages_per_s),
        "requests_per_s": _rounded(tally.requests_per_s),
        "mib_per_s": _rounded(_mib_per_s(tally, size_bytes)),
        "latency": {
            **times,
            "mean_s": _rounded(tally.latencies.mean_s),
            "max_s": _rounded(_most_s(tally)),
        },
        "failed": tally.failed,
        "uncertain": tally.uncertain,
        "errors": dict(tally.errors),
        "empty": tally.empty,
        "unsent": tally.unsent,
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)
