"""Claims ready messages of a queue, or of one selection of it, for its waiters.

A claim is for one waiter and one candidate. When it loses its race, its waiter goes on in front of
its line. A claimer scans the folder only while no claim of it is in progress.
"""

import asyncio
from collections import deque
from collections.abc import Coroutine
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from mq.broker.accounts import Totals
from mq.broker.groups import Groups
from mq.broker.memory import Memory, QueueBodies
from mq.broker.packs import Packs
from mq.broker.permits import QueuePermits
from mq.broker.ready import BUSY_ASIDE_S, ReadyList
from mq.broker.scanning import Scanner
from mq.broker.waiting import Lines, Waiter
from mq.model.errors import (
    Busy,
    GroupHeld,
    MessageUnreadable,
    MqError,
    QueueNotFound,
    SidelineMissing,
    SidelinePurged,
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
from mq.store.packs.fetching import PackToPart, fetch_pack
from mq.store.scan.order import Candidate

# Claims of one claimer that go on at a time.
CLAIMS_MAX: Final = GROUP_OPERATIONS_MAX
# How often, at most, expired messages are dropped from the ready list.
EXPIRED_DROPPED_EVERY_MS: Final = 100
# Scans for messages of packs that other processes part, and the pause between two.
PARTED_SCANS_MAX: Final = 20
PARTED_SCAN_WAIT_S: Final = 0.05

_log = logger("mq.queue")


class _Claim(NamedTuple):
    """A claim in progress."""

    candidate: Candidate
    waiter: Waiter
    future: "asyncio.Future[Delivery | None]"
    permit: int = 0
    """Of a queue with limits."""


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

    def failed(self, name: QueueName, error: BaseException) -> None:
        """A message cannot go to the queue's sideline now."""
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
    lines: Lines
    totals: Totals
    bodies: QueueBodies
    memory: Memory
    claimers: "list[Claimer]"
    groups: Groups
    packs: Packs
    is_parting: bool
    """Whether a pack is being parted for waiters. No claim begins meanwhile."""
    has_met_packs: bool
    """Whether a pack of it was ready since this process uses it."""

    @property
    def sidelines(self) -> Sidelines:
        """The sidelines to which unreadable messages go."""
        ...

    def expired(self) -> PurgeMark | None:
        """The mark up to which its messages have expired; None: no message has."""
        ...

    def let_go(self, message_id: MessageId) -> None:
        """A message was settled: the next one of its group, or of a limited queue, may be
        delivered.
        """
        ...

    def release(self, delivery: Delivery) -> None:
        """Releases, in the background, a message whose waiter is gone."""
        ...

    def took(self) -> None:
        """This process asked for a message, or took one."""
        ...

    def yields(self, priority: int) -> bool:
        """Whether consumers of another process have precedence over this priority."""
        ...

    def matches(self, selection: Selection, name: str) -> bool:
        """Whether a message matches a selection, as far as is known."""
        ...

    def waits_for_room(self) -> None: ...

    def added(self, *ids: MessageId, headers: Headers | None = None) -> None: ...

    def scanned(self) -> None:
        """A scan ended."""
        ...

    def serve(self) -> None:
        """Claims began or ended, or candidates came: those in line may be served."""
        ...

    def stand_first(self, waiter: Waiter) -> None:
        """A claim for the waiter came to nothing: it goes on in front of its line."""
        ...

    def failed(self, error: MqError) -> None:
        """A scan failed, or the queue has ended: tells all waiters."""
        ...


class Claimer:
    """The claims of a queue, or of one selection of it. Use it on the event loop's thread."""

    def __init__(
        self, queue: Claimed, scanner: Scanner, ready: ReadyList, selection: Selection | None = None
    ) -> None:
        self.ready = ready
        self.selection = selection
        self.has_news = True
        """Whether messages may have come, or be free, that the last scan did not find."""
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

    def ask_for_scan(self) -> None:
        """The queue's next `serve` scans for waiting consumers, after the claims in progress."""
        self._is_to_scan = True

    def scan_again(self) -> None:
        """Scans the folder for waiting consumers, after the claims in progress."""
        self.ask_for_scan()
        self._queue.serve()

    def forget(self) -> None:
        """Drops the candidates, since other messages are deliverable than before. The next claim
        scans.
        """
        self._dropped_ms = -EXPIRED_DROPPED_EVERY_MS
        self.has_news = True
        self.ready.forget()
        self._scanner.forget()

    @property
    def claims(self) -> int:
        """How many go on."""
        return len(self._claims)

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

    # Serving

    def may_claim(self, now_s: float) -> bool:
        """Whether claims may begin now. Where a scan is due before, begins it once no claim is in
        progress.
        """
        if self._scanning is not None:
            return False
        if not self._is_due(now_s):
            return len(self._claims) < CLAIMS_MAX
        if not self._claims:
            self._scanning = asyncio.create_task(self._scan())
        return False

    def _is_due(self, now_s: float) -> bool:
        ready = self.ready
        if self._is_to_scan:
            return True
        if not ready.is_due_for_scan(now_s):
            return False
        is_asked = bool(len(ready) or self._queue.lines.fresh(self.selection))
        return is_asked or (self.has_news and ready.may_be_more)

    def claim(self, waiter: Waiter, count: int) -> int:
        """Begins at most `count` claims for the waiter, as far as there are candidates for it.
        Returns how many.
        """
        above = self._queue.lines.above(waiter.priority)
        if self._queue.yields(waiter.priority):
            return 0
        begun = 0
        while begun < count and waiter.credit > 0:
            if above:
                candidate = self.ready.take_first(partial(self._is_free, above))
            else:
                candidate = self.ready.take()
            if candidate is None or not self._begin(candidate, waiter):
                break
            begun += 1
        return begun

    def _is_free(self, above: list[Selection | None], name: str) -> bool:
        """Whether no waiter of a higher priority takes the message."""
        matches = self._queue.matches
        return not any(selection is None or matches(selection, name) for selection in above)

    def drop_expired(self) -> None:
        """Drops expired candidates, each of which would otherwise cost a claim."""
        mark = self._queue.expired()
        if mark is not None and mark.ms - self._dropped_ms >= EXPIRED_DROPPED_EVERY_MS:
            self._dropped_ms = mark.ms
            self._queue.totals.expired += self.ready.drop(mark.covers)

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

    async def _scan(self) -> None:
        """Scans the folder, and tells the waiters for which no message was found."""
        queue = self._queue
        waiters, is_whole = list(queue.lines.fresh(self.selection)), self._is_to_scan
        self._is_to_scan = self.has_news = False
        taken = [name for each in queue.claimers for name in each.claimed()]
        try:
            await self._scanner.scan(self.ready, taken, is_whole)
            if not len(self.ready) and self._may_be_parted():
                await self._scan_for_parted(taken, is_whole)
        except MqError as error:
            self._scanning, self.has_news = None, True
            queue.failed(error)
            return
        except Exception as error:
            _log.exception(
                "could not scan a queue for ready messages",
                extra={"fields": {"queue": queue.name.text}},
            )
            self.ready.distrust()
            for each in waiters:
                self._fail(each, Unavailable(repr(error)))
        finally:
            self._scanning = None
        queue.scanned()
        if not len(self.ready) and not queue.is_parting:
            queue.lines.find_nothing(waiters)
        queue.serve()

    def _may_be_parted(self) -> bool:
        """Whether other processes may part packs of the queue."""
        queue = self._queue
        is_possible = queue.settings.pack_messages_max > 0 or queue.has_met_packs
        is_asked = bool(queue.lines.fresh(self.selection))
        return is_possible and is_asked and not queue.is_parting

    async def _scan_for_parted(self, taken: list[str], is_whole: bool) -> None:
        """Scans until messages of a pack that another process parts are ready, for a second or so:
        they are in no listing for a moment.
        """
        for _ in range(PARTED_SCANS_MAX):
            is_coming = await self._queue.packs.rolls_on(self._queue.name)
            await self._scanner.scan(self.ready, taken, is_whole)
            if len(self.ready) or not is_coming:
                return
            await asyncio.sleep(PARTED_SCAN_WAIT_S)

    def _begin(self, candidate: Candidate, waiter: Waiter) -> bool:
        """Begins a claim. False where no more may begin: at the queue's limits, and when it parts
        a pack that the waiter does not take whole.
        """
        queue, message_id = self._queue, candidate.id
        name = message_id.text
        if message_id.items or waiter.takes_packs:
            self._minds_packs = True
        if message_id.items:
            queue.has_met_packs = True
            if not (waiter.takes_packs and queue.settings.takes_packs):
                self._part(candidate)
                return False
        permit = 0 if queue.permits is None else self._permit(message_id, waiter, queue.permits)
        if permit is None:
            return False
        queue.took()
        if message_id.group:
            queue.groups.hold(message_id.group, name)
        if len(queue.claimers) > 1:
            for each in queue.claimers:
                if each is not self:
                    each.ready.discard(name)
        operation = self._operation(candidate, waiter)
        self.has_news = True
        waiter.credit -= message_id.items or 1
        waiter.in_flight += 1
        waiter.begins()
        future = queue.committer.submit(operation)
        self._claims.append(_Claim(candidate, waiter, future, permit))
        future.add_done_callback(self._claim_ended)
        return True

    def _operation(self, candidate: Candidate, waiter: Waiter) -> Steps[Delivery | None]:
        queue, message_id = self._queue, candidate.id
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
                queue.memory.take(queue.bodies, message_id.text),
                queue.memory.hold,
            )
        return _in_turn(self._barrier, operation) if self._minds_packs else operation

    # Packs

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
            if not await queue.packs.part(queue.name, candidate.id):
                self._was_lost(candidate)
        except Exception as error:
            if self._was_refused(candidate, error):
                self._fail(next(iter(queue.lines.fresh(self.selection)), None), error)
        finally:
            queue.is_parting = False
            queue.serve()

    # What becomes of claims

    def _claim_ended(self, ended: "asyncio.Future[Delivery | None]") -> None:
        """Hands over the ended claims in the order in which they began."""
        claims = self._claims
        while claims and claims[0].future.done():
            claim = claims.popleft()
            if claim.permit and self._queue.permits is not None:
                self._count(claim, self._queue.permits)
            self._settle(claim)
        self._queue.serve()

    def _count(self, claim: _Claim, limit: QueuePermits) -> None:
        if claim.future.exception() is None and claim.future.result() is not None:
            limit.won(claim.candidate.name, claim.permit)
        else:
            limit.lost(claim.candidate.name, claim.permit)

    def _settle(self, claim: _Claim) -> None:
        queue, (candidate, waiter, future, _) = self._queue, claim
        error = future.exception()
        delivery = None if error is not None else future.result()
        waiter.in_flight -= 1
        if delivery is not None:
            queue.totals.fetched += delivery.id.items or 1
            queue.took()
            queue.totals.redelivered += delivery.stamp.receives > 1
            if delivery.stamp.due_ms > queue.root.now_ms():
                self._hand_over(delivery, waiter)
                return
            # The flush took longer than the visibility timeout: another may have it already.
            self._close(delivery)
        waiter.credit += candidate.id.items or 1
        if not waiter.is_gone:
            waiter.missed()
        gets_error = delivery is None and self._came_to_nothing(candidate, future)
        is_gone = waiter.is_gone  # With its queue, perhaps.
        if gets_error and error is not None:
            self._fail(None if is_gone else waiter, error)
        elif not is_gone:
            queue.stand_first(waiter)

    def _came_to_nothing(
        self, candidate: Candidate, future: "asyncio.Future[Delivery | None]"
    ) -> bool:
        """Whether the waiter gets the error."""
        queue, error = self._queue, future.exception()
        is_grouped = GROUP_BEGINS in candidate.key
        if isinstance(error, _HeldBack):
            if is_grouped:
                self._hide(candidate.id.group)
                queue.let_go(candidate.id)
            self.ready.offer(candidate.id)
        elif is_grouped and self._is_held(candidate.id, future):
            pass
        elif isinstance(error, PackToPart):
            self._part(candidate)
        elif error is not None:
            return self._was_refused(candidate, error)
        else:
            self._was_lost(candidate)
        return False

    def _was_lost(self, candidate: Candidate) -> None:
        """It is not there, or was purged or has expired."""
        queue = self._queue
        if self._has_expired(candidate.name):
            queue.totals.expired += candidate.id.items or 1
        else:
            self.ready.was_lost(candidate, queue.root.clock.steady_s())
            queue.totals.lost_races += 1

    def _was_refused(self, candidate: Candidate, error: BaseException) -> bool:
        """A claim or a parting failed. Whether a waiter gets the error."""
        queue = self._queue
        if isinstance(error, MessageUnreadable):
            queue.sidelines.was_sidelined(queue.name, candidate.id)
        elif isinstance(error, SidelineMissing | SidelinePurged):
            # It waits for its sideline; others go first.
            self.ready.put_aside(candidate, queue.root.clock.steady_s())
            queue.sidelines.failed(queue.name, error)
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
            if isinstance(error, QueueNotFound):
                queue.failed(error)
            return True
        return False

    def _fail(self, waiter: Waiter | None, error: BaseException) -> None:
        """Tells the waiter, or else the log."""
        if waiter is not None:
            self._queue.lines.leave(waiter)
            waiter.failed(error)  # Its answer is logged.
            return
        fields = {"queue": self._queue.name.text, "error": repr(error)}
        _log.warning("could not claim a message", extra={"fields": fields})

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
            self._hide(message_id.group)
            queue.groups.hold(message_id.group, error.head)
            queue.totals.lost_races += 1
            return True
        if isinstance(error, MessageUnreadable) or (error is None and ended.result() is None):
            queue.let_go(message_id)
        elif error is not None:
            # It may be there as before. Those behind it do not go before a scan has looked for it.
            self._hide(message_id.group)
            queue.groups.hold(message_id.group, "", 2 * BUSY_ASIDE_S)
        return False

    def _hide(self, group: str) -> None:
        """A claim of the group failed: no list knows all of it."""
        for each in self._queue.claimers:
            each.ready.claim_failed(group)

    def _hand_over(self, delivery: Delivery, waiter: Waiter) -> None:
        if waiter.is_gone:
            self._queue.release(delivery)
            return
        try:
            waiter.got(delivery)
        except Exception:  # One waiter must not stop the others.
            fields = {"queue": self._queue.name.text}
            _log.exception("a message could not be handed over", extra={"fields": fields})

    def _close(self, delivery: Delivery) -> None:
        if delivery.descriptor is not None:
            self._queue.root.files.close(delivery.descriptor)

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self.background.add(task)
        task.add_done_callback(self.background.discard)
