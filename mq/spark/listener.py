"""Acknowledges a query's last batch when the query ends well. Spark reports a batch to its source
only when another one follows.
"""

import atexit
import json
import logging
import os
import re
import threading
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from weakref import WeakSet

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from mq.model.errors import BadName, MqError
from mq.model.names import ConsumerName
from mq.spark.opening import opened_root
from mq.spark.streaming import acknowledge_all, plan
from mq.store.leases.lease import leases_of

# How long a process that ends waits for the events of queries that have ended.
LAST_EVENTS_S: Final = 5.0

_log: Final = logging.getLogger("mq.spark")

_REPORT: Final = "mq"


def report(path: Path, consumer: str) -> dict[str, Any]:
    """The consumer and the root of a query's offsets, as its progress shows them."""
    return {_REPORT: {"path": os.fspath(path), "consumer": consumer}}


@dataclass(frozen=True, slots=True)
class Processed:
    """The number of the last lease that a consumer has fully processed."""

    path: Path
    consumer: ConsumerName
    seq: int

    @classmethod
    def read(cls, reported: str | None, end_offset: str | None) -> "Processed | None":
        """Parses a source's report and the end of its last batch, both JSON. None: another source,
        or one that has not reported its consumer yet.
        """
        try:
            about = json.loads(reported or "null")[_REPORT]
            seq = json.loads(end_offset or "null")["seq"]
            return cls(Path(about["path"]), ConsumerName.parse(about["consumer"]), int(seq))
        except (BadName, KeyError, TypeError, ValueError):
            return None


@dataclass(slots=True)
class Runs:
    """The runs of queries, and what each had processed by its last progress."""

    _processed: dict[str, Mapping[tuple[Path, ConsumerName], Processed]] = field(
        default_factory=dict
    )

    def progressed(self, run: str, sources: Iterable[tuple[str | None, str | None]]) -> None:
        """Records that a batch of the run is committed; (report, end offset) of each source."""
        found = [each for source in sources if (each := Processed.read(*source)) is not None]
        before = self._processed.get(run, {})
        self._processed[run] = {**before, **{(each.path, each.consumer): each for each in found}}

    def ended(self, run: str, is_well: bool) -> list[Processed]:
        """Removes a run that has ended. Returns what must be acknowledged now; nothing after a
        failure, since the run that continues it does that.
        """
        processed = self._processed.pop(run, {})
        return list(processed.values()) if is_well else []


def acknowledge_up_to(processed: Processed) -> int:
    """Acknowledges the consumer's open leases up to the processed one; returns how many. Logs those
    that cannot be acknowledged, because this process does not see the root or its disk fails: they
    are delivered again. Durable on return: yes.
    """
    try:
        with opened_root(processed.path) as (root, flusher):
            leases = plan(leases_of(root, processed.consumer), processed.seq).acknowledge
            return acknowledge_all(root, flusher, leases)
    except (MqError, OSError) as error:
        _log.warning(
            "the last batch of %s is not acknowledged, and comes again: %r",
            processed.consumer.text,
            error,
        )
        return 0


_CONNECT: Final = "pyspark.sql.connect"
_listened: Final["WeakSet[SparkSession]"] = WeakSet()


class LastBatches(StreamingQueryListener):
    """Runs in the session's process, also Spark Connect's: it must see the root. Spark sends a
    run's events in order, and its progress once the batch is committed.
    """

    def __init__(self) -> None:
        self._runs = Runs()
        self._standing: set[str] = set()
        self._changed = threading.Condition()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        with self._changed:
            self._standing.add(str(event.runId))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """A batch was committed, or there was none."""
        progress = event.progress
        sources = [(source.latestOffset, source.endOffset) for source in progress.sources]
        self._runs.progressed(str(progress.runId), sources)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        ...

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """A run has ended by itself or was stopped; without an exception it succeeded."""
        try:
            for processed in self._runs.ended(str(event.runId), is_well=event.exception is None):
                acknowledge_up_to(processed)
        finally:
            with self._changed:
                self._standing.discard(str(event.runId))
                self._changed.notify_all()

    def settle(self, spark: SparkSession, seconds: float = LAST_EVENTS_S) -> None:
        """Waits up to `seconds` for the ends of runs that are over: Spark reports them a moment
        late.
        """
        if not self._standing:
            return
        try:
            active = {str(query.runId) for query in spark.streams.active}
        except Exception as error:  # Spark has ended, in any of many ways.
            _log.debug("nothing more is heard of queries: %r", error)
            return
        with self._changed:
            self._changed.wait_for(lambda: self._standing <= active, seconds)


def install(spark: SparkSession) -> None:
    """Makes the session acknowledge last batches, also of a query that ended just before the
    process does. May be called repeatedly.
    """
    if spark in _listened:
        return
    _listened.add(spark)
    listener = LastBatches()
    spark.streams.addListener(listener)
    if type(spark).__module__.startswith(_CONNECT):
        threading.Thread(target=_at_end, args=(spark, listener), daemon=True).start()
    else:
        atexit.register(listener.settle, spark)


def _at_end(spark: SparkSession, listener: LastBatches) -> None:
    """Removes the listener at the end of the program, once it has received the events so far: Spark
    Connect receives events in a thread that would keep the process alive.
    """
    threading.main_thread().join()
    # Spark warns of calls after the program's end, which are expected here.
    warnings.filterwarnings("ignore", module=re.escape(_CONNECT))
    listener.settle(spark)
    try:
        spark.streams.removeListener(listener)
    except Exception as error:  # The server or the session has ended, and with it the thread.
        _log.debug("the listener was not taken away: %r", error)
