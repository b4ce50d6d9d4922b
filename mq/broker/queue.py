"""One queue in one process: its fetches and consumers, what becomes ready, and what its counts
were.
"""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from mq.broker.accounts import UNSEEN, Description, Totals
from mq.broker.ahead import Ahead
from mq.broker.backlog import Backlog
from mq.broker.bodies import Bodies, Watched
from mq.broker.fetching import Common, Fetching, Sidelines
from mq.broker.ids import Ids
from mq.broker.interest import Event, Interest, State
from mq.broker.interests import Interests, Known
from mq.broker.looks import Looks
from mq.broker.memory import Hand, Memory
from mq.broker.selected_looks import SelectedLooks, Shared
from mq.broker.selections import Selections
from mq.model.errors import MqError, QueueExpired, QueueNotFound
from mq.model.expiry import expired_up_to_ms, is_expired
from mq.model.headers import Headers, parse_block
from mq.model.limits import OFFERED_UNASKED_MAX, SELECTED_IDS_MAX
from mq.model.message import Delivery, GivenBack, Held
from mq.model.names import MessageId, QueueName
from mq.model.selection import Selection
from mq.model.settings import QueueSettings
from mq.store.core.purged import PurgeMark
from mq.store.core.root import Root
from mq.store.disk.commit import Committer

_log = logging.getLogger("mq.queue")


def _all(queue: "Queue", ids: Sequence[MessageId]) -> Sequence[MessageId]:
    """Where nobody is told of them beforehand."""
    return ids


@dataclass(frozen=True, slots=True)
class Host:
    """What a queue has of its process, `memory` and `ids` shared with others, and who hears of it
    there: `gone`, when its folder is; `waits`, when somebody is interested in it from here on;
    `used`, when messages are asked for that somebody waited for; `untold` gives those of what was
    just published that are still to be offered.
    """

    root: Root
    committer: Committer
    chance: random.Random
    peers: int
    peer_index: int
    memory: Memory
    ids: Ids
    gone: Callable[["Queue"], None]
    waits: Callable[["Queue"], None]
    used: Callable[["Queue"], object]
    sidelines: Sidelines
    untold: Callable[["Queue", Sequence[MessageId]], Sequence[MessageId]] = _all
    shared: Shared = field(default_factory=Shared)
    """What looks for selections share."""


class Queue:
    """A queue that this process has used. Lives on the event loop's thread."""

    def __init__(self, name: QueueName, host: Host, settings: QueueSettings) -> None:
        self.name = name
        self.settings = settings
        self.seen = UNSEEN
        self.totals = Totals()
        self.description: Description | None = None
        self.is_gone = False
        """Its folder was deleted: whoever comes later looks for the queue anew."""
        self.interests = Interests(
            Known(self.work, self._matches, self._holds, host.root.clock.steady_s)
        )
        self.bodies = Bodies(name, host.memory)
        self._host = host
        self._common = Common(
            name,
            host.root,
            host.committer,
            host.chance,
            self.totals,
            self.interests,
            self.bodies,
            lambda: self.settings.visibility_s,
            self._expired,
            self.check_life,
            self._released,
            self._looked,
            self.failed,
            host.sidelines,
        )
        looks = Looks(name, host.root, host.committer, host.peers, host.peer_index)
        backlog = Backlog(host.peers, host.peer_index, Watched(host.ids, self.bodies))
        ahead = Ahead(name, host.root, host.committer, self.bodies)
        self._fetching = Fetching(self._common, looks, backlog, ahead)
        self._selections = Selections(self._fetching_of, self.interests.ended)
        self._publishing: dict[str, bytes] = {}
        """The header blocks of what this process is publishing, where somebody selects."""
        self._consumers: dict[Interest, None] = {}
        self._told: deque[Interest] = deque()
        self._is_telling = False

    # Fetches

    def fetching(self, selection: Selection | None = None) -> Fetching:
        """The fetches of those who take what is of the selection; None: whatever is there.
        Raises TooManySelections; not for one that a consumer has.
        """
        return self._fetching if selection is None else self._selections.use(selection)

    def begin_fetch(
        self, visibility_s: float | None = None, selection: Selection | None = None
    ) -> "asyncio.Future[Delivery | None]":
        """The next message, claimed for `visibility_s`, or, where that is None, for as long as it
        or the queue says; None when nothing is ready.

        Raises TooManySelections; the future QueueNotFound, Unavailable. Whoever no longer waits for
        it says so by `abandon`. Durable once the future is done: yes.
        """
        return self.fetching(selection).begin(visibility_s)

    def abandon(self, future: "asyncio.Future[Delivery | None]") -> None:
        """Whoever asked is gone: what was claimed for it, or is, is released."""
        self._fetching.abandon(future)

    def give_back(self, delivery: Delivery) -> None:
        """Releases, in the background, a message that was claimed for someone who is gone."""
        self._fetching.give_back(delivery)

    async def drain(self) -> None:
        """Waits until nothing goes on here."""
        while tasks := {task for each in self._common.fetchings for task in each.tasks()}:
            await asyncio.wait(tasks)

    # Consumers

    @property
    def is_consumed(self) -> bool:
        """Whether it has consumers, interested or not."""
        return bool(self._consumers)

    @property
    def consumers(self) -> int:
        """How many it has; who waits for a message is one."""
        return len(self._consumers)

    def join(self, interest: Interest) -> None:
        """A consumer comes. Raises TooManySelections; QueueNotFound where the queue is gone."""
        if self.is_gone:
            raise QueueNotFound(self.name.text)
        self._selections.join(interest)
        self._consumers[interest] = None

    def wants(self, interest: Interest) -> None:
        """A consumer would take messages."""
        if interest.state is State.NOT_INTERESTED and not self.is_gone:
            self.tell(self.interests.wants(interest))
            self._host.waits(self)

    def leave(self, interest: Interest) -> None:
        """A consumer goes."""
        self._selections.leave(interest)
        self._consumers.pop(interest, None)
        self.tell(self.interests.stops(interest, Event.CLOSED))

    def used(self) -> None:
        """Messages are asked for that somebody waited for."""
        self._host.used(self)

    def tell(self, notified: Iterable[Interest]) -> None:
        """Tells consumers that it is their turn, one after the other: what they do about it may
        make it others' turn.
        """
        self._told.extend(notified)
        if self._is_telling:
            return
        self._is_telling = True
        try:
            while self._told:
                try:
                    self._told.popleft().was_notified()
                except Exception:
                    _log.exception("a consumer failed", extra={"fields": {"queue": self.name.text}})
        finally:
            self._is_telling = False

    def work(self, selection: Selection | None) -> int:
        """How many messages are known, or may be there, that those of a selection might take and
        nobody has asked for.
        """
        fetching = self._fetching if selection is None else self._selections.find(selection)
        return 0 if fetching is None else fetching.work()

    def check_stalled(self, now_s: float) -> None:
        """Passes over consumers that were notified and do not ask."""
        if self.interests.is_anybody_notified:
            self.tell(self.interests.stalled(now_s))

    def would_hear(self) -> bool:
        """Whether to offer what others bring: to those who wait, and to those who are about to, for
        what came while they looked. Not for ever, when nobody is there who takes it.
        """
        return bool(self.interests) or len(self._fetching.backlog) < OFFERED_UNASKED_MAX

    def missed(self) -> None:
        """Others brought what was not offered."""
        for fetching in self._common.fetchings:
            fetching.backlog.missed()

    def hears_all(self, now_s: float) -> None:
        """All that came to the queue's own folder by now has been told."""
        for fetching in self._common.fetchings:
            if fetching.backlog.is_of_one_folder:
                fetching.backlog.is_as_looked(now_s)

    def fetchings_to_look(self, now_s: float) -> list[Fetching]:
        """Where somebody waits, and nothing is known that they might take."""
        waiting = map(self.fetching, self.interests.waiting)
        return [fetching for fetching in waiting if fetching.backlog.may_look(now_s)]

    def check_life(self) -> None:
        """Raises QueueExpired where it takes and gives nothing any more, as far as is known."""
        settings = self.settings
        if settings.expires_at is not None and is_expired(settings, self._host.root.now_ms()):
            raise QueueExpired(self.name.text, settings.expires_at)

    def end_if_expired(self) -> None:
        """All who wait for a message hear so where the queue has expired."""
        try:
            self.check_life()
        except QueueExpired as error:
            self.failed(error)

    def failed(self, error: MqError) -> None:
        """Looking failed: all consumers hear so."""
        if isinstance(error, QueueNotFound):
            self._host.gone(self)
            return
        for interest in list(self._consumers):
            interest.failed(error)

    def was_forgotten(self) -> None:
        """Its folder is gone: all who wait for a message hear so."""
        self.is_gone = True
        self._fetching.backlog.close()
        self.bodies.close()
        error = QueueNotFound(self.name.text)
        for interest in list(self._consumers):
            interest.failed(error)
        self._selections.close()

    # What becomes of its messages

    def is_candidate(self, message_id: MessageId) -> bool:
        """Whether the message may be the next fetch's, and nobody has asked for it."""
        return self._fetching.backlog.holds(message_id.text)

    def keep(self, message_id: MessageId, held: Held, hand: Hand) -> None:
        """Keeps the body of a candidate that was published."""
        self.bodies.published(message_id, held, hand)

    def publishes(self, ids: Iterable[MessageId], block: bytes) -> None:
        """This process begins to publish these, all with this header block."""
        if len(self._selections):
            self._publishing.update((each.text, block) for each in ids)

    def publish_ended(self, ids: Iterable[MessageId]) -> None:
        """It has, or has failed to."""
        if self._publishing:
            for each in ids:
                self._publishing.pop(each.text, None)

    def heard(self, ids: Sequence[MessageId]) -> None:
        """Messages became ready, as the kernel tells: perhaps of what this process publishes."""
        if not self._publishing:
            self.became_ready(*ids)
            return
        for each in ids:
            block = self._publishing.get(each.text)
            self.became_ready(each, headers=None if block is None else parse_block(block))

    def was_published(
        self, *ids: MessageId, is_ready: bool = True, block: bytes | None = None
    ) -> None:
        """Messages were published by this process's hand, all with this header block."""
        self.totals.published += len(ids)
        if is_ready and (untold := self._host.untold(self, ids)):
            known = None if block is None or not len(self._selections) else parse_block(block)
            self.became_ready(*untold, headers=known)

    def was_rescheduled(
        self, message_id: MessageId, due_in_s: float, attempts: int, given: GivenBack
    ) -> None:
        """A message was given another due time by this process's hand, 0: at once. What was tried
        as often as the queue allows is not ready then, but to be sidelined.
        """
        has_had_them = 0 < self.settings.max_receives <= attempts and not self.name.is_sideline
        is_ready = due_in_s <= 0 and (given is GivenBack.UNHANDLED or not has_had_them)
        if is_ready or given is not GivenBack.NO:
            self.totals.released += 1
        else:
            self.totals.extended += 1
        if is_ready:
            self.became_ready(message_id)

    def became_ready(self, *ids: MessageId, headers: Headers | None = None) -> None:
        """Messages became ready by this process's hand, or another process told of them. `headers`:
        those of their header blocks; None: not known.
        """
        for message_id in ids:
            self._fetching.backlog.offer(message_id)
        if len(self._selections):
            self._offer_to_selections(ids, headers)
        if self.interests:
            self.tell([woken for each in ids for woken in self.interests.arrived(each.text)])

    def was_purged(self) -> None:
        """What is known to be ready is not served any more: the next fetch looks."""
        for each in self._common.fetchings:
            each.backlog.forget()
        self.description = None

    def serves_others(self) -> None:
        """Its messages live longer than before, or not so long: what was passed over may be
        served.
        """
        for each in self._common.fetchings:
            each.forget()

    def _expired(self) -> PurgeMark | None:
        ttl_s = self.settings.message_ttl_s
        up_to_ms = expired_up_to_ms(ttl_s, self._host.root.aged_ms(ttl_s)) if ttl_s else None
        return None if up_to_ms is None else PurgeMark(up_to_ms)

    def _released(self, message_id: MessageId, headers: Headers) -> None:
        self.became_ready(message_id, headers=headers)

    def _offer_to_selections(self, ids: Iterable[MessageId], headers: Headers | None) -> None:
        waiting = self.interests.waiting
        for selection, fetching in self._selections:
            for message_id in ids:
                matches = selection.matches_name(message_id.text)
                if matches is None and headers is not None:
                    matches = selection.matches_headers(message_id.text, headers)
                if matches:
                    fetching.backlog.offer(message_id)
                elif matches is None:
                    fetching.backlog.distrust()
                    if selection in waiting:
                        fetching.look_again()

    def _matches(self, selection: Selection, name: str) -> bool:
        """Whether a message is of a selection; one of which its headers say it, when it was found
        to be.
        """
        matches = selection.matches_name(name)
        if matches is None:
            fetching = self._selections.find(selection)
            return fetching is not None and fetching.backlog.holds(name)
        return matches

    def _holds(self, selection: Selection | None, name: str) -> bool:
        return self.fetching(selection).backlog.holds(name)

    def _looked(self, found: bool) -> None:
        """A look into the folder has ended, or fetches have: what is known may be others' now."""
        if self.interests:
            self.tell(self.interests.goes_on() if found else self.interests.wake())

    def _fetching_of(self, selection: Selection) -> Fetching:
        host = self._host
        looks = SelectedLooks(
            self.name,
            host.root,
            host.committer,
            host.peers,
            host.peer_index,
            selection,
            host.shared,
        )
        # Bodies are kept of those that whoever takes anything may have.
        watched = Watched(host.ids, None, SELECTED_IDS_MAX)
        return Fetching(self._common, looks, Backlog(host.peers, host.peer_index, watched))
