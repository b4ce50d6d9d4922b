"""How far Spark is with a step, for who watches: the tasks that have ended, as a part of the step's
names. A Spark Connect server tells nothing of that: there the step is at its end when it is.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as StillRunning
from typing import TYPE_CHECKING, Any, Final, TypeVar

from mq.spark.jobs.watching import Watcher

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EVERY_S: Final = 0.5
Done = TypeVar("Done")


def watched(
    spark: "SparkSession", work: Callable[[], Done], watcher: Watcher, tasks: int, names: int
) -> Done:
    """What `work` gives, which has Spark end so many tasks over so many names. The watcher is told
    on this thread. Raises what `work` does.
    """
    tracker = _tracker(spark)
    if tracker is None:
        return work()
    pool = ThreadPoolExecutor(1)
    try:
        running: Future[Done] = pool.submit(work)
        told = 0
        while True:
            try:
                return running.result(_EVERY_S)
            except StillRunning:
                if running.done():
                    raise  # Its own.
            ended = names * _ended(tracker, tasks) // tasks
            if ended > told:
                watcher.advanced(ended - told)
                told = ended
    finally:
        # Not waited for: who is interrupted stops the session, and with it what runs.
        pool.shutdown(wait=False, cancel_futures=True)


def _tracker(spark: "SparkSession") -> Any:
    try:
        return spark.sparkContext.statusTracker()
    except Exception:  # As Spark Connect says it, in one of its versions or another.
        return None


def _ended(tracker: Any, tasks: int) -> int:
    """How many tasks of the step's have ended."""
    ended = 0
    for stage in tracker.getActiveStageIds():
        info = tracker.getStageInfo(stage)
        if info is not None and info.numTasks == tasks:
            ended = max(ended, info.numCompletedTasks)
    return int(ended)
