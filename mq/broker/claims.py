"""Claims ready messages of a queue, or of one selection of it, for waiters.

Each waiter gets a claim of the first candidate, in the order of the waiters. When a claim loses its
race, the next candidate is claimed. The claimer scans the folder only while no claim is in
progress.
"""

import asyncio
import itertools
from collections import deque
from collections.abc import Coroutine, Iterator
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from mq.broker.accounts import Totals
from mq.broker.groups import Groups
from mq.broker.memory import Memory, QueueBodies
from mq.broker.permits import QueuePermits
from mq.broker.ready import BUSY_ASIDE_S, ReadyList
from mq.broker.scanning import Scanner
from mq.broker.waiters import Allowance, Waiter, Waiters
from mq.broker.waiting import Subscription, Subscriptions
from mq.model.errors import (
    Busy,
    GroupHeld,
    MessageUnreadable,
    MqError,
    QueueNotFound,
    SidelineMissing,
    SidelinePurged,
    TooManySelections,
    Unavailable,
)
from mq.model.headers import Headers
from mq.model.limits import GROUP_OPERATIONS_MAX
from mq.model.log import logger
from mq.model.message import Delivery
from mq.model.names import GROUP_BEGINS, MessageId, QueueName
from mq.model.selection import Selection
from mq.model.settings import QueueSettings
from mq.store.core.root import Root
from mq.store.core.unserved import OWN_TTL, PurgeMark, own_expiry
from mq.store.disk.commit import Committer
from mq.store.disk.steps import Steps
from mq.store.operations.fetch import fetch
from mq.store.operations.reschedule import extend, release
from mq.store.packs.fetching import PackToPart, fetch_pack
from mq.store.scan.order import Candidate

# Selections that a queue's consumers have at a time, and how long an unused one is remembered.
SELECTIONS_PER_QUEUE_MAX: Final = 64
SELECTION_IDLE_S: Final = 60.0
# Claims of one claimer that go on at a time.
CLAIMS_MAX: Final = GROUP_OPERATIONS_MAX
# How often, at most, expired messages are dropped from the ready list.
EXPIRED_DROPPED_EVERY_MS: Final = 100
# Scans for messages of packs that other processes part, and the pause between two.
PARTED_SCANS_MAX: Final = 20
PARTED_SCAN_WAIT_S: Final = 0.05

_log = logger("mq.queue")


class _Claim(NamedTuple):
    """A claim in progress. `last` is the number of the last waiter when it began."""

    candidate: Candidate
    last: int
    visibility_s: float | None
    future: "asyncio.Future[Delivery | None]"
    permit: int = 0
    """Of a queue with limits."""
    allowance: Allowance | None = None
    """From which the candidate's messages were taken."""

    @property
    def messages(self) -> int:
        """More than one of a pack."""
        return self.candidate.id.items or 1


class _Barrier:
    """Holds back the claims behind a pack that must be parted first. Of the commit thread, while
    the claims go on.
    """

    __slots__ = ("is_up",)

    def __init__(self) -> None:
        self.is_up = False


class _HeldBack(Busy):
    """A pack before this message must be parted first."""


def _in_turn(barrier: _Barrier, claim: Steps[Delivery | None]) -> Steps[Delivery | None]:
    """Claims unless a claim before it met a pack to part. Raises _HeldBack then."""
    if barrier.is_up:
        claim.close()
        raise _HeldBack("a pack before it is parted first")
    try:
        return (yield from claim)
    except PackToPart:
        barrier.is_up = True
        raise


class Sidelines(Protocol):
    """The sidelines to which unreadable messages go."""

    async def prepare(self, name: QueueName) -> bool:
        """Creates the queue's sideline if it is missing. False if that failed."""
        ...

    def was_sidelined(self, name: QueueName, message_id: MessageId) -> None:
        """Records that a fetch moved the message to the queue's sideline."""
        ...


class Claimed(Protocol):
    """The queue that a claimer claims from."""

    name: QueueName
    root: Root
    committer: Committer
    settings: QueueSettings
    permits: QueuePermits | None
    totals: Totals
    subscriptions: Subscriptions
    bodies: QueueBodies
    memory: Memory
    claimers: "list[Claimer]"
    groups: Groups
    is_parting: bool
    """Whether a pack is being parted for waiters. No claim begins meanwhile."""
    has_met_packs: bool
    """Whether a pack of it was ready since this process uses it."""

    @property
    def sidelines(self) -> Sidelines:
        """The sidelines to which unreadable messages go."""
        ...

    def new_claimer(self, selection: Selection) -> "Claimer": ...

    def check_life(self) -> None:
        """Raises QueueExpired where the queue delivers no messages any more."""
        ...

    def expired(self) -> PurgeMark | None:
        """The mark up to which its messages have expired; None: no message has."""
        ...

    def let_go(self, message_id: MessageId) -> None:
        """A message was settled: the next one of its group, or of a limited queue, may be
        delivered.
        """
        ...

    async def part(self, pack: MessageId) -> bool:
        """Parts a pack, and adds its items. False if it is not there. Raises as `parting.part`.
        Durable on return: yes.
        """
        ...

    async def rolls_on(self) -> bool:
        """Whether messages of its packs come at once, which another process parts. Raises
        Unavailable.
        """
        ...

    def permit(self, message_id: MessageId) -> int:
        """The permit of a delivery of the message; 0 in a queue without limits."""
        ...

    def ended(self, message_id: MessageId, permit: int | None = None) -> None:
        """A delivery of the message ended, or, with another `permit`, the next one has begun."""
        ...

    def waits_for_room(self) -> None: ...

    def added(self, *ids: MessageId, headers: Headers | None = None) -> None: ...

    def scanned(self, has_found: bool) -> None:
        """A scan ended; `has_found`: it found messages."""
        ...

    def served(self) -> None:
        """Claims began or ended, so that candidates may be free for other consumers."""
        ...

    def failed(self, error: MqError) -> None:
        """A scan failed, or the queue has ended."""
        ...


class Claimer:
    """The claims of a queue, or of one selection of it. Use it on the event loop's thread."""

    def __init__(self, queue: Claimed, scanner: Scanner, ready: ReadyList) -> None:
        self.waiters = Waiters()
        self.ready = ready
        self._queue = queue
        self._scanner = scanner
        self._claims: deque[_Claim] = deque()
        self._scanning: asyncio.Task[None] | None = None
        self._is_to_scan = False
        self._dropped_ms = -EXPIRED_DROPPED_EVERY_MS
        self._minds_packs = False
        """Whether there was a pack, or a waiter that takes packs. Until then claims are simpler."""
        self._barrier = _Barrier()
        self.background: set[asyncio.Task[None]] = set()
        """What goes on with messages whose claims have ended."""
        queue.claimers.append(self)

    def begin(
        self,
        visibility_s: float | None,
        priority: int = 0,
        allowance: Allowance | None = None,
    ) -> "asyncio.Future[Delivery | None]":
        """Adds a waiter of this priority. Returns the future that answers it: a delivery, or None
        when no message is ready. With an `allowance` the delivery may be of a whole pack; without
        one the claimer parts a pack first.
        """
        future = self.waiters.add(visibility_s, priority, allowance)
        if allowance is not None:
            self._minds_packs = True
        self._serve()
        return future

    def scan_again(self) -> None:
        """Scans the folder for interested consumers, after the claims in progress."""
        self._is_to_scan = True
        self._serve()

    def goes_on(self) -> None:
        """Serves the waiters again, after a pause or when a group is free."""
        if self._is_to_scan or self.waiters.count:
            self._serve()

    def asked(self) -> int:
        if self.waiters.has_gone:
            self.waiters.drop_gone()
        return self.waiters.count

    def work(self) -> int:
        """The number of candidates without a waiter, plus one where unknown messages
        may be ready.
        """
        asked = max(0, self.waiters.count - len(self._claims))
        return max(0, len(self.ready) + self.ready.may_be_more - asked)

    def abandon(self, future: "asyncio.Future[Delivery | None]") -> None:
        """Cancels a waiter, and releases the message if it was already claimed for it."""
        # The answer may have come in the same turn of the loop.
        if not future.cancel() and not future.cancelled() and future.exception() is None:
            delivery = future.result()
            if delivery is not None:
                self.release(delivery)

    def forget(self) -> None:
        """Drops the candidates, since other messages are deliverable than before. The next claim
        scans.
        """
        self._dropped_ms = -EXPIRED_DROPPED_EVERY_MS
        self.ready.forget()
        self._scanner.forget()

    def claimed(self) -> list[str]:
        """The ids that are being claimed."""
        return [claim.candidate.name for claim in self._claims]

    def close(self) -> None:
        """Ends the claimer, as the queue or the selection has ended."""
        self._scanner.close()
        self.ready.close()
        self._queue.claimers.remove(self)

    def pending(self) -> "set[asyncio.Future[Any]]":
        tasks = [each for each in (self._scanning, self._scanner.clearing) if each is not None]
        return {*tasks, *self.background, *(claim.future for claim in self._claims)}

    def release(self, delivery: Delivery) -> None:
        """Releases, in the background, a message whose waiter is gone."""
        self._in_background(self._put_back(delivery))

    # Serving

    def _serve(self) -> None:
        """Begins a claim for each waiter without one; scans first where a scan is due."""
        if self._scanning is not None or self._queue.is_parting:
            return  # Its end serves.
        if self.waiters.has_gone:
            self.waiters.drop_gone()
        lacking = self.waiters.count - len(self._claims)
        if lacking > 0 or self._is_to_scan:
            if not self._gives():
                return
            now_s = self._queue.root.clock.steady_s()
            if self._is_to_scan or self.ready.is_due_for_scan(now_s):
                if not self._claims:
                    self._scanning = asyncio.create_task(self._scan())
                    return
            else:
                self._claim(min(lacking, CLAIMS_MAX - len(self._claims)))
                if self._minds_packs and self._is_parting():
                    return  # The ready ones are on their way.
                # No candidate may be claimed now: the heads of their groups are in flight.
                if not self._claims and self.waiters.count and self.ready.is_due_for_scan(now_s):
                    self._scanning = asyncio.create_task(self._scan())
                    return
        self._queue.served()

    def _is_parting(self) -> bool:
        return self._queue.is_parting

    def _gives(self) -> bool:
        """Whether the queue delivers messages. Where it does not, answers the waiters."""
        settings = self._queue.settings
        if settings.expires_at is not None:
            try:
                self._queue.check_life()
            except MqError as error:
                self._fail(error)
                return False
        limit = self._queue.permits
        if limit is not None and not limit.room():
            self._queue.waits_for_room()
            self._rest()
            return False
        if not settings.gives:
            self._rest()
            return False
        if settings.message_ttl_s:
            self._drop_expired()
        return True

    def _permit(self, message_id: MessageId, waiter: Waiter, permits: QueuePermits) -> int | None:
        """The permit of one more delivery, which counts from here on. None at the
        queue's limits.
        """
        queue = self._queue
        due_ms = queue.root.now_ms() + round(self._shown_s(message_id, waiter) * 1000)
        if permit := permits.begin(message_id.text, due_ms):
            return permit
        self.ready.offer(message_id)
        queue.waits_for_room()
        return None

    def _shown_s(self, message_id: MessageId, waiter: Waiter) -> float:
        """The visibility timeout of a delivery to the waiter, in seconds."""
        return waiter.visibility_s or message_id.visibility_s or self._queue.settings.visibility_s

    def _rest(self) -> None:
        """Answers the waiters with None, once no claim is in progress."""
        if not self._claims:
            while (waiter := self.waiters.next()) is not None:
                waiter.future.set_result(None)

    def _drop_expired(self) -> None:
        """Drops expired candidates, each of which would otherwise cost a claim."""
        mark = self._queue.expired()
        if mark is not None and mark.ms - self._dropped_ms >= EXPIRED_DROPPED_EVERY_MS:
            self._dropped_ms = mark.ms
            self._queue.totals.expired += self.ready.drop(mark.covers)

    def _fail(self, error: MqError) -> None:
        """Answers all waiters and all consumers of the queue with the error."""
        self._is_to_scan = False
        self._answer_all(error)
        self._queue.failed(error)
        self._queue.served()

    def _answer_all(self, error: MqError) -> None:
        while (waiter := self.waiters.next()) is not None:
            waiter.future.set_exception(error)

    async def _scan(self) -> None:
        """Scans the folder, and answers the waiters for which no message was found."""
        last, is_whole = self.waiters.last, self._is_to_scan
        self._is_to_scan = False
        taken = [name for each in self._queue.claimers for name in each.claimed()]
        try:
            await self._scanner.scan(self.ready, taken, is_whole)
            if not len(self.ready) and self._may_be_parted():
                await self._scan_for_parted(taken, is_whole)
        except MqError as error:
            self._scanning = None
            self._fail(error)
            return
        except Exception as error:
            _log.exception(
                "could not scan a queue for ready messages",
                extra={"fields": {"queue": self._queue.name.text}},
            )
            self.ready.distrust()
            self._answer_all(Unavailable(repr(error)))
        finally:
            self._scanning = None
        has_found = bool(len(self.ready))
        self._queue.scanned(has_found)
        # Consumers that this notified may have had all of it claimed, also for those who wait here.
        if not has_found and not self._queue.is_parting:
            while (waiter := self.waiters.next(last)) is not None:
                waiter.future.set_result(None)
        self._serve()

    def _may_be_parted(self) -> bool:
        """Whether other processes may part packs of the queue."""
        queue = self._queue
        is_possible = queue.settings.pack_messages_max > 0 or queue.has_met_packs
        return is_possible and self.waiters.count > 0 and not queue.is_parting

    async def _scan_for_parted(self, taken: list[str], is_whole: bool) -> None:
        """Scans until messages of a pack that another process parts are ready, for a second or so:
        they are in no listing for a moment.
        """
        for _ in range(PARTED_SCANS_MAX):
            is_coming = await self._queue.rolls_on()
            await self._scanner.scan(self.ready, taken, is_whole)
            if len(self.ready) or not is_coming:
                return
            await asyncio.sleep(PARTED_SCAN_WAIT_S)

    def _claim(self, count: int) -> None:
        """Begins at most `count` claims, for the first waiters without one."""
        if count <= 0:
            return
        waiters = itertools.islice(self.waiters.behind(len(self._claims)), count)
        subscriptions = self._queue.subscriptions
        if subscriptions.holds_back(0):
            for waiter in list(waiters):
                self._claim_what_it_may(waiter)
            if self.waiters.has_gone:
                asyncio.get_running_loop().call_soon(self._serve)
            return
        for waiter in waiters:
            if waiter.allowance is not None and self._has_enough(waiter):
                continue
            candidate = self.ready.take()
            if candidate is None or not self._begin_claim(candidate, waiter):
                return

    def _has_enough(self, waiter: Waiter) -> bool:
        """Whether the claims of a consumer that takes packs cover what it asked for. Answers it
        with None then.
        """
        allowance = waiter.allowance
        if allowance is None or allowance.left > 0:
            return False
        allowance.was_short = True
        if not waiter.future.done():
            waiter.future.set_result(None)
        self.waiters.gave_up()
        asyncio.get_running_loop().call_soon(self._serve)
        return True

    def _claim_what_it_may(self, waiter: Waiter) -> None:
        """Claims for a waiter below others in priority: skips each message that a consumer of a
        higher priority is interested in.
        """
        subscriptions = self._queue.subscriptions
        if self._queue.is_parting or self._has_enough(waiter):
            return
        may_take = partial(subscriptions.may_take, waiter.priority)
        candidate = (
            None if subscriptions.yields(waiter.priority) else self.ready.take_first(may_take)
        )
        if candidate is not None:
            self._begin_claim(candidate, waiter)
        elif subscriptions.holds_back(waiter.priority) and not waiter.future.done():
            waiter.future.set_result(None)
            self.waiters.gave_up()

    def _begin_claim(self, candidate: Candidate, waiter: Waiter) -> bool:
        """Begins a claim. False where no more may begin: at the queue's limits, and when it parts
        a pack that the waiter does not take whole.
        """
        queue, message_id = self._queue, candidate.id
        name = message_id.text
        if message_id.items:
            self._minds_packs = queue.has_met_packs = True
            if waiter.allowance is None or not queue.settings.takes_packs:
                self._part(candidate)
                return False
        permit = 0 if queue.permits is None else self._permit(message_id, waiter, queue.permits)
        if permit is None:
            self._rest()
            return False
        queue.subscriptions.took()
        if message_id.group:
            queue.groups.hold(message_id.group, name)
        if len(queue.claimers) > 1:
            for each in queue.claimers:
                if each is not self:
                    each.ready.discard(name)
        if message_id.items:
            operation = fetch_pack(
                queue.root,
                (queue.name, message_id, candidate.bucket),
                self._shown_s(message_id, waiter),
                queue.memory.hold,
            )
        else:
            operation = fetch(
                queue.root,
                queue.name,
                message_id,
                queue.settings.visibility_s,
                candidate.bucket,
                waiter.visibility_s,
                queue.memory.take(queue.bodies, name),
                queue.memory.hold,
            )
        if self._minds_packs:
            operation = self._in_turn(waiter, message_id, operation)
        future = queue.committer.submit(operation)
        last, shown_s, allowance = self.waiters.last, waiter.visibility_s, waiter.allowance
        self._claims.append(_Claim(candidate, last, shown_s, future, permit, allowance))
        future.add_done_callback(self._claim_ended)
        return True

    # Packs

    def _in_turn(
        self, waiter: Waiter, message_id: MessageId, claim: Steps[Delivery | None]
    ) -> Steps[Delivery | None]:
        """The claim, behind those before it, and taken from the waiter's allowance."""
        if waiter.allowance is not None:
            waiter.allowance.left -= message_id.items or 1
        return _in_turn(self._barrier, claim)

    def _part(self, candidate: Candidate) -> None:
        """Parts a pack, one at a time in a queue: those who wait are served from its items."""
        queue, self._barrier = self._queue, _Barrier()
        if queue.is_parting:
            self.ready.offer(candidate.id)
            return
        queue.is_parting = True
        self._in_background(self._parted(candidate))

    async def _parted(self, candidate: Candidate) -> None:
        queue = self._queue
        try:
            if not await queue.part(candidate.id):
                self._was_lost(candidate)
        except Exception as error:
            self._was_refused(candidate, error)
        finally:
            queue.is_parting = False
            for each in list(queue.claimers):
                each.goes_on()

    # What becomes of claims

    def _claim_ended(self, ended: "asyncio.Future[Delivery | None]") -> None:
        """Hands over the ended claims in the order in which they began. A later claim may serve a
        waiter that an earlier one must not.
        """
        claims = self._claims
        while claims and claims[0].future.done():
            claim = claims.popleft()
            if claim.permit and self._queue.permits is not None:
                self._count(claim, self._queue.permits)
            self._settle(claim)
        if self.waiters.count > len(claims) or self._is_to_scan:
            self._serve()
        else:
            self._queue.served()

    def _count(self, claim: _Claim, limit: QueuePermits) -> None:
        if claim.future.exception() is None and claim.future.result() is not None:
            limit.won(claim.candidate.name, claim.permit)
        else:
            limit.lost(claim.candidate.name, claim.permit)

    def _settle(self, claim: _Claim) -> None:
        queue, candidate, error = self._queue, claim.candidate, claim.future.exception()
        if error is None and (delivery := claim.future.result()) is not None:
            queue.totals.fetched += delivery.id.items or 1
            queue.subscriptions.took()
            queue.totals.redelivered += delivery.stamp.receives > 1
            self._hand_over(delivery, claim)
            return
        if claim.allowance is not None:
            claim.allowance.left += claim.messages
        is_grouped = GROUP_BEGINS in candidate.key
        if isinstance(error, _HeldBack):
            if is_grouped:
                queue.let_go(candidate.id)
            self.ready.offer(candidate.id)
        elif is_grouped and self._is_held(candidate.id, claim.future):
            return
        elif isinstance(error, PackToPart):
            self._part(candidate)
        elif error is not None:
            self._was_refused(candidate, error)
        else:
            self._was_lost(candidate)

    def _was_lost(self, candidate: Candidate) -> None:
        """It is not there, or was purged or has expired."""
        queue = self._queue
        if self._has_expired(candidate.name):
            queue.totals.expired += candidate.id.items or 1
        else:
            self.ready.was_lost(candidate, queue.root.clock.steady_s())
            queue.totals.lost_races += 1

    def _was_refused(self, candidate: Candidate, error: BaseException) -> None:
        """A claim or a parting failed."""
        queue = self._queue
        if isinstance(error, MessageUnreadable):
            queue.sidelines.was_sidelined(queue.name, candidate.id)
        elif isinstance(error, SidelineMissing | SidelinePurged):
            # It waits for its sideline; others go first.
            self.ready.put_aside(candidate, queue.root.clock.steady_s())
            if isinstance(error, SidelineMissing):
                self._in_background(self._prepare_sideline(candidate.id))
        elif isinstance(error, Busy):
            # The process that holds it may be stopped: others go first.
            self.ready.put_aside(candidate, queue.root.clock.steady_s())
            queue.totals.lost_races += 1
        else:
            if candidate.id.items:
                # There may be no room to part it: others go first.
                self.ready.put_aside(candidate, queue.root.clock.steady_s())
            # The message is in delay/ and comes back, or is where it was; one waiter is answered.
            self.ready.distrust()
            self._answer_next(error)
            if isinstance(error, QueueNotFound):
                queue.failed(error)

    def _has_expired(self, name: str) -> bool:
        queue, mark = self._queue, self._queue.expired()
        is_old = mark is not None and mark.covers(name)
        return is_old or (OWN_TTL in name and own_expiry(queue.root, queue.name)(name))

    def _is_held(self, message_id: MessageId, ended: "asyncio.Future[Delivery | None]") -> bool:
        """Whether another message of the group goes before this one. The head is this message where
        the claim succeeded, and unknown where it was not found.
        """
        queue, error = self._queue, ended.exception()
        if isinstance(error, GroupHeld):
            self.ready.hide(message_id.group)
            queue.groups.hold(message_id.group, error.head)
            queue.totals.lost_races += 1
            return True
        if isinstance(error, MessageUnreadable) or (error is None and ended.result() is None):
            queue.let_go(message_id)
        elif error is not None:
            # It may be there as before. Those behind it do not go before a scan has looked for it.
            self.ready.hide(message_id.group)
            queue.groups.hold(message_id.group, "", 2 * BUSY_ASIDE_S)
        return False

    def _hand_over(self, delivery: Delivery, claim: _Claim) -> None:
        """Gives the delivery to a waiter that was waiting when the claim began. A fetch that began
        later must not get the message, which may have been deleted in between.
        """
        if self._is_past(delivery):
            self._close(delivery)
            if claim.allowance is not None:
                claim.allowance.left += claim.messages
            return
        waiter = self._next_for(claim) if self._minds_packs else self.waiters.next(claim.last)
        if waiter is None:
            self.release(delivery)
        elif waiter.visibility_s == claim.visibility_s:
            waiter.future.set_result(delivery)
        else:
            # The waiter of the claim is gone, and this one has another visibility timeout.
            self._in_background(self._stamp_for(waiter, delivery))

    def _next_for(self, claim: _Claim) -> Waiter | None:
        """The waiter of the claimed message, whose allowance pays for it."""
        is_pack = claim.messages > 1
        waiter = (self.waiters.next_for_pack if is_pack else self.waiters.next)(claim.last)
        if claim.allowance is not None:
            claim.allowance.left += claim.messages
        if waiter is not None and waiter.allowance is not None:
            waiter.allowance.left -= claim.messages
        return waiter

    def _is_past(self, delivery: Delivery) -> bool:
        """Whether the flush took longer than the visibility timeout, so that another consumer may
        have the message already.
        """
        return delivery.stamp.due_ms <= self._queue.root.now_ms()

    def _close(self, delivery: Delivery) -> None:
        if delivery.descriptor is not None:
            self._queue.root.files.close(delivery.descriptor)

    def _answer_next(self, failure: BaseException) -> None:
        if (waiter := self.waiters.next()) is not None:
            waiter.future.set_exception(failure)  # Its answer is logged.
            return
        fields = {"queue": self._queue.name.text, "error": repr(failure)}
        _log.warning("could not claim a message", extra={"fields": fields})

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self.background.add(task)
        task.add_done_callback(self.background.discard)

    async def _stamp_for(self, waiter: Waiter, delivery: Delivery) -> None:
        """Stamps the delivery with the visibility timeout of this waiter, and hands it over."""
        queue = self._queue
        due_ms = queue.root.now_ms() + round(self._shown_s(delivery.id, waiter) * 1000)
        try:
            stamped = await queue.committer.commit(extend(queue.root, delivery, due_ms))
        except Exception as error:
            # It is in delay/, and comes back.
            self._close(delivery)
            self._give_back(waiter, delivery)
            if not waiter.future.done():
                known = isinstance(error, MqError)
                waiter.future.set_exception(error if known else Unavailable(repr(error)))
            return
        if stamped is not None and waiter.future.done():
            self.release(stamped)
        elif stamped is not None and not self._is_past(stamped):
            waiter.future.set_result(stamped)
        else:
            self._close(delivery)
            self._give_back(waiter, delivery)
            self.waiters.put_back(waiter)
            self._serve()

    @staticmethod
    def _give_back(waiter: Waiter, delivery: Delivery) -> None:
        """To its allowance, what it does not get."""
        if waiter.allowance is not None:
            waiter.allowance.left += delivery.id.items or 1

    async def _prepare_sideline(self, message_id: MessageId) -> None:
        """Creates the sideline, then makes the message a candidate again."""
        if await self._queue.sidelines.prepare(self._queue.name):
            self._queue.added(message_id, headers=())

    async def _put_back(self, delivery: Delivery) -> None:
        queue = self._queue
        self._close(delivery)
        permit = queue.permit(delivery.id)
        try:
            if await queue.committer.commit(release(queue.root, delivery)):
                queue.ended(delivery.id, permit)
                queue.totals.released += delivery.id.items or 1
                queue.added(delivery.id, headers=delivery.headers)
        except Unavailable as error:
            _log.warning(
                "could not release a message; it becomes ready when it is due",
                extra={"fields": {"queue": queue.name.text, "error": repr(error)}},
            )


class Selections:
    """The selections of a queue's consumers in this process, each with its own claimer, so that
    messages that only one selection skips delay no other.

    At most SELECTIONS_PER_QUEUE_MAX. An unused selection is dropped after a while, or at once when
    another one needs its place. Use it on the event loop's thread.
    """

    def __init__(self, queue: Claimed) -> None:
        self._queue = queue
        self._claimers: dict[Selection, Claimer] = {}
        """The one that was used last comes last."""
        self._used_since_tick: set[Selection] = set()
        self._subscriptions: dict[Selection, set[Subscription]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._claimers)

    def __iter__(self) -> Iterator[tuple[Selection, Claimer]]:
        return iter(self._claimers.items())

    def find(self, selection: Selection) -> Claimer | None:
        """The claimer of a selection; None if there is none."""
        return self._claimers.get(selection)

    def use(self, selection: Selection) -> Claimer:
        """The claimer of a selection, made if it is missing. Raises TooManySelections when all
        others are in use.
        """
        claimer = self._claimers.pop(selection, None)
        if claimer is None:
            self._make_room()
            claimer = self._queue.new_claimer(selection)
        self._claimers[selection] = claimer
        self._used_since_tick.add(selection)
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(SELECTION_IDLE_S, self._tick)
        return claimer

    def join(self, subscription: Subscription) -> None:
        """Keeps the consumer's selection until it leaves. Raises TooManySelections."""
        if subscription.selection is not None:
            self.use(subscription.selection)
            self._subscriptions.setdefault(subscription.selection, set()).add(subscription)

    def leave(self, subscription: Subscription) -> None:
        selection = subscription.selection
        if selection is not None and (those := self._subscriptions.get(selection)) is not None:
            those.discard(subscription)
            if not those:
                del self._subscriptions[selection]

    def close(self) -> None:
        """Forgets all selections, as the queue is gone."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for selection in list(self._claimers):
            self._drop(selection)

    def _make_room(self) -> None:
        if len(self._claimers) < SELECTIONS_PER_QUEUE_MAX:
            return
        for selection in self._claimers:
            if not self._is_used(selection):
                self._drop(selection)
                return
        raise TooManySelections(SELECTIONS_PER_QUEUE_MAX)

    def _is_used(self, selection: Selection) -> bool:
        claimer = self._claimers[selection]
        return selection in self._subscriptions or bool(claimer.asked() or claimer.pending())

    def _drop(self, selection: Selection) -> None:
        self._used_since_tick.discard(selection)
        self._claimers.pop(selection).close()
        self._queue.subscriptions.ended(selection)

    def _tick(self) -> None:
        self._timer = None
        for selection in list(self._claimers):
            if selection not in self._used_since_tick and not self._is_used(selection):
                self._drop(selection)
        self._used_since_tick.clear()
        if self._claimers:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(SELECTION_IDLE_S, self._tick)
