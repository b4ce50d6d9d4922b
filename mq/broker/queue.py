"""One queue in one process: its fetches, what becomes ready, and what its counts were."""

import asyncio
import random

from mq.broker.accounts import UNSEEN, Description, Totals
from mq.broker.backlog import Backlog
from mq.broker.bodies import Bodies, Watched
from mq.broker.fetching import Fetching
from mq.broker.ids import Ids
from mq.broker.looks import Looks
from mq.broker.memory import Hand, Memory
from mq.message import Delivery, Held
from mq.names import MessageId, QueueName
from mq.settings import QueueSettings
from mq.store.commit import Committer
from mq.store.root import Root


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
        peer_index: int,
        memory: Memory,
        ids: Ids,
    ) -> None:
        self.name = name
        self.settings = settings
        self.seen = UNSEEN
        self.totals = Totals()
        self._root = root
        self._committer = committer
        self.bodies = Bodies(name, memory)
        self._backlog = Backlog(peers=peers, own=peer_index, watcher=Watched(ids, self.bodies))
        self._fetching = Fetching(
            name,
            root,
            committer,
            Looks(name, root, committer, peers, peer_index),
            self._backlog,
            chance,
            self.totals,
            lambda: self.settings.visibility_s,
            self.became_ready,
            self.bodies,
        )
        self._arrival = asyncio.Event()
        self.description: Description | None = None

    def begin_fetch(self, visibility_s: float | None = None) -> "asyncio.Future[Delivery | None]":
        """The next message, claimed for `visibility_s`, or, where that is None, for as long as it
        or the queue says; None when nothing is ready.

        Raises QueueNotFound, Unavailable. Whoever no longer waits for it says so by `abandon`.
        Durable once the future is done: yes.
        """
        return self._fetching.begin(visibility_s)

    def abandon(self, future: "asyncio.Future[Delivery | None]") -> None:
        """Whoever asked is gone: what was claimed for it, or is, is released."""
        self._fetching.abandon(future)

    def give_back(self, delivery: Delivery) -> None:
        """Releases, in the background, a message that was claimed for someone who is gone."""
        self._fetching.give_back(delivery)

    async def drain(self) -> None:
        """Waits until nothing goes on here."""
        while tasks := self._fetching.tasks():
            await asyncio.wait(tasks)

    def keep(self, message_id: MessageId, held: Held, hand: Hand) -> None:
        """Keeps the body of a message that was published, and is to be told of now."""
        self.bodies.published(message_id, held, hand, self._backlog)

    def was_published(self, *ids: MessageId, is_ready: bool = True) -> None:
        """Messages were published by this process's hand."""
        self.totals.published += len(ids)
        if is_ready:
            self.became_ready(*ids)

    def was_rescheduled(self, message_id: MessageId, due_in_s: float) -> None:
        """A message was given another due time by this process's hand, 0: at once."""
        if due_in_s > 0:
            self.totals.extended += 1
        else:
            self.totals.released += 1
            self.became_ready(message_id)

    def became_ready(self, *ids: MessageId) -> None:
        """Messages became ready by this process's hand."""
        for message_id in ids:
            self._backlog.offer(message_id)
        self.arrived()

    def was_purged(self) -> None:
        """What is known to be ready is not served any more: the next fetch looks."""
        self._backlog.forget()
        self.description = None

    def next_arrival(self) -> asyncio.Event:
        """Set when a message becomes ready by this process's hand from here on."""
        return self._arrival

    def arrived(self) -> None:
        """All who wait for a message look again."""
        self._arrival.set()
        self._arrival = asyncio.Event()
