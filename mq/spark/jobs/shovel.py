"""Moves the messages of a queue that an SQL condition chooses to another queue.

Spark chooses; its choice is stored under the run's replay id before anything moves; then each
message moves by one rename. PIPELINE.md is the users' page; FORMAT.md, "Crossings", has the steps.
"""

import threading
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pyspark.sql import Row, SparkSession

from mq.model.clock import rfc3339
from mq.model.errors import Busy, MqError, SettingsUnreadable
from mq.model.lifecycle import State
from mq.model.message import Stamp
from mq.model.names import MessageId, QueueName, ReplayId, messages_of, pack_of
from mq.model.packs import by_pack, is_whole
from mq.model.shovel import ALL, SHOVEL_BATCH_MAX, Pacing, Why, why_the_queue_takes_none
from mq.spark.jobs.choosing import ready_rows
from mq.spark.jobs.tasks import Unwatched, Watcher, check_queue_exists
from mq.spark.opening import opened_root
from mq.store.core.find import whereabouts
from mq.store.core.root import Root
from mq.store.disk.flush import Flusher
from mq.store.disk.group import run_alone
from mq.store.format.crossings import Crossing
from mq.store.format.layout import Place
from mq.store.packs.parting import part
from mq.store.packs.rolling import roll_on
from mq.store.scan.order import Candidate
from mq.store.shovel.crossing_files import (
    Chosen,
    candidate_of,
    chosen_of,
    find_crossing,
    finish,
    held,
    read_over,
    record_chosen,
    renew,
    said_of,
)
from mq.store.shovel.shovel import Aim, settings_of, shovel_many
from mq.store.shovel.shovel import Shovelled as Became

_AT_ONCE: Final = 2
_TRIES: Final = 3
_TRY_AGAIN_S: Final = 0.2
# A message may move from a place not searched yet to one already searched: one search may miss it.
_LOOKS: Final = 2


@dataclass(slots=True)
class Moved:
    moved: int = 0
    moved_before: int = 0
    """Moved by an earlier process of the run: they are in the target queue, or were removed there
    and are still known.
    """
    stayed: Counter[Why] = field(default_factory=Counter)


class Mover:
    """Moves a run's chosen messages in order, a batch at a time. For one thread."""

    def __init__(
        self, root: Root, flusher: Flusher, crossing: Crossing, rate: int | None, watcher: Watcher
    ) -> None:
        self.done = Moved()
        self._root = root
        self._flusher = flusher
        self._crossing = crossing
        self._watcher = watcher
        self._pacing = Pacing(rate, root.clock.steady_s())
        self._never = threading.Event()
        self._ahead: deque[tuple[list[Chosen], Future[tuple[Became, list[Chosen]]]]] = deque()
        self._again: list[Chosen] = []
        self._tries = _TRIES

    def run(self) -> None:
        """Moves all messages. If interrupted, finishes and counts the moves in flight. Raises the
        error that stopped the run: MqError, OSError.
        """
        pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="shovel")
        try:
            self._pass(pool, chosen_of(self._root, self._crossing))
            while self._again:
                again, self._again = self._again, []
                self._tries -= 1
                self._never.wait(_TRY_AGAIN_S)
                self._pass(pool, iter(again))
        finally:
            pool.shutdown(wait=True)
            while self._ahead:
                self._settle(is_ending=True)

    def _pass(self, pool: ThreadPoolExecutor, chosen: Iterator[Chosen]) -> None:
        for batch in _batches(chosen, self._pacing.at_once(SHOVEL_BATCH_MAX)):
            self._pace(len(batch))
            self._ahead.append((batch, pool.submit(self._move, batch)))
            if len(self._ahead) >= _AT_ONCE:
                self._settle()
        while self._ahead:
            self._settle()

    def _pace(self, count: int) -> None:
        clock = self._root.clock
        while wait_s := self._pacing.wait_s(clock.steady_s()):
            self._never.wait(wait_s)
        self._pacing.took(count, clock.steady_s())

    def _move(self, batch: list[Chosen]) -> tuple[Became, list[Chosen]]:
        """Moves the messages that are there; also returns those that are not. In another thread."""
        there: list[Candidate] = []
        gone: list[Chosen] = []
        stamps: dict[str, Stamp] = {}
        busy = 0
        of = {each.id.text: each for each in batch}
        for ids in by_pack(each.id for each in batch).values():
            try:
                found = self._files_of(ids)
            except Busy:
                busy += len(ids)
                continue
            for message_id in ids if len(found) == len(ids) else ids[:1]:
                candidate = found.pop(0)
                if candidate is None:
                    gone.append(of[message_id.text])
                else:
                    there.append(candidate)
                    stamps[candidate.id.text] = of[message_id.text].stamp
        aim = Aim(self._crossing.target, ALL, self._root.now_ms(), self._crossing.source, stamps)
        became = shovel_many(self._root, self._flusher, aim, there)
        if busy:
            became = became._replace(stayed=Counter(became.stayed) + Counter({Why.BUSY: busy}))
        return became, gone

    def _files_of(self, ids: Sequence[MessageId]) -> list[Candidate | None]:
        """The files of these messages (None: it is not there). If they are a whole pack, its file
        alone; of some items of a pack their own, for which it is parted. Raises Busy, MqError,
        OSError.
        """
        root, crossing = self._root, self._crossing
        if ids[0].pack_size:
            pack = ids[0].pack()
            found = candidate_of(root, crossing, pack)
            if found is not None and is_whole(ids):
                return [found]
            if found is None:
                # Another process may have died while it parted the pack.
                roll_on(root, crossing.source, pack)
            else:
                place = Place(State.READY, crossing.source, pack, found.bucket or "")
                run_alone(part(root, place), self._flusher)
        return [candidate_of(root, crossing, each) for each in ids]

    def _settle(self, *, is_ending: bool = False) -> None:
        batch, future = self._ahead.popleft()
        if is_ending and (future.cancelled() or future.exception() is not None):
            return
        became, gone = future.result()
        before = sum(self._went(each.id) for each in gone)
        moved_now = sum(each.items or 1 for each in became.moved)
        self.done.moved += moved_now
        self.done.moved_before += before
        self._pacing.gave_back(len(batch) - moved_now)
        left: list[Chosen] = []
        stayed = Counter(became.stayed)
        if Why.BUSY in stayed and self._tries:
            # It is unknown which ones are busy: all are tried and counted again.
            moved = {each for file in became.moved for each in messages_of(file.text)}
            left = [each for each in batch if each.id.text not in moved and self._is_there(each)]
            stayed = Counter({Why.GONE: stayed[Why.GONE]})
            self._again += left
        stayed[Why.GONE] += len(gone) - before
        self.done.stayed += stayed
        self._watcher.advanced(len(batch) - len(left))
        if became.error is not None and not is_ending:
            raise became.error

    def _is_there(self, chosen: Chosen) -> bool:
        ids = (chosen.id.pack(), chosen.id) if chosen.id.pack_size else (chosen.id,)
        return any(candidate_of(self._root, self._crossing, each) is not None for each in ids)

    def _went(self, message_id: MessageId) -> bool:
        """Whether it is in the target queue, or was removed there and is still known."""
        try:
            target = self._crossing.target
            ids = (message_id.pack(), message_id) if message_id.pack_size else (message_id,)
            looks = (whereabouts(self._root, target, each) for _ in range(_LOOKS) for each in ids)
            return any(state is not None for state in looks)
        except SettingsUnreadable:
            return False


def _batches(chosen: Iterator[Chosen], size: int) -> Iterator[list[Chosen]]:
    """Batches of `size` messages, or more, so that the items of a pack are in one."""
    batch: list[Chosen] = []
    for each in chosen:
        if len(batch) >= size and pack_of(each.id.text) != pack_of(batch[-1].id.text):
            yield batch
            batch = []
        batch.append(each)
    if batch:
        yield batch


_SHOWN: Final = 10


class Refused(MqError):
    """The shovel cannot run as requested; nothing moved."""


class Stopped(MqError):
    """The run ended early; the same replay id continues it."""


@dataclass(slots=True)
class Choice:
    messages: int = 0
    size_bytes: int = 0
    by_priority: Counter[int] = field(default_factory=Counter)
    by_reason: Counter[str] = field(default_factory=Counter)
    first_ids: list[str] = field(default_factory=list)

    def add(self, row: Row) -> None:
        """Adds a row; the oldest comes first."""
        self.messages += 1
        self.size_bytes += row["size"] or 0
        self.by_priority[row["priority"]] += 1
        if "reason" in row:
            self.by_reason[row["reason"] or "unknown"] += 1
        if len(self.first_ids) < _SHOWN:
            self.first_ids.append(row["id"])

    def facts(self) -> dict[str, Any]:
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
    """The result of a run. `chosen`: what its condition chose, in a dry run or at its beginning;
    None if it continued an earlier choice. `was_over`: the run had been finished before, and
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
    """Moves the ready messages of a queue for which the condition holds to another one; those of a
    sideline, if `to` is None, to its queue. Each moves by one rename, exactly once, with its id,
    receives, headers and key. `rate`: at most how many per second; `limit`: at most how many, the
    oldest first.

    A known `replay_id` continues with its earlier choice, whatever is ready by now. A dry run only
    counts. Raises BadCondition, Refused, QueueNotFound, BadName, Busy (another process uses the
    replay id), Stopped (Ctrl-C), and what prevents changes of the root. Durable on return: yes.
    """
    watching = watcher or Unwatched()
    source = QueueName.parse(queue)
    target = _target(source, to)
    replay = None if replay_id is None else ReplayId.parse(replay_id)
    with opened_root(root) as (here, flusher):
        try:
            here.history.begin()
            _check(here, source, target)
            choosing = _Choosing(spark, here, source, where, limit)
            if dry_run:
                return _count(choosing, target)
            run = _Run(here, flusher, Crossing(replay or ReplayId.new(), source, target), watching)
            with held(here, run.crossing.id):
                return run.run(choosing, rate)
        finally:
            here.history.end()


def _target(source: QueueName, to: str | None) -> QueueName:
    if to is None and not source.is_sideline:
        raise Refused(
            f"{source} is not a sideline, so mq does not know where its messages go; name a queue "
            "with --to"
        )
    target = source.counterpart() if to is None else QueueName.parse(to)
    if target == source:
        raise Refused(f"--to: the messages lie in {source} already")
    return target


def _check(root: Root, source: QueueName, target: QueueName) -> None:
    """Raises an error that would prevent every move: QueueNotFound, Refused, SettingsUnreadable."""
    for queue in (source, target):
        check_queue_exists(root, queue)
        root.facts.shape_now(queue)
    why = why_the_queue_takes_none(settings_of(root, target), root.now_ms())
    if why is Why.QUEUE_EXPIRED:
        raise Refused(f"the queue {target} has expired, and takes no messages")
    if why is not None:
        raise Refused(f"the settings of {target} cannot be understood: put them right first")


@dataclass(frozen=True, slots=True)
class _Choosing:
    """Chooses the ready messages to move, the oldest first."""

    spark: SparkSession
    root: Root
    source: QueueName
    where: str
    limit: int | None

    def rows(self) -> Iterator[Row]:
        rows = ready_rows(self.spark, self.root, self.source, self.where).orderBy("id")
        return (rows if self.limit is None else rows.limit(self.limit)).toLocalIterator()


def _count(choosing: _Choosing, target: QueueName) -> Shovelled:
    choice = Choice()
    for row in choosing.rows():
        choice.add(row)
    return Shovelled(None, choosing.source.text, target.text, choice.messages, chosen=choice)


class _Run:
    """A run that changes something, while this process holds its replay id."""

    def __init__(self, root: Root, flusher: Flusher, crossing: Crossing, watcher: Watcher) -> None:
        self.crossing = crossing
        self._root = root
        self._flusher = flusher
        self._watcher = watcher

    def run(self, choosing: _Choosing, rate: int | None) -> Shovelled:
        """Runs from its current state to its end."""
        said = {"where": choosing.where, "limit": choosing.limit}
        begun = find_crossing(self._root, self.crossing.id)
        over = read_over(self._root, self.crossing.id)
        if begun is None and over is not None:
            self._same(over, said)
            return self._shovelled(over, was_over=True)
        choice = None
        if begun is None:
            self._watcher.began("chooses")
            choice = self._choose(choosing, said)
            selected = choice.messages
        else:
            kept = said_of(self._root, begun)
            self._same({"from": begun.source.text, "to": begun.target.text, **kept}, said)
            renew(self._root, self.crossing)
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

    def _choose(self, choosing: _Choosing, said: Mapping[str, Any]) -> Choice:
        choice = Choice()
        rows = choosing.rows()

        def chosen() -> Iterator[Chosen]:
            for row in rows:
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
