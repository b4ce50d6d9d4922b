"""mq-mover's metrics for Prometheus. Collected in another thread than that of the rounds, so they
read plain numbers, each at once.
"""

from collections.abc import Iterator
from typing import Final

from mq import __version__
from mq.metrics.families import Family, counter, gauge, one
from mq.metrics.serving import of_passes, plain
from mq.runtime.upkeep import Passes
from mq.store.operations.redeliver import Redelivery
from mq_mover.mover import Mover
from mq_mover.policies.expiry import MessageExpiry
from mq_mover.policies.overdue import Overdue
from mq_mover.policies.shovel import Shovel
from mq_mover.rounds import Rounds

_DAEMON: Final = "mq_mover"
_SIDELINED: Final = {"receives": Redelivery.SIDELINED, "expired": Redelivery.EXPIRED_ASIDE}
_SWEPT: Final = "swept"


def of_moving(passes: Passes, mover: Mover) -> Iterator[Family]:
    """The families of a mover between two folders."""
    yield gauge(f"{_DAEMON}_info", "What this mover is.", ("version",), [((__version__,), 1)])
    yield from of_passes(_DAEMON, passes)
    yield counter(
        f"{_DAEMON}_redeliveries",
        "What became of messages of delay/ that looked due.",
        ("result",),
        [((result.name.lower(),), count) for result, count in mover.results.items()],
    )
    yield counter(
        f"{_DAEMON}_redeliveries_failed",
        "Messages that could not be moved, and are tried again.",
        (),
        [((), mover.failed)],
    )
    yield plain(
        f"{_DAEMON}_redelivery_late_seconds",
        "How late messages came back to their queues.",
        mover.lateness,
    )
    yield one(f"{_DAEMON}_waiting", "Messages of delay/ that wait for their time.", mover.waiting)


def of_rounds(passes: Passes, rounds: Rounds) -> Iterator[Family]:
    yield from of_moving(passes, rounds.mover)
    done, counts, view = rounds.redelivery(), rounds.policies.counts(), rounds.view
    yield counter(
        f"{_DAEMON}_from_leases",
        "Messages of leases of Spark queries that lapsed, brought back.",
        (),
        [((), done["from_leases"])],
    )
    yield counter(
        f"{_DAEMON}_firings", "Messages published by schedules.", (), [((), done["fired"])]
    )
    results = rounds.mover.results
    sidelined = {reason: results[result] for reason, result in _SIDELINED.items()}
    sidelined["expired"] += counts[MessageExpiry.name].aside
    sidelined[_SWEPT] = counts[Overdue.name].acted
    expired = results[Redelivery.EXPIRED] + results[Redelivery.EXPIRED_ASIDE]
    yield counter(
        f"{_DAEMON}_sidelined",
        "Messages put aside, by why; those swept are also what lay in delay/ of sidelines.",
        ("reason",),
        [((reason,), count) for reason, count in sidelined.items()],
    )
    yield counter(
        f"{_DAEMON}_expired",
        "Messages that had lived too long; a bucket of them counts once.",
        (),
        [((), expired + counts[MessageExpiry.name].acted)],
    )
    yield counter(
        f"{_DAEMON}_shovelled",
        "Messages that shovels by schedule moved back.",
        (),
        [((), counts[Shovel.name].acted)],
    )
    for what in ("turns", "acted", "failed"):
        yield counter(
            f"{_DAEMON}_policy_{what}",
            {
                "turns": "Turns of policies.",
                "acted": "What they acted on.",
                "failed": "Turns that failed.",
            }[what],
            ("policy",),
            [((name,), getattr(count, what)) for name, count in counts.items()],
        )
    yield one(f"{_DAEMON}_queues", "Queues whose upkeep is this member's.", rounds.queues())
    yield one(f"{_DAEMON}_leads", "Whether this member leads.", rounds.leads())
    yield one(f"{_DAEMON}_connected", "Whether it knows what the others do.", view.is_connected)
    yield one(f"{_DAEMON}_members", "Members that it knows of.", len(view.members))
