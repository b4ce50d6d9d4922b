"""One queue in one process: its waiters, the ready lists, and the cached bodies."""

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Final, Protocol

from mq.broker.accounts import Description, Totals
from mq.broker.active import Active
from mq.broker.claims import Claimer, Sidelines
from mq.broker.groups import Groups
from mq.broker.memory import Memory, QueueBodies, Reservation
from mq.broker.packs import Packs
from mq.broker.permits import Permits, QueuePermits
from mq.broker.ready import IdBudget, ReadyList, Share
from mq.broker.scanning import ScanLimits, Scanner, SelectedScanner
from mq.broker.selections import Selections
from mq.broker.serving import Serving
from mq.broker.siblings import LEFT_S, QueueSiblings, Siblings
from mq.broker.tailing import Tail, Tails
from mq.broker.waiting import Lines, Waiter
from mq.model.errors import MqError, QueueExpired, QueueNotFound
from mq.model.expiry import expired_up_to_ms, is_expired
from mq.model.headers import Headers, parse_block
from mq.model.log import logger
from mq.model.message import Delivery, GivenBack, Held, Stamp
from mq.model.names import MessageId, QueueName
from mq.model.selection import Selection
from mq.model.settings import QueueSettings
from mq.store.core.facts import QueueFacts
from mq.store.core.root import Root
from mq.store.core.unserved import PurgeMark
from mq.store.disk.commit import Committer

# Ids that a selection's ready list holds.
SELECTED_IDS_MAX: Final = 1024
# Without a consumer, other processes' messages are added only to a shorter ready list.
OFFERED_UNASKED_MAX: Final = 16
# Messages that are left to other processes at a time; this one competes for those beyond.
LEFT_MAX: Final = 1024

_log = logger("mq.queue")


class Process(Protocol):
    """What the queues of a process share."""

    root: Root
    committer: Committer
    share: Share
    memory: Memory
    ids: IdBudget
    packs: Packs
    scan_limits: ScanLimits
    permits: Permits
    siblings: Siblings | None
    """The other processes of one mq, where there are some."""

    @property
    def sidelines(self) -> Sidelines:
        """The sidelines to which unreadable messages go."""
        ...

    def forget(self, queue: "Queue | None") -> None: ...

    async def asks_for_turn(self, queue: QueueName, name: str) -> bool:
        """Asks the other processes of this mq to give back the queue's turn, if their active
        consumer has this name. Whether one did.
        """
        ...

    def begin(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]": ...

    def begin_release(
        self, deliveries: Sequence[Delivery], unhandled: bool = False
    ) -> "asyncio.Task[None]":
        """Releases messages, in the background. `unhandled`: they are no attempts."""
        ...

    def refreshing(self, queue: "Queue") -> "asyncio.Task[None] | None":
        """The pending read of the queue's settings, where one is due."""
        ...

    def check_permits(self, queue: "Queue") -> None:
        """The queue is at its limits: compares its permits with the disk, where that is due."""
        ...

    def watch(self, queue: "Queue") -> None:
        """Reports the messages that other processes publish to the queue from here on."""
        ...

    def reports_later(self, queue: "Queue", ids: Sequence[MessageId]) -> None:
        """Ignores inotify's later reports of these ids, which were added already."""
        ...


class BaseConsumer(Waiter):
    """A waiter that the queue tells of its end: a subscription, or a long poll."""

    __slots__ = ()

    @abstractmethod
    def sit(self) -> None:
        """Waits to become the active consumer, as the queue has one from here on."""


class Queue:
    """A queue that this process has used. Use it on the event loop's thread."""

    def __init__(self, name: QueueName, process: Process, settings: QueueSettings) -> None:
        self.name = name
        self.root = process.root
        self.committer = process.committer
        self.memory = process.memory
        self.packs = process.packs
        self.sidelines = process.sidelines
        self.settings = settings
        self.permits: QueuePermits | None = process.permits.of(name, settings)
        self.active: Active | None = None
        """Where one consumer gets its messages alone."""
        self.facts: QueueFacts | None = None
        """The last look at it that this process has used."""
        self.trouble: MqError | None = None
        """Why its settings are not known."""
        self.totals = Totals()
        self.description: Description | None = None
        self.is_gone = False
        """Its folder was deleted: a later request looks for the queue anew."""
        self.is_watched = False
        """Whether inotify may report what comes to its folder."""
        self._siblings = (
            None
            if process.siblings is None
            else QueueSiblings(process.siblings, name, self._was_left)
        )
        self._left: dict[str, tuple[float, MessageId]] = {}
        """Messages left to other processes, the oldest first, and until when."""
        self._looking_again: asyncio.Handle | None = None
        self.lines = Lines(None if self._siblings is None else self._siblings.shows)
        """Its waiters, those that may be served."""
        self.bodies = QueueBodies(name.text)
        self.is_parting = self.has_met_packs = False
        self.claimers: list[Claimer] = []
        """That of the whole queue first, then those of its selections."""
        self._process = process
        self.groups = Groups(process.root.clock.steady_s)
        scanner = Scanner(name, process.root, process.committer, process.share, self.groups)
        ready = ReadyList(process.share, process.ids, groups=self.groups)
        self._claimer = Claimer(self, scanner, ready)
        self._selections = Selections(self)
        self.serve = Serving(self).serve
        self._publishing: dict[str, bytes] = {}
        """The header blocks of what this process is publishing."""
        self._added_early: set[str] = set()
        """Of those, the ones that inotify has reported."""
        self._consumers: dict[BaseConsumer, None] = {}
        self.tails = Tails()
        """Who follows it."""

    # Fetches

    def claimer(self, selection: Selection | None = None) -> Claimer:
        """The claimer of a selection; None: of all messages. Raises TooManySelections, except for a
        selection that a consumer has.
        """
        return self._claimer if selection is None else self._selections.use(selection)

    def stand(self, waiter: Waiter) -> None:
        """The waiter takes messages from here on. Raises TooManySelections, except for a selection
        that a consumer has.
        """
        if self.is_gone:
            return
        if waiter not in self.lines:
            self.claimer(waiter.selection)
            self.lines.enter(waiter)
            if waiter.stays:
                if self._left and self._siblings is not None:
                    self._take_left(self._siblings)
                self._process.watch(self)
        self.serve()

    def stand_first(self, waiter: Waiter) -> None:
        """A claim for the waiter came to nothing: it goes on in front of its line."""
        if self.is_gone:
            waiter.failed(QueueNotFound(self.name.text))
        elif waiter.wants:
            self.lines.enter_first(waiter)

    def rests(self, waiter: Waiter) -> None:
        """The waiter takes no messages for now. Others may take those that were for it."""
        if waiter in self.lines:
            self.lines.leave(waiter)
            if self.lines:
                self.serve()

    def release(self, delivery: Delivery) -> None:
        """Releases, in the background, a message whose consumer is gone."""
        self._process.begin_release([delivery], unhandled=True)

    async def drain(self) -> None:
        """Waits until all claims and background tasks of the queue are done."""
        while pending := {each for claimer in self.claimers for each in claimer.pending()}:
            await asyncio.wait(pending)

    # Consumers

    @property
    def is_consumed(self) -> bool:
        """Whether it has consumers or followers."""
        return bool(self._consumers or self.tails)

    @property
    def wants_bodies(self) -> bool:
        """Whether a fetch in this process will probably take a message that is published now."""
        if not self.settings.gives:
            return False
        if self._consumers or not self._claimer.ready.may_be_more:
            return True
        return any(not each.ready.may_be_more for each in self.claimers)

    @property
    def members(self) -> list[BaseConsumer]:
        """Its consumers, long polls among them, in the order in which they came."""
        return list(self._consumers)

    @property
    def consumers(self) -> int:
        """The number of consumers, including long polls."""
        return len(self._consumers)

    def join(self, consumer: BaseConsumer) -> None:
        """Adds a consumer. Raises TooManySelections; QueueNotFound where the queue is gone."""
        if self.is_gone:
            raise QueueNotFound(self.name.text)
        self._selections.join(consumer)
        self._consumers[consumer] = None
        if self.active is not None:
            self._process.watch(self)  # So that a waiting consumer learns of changed settings.

    def follow(self, tail: Tail, there: Iterable[MessageId]) -> None:
        """Adds a follower. `there`: the newest messages so far. Raises QueueNotFound where the
        queue is gone.
        """
        if self.is_gone:
            raise QueueNotFound(self.name.text)
        self.tails.add(tail, self.root.now_ms(), there)
        self._process.watch(self)

    def leave(self, consumer: BaseConsumer) -> None:
        self._selections.leave(consumer)
        self._consumers.pop(consumer, None)
        self.rests(consumer)

    def used(self) -> None:
        """A claim begins for a consumer: its settings are read again where that is due."""
        self._process.refreshing(self)

    def took(self) -> None:
        """This process asked for a message, or took one."""
        if self._siblings is not None:
            self._siblings.took()

    def yields(self, priority: int) -> bool:
        """Whether consumers of another process have precedence over this priority."""
        return self._siblings is not None and self._siblings.go_first(priority)

    def check_life(self) -> None:
        """Raises QueueExpired where the queue is known to have expired."""
        settings = self.settings
        if settings.expires_at is not None and is_expired(settings, self.root.now_ms()):
            raise QueueExpired(self.name.text, settings.expires_at)

    def goes_on(self) -> None:
        """Resumes deliveries after a pause."""
        for each in self.claimers:
            each.has_news = True
        self.serve()

    def is_consumed_otherwise(self) -> None:
        """Applies a changed `active_consumer`: one consumer gets all messages from here on, or each
        gets some.
        """
        before, self.active = self.active, Active(self) if self.settings.is_single else None
        if before is not None:
            before.close(is_for_all=self.active is None)
        if self.active is not None:
            for each in self.members:
                each.sit()

    async def asks_for_turn(self, name: str) -> bool:
        return await self._process.asks_for_turn(self.name, name)

    def begin(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        return self._process.begin(work)

    def is_limited_otherwise(self) -> None:
        """Applies changed limits of deliveries."""
        self.permits = self._process.permits.of(self.name, self.settings)
        self.goes_on()

    def end_if_expired(self) -> None:
        """Answers all waiters with QueueExpired where the queue has expired."""
        try:
            self.check_life()
        except QueueExpired as error:
            self.failed(error)

    def failed(self, error: MqError) -> None:
        """A scan failed, or the queue has ended: tells all waiters."""
        if isinstance(error, QueueNotFound):
            self._process.forget(self)
        else:
            self._fail(error)

    def _fail(self, error: MqError) -> None:
        for each in dict.fromkeys((*self.lines, *self._consumers)):
            if each not in self._consumers:
                self.lines.leave(each)
            each.failed(error)
        self.tails.failed(error)

    def was_forgotten(self) -> None:
        """The queue's folder is gone: answers all waiters with QueueNotFound."""
        self.is_gone, self.is_watched = True, False
        self._claimer.ready.close()
        self.memory.retain(self.bodies)
        self._fail(QueueNotFound(self.name.text))
        self._selections.close()
        if self.active is not None:
            self.active.close()

    # Ready messages

    def added(self, *ids: MessageId, headers: Headers | None = None) -> None:
        """Messages became ready: published, released or redelivered, by any process. `headers`:
        their headers; None: unknown.
        """
        if self._siblings is not None and self.lines:
            ids = tuple(each for each in ids if not self._leaves(each, self._siblings))
        self._add(*ids, headers=headers)

    def _add(self, *ids: MessageId, headers: Headers | None = None) -> None:
        for message_id in ids:
            self._claimer.ready.offer(message_id)
        self._claimer.has_news = True
        if len(self.claimers) > 1:
            self._add_to_selections(ids, headers)
        if self.tails:
            self.tails.saw(ids)
        if self.lines:
            self.serve()

    def reported(self, ids: Sequence[MessageId]) -> Sequence[MessageId]:
        """inotify reports that messages became ready. Adds those that this process is publishing,
        and returns the others.
        """
        if not self._publishing:
            return ids
        others = []
        for each in ids:
            block = self._publishing.get(each.text)
            if block is None:
                others.append(each)
            else:
                self._added_early.add(each.text)
                self.added(each, headers=parse_block(block) if len(self.claimers) > 1 else None)
        return others

    def publishes(self, ids: Iterable[MessageId], block: bytes, held: Held | None = None) -> None:
        """This process begins to publish these messages, all with this header block. `held`: the
        reserved body, for a single message.
        """
        for each in ids:
            self._publishing[each.text] = block
            if held is not None:
                self.bodies.publishing[each.text] = held

    def publish_failed(self, ids: Iterable[MessageId]) -> None:
        """This process did not publish these messages."""
        for each in ids:
            del self._publishing[each.text]
            self._added_early.discard(each.text)
            self.bodies.publishing.pop(each.text, None)

    def published(self, ids: Sequence[MessageId], is_ready: bool, held: Held | None = None) -> None:
        """This process has published these messages, all with the same header block."""
        self.totals.published += len(ids)
        block, new = b"", []
        for each in ids:
            block = self._publishing.pop(each.text)
            if each.items:
                self.totals.published += each.items - 1
            if each.text in self._added_early:
                self._added_early.discard(each.text)
            else:
                new.append(each)
        if is_ready and new:
            if self.is_watched:
                self._process.reports_later(self, new)
            self.added(*new, headers=parse_block(block) if len(self.claimers) > 1 else None)
        if held is not None:
            name = ids[0].text
            self.bodies.publishing.pop(name, None)
            is_candidate = any(each.ready.holds(name) for each in self.claimers)
            if isinstance(held.reservation, Reservation) and is_candidate:
                self.memory.keep(self.bodies, name, held, held.reservation)

    def was_rescheduled(
        self, message_id: MessageId, due_in_s: float, attempts: int, given: GivenBack
    ) -> None:
        """This process gave a message another due time, in seconds (0: now). A message at its
        `max_receives` does not become ready, but is to be sidelined.
        """
        messages = message_id.items or 1
        has_had_them = 0 < self.settings.max_receives <= attempts and not self.name.is_sideline
        is_ready = due_in_s <= 0 and (given is GivenBack.UNHANDLED or not has_had_them)
        if is_ready or given is not GivenBack.NO:
            self.totals.released += messages
        else:
            self.totals.extended += messages
        if is_ready:
            self.added(message_id)

    def let_go(self, message_id: MessageId) -> None:
        """A message was settled: the next one of its group, or of a limited queue, may be
        delivered.
        """
        self.ended(message_id)
        if message_id.group and self.groups.let_go(message_id.group, message_id.text):
            now_s = self.root.clock.steady_s()
            for each in self.claimers:
                each.ready.released(message_id.group, now_s)
            self.goes_on()

    def on_new_due(
        self, message_id: MessageId, due_in_s: float, given: GivenBack
    ) -> "Callable[[asyncio.Future[Stamp]], None]":
        """The callback for the end of a reschedule: it ends the message's delivery for
        the limits.
        """
        permit = self.permit(message_id)

        def ended(future: "asyncio.Future[Stamp]") -> None:
            if future.cancelled() or future.exception() is not None or not permit:
                return
            if due_in_s <= 0 or given is not GivenBack.NO:
                self.ended(message_id, permit)
            else:
                self._process.permits.moved(self.name, message_id.text, future.result().due_ms)

        return ended

    def permit(self, message_id: MessageId) -> int:
        """The permit of a delivery of the message; 0 in a queue without limits."""
        return self._process.permits.permit(self.name, message_id.text)

    def ended(self, message_id: MessageId, permit: int | None = None) -> None:
        """A delivery of the message ended, or, with another `permit`, the next one has begun. The
        limits may allow one more.
        """
        permits = self._process.permits
        if permits.are_used:
            permits.ended(self.name, message_id.text, permit)
            if self._looking_again is not None:
                self._looking_again.cancel()
                self._looking_again = asyncio.get_running_loop().call_soon(self._look_again)

    def was_purged(self) -> None:
        """Drops the candidates, which a purge may cover. The next fetch scans."""
        self.groups.forget()
        for each in self.claimers:
            each.ready.forget()
        self.memory.retain(self.bodies)
        self.description = None

    def serves_others(self) -> None:
        """Applies a changed `message_ttl_s`: messages that were skipped as expired may be
        deliverable.
        """
        for each in self.claimers:
            each.forget()

    def expired(self) -> PurgeMark | None:
        """The mark up to which its messages have expired; None: no message has."""
        ttl_s = self.settings.message_ttl_s
        if not ttl_s:
            return None
        up_to_ms = expired_up_to_ms(ttl_s, self.root.aged_ms(ttl_s))
        return None if up_to_ms is None else PurgeMark(up_to_ms)

    def matches(self, selection: Selection, name: str) -> bool:
        """Whether a message matches a selection. A selection by headers matches only messages whose
        headers were read and match.
        """
        matches = selection.matches_name(name)
        if matches is None:
            claimer = self._selections.find(selection)
            return claimer is not None and claimer.ready.holds(name)
        return matches

    # What other processes do

    def takes_news(self) -> bool:
        """Whether to add the messages of other processes: for waiting consumers, and for those that
        are about to wait, whose scan may have missed one. Without a consumer the list stays short.
        """
        return bool(self.lines) or len(self._claimer.ready) < OFFERED_UNASKED_MAX

    def missed(self) -> None:
        """Other processes published messages that were not added."""
        for each in self.claimers:
            each.ready.missed()

    def all_was_reported(self, now_s: float) -> None:
        """inotify has reported all renames into the queue's own folder by now."""
        for each in self.claimers:
            if each.ready.is_of_one_folder:
                each.ready.is_as_scanned(now_s)

    def claimers_to_scan(self, now_s: float) -> list[Claimer]:
        """The claimers for which a waiter stands, where one more scan takes a small share of the
        time.
        """
        waiting = map(self.claimer, self.lines.selections)
        return [claimer for claimer in waiting if claimer.ready.may_scan(now_s)]

    def scanned(self) -> None:
        """A scan ended."""
        if self.bodies.kept:
            self.memory.retain(
                self.bodies, set().union(*(each.ready.names() for each in self.claimers))
            )

    def departed(self, names: Iterable[str]) -> None:
        """inotify reports that messages are no longer ready."""
        for name in names:
            self._left.pop(name, None)
            if name in self._publishing:
                self._added_early.add(name)
            for each in self.claimers:
                each.ready.discard(name)

    # Messages left to other processes

    def _leaves(self, message_id: MessageId, siblings: QueueSiblings) -> bool:
        """Whether to leave the message to consumers of another process for a moment."""
        name = message_id.text
        if message_id.group:
            return False  # Else this process might take the message behind it meanwhile.
        if len(self._left) >= LEFT_MAX or not siblings.are_chosen(name):
            return False
        until_s = self.root.clock.steady_s() + LEFT_S
        self._left[name] = until_s, message_id
        self._claimer.ready.leave(name, until_s)
        return True

    def waits_for_room(self) -> None:
        """The queue is at its limits of deliveries. Its consumers are served once it is not."""
        self._process.check_permits(self)
        if self._consumers:
            self._was_left()

    def _was_left(self) -> None:
        if self._looking_again is None:
            loop = asyncio.get_running_loop()
            self._looking_again = loop.call_later(LEFT_S, self._look_again)

    def _look_again(self) -> None:
        self._looking_again = None
        siblings = self._siblings
        if self.is_gone:
            return
        if siblings is not None:
            siblings.check()
            self._take_left(siblings)
        if self.lines:
            self.goes_on()
        if self._left:
            self._was_left()
        if siblings is not None and self._looking_again is None:
            siblings.rests()

    def _take_left(self, siblings: QueueSiblings) -> None:
        """Adds messages that other processes left for too long, or that are not theirs any more."""
        now_s = self.root.clock.steady_s()
        for name, (until_s, message_id) in list(self._left.items()):
            if until_s <= now_s or not siblings.are_chosen(name):
                del self._left[name]
                self._add(message_id)

    # Selections

    def new_claimer(self, selection: Selection) -> Claimer:
        process = self._process
        scanner = SelectedScanner(
            self.name,
            self.root,
            self.committer,
            process.share,
            self.groups,
            selection,
            process.scan_limits,
        )
        ready = ReadyList(process.share, process.ids, SELECTED_IDS_MAX, self.groups)
        return Claimer(self, scanner, ready, selection)

    def _add_to_selections(self, ids: Iterable[MessageId], headers: Headers | None) -> None:
        waiting = self.lines.selections
        for selection, claimer in self._selections:
            claimer.has_news = True
            for message_id in ids:
                matches = selection.matches_name(message_id.text)
                if matches is None and headers is not None:
                    matches = selection.matches_headers(message_id.text, headers)
                if matches:
                    claimer.ready.offer(message_id)
                elif matches is None:
                    claimer.ready.distrust()
                    if selection in waiting:
                        claimer.ask_for_scan()
