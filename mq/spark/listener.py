"""What acknowledges a query's last batch when the query ends well: Spark tells its source only of
batches that another one follows.
"""

import atexit
import logging
import re
import threading
import warnings
from typing import Final
from weakref import WeakSet

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from mq.model.bulk_limits import LAST_EVENTS_S
from mq.spark.reports import Runs, acknowledge_up_to

_log: Final = logging.getLogger("mq.spark")

_CONNECT: Final = "pyspark.sql.connect"
_listened: Final["WeakSet[SparkSession]"] = WeakSet()


class LastBatches(StreamingQueryListener):
    """Runs in the process of the session, Spark Connect's too: it must see the root. A run's events
    come one after the other, its progress once the batch is committed.
    """

    def __init__(self) -> None:
        self._runs = Runs()
        self._standing: set[str] = set()
        self._changed = threading.Condition()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """A run begins."""
        with self._changed:
            self._standing.add(str(event.runId))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """A batch is committed, or there was none."""
        progress = event.progress
        sources = [(source.latestOffset, source.endOffset) for source in progress.sources]
        self._runs.progressed(str(progress.runId), sources)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """There is nothing to do."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """A run is over, by itself or stopped: without an exception it is well."""
        try:
            for processed in self._runs.ended(str(event.runId), is_well=event.exception is None):
                acknowledge_up_to(processed)
        finally:
            with self._changed:
                self._standing.discard(str(event.runId))
                self._changed.notify_all()

    def settle(self, spark: SparkSession, seconds: float = LAST_EVENTS_S) -> None:
        """Waits so long for the ends of runs that are over; Spark tells of them a moment late."""
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
    """Has the session acknowledge last batches, once however often it is called; also of a query
    that ended just before the process does.
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
    """Spark Connect hears of events in a thread that keeps the process from ending: it goes when
    the program is at its end, once it has heard of what has ended.
    """
    threading.main_thread().join()
    # What Spark says of calls that come after the program's end is of no use to anybody.
    warnings.filterwarnings("ignore", module=re.escape(_CONNECT))
    listener.settle(spark)
    try:
        spark.streams.removeListener(listener)
    except Exception as error:  # The server, or the session, has ended: then the thread has too.
        _log.debug("the listener was not taken away: %r", error)
