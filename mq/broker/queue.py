"""One queue in one process: who waits for a message, and which candidates are tried for them.

All fetches of a queue are served in rounds, one round at a time: what waits takes the first
candidates together, in one commit group, and who lost a race goes into the next round.
"""

import asyncio
import logging
import random
from collections import deque
from dataclasses import dataclass

from mq.broker.backlog import Backlog
from mq.errors import Busy, MqError, SettingsUnreadable, Unavailable
from mq.limits import (
    BACKLOG_IDS_MAX,
    CLAIMS_PER_ROUND_MAX,
    DESCRIBE_AGE_S,
    LOOKS_PER_SHARD,
)
from mq.message import Delivery
from mq.names import MessageId, QueueName
from mq.settings import QueueSettings
from mq.store.buckets import drop_buckets
from mq.store.commit import Committer
from mq.store.fetch import fetch, release
from mq.store.layout import Shape
from mq.store.listing import Counts, count, look_pause_s
from mq.store.order import STRICT, Candidate, FolderMark, Listing, Order, list_ready
from mq.store.root import Root

_log = logging.getLogger("mq.queue")


@dataclass(slots=True)
class Totals:
    """What this process did with a queue since it began."""

    published: int = 0
    fetched: int = 0
    deleted: int = 0
    released: int = 0
    lost_races: int = 0


@dataclass(frozen=True, slots=True)
class Description:
    """A queue's counts and shape, of `counted_ms` (since the epoch), fresh until `stale_s`."""

    counts: Counts
    shape: Shape
    counted_ms: int
    stale_s: float


class Queue:
    """A queue that this process has used. Lives on the event loop's thread."""

    def __init__(
        self,
        name: QueueName,
        root: Root,
        committer: Committer,
        settings: QueueSettings,
        peers: int,
        chance: random.Random,
        shard_start: int = 0,
    ) -> None:
        self.name = name
        self.settings = settings
        self.totals = Totals()
        self._root = root
        self._committer = committer
        self._peers = peers
        self._chance = chance
        self._shard_start = shard_start
        self._looks = 0
        self._backlog = Backlog()
        self._waiting: deque[asyncio.Future[Delivery | None]] = deque()
        self._serving: asyncio.Task[None] | None = None
        self._giving_back: set[asyncio.Task[None]] = set()
        self._clearing: asyncio.Task[None] | None = None
        self._description: Description | None = None
        self._describing: asyncio.Task[Description] | None = None

    async def fetch(self) -> Delivery | None:
        """The next message, claimed; None when nothing is ready.

        Raises QueueNotFound, Unavailable. A caller that is cancelled meanwhile gets nothing,
        and what was claimed for it is released. Durable on return: yes.
        """
        future: asyncio.Future[Delivery | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        if self._serving is None:
            self._serving = asyncio.create_task(self._serve())
        try:
            return await future
        except asyncio.CancelledError:
            # The answer may have come in the same turn of the loop as the cancellation.
            if future.done() and not future.cancelled() and future.exception() is None:
                delivery = future.result()
                if delivery is not None:
                    self.give_back(delivery)
            raise

    async def describe(self) -> Description:
        """The queue's counts, at most a second old, or older when counting takes long; whoever
        asks meanwhile waits for the same count. Raises QueueNotFound, Unavailable.
        """
        known = self._description
        if known is not None and self._root.clock.steady_s() < known.stale_s:
            return known
        if self._describing is None:
            self._describing = asyncio.create_task(self._describe())
            self._describing.add_done_callback(self._was_described)
        return await asyncio.shield(self._describing)

    async def drain(self) -> None:
        """Waits until nothing goes on here."""
        while tasks := {task for task in (self._serving, self._clearing) if task is not None}:
            await asyncio.wait(tasks | self._giving_back)
        while self._giving_back:
            await asyncio.wait(self._giving_back)

    def was_published(self, delivered: "asyncio.Future[MessageId]") -> None:
        """Hears of a publish's end, good or bad."""
        if not delivered.cancelled() and delivered.exception() is None:
            self.totals.published += 1
            self._backlog.offer(delivered.result())

    async def _describe(self) -> Description:
        began_s, counted_ms = self._root.clock.steady_s(), self._root.now_ms()
        counts = await self._committer.call(count, self._root, self.name)
        shape = await self._committer.call(self._root.places.shape, self.name)
        ended_s = self._root.clock.steady_s()
        fresh_s = max(DESCRIBE_AGE_S, look_pause_s(ended_s - began_s))
        return Description(counts, shape, counted_ms, ended_s + fresh_s)

    def _was_described(self, describing: "asyncio.Task[Description]") -> None:
        self._describing = None
        if not describing.cancelled() and describing.exception() is None:
            self._description = describing.result()

    async def _serve(self) -> None:
        try:
            while self._drop_gone():
                await self._round()
        except MqError as error:
            self._answer_all(error)
        except Exception as error:
            _log.exception("fetching failed", extra={"fields": {"queue": self.name.text}})
            self._backlog.distrust()
            self._answer_all(Unavailable(repr(error)))
        finally:
            self._serving = None

    def _drop_gone(self) -> int:
        self._waiting = deque(future for future in self._waiting if not future.done())
        return len(self._waiting)

    def _answer_all(self, error: MqError) -> None:
        while (future := self._next_waiting()) is not None:
            future.set_exception(error)

    async def _round(self) -> None:
        if self._backlog.is_due_for_look(self._root.clock.steady_s()):
            waiting_before = list(self._waiting)
            await self._look()
            if not len(self._backlog):
                # Nothing is there for those who came before the look.
                for future in waiting_before:
                    if not future.done():
                        future.set_result(None)
                return
        candidates = self._candidates(min(self._drop_gone(), CLAIMS_PER_ROUND_MAX))
        asked_before = set(self._waiting)
        claims = [
            self._committer.submit(
                fetch(
                    self._root,
                    self.name,
                    candidate.id,
                    self.settings.visibility_s,
                    candidate.bucket,
                )
            )
            for candidate in candidates
        ]
        results = await asyncio.gather(*claims, return_exceptions=True)
        for candidate, result in zip(candidates, results, strict=True):
            if isinstance(result, Busy):
                # Whoever holds it may be stopped: nobody waits for that, and others go first.
                self._backlog.put_aside(candidate, self._root.clock.steady_s())
                self.totals.lost_races += 1
            elif isinstance(result, BaseException):
                # The message is in delay/ and comes back, or is where it was; one who waits
                # hears of it.
                self._backlog.distrust()
                self._answer_next(result)
            elif result is None:
                self._backlog.was_lost(candidate, self._root.clock.steady_s())
                self.totals.lost_races += 1
            else:
                self.totals.fetched += 1
                self._hand_over(result, asked_before)

    async def _look(self) -> None:
        began_s = self._root.clock.steady_s()
        mark = self._backlog.mark
        self._backlog.look_began()
        try:
            listing = await self._committer.call(self._list, mark)
        except BaseException:
            self._backlog.look_failed()
            raise
        self._backlog.look_ended(listing, began_s, self._root.clock.steady_s())
        if listing is not None and listing.empty and self._clearing is None:
            self._clearing = asyncio.create_task(self._clear(listing.empty))
            self._clearing.add_done_callback(self._was_cleared)

    def _list(self, mark: FolderMark | None) -> Listing | None:
        return list_ready(self._root, self.name, BACKLOG_IDS_MAX, mark, self._order())

    def _order(self) -> Order:
        """Strict without peers; else from this process's own shard on, where the queue has shards,
        and now and then from another one's, which nobody else may begin at.
        """
        if self._peers == 0:
            return STRICT
        try:
            shards = self._root.places.shape(self.name).shards
        except SettingsUnreadable:
            return STRICT
        turn, more = divmod(self._looks, LOOKS_PER_SHARD)
        self._looks += 1
        start = self._shard_start + (0 if more else turn)
        return Order(shards, start % shards)

    async def _clear(self, buckets: tuple[str, ...]) -> None:
        """Takes empty buckets away, in the background."""
        try:
            await self._committer.commit_alone(drop_buckets(self._root, buckets))
        except Unavailable as error:
            _log.info(
                "empty buckets stay for now",
                extra={"fields": {"queue": self.name.text, "error": repr(error)}},
            )

    def _was_cleared(self, clearing: "asyncio.Task[None]") -> None:
        self._clearing = None

    def _candidates(self, wanted: int) -> list[Candidate]:
        candidates: list[Candidate] = []
        while len(candidates) < wanted:
            candidate = self._backlog.take(self._peers, self._chance)
            if candidate is None:
                break
            candidates.append(candidate)
        return candidates

    def _hand_over(
        self, delivery: Delivery, asked_before: "set[asyncio.Future[Delivery | None]]"
    ) -> None:
        """Gives the delivery to one who waited before its claim began: since then the message may
        have been deleted, and whoever asks after that must not get it.
        """
        if delivery.stamp.due_ms <= self._root.now_ms():
            # Flushing took longer than its visibility: it is not surely ours any more.
            if delivery.descriptor is not None:
                self._root.files.close(delivery.descriptor)
            return
        future = self._next_waiting()
        if future is not None and future in asked_before:
            future.set_result(delivery)
            return
        if future is not None:
            self._waiting.appendleft(future)
        self.give_back(delivery)

    def _answer_next(self, failure: BaseException) -> None:
        if (future := self._next_waiting()) is not None:
            future.set_exception(failure)  # Whoever answers it tells the log.
            return
        _log.warning(
            "a claim failed", extra={"fields": {"queue": self.name.text, "error": repr(failure)}}
        )

    def _next_waiting(self) -> "asyncio.Future[Delivery | None] | None":
        while self._waiting:
            if not (future := self._waiting.popleft()).done():
                return future
        return None

    def give_back(self, delivery: Delivery) -> None:
        """Releases, in the background, a message that was claimed for someone who is gone."""
        task = asyncio.create_task(self._give_back(delivery))
        self._giving_back.add(task)
        task.add_done_callback(self._giving_back.discard)

    async def _give_back(self, delivery: Delivery) -> None:
        if delivery.descriptor is not None:
            self._root.files.close(delivery.descriptor)
        try:
            if await self._committer.commit(release(self._root, delivery)):
                self.totals.released += 1
                self._backlog.offer(delivery.id)
        except Unavailable as error:
            _log.warning(
                "a release failed; the message comes back when it is due",
                extra={"fields": {"queue": self.name.text, "error": repr(error)}},
            )
