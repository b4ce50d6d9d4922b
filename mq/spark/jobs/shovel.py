"""Moving the messages of a queue that an SQL condition chooses to another queue.

Spark chooses; what it chose is written down under the run's replay id before anything moves; then
each message goes by one rename. SHOVEL.md, beside this, is for its users; FORMAT.md, "Crossings",
has the steps.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, Row, SparkSession

from mq.model.clock import rfc3339
from mq.model.errors import MqError
from mq.model.message import Stamp
from mq.model.names import MessageId, QueueName
from mq.model.replay_id import ReplayId
from mq.model.shovel import Why, why_the_queue_takes_none
from mq.spark.jobs.choosing import ready_rows
from mq.spark.jobs.job_errors import NoSuchQueue
from mq.spark.jobs.moving import Mover
from mq.spark.jobs.watching import Unwatched, Watcher
from mq.spark.opening import open_for_leases
from mq.store.core.root import Root
from mq.store.core.standing import queue_exists
from mq.store.disk.flush import Flusher
from mq.store.disk.group import run_alone
from mq.store.format.crossings import Crossing
from mq.store.shovel.crossing_files import (
    Chosen,
    chosen_of,
    find_crossing,
    finish,
    held,
    keep_chosen,
    read_over,
    record_chosen,
    said_of,
)
from mq.store.shovel.shovel import settings_of

_SHOWN: Final = 10


class Refused(MqError):
    """What cannot be done as it was asked for; nothing moved."""


class Stopped(MqError):
    """A run that was ended before its end; the same replay id goes on with it."""


@dataclass(slots=True)
class Choice:
    """What a condition chose."""

    messages: int = 0
    size_bytes: int = 0
    by_priority: Counter[int] = field(default_factory=Counter)
    by_reason: Counter[str] = field(default_factory=Counter)
    first_ids: list[str] = field(default_factory=list)

    def add(self, row: Row) -> None:
        """One more; the oldest comes first."""
        self.messages += 1
        self.size_bytes += row["size"] or 0
        self.by_priority[row["priority"]] += 1
        if "reason" in row:
            self.by_reason[row["reason"] or "unknown"] += 1
        if len(self.first_ids) < _SHOWN:
            self.first_ids.append(row["id"])

    def facts(self) -> dict[str, Any]:
        """For JSON."""
        oldest = self.first_ids[0] if self.first_ids else None
        published = None if oldest is None else rfc3339(MessageId.parse(oldest).published_ms)
        return {
            "messages": self.messages,
            "bytes": self.size_bytes,
            "by_priority": {str(each): n for each, n in sorted(self.by_priority.items())},
            "by_reason": dict(sorted(self.by_reason.items())),
            "oldest": published,
            "first": self.first_ids,
        }


@dataclass(frozen=True, slots=True)
class Shovelled:
    """What a run did. `chosen`: what its condition chose, in a dry run or as it began; None where
    it went on with what had been chosen before. `was_over`: it had been at its end before, and
    nothing was done.
    """

    replay_id: str | None
    source: str
    target: str
    selected: int
    moved: int = 0
    moved_before: int = 0
    stayed: Mapping[str, int] = field(default_factory=dict)
    chosen: Choice | None = None
    was_over: bool = False

    def facts(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "replay_id": self.replay_id,
            "from": self.source,
            "to": self.target,
            "selected": self.selected,
            "moved": self.moved,
            "moved_before": self.moved_before,
            "stayed": dict(self.stayed),
            "was_over": self.was_over,
            "chosen": None if self.chosen is None else self.chosen.facts(),
        }


def shovel(
    spark: SparkSession,
    root: Path,
    queue: str,
    where: str,
    *,
    to: str | None = None,
    dry_run: bool = False,
    rate: int | None = None,
    limit: int | None = None,
    replay_id: str | None = None,
    watcher: Watcher | None = None,
) -> Shovelled:
    """Moves the ready messages of a queue for which the condition holds to another one; of a
    sideline, where `to` is None, to its queue. Each goes by one rename, exactly once: with its id,
    receives, headers and key. `rate`: so many a second at most; `limit`: so many at most, the
    oldest first.

    A `replay_id` that is known goes on with what it has chosen, whatever is ready by now. A dry run
    only counts. Raises BadCondition, Refused, QueueNotFound, BadName, Busy (another process has the
    replay id), Stopped (Ctrl-C), and what keeps the root from being changed. Durable on return:
    yes.
    """
    watching = watcher or Unwatched()
    source = QueueName.parse(queue)
    target = _target(source, to)
    replay = None if replay_id is None else ReplayId.parse(replay_id)
    here, flusher = open_for_leases(root)
    try:
        here.history.begin()
        _check(here, source, target)
        if dry_run:
            return _count(spark, here, source, target, where, limit)
        run = _Run(here, flusher, Crossing(replay or ReplayId.new(), source, target), watching)
        with held(here, flusher, run.crossing.id):
            return run.run(spark, where, rate, limit)
    finally:
        here.history.end()
        flusher.close()


def _target(source: QueueName, to: str | None) -> QueueName:
    if to is None and not source.is_sideline:
        raise Refused(f"--to: where are the messages of {source} to go? It is no sideline.")
    target = source.counterpart() if to is None else QueueName.parse(to)
    if target == source:
        raise Refused(f"--to: the messages lie in {source} already")
    return target


def _check(root: Root, source: QueueName, target: QueueName) -> None:
    """What would keep every message from being moved. Raises QueueNotFound, Refused,
    SettingsUnreadable.
    """
    for queue in (source, target):
        if not queue_exists(root, queue):
            raise NoSuchQueue(queue.text)
        root.places.shape(queue)
    why = why_the_queue_takes_none(settings_of(root, target), root.now_ms())
    if why is Why.QUEUE_EXPIRED:
        raise Refused(f"the queue {target} has expired, and takes no messages")
    if why is not None:
        raise Refused(f"the settings of {target} cannot be understood: put them right first")


def _rows(
    spark: SparkSession, root: Root, source: QueueName, where: str, limit: int | None
) -> DataFrame:
    rows = ready_rows(spark, root, source, where).orderBy("id")
    return rows if limit is None else rows.limit(limit)


def _count(
    spark: SparkSession, root: Root, source: QueueName, target: QueueName, where: str,
    limit: int | None,
) -> Shovelled:  # fmt: skip
    choice = Choice()
    for row in _rows(spark, root, source, where, limit).toLocalIterator():
        choice.add(row)
    return Shovelled(None, source.text, target.text, choice.messages, chosen=choice)


class _Run:
    """A run that changes something; for who has its replay id."""

    def __init__(self, root: Root, flusher: Flusher, crossing: Crossing, watcher: Watcher) -> None:
        self.crossing = crossing
        self._root = root
        self._flusher = flusher
        self._watcher = watcher

    def run(
        self, spark: SparkSession, where: str, rate: int | None, limit: int | None
    ) -> Shovelled:
        """From wherever it is to its end."""
        said = {"where": where, "limit": limit}
        begun = find_crossing(self._root, self.crossing.id)
        over = read_over(self._root, self.crossing.id)
        if begun is None and over is not None:
            self._same(over, said)
            return self._shovelled(over, was_over=True)
        choice = None
        if begun is None:
            self._watcher.began("chooses")
            choice = self._choose(spark, where, limit, said)
            selected = choice.messages
        else:
            kept = said_of(self._root, begun)
            self._same({"from": begun.source.text, "to": begun.target.text, **kept}, said)
            run_alone(keep_chosen(self._root, self.crossing), self._flusher)
            selected = sum(1 for _ in chosen_of(self._root, self.crossing))
        if selected:
            self._watcher.noted(f"the replay id is {self.crossing.id}")
        facts = self._move(selected, rate, said)
        return self._shovelled(facts, choice)

    def _same(self, known: Mapping[str, Any], said: Mapping[str, Any]) -> None:
        asked = {"from": self.crossing.source.text, "to": self.crossing.target.text, **said}
        for name, value in asked.items():
            if name in known and known[name] != value:
                raise Refused(
                    f"the replay id {self.crossing.id} is of another run: --{name} "
                    f"{known[name]}, not {value}"
                )

    def _choose(
        self, spark: SparkSession, where: str, limit: int | None, said: Mapping[str, Any]
    ) -> Choice:
        choice = Choice()
        rows = _rows(spark, self._root, self.crossing.source, where, limit)

        def chosen() -> Iterator[Chosen]:
            for row in rows.toLocalIterator():
                choice.add(row)
                yield Chosen(MessageId.parse(row["id"]), Stamp(row["due_ms"], row["receives"]))

        run_alone(record_chosen(self._root, self.crossing, said, chosen()), self._flusher)
        return choice

    def _move(self, selected: int, rate: int | None, said: Mapping[str, Any]) -> dict[str, Any]:
        self._watcher.began(f"moves to {self.crossing.target}", selected)
        mover = Mover(self._root, self._flusher, self.crossing, rate, self._watcher)
        try:
            mover.run()
        except KeyboardInterrupt as error:
            raise Stopped(self._cut_off(mover, selected)) from error
        except MqError as error:
            said_of_it = str(error) or type(error).__name__
            raise Refused(f"{said_of_it}: {self._cut_off(mover, selected)}") from error
        facts = {
            "from": self.crossing.source.text,
            "to": self.crossing.target.text,
            **said,
            "selected": selected,
            "moved": mover.done.moved,
            "moved_before": mover.done.moved_before,
            "stayed": {why.value: count for why, count in mover.done.stayed.items()},
        }
        run_alone(finish(self._root, self.crossing, facts), self._flusher)
        return facts

    def _cut_off(self, mover: Mover, selected: int) -> str:
        return (
            f"{mover.done.moved} of {selected} messages were moved; "
            f"go on with --replay-id {self.crossing.id}"
        )

    def _shovelled(
        self, facts: Mapping[str, Any], choice: Choice | None = None, *, was_over: bool = False
    ) -> Shovelled:
        return Shovelled(
            self.crossing.id.text,
            self.crossing.source.text,
            self.crossing.target.text,
            facts.get("selected", 0),
            facts.get("moved", 0),
            facts.get("moved_before", 0),
            facts.get("stayed", {}),
            choice,
            was_over,
        )
