"""What a stream's progress says of its source, and what of it is to be acknowledged at the end.

No Spark here. Spark's progress has a source's offsets but not its options: a report, which the
source gives as its latest offset, says whose they are.
"""

import json
import logging
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from mq.model.errors import BadName, LeaseLost, MqError
from mq.model.names import ConsumerName
from mq.spark.opening import open_for_leases
from mq.spark.streaming import plan
from mq.store.disk.group import run_alone
from mq.store.leases.lease import acknowledge, leases_of

_log: Final = logging.getLogger("mq.spark")

_REPORT: Final = "mq"


def report(path: Path, consumer: str) -> dict[str, Any]:
    """Whose offsets a query's are, as its progress shows it."""
    return {_REPORT: {"path": os.fspath(path), "consumer": consumer}}


@dataclass(frozen=True, slots=True)
class Processed:
    """Up to which of its leases a consumer has processed all."""

    path: Path
    consumer: ConsumerName
    seq: int

    @classmethod
    def read(cls, reported: str | None, end_offset: str | None) -> "Processed | None":
        """Of a source's report and the end of its last batch, as JSON. None: it is no source of
        mq's, or has not said whose it is yet.
        """
        try:
            about = json.loads(reported or "null")[_REPORT]
            seq = json.loads(end_offset or "null")["seq"]
            return cls(Path(about["path"]), ConsumerName.parse(about["consumer"]), int(seq))
        except (BadName, KeyError, TypeError, ValueError):
            return None


@dataclass(slots=True)
class Runs:
    """Queries' runs, and what each had processed by its last progress."""

    _processed: dict[str, Mapping[tuple[Path, ConsumerName], Processed]] = field(
        default_factory=dict
    )

    def progressed(self, run: str, sources: Iterable[tuple[str | None, str | None]]) -> None:
        """A batch of the run is committed; (report, end offset) of each of its sources."""
        found = [each for source in sources if (each := Processed.read(*source)) is not None]
        before = self._processed.get(run, {})
        self._processed[run] = {
            **before,
            **{(each.path, each.consumer): each for each in found},
        }

    def ended(self, run: str, is_well: bool) -> list[Processed]:
        """The run is over: what is to be acknowledged. A run that failed leaves all as it is, for
        the one that goes on.
        """
        processed = self._processed.pop(run, {})
        return list(processed.values()) if is_well else []


def acknowledge_up_to(processed: Processed) -> int:
    """Acknowledges the consumer's open leases up to the one; how many. What cannot be, since the
    root is not to be seen from here, or its disk fails, is logged: it comes again. Durable on
    return: yes.
    """
    done = 0
    try:
        root, flusher = open_for_leases(processed.path)
        try:
            for lease in plan(leases_of(root, processed.consumer), processed.seq).acknowledge:
                try:
                    done += run_alone(acknowledge(root, lease.name), flusher)
                except LeaseLost:
                    _log.warning("lease %s lapsed: its messages come again", lease.name.text)
        finally:
            flusher.close()
    except (MqError, OSError) as error:
        _log.warning(
            "the last batch of %s is not acknowledged, and comes again: %r",
            processed.consumer.text,
            error,
        )
    return done
