"""One queue in one process: who waits for a message, and which candidates are tried for them.

All fetches of a queue are served by one task: a candidate is claimed for each who waits, in their
order, and who lost a race has another claimed. It looks into the folder only between claims.
"""

import asyncio
import itertools
import logging
import random
from collections import deque
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from mq.broker.backlog import Backlog
from mq.errors import Busy, MqError, SettingsUnreadable, Unavailable
from mq.limits import (
    BACKLOG_IDS_MAX,
    CLAIMS_MAX,
    DESCRIBE_AGE_S,
    LOOKS_PER_SHARD,
)
from mq.message import Delivery
from mq.names import MessageId, QueueName
from mq.settings import QueueSettings
from mq.store.buckets import drop_buckets
from mq.store.commit import Committer
from mq.store.fetch import fetch
from mq.store.layout import Shape
from mq.store.listing import Counts, count, look_pause_s
from mq.store.order import STRICT, Candidate, FolderMark, Listing, Order, list_ready
from mq.store.reschedule import extend, release
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


@dataclass(frozen=True, slots=True)
class _Claim:
    """A claim that goes on; `asked`: the number of the last one to ask when it began."""

    candidate: Candidate
    asked: int
    visibility_s: float | None
    future: "asyncio.Future[Delivery | None]"


@dataclass(frozen=True, slots=True)
class _Waiter:
    """One who waits for a message, which is to be theirs for so long (None: as it or the queue
    says).
    """

    number: int
    visibility_s: float | None
    future: "asyncio.Future[Delivery | None]"


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
        peer_index: int = 0,
    ) -> None:
        self.name = name
        self.settings = settings
        self.totals = Totals()
        self._root = root
        self._committer = committer
        self._peers = peers
        self._chance = chance
        self._peer_index = peer_index
        self._looks = 0
        self._backlog = Backlog(peers=peers, own=peer_index)
        self._waiting: deque[_Waiter] = deque()
        self._asked = 0
        self._claims: deque[_Claim] = deque()
        self._changed = asyncio.Event()
        self._arrival = asyncio.Event()
        self._serving: asyncio.Task[None] | None = None
        self._handling: set[asyncio.Task[None]] = set()
        self._clearing: asyncio.Task[None] | None = None
        self._description: Description | None = None
        self._describing: asyncio.Task[Description] | None = None

    def begin_fetch(self, visibility_s: float | None = None) -> "asyncio.Future[Delivery | None]":
        """The next message, claimed for `visibility_s`, or, where that is None, for as long as it
        or the queue says; None when nothing is ready.

        Raises QueueNotFound, Unavailable. Whoever no longer waits for it says so by `abandon`.
        Durable once the future is done: yes.
        """
        future: asyncio.Future[Delivery | None] = asyncio.get_running_loop().create_future()
        self._asked += 1
        self._waiting.append(_Waiter(self._asked, visibility_s, future))
        self._changed.set()
        if self._serving is None:
            self._serving = asyncio.create_task(self._serve())
        return future

    def abandon(self, future: "asyncio.Future[Delivery | None]") -> None:
        """Whoever asked is gone: what was claimed for it, or is, is released."""
        # The answer may have come in the same turn of the loop.
        if not future.cancel() and not future.cancelled() and future.exception() is None:
            delivery = future.result()
            if delivery is not None:
                self.give_back(delivery)

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
            await asyncio.wait(tasks | self._handling)
        while self._handling:
            await asyncio.wait(self._handling)

    def was_published(self, *ids: MessageId, is_ready: bool = True) -> None:
        """Messages were published by this process's hand."""
        self.totals.published += len(ids)
        if is_ready:
            self.became_ready(*ids)

    def became_ready(self, *ids: MessageId) -> None:
        """Messages became ready by this process's hand."""
        for message_id in ids:
            self._backlog.offer(message_id)
        self.arrived()

    def next_arrival(self) -> asyncio.Event:
        """Set when a message becomes ready by this process's hand from here on."""
        return self._arrival

    def arrived(self) -> None:
        """All who wait for a message look again."""
        self._arrival.set()
        self._arrival = asyncio.Event()

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
            while self._drop_gone() or self._claims:
                self._changed.clear()
                if not self._backlog.is_due_for_look(self._root.clock.steady_s()):
                    self._claim(len(self._waiting) - len(self._claims))
                elif not self._claims:
                    await self._look_for_those_who_wait()
                    continue
                await self._changed.wait()
        except MqError as error:
            self._answer_all(error)
        except Exception as error:
            _log.exception("fetching failed", extra={"fields": {"queue": self.name.text}})
            self._backlog.distrust()
            self._answer_all(Unavailable(repr(error)))
        finally:
            self._serving = None

    def _drop_gone(self) -> int:
        if any(waiter.future.done() for waiter in self._waiting):
            self._waiting = deque(each for each in self._waiting if not each.future.done())
        return len(self._waiting)

    def _answer_all(self, error: MqError) -> None:
        while (waiter := self._next_waiting()) is not None:
            waiter.future.set_exception(error)

    async def _look_for_those_who_wait(self) -> None:
        last = self._asked
        await self._look()
        if len(self._backlog):
            return
        # Nothing is there for those who came before the look.
        while (waiter := self._next_waiting(last)) is not None:
            waiter.future.set_result(None)

    def _claim(self, wanted: int) -> None:
        """Begins a claim for each who waits and has none yet."""
        candidates = self._candidates(min(wanted, CLAIMS_MAX - len(self._claims)))
        waiters = itertools.islice(self._waiting, len(self._claims), None)
        for candidate, waiter in zip(candidates, waiters, strict=False):
            operation = fetch(
                self._root,
                self.name,
                candidate.id,
                self.settings.visibility_s,
                candidate.bucket,
                waiter.visibility_s,
            )
            future = self._committer.submit(operation)
            self._claims.append(_Claim(candidate, self._asked, waiter.visibility_s, future))
            future.add_done_callback(self._claim_ended)

    def _claim_ended(self, ended: "asyncio.Future[Delivery | None]") -> None:
        """Claims are handed over in the order of their beginnings: one that began later may go to
        somebody whom an earlier one may not.
        """
        while self._claims and self._claims[0].future.done():
            self._settle(self._claims.popleft())
        self._changed.set()

    def _settle(self, claim: "_Claim") -> None:
        candidate, error = claim.candidate, claim.future.exception()
        if isinstance(error, Busy):
            # Whoever holds it may be stopped: nobody waits for that, and others go first.
            self._backlog.put_aside(candidate, self._root.clock.steady_s())
            self.totals.lost_races += 1
        elif error is not None:
            # The message is in delay/ and comes back, or is where it was; one who waits hears of
            # it.
            self._backlog.distrust()
            self._answer_next(error)
        elif (delivery := claim.future.result()) is None:
            self._backlog.was_lost(candidate, self._root.clock.steady_s())
            self.totals.lost_races += 1
        else:
            self.totals.fetched += 1
            self._hand_over(delivery, claim)

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
        start = self._peer_index + (0 if more else turn)
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
            candidate = self._backlog.take(self._chance)
            if candidate is None:
                break
            candidates.append(candidate)
        return candidates

    def _hand_over(self, delivery: Delivery, claim: "_Claim") -> None:
        """Gives the delivery to one who waited before its claim began: since then the message may
        have been deleted, and whoever asks after that must not get it.
        """
        if delivery.stamp.due_ms <= self._root.now_ms():
            # Flushing took longer than its visibility: it is not surely ours any more.
            if delivery.descriptor is not None:
                self._root.files.close(delivery.descriptor)
            return
        waiter = self._next_waiting(claim.asked)
        if waiter is None:
            self.give_back(delivery)
        elif waiter.visibility_s == claim.visibility_s:
            waiter.future.set_result(delivery)
        else:
            # Claimed for one who went: whose it is now asked for another time.
            self._in_background(self._extend_for(waiter, delivery))

    def _answer_next(self, failure: BaseException) -> None:
        if (waiter := self._next_waiting()) is not None:
            waiter.future.set_exception(failure)  # Whoever answers it tells the log.
            return
        _log.warning(
            "a claim failed", extra={"fields": {"queue": self.name.text, "error": repr(failure)}}
        )

    def _next_waiting(self, asked: int | None = None) -> _Waiter | None:
        """Who waits first, when that one's number is at most `asked`."""
        while self._waiting and (asked is None or self._waiting[0].number <= asked):
            waiter = self._waiting.popleft()
            if not waiter.future.done():
                return waiter
        return None

    def give_back(self, delivery: Delivery) -> None:
        """Releases, in the background, a message that was claimed for someone who is gone."""
        self._in_background(self._give_back(delivery))

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._handling.add(task)
        task.add_done_callback(self._handling.discard)

    async def _extend_for(self, waiter: _Waiter, delivery: Delivery) -> None:
        visibility_s = waiter.visibility_s or delivery.id.visibility_s or self.settings.visibility_s
        due_ms = self._root.now_ms() + round(visibility_s * 1000)
        try:
            extended = await self._committer.commit(extend(self._root, delivery, due_ms))
        except MqError as error:
            if not waiter.future.done():
                waiter.future.set_exception(error)
            return
        if extended is None or waiter.future.done():
            self._waiting.appendleft(waiter)  # Whoever is done is dropped there.
            self._changed.set()
            if self._serving is None:
                self._serving = asyncio.create_task(self._serve())
            if extended is not None:
                self.give_back(extended)
            return
        waiter.future.set_result(extended)

    async def _give_back(self, delivery: Delivery) -> None:
        if delivery.descriptor is not None:
            self._root.files.close(delivery.descriptor)
        try:
            if await self._committer.commit(release(self._root, delivery)):
                self.totals.released += 1
                self.became_ready(delivery.id)
        except Unavailable as error:
            _log.warning(
                "a release failed; the message comes back when it is due",
                extra={"fields": {"queue": self.name.text, "error": repr(error)}},
            )
