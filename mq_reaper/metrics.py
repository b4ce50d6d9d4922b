"""mq-reaper's metrics for Prometheus. Collected in another thread than that of the passes."""

from collections.abc import Iterator
from typing import Final

from mq import __version__
from mq.metrics.families import Family, counter, gauge, one
from mq.metrics.serving import of_passes
from mq.runtime.upkeep import Passes
from mq_reaper.reaper import Reaper

_DAEMON: Final = "mq_reaper"


def of_reaping(passes: Passes, reaper: Reaper) -> Iterator[Family]:
    yield gauge(f"{_DAEMON}_info", "What this reaper is.", ("version",), [((__version__,), 1)])
    yield from of_passes(_DAEMON, passes)
    yield counter(
        f"{_DAEMON}_unlinked",
        "Names that went, by what they were.",
        ("kind",),
        [(("file",), reaper.files_gone), (("folder",), reaper.went - reaper.files_gone)],
    )
    yield one(f"{_DAEMON}_foreign", "Names in remove/ that are left alone.", reaper.foreign)
    behind = reaper.behind()
    yield one(
        f"{_DAEMON}_archive_behind_messages",
        "Removed messages that the archive has not stored; 0 without one.",
        behind.messages,
    )
    yield one(
        f"{_DAEMON}_archive_behind_seconds",
        "How long ago the oldest of them was removed; 0: there is none.",
        behind.oldest_s,
    )
    yield one(
        f"{_DAEMON}_archive_late_seconds",
        "From when on that is late: --archive-late.",
        behind.late_s,
    )
