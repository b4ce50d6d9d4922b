"""One queue's fetches in one process: which candidates are claimed, and who gets them.

All are served by one task: a candidate is claimed for each who waits, in their order, and who lost
a race has another claimed. It looks into the folder only between claims.
"""

import asyncio
import itertools
import logging
import random
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from mq.broker.accounts import Totals
from mq.broker.ahead import Ahead
from mq.broker.backlog import Backlog
from mq.broker.bodies import Bodies
from mq.broker.interests import Interests
from mq.broker.looks import Looks
from mq.broker.waiters import Waiter, Waiters
from mq.model.errors import (
    Busy,
    MessageUnreadable,
    MqError,
    QueueNotFound,
    SidelineMissing,
    SidelinePurged,
    Unavailable,
)
from mq.model.headers import Headers
from mq.model.limits import CLAIMS_MAX
from mq.model.message import Delivery
from mq.model.names import MessageId, QueueName
from mq.model.upkeep_limits import EXPIRED_DROPPED_EVERY_MS
from mq.store.core.purged import PurgeMark
from mq.store.core.root import Root
from mq.store.disk.commit import Committer
from mq.store.operations.fetch import fetch
from mq.store.operations.reschedule import extend, release
from mq.store.scan.order import Candidate

_log = logging.getLogger("mq.queue")


@dataclass(frozen=True, slots=True)
class _Claim:
    """A claim that goes on; `asked`: the number of the last one to ask when it began."""

    candidate: Candidate
    asked: int
    visibility_s: float | None
    future: "asyncio.Future[Delivery | None]"


class Sidelines(Protocol):
    """Where what cannot be read goes instead of to whoever fetches."""

    async def prepare(self, name: QueueName) -> bool:
        """Makes the queue's sideline, where it is missing; whether it is there then."""
        ...

    def was_sidelined(self, name: QueueName, message_id: MessageId) -> None:
        """A fetch of the queue has moved the message there."""
        ...


@dataclass(frozen=True, slots=True)
class Common:
    """What all fetches of a queue have in common. `visibility_s`: how long a message is the
    fetcher's where nobody says otherwise; `expired` is what of its messages has expired; `check`
    raises QueueExpired where none is given out; `became_ready` hears of what is released;
    `looked`, when a look has ended, and found something or not, or fetches have; `failed`, when a
    look failed. `fetchings` are all of them.
    """

    name: QueueName
    root: Root
    committer: Committer
    chance: random.Random
    totals: Totals
    interests: Interests
    bodies: Bodies
    visibility_s: Callable[[], float]
    expired: Callable[[], PurgeMark | None]
    check: Callable[[], None]
    became_ready: Callable[[MessageId, Headers], None]
    looked: Callable[[bool], None]
    failed: Callable[[MqError], None]
    sidelines: Sidelines
    fetchings: list["Fetching"] = field(default_factory=list)


class Fetching:
    """The fetches of a queue that this process has used, or of a selection of it. Lives on the
    event loop's thread.
    """

    def __init__(
        self, common: Common, looks: Looks, backlog: Backlog, ahead: Ahead | None = None
    ) -> None:
        self.waiters = Waiters()
        self.backlog = backlog
        self._common = common
        self._name = common.name
        self._root = common.root
        self._committer = common.committer
        self._totals = common.totals
        self._looks = looks
        self._ahead = ahead
        self._claims: deque[_Claim] = deque()
        self._is_to_look = False
        self._dropped_ms = -EXPIRED_DROPPED_EVERY_MS
        self._changed = asyncio.Event()
        self._serving: asyncio.Task[None] | None = None
        self.handling: set[asyncio.Task[None]] = set()
        """What goes on with messages whose claims have ended."""
        common.fetchings.append(self)

    def begin(
        self, visibility_s: float | None, priority: int = 0
    ) -> "asyncio.Future[Delivery | None]":
        """One more waits for a message; the future that answers."""
        future = self.waiters.add(visibility_s, priority)
        self._go_on()
        return future

    def look_again(self) -> None:
        """Looks into the folder for those who are interested, once no claim goes on."""
        self._is_to_look = True
        self._go_on()

    def work(self) -> int:
        """How many messages are known that nobody has asked for; one more where there may be some
        that are not known.
        """
        asked = max(0, len(self.waiters) - len(self._claims))
        return max(0, len(self.backlog) + self.backlog.may_be_more - asked)

    def abandon(self, future: "asyncio.Future[Delivery | None]") -> None:
        """Whoever asked is gone: what was claimed for it, or is, is released."""
        # The answer may have come in the same turn of the loop.
        if not future.cancel() and not future.cancelled() and future.exception() is None:
            delivery = future.result()
            if delivery is not None:
                self.give_back(delivery)

    def forget(self) -> None:
        """What is served is another than what is known: the next fetch looks."""
        self._dropped_ms = -EXPIRED_DROPPED_EVERY_MS
        self.backlog.forget()
        self._looks.forget()

    def claimed(self) -> list[str]:
        """The ids of what is being claimed."""
        return [claim.candidate.name for claim in self._claims]

    def close(self) -> None:
        """Nobody uses it any more."""
        self._looks.close()
        self.backlog.close()
        self._common.fetchings.remove(self)

    def tasks(self) -> set[asyncio.Task[None]]:
        """All that goes on here."""
        own = (self._serving, self._looks.clearing)
        return {task for task in own if task is not None} | self.handling

    def give_back(self, delivery: Delivery) -> None:
        """Releases, in the background, a message that was claimed for someone who is gone."""
        self._in_background(self._give_back(delivery))

    def _go_on(self) -> None:
        self._changed.set()
        if self._serving is None:
            self._serving = asyncio.create_task(self._serve())

    async def _serve(self) -> None:
        try:
            while self.waiters.drop_gone() or self._claims or self._is_to_look:
                self._changed.clear()
                self._common.check()
                self._drop_expired()
                is_due = self.backlog.is_due_for_look(self._root.clock.steady_s())
                if not (is_due or self._is_to_look):
                    self._claim(len(self.waiters) - len(self._claims))
                    if self._ahead is not None and (wanted := self._ahead.wanted(self.backlog)):
                        self._in_background(self._ahead.read(wanted, self.backlog))
                elif not self._claims:
                    await self._look_for_those_who_wait()
                    continue
                self._common.looked(False)
                await self._changed.wait()
        except MqError as error:
            self._answer_all(error)
            self._common.failed(error)
        except Exception as error:
            _log.exception("fetching failed", extra={"fields": {"queue": self._name.text}})
            self.backlog.distrust()
            self._answer_all(Unavailable(repr(error)))
        finally:
            self._serving = None
        self._common.looked(False)

    def _drop_expired(self) -> None:
        """Those that expired while they were known: nobody is to wait for a claim of each."""
        mark = self._common.expired()
        if mark is not None and mark.ms - self._dropped_ms >= EXPIRED_DROPPED_EVERY_MS:
            self._dropped_ms = mark.ms
            self._totals.expired += self.backlog.drop(mark.covers)

    def _answer_all(self, error: MqError) -> None:
        while (waiter := self.waiters.next()) is not None:
            waiter.future.set_exception(error)

    async def _look_for_those_who_wait(self) -> None:
        last, self._is_to_look = self.waiters.asked, False
        taken = [name for each in self._common.fetchings for name in each.claimed()]
        await self._looks.look(self.backlog, taken)
        if len(self.backlog):
            self._common.looked(True)
            return
        # Nothing is there for those who came before the look.
        while (waiter := self.waiters.next(last)) is not None:
            waiter.future.set_result(None)

    def _claim(self, wanted: int) -> None:
        """Begins a claim for each who waits and has none yet."""
        wanted = min(wanted, CLAIMS_MAX - len(self._claims))
        waiters = self.waiters.behind(len(self._claims))
        if self._common.interests.holds_back(0):
            self._claim_what_they_may(list(itertools.islice(waiters, max(0, wanted))))
            return
        for candidate, waiter in zip(self._candidates(wanted), waiters, strict=False):
            self._begin_claim(candidate, waiter)

    def _claim_what_they_may(self, waiters: list[Waiter]) -> None:
        """The same where some go before others: what one above them is interested in is not there
        for those below.
        """
        interests = self._common.interests
        for waiter in waiters:
            may_take = partial(interests.may_take, waiter.priority)
            candidate = self.backlog.take_first(may_take)
            if candidate is not None:
                self._was_taken(candidate)
                self._begin_claim(candidate, waiter)
            elif interests.holds_back(waiter.priority) and not waiter.future.done():
                waiter.future.set_result(None)
                self._changed.set()

    def _begin_claim(self, candidate: Candidate, waiter: Waiter) -> None:
        operation = fetch(
            self._root,
            self._name,
            candidate.id,
            self._common.visibility_s(),
            candidate.bucket,
            waiter.visibility_s,
            self._common.bodies.take(candidate.name),
            self._common.bodies.room,
        )
        future = self._committer.submit(operation)
        claim = _Claim(candidate, self.waiters.asked, waiter.visibility_s, future)
        self._claims.append(claim)
        future.add_done_callback(self._claim_ended)

    def _candidates(self, wanted: int) -> list[Candidate]:
        candidates: list[Candidate] = []
        while len(candidates) < wanted:
            candidate = self.backlog.take(self._common.chance)
            if candidate is None:
                break
            self._was_taken(candidate)
            candidates.append(candidate)
        return candidates

    def _was_taken(self, candidate: Candidate) -> None:
        """Nobody else of this process tries for it."""
        if len(self._common.fetchings) > 1:
            for each in self._common.fetchings:
                if each is not self:
                    each.backlog.discard(candidate.name)

    def _claim_ended(self, ended: "asyncio.Future[Delivery | None]") -> None:
        """Claims are handed over in the order of their beginnings: one that began later may go to
        somebody whom an earlier one may not.
        """
        while self._claims and self._claims[0].future.done():
            self._settle(self._claims.popleft())
        self._changed.set()

    def _settle(self, claim: _Claim) -> None:
        candidate, error = claim.candidate, claim.future.exception()
        if isinstance(error, MessageUnreadable):
            self._common.sidelines.was_sidelined(self._name, candidate.id)
        elif isinstance(error, SidelineMissing | SidelinePurged):
            # It waits for its sideline; others go first.
            self.backlog.put_aside(candidate, self._root.clock.steady_s())
            if isinstance(error, SidelineMissing):
                self._in_background(self._prepare_sideline(candidate.id))
        elif isinstance(error, Busy):
            # Whoever holds it may be stopped: nobody waits for that, and others go first.
            self.backlog.put_aside(candidate, self._root.clock.steady_s())
            self._totals.lost_races += 1
        elif error is not None:
            # The message is in delay/ and comes back, or is where it was; one who waits hears of
            # it.
            self.backlog.distrust()
            self._answer_next(error)
            if isinstance(error, QueueNotFound):
                self._common.failed(error)
        elif (delivery := claim.future.result()) is not None:
            self._totals.fetched += 1
            self._totals.redelivered += delivery.stamp.receives > 1
            self._hand_over(delivery, claim)
        elif (expired := self._common.expired()) is not None and expired.covers(candidate.name):
            self._totals.expired += 1
        else:
            self.backlog.was_lost(candidate, self._root.clock.steady_s())
            self._totals.lost_races += 1

    def _hand_over(self, delivery: Delivery, claim: _Claim) -> None:
        """Gives the delivery to one who waited before its claim began: since then the message may
        have been deleted, and whoever asks after that must not get it.
        """
        if self._is_past(delivery):
            self._let_go(delivery)
            return
        waiter = self.waiters.next(claim.asked)
        if waiter is None:
            self.give_back(delivery)
        elif waiter.visibility_s == claim.visibility_s:
            waiter.future.set_result(delivery)
        else:
            # Claimed for one who went: whose it is now asked for another time.
            self._in_background(self._stamp_for(waiter, delivery))

    def _is_past(self, delivery: Delivery) -> bool:
        """Whether flushing took longer than its visibility: it is not surely ours any more."""
        return delivery.stamp.due_ms <= self._root.now_ms()

    def _let_go(self, delivery: Delivery) -> None:
        if delivery.descriptor is not None:
            self._root.files.close(delivery.descriptor)

    def _answer_next(self, failure: BaseException) -> None:
        if (waiter := self.waiters.next()) is not None:
            waiter.future.set_exception(failure)  # Whoever answers it tells the log.
            return
        _log.warning(
            "a claim failed", extra={"fields": {"queue": self._name.text, "error": repr(failure)}}
        )

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self.handling.add(task)
        task.add_done_callback(self.handling.discard)

    async def _stamp_for(self, waiter: Waiter, delivery: Delivery) -> None:
        """Makes the delivery the waiter's for as long as that one asked, and hands it over."""
        shown_s = waiter.visibility_s or delivery.id.visibility_s or self._common.visibility_s()
        due_ms = self._root.now_ms() + round(shown_s * 1000)
        try:
            stamped = await self._committer.commit(extend(self._root, delivery, due_ms))
        except Exception as error:
            # It is in delay/, and comes back.
            self._let_go(delivery)
            if not waiter.future.done():
                known = isinstance(error, MqError)
                waiter.future.set_exception(error if known else Unavailable(repr(error)))
            return
        if stamped is not None and waiter.future.done():
            self.give_back(stamped)
        elif stamped is not None and not self._is_past(stamped):
            waiter.future.set_result(stamped)
        else:
            self._let_go(delivery)
            self.waiters.put_back(waiter)
            self._go_on()

    async def _prepare_sideline(self, message_id: MessageId) -> None:
        """The message has its turn again once it has somewhere to go."""
        if await self._common.sidelines.prepare(self._name):
            self._common.became_ready(message_id, ())

    async def _give_back(self, delivery: Delivery) -> None:
        self._let_go(delivery)
        try:
            if await self._committer.commit(release(self._root, delivery)):
                self._totals.released += 1
                self._common.became_ready(delivery.id, delivery.headers)
        except Unavailable as error:
            _log.warning(
                "a release failed; the message comes back when it is due",
                extra={"fields": {"queue": self._name.text, "error": repr(error)}},
            )
