"""One connection of `/-/consume`: commands in, frames out, and its end. Pure.

What it may have, holds and gets next is decided by the same session as the server's.
"""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from mq.client.fake.asked import problem_item
from mq.client.fake.fetching import check_selection
from mq.client.fake.settling import give_back, remove, reschedule, sideline
from mq.client.fake.world import World
from mq.model.errors import MqError
from mq.model.message import Delivery, GivenBack, Reason
from mq.model.names import QueueName
from mq.model.selection import Selection
from mq.protocol.consume.errors import BadFrame
from mq.protocol.consume.frames import (
    Begin,
    Command,
    Grant,
    Settle,
    Subscribe,
    Unsubscribe,
    Verb,
    Wanted,
    header_frame,
    parse,
    problem_frame,
    results_frame,
    unsubscribed_frame,
)
from mq.protocol.consume.limits import CLAIMED_AHEAD_MAX, COMMAND_BYTES_MAX, TURN_MESSAGES_MIN
from mq.protocol.consume.session import Session

_OK: Final = 200
_STATUSES: Final = {Verb.ACK: 202, Verb.RELEASE: 200, Verb.SIDELINE: 200}


class Subscription:
    """One queue's messages are wanted."""

    def __init__(
        self, connection: "Connection", wanted: Wanted, selection: Selection | None
    ) -> None:
        self.priority = wanted.priority
        self.selection = selection
        self.visibility_s = wanted.visibility_s
        self._queue = wanted.queue
        self._connection = connection

    @property
    def wants(self) -> bool:
        """Whether another message may come."""
        return self._connection.has_room(self._queue)

    def take(self, delivery: Delivery) -> None:
        """A message was claimed for it."""
        self._connection.arrived(delivery)

    def failed(self, error: MqError) -> None:
        """The queue is gone, or has expired."""
        self._connection.lost(self._queue, error)


class Connection:
    """A client that consumes, from its beginning to its end."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._session = Session()
        self._subscriptions: dict[str, Subscription] = {}
        self._ahead: dict[str, int] = {}
        """How many messages of each queue are claimed and not sent."""
        self._out: deque[str | bytes] = deque()
        self.is_over = False
        """Whether nothing is sent or heard any more."""

    # What goes out

    def next(self) -> str | bytes | None:
        """The next frame for the client; None: there is nothing now."""
        if not self._out and not self.is_over:
            self._send()
        return self._out.popleft() if self._out else None

    def _send(self) -> None:
        delivery, lapsed = self._session.next_unsent(self._world.now_ms())
        for each in (*lapsed, *([] if delivery is None else [delivery])):
            self._ahead[each.queue.text] -= 1
        if delivery is not None:
            self._session.sent(delivery)
            self._out += (header_frame(delivery).decode("ascii"), delivery.body or b"")
        if delivery is not None or lapsed:
            self._claim(self._session.queues)

    # What comes in

    def hear(self, text: str) -> None:
        """Does what a frame of the client says. What is no JSON at all ends the connection."""
        if self.is_over:
            return
        if len(text.encode(errors="replace")) > COMMAND_BYTES_MAX:
            self.end()
            return
        try:
            command = parse(text)
        except BadFrame as error:
            self._answer(problem_frame(error.ref, problem_item(error)))
            if not error.is_json:
                self.end()
            return
        self._do(command)

    def _do(self, command: Command) -> None:
        match command.does:
            case Subscribe(wanted):
                ends = [(each.queue, _error(partial(self._subscribe, each))) for each in wanted]
                self._done(command, "queue", ends)
                self._claim([each.queue for each in wanted])
            case Unsubscribe(queues):
                ends = [(each, _error(partial(self._unsubscribe, each))) for each in queues]
                self._done(command, "queue", ends)
            case Grant(credit):
                ends = [
                    (each, _error(partial(self._grant, each, more)))
                    for each, more in credit.items()
                ]
                self._done(command, "queue", ends)
                self._claim(list(credit))
            case Settle() as asked:
                self._done(command, "id", self._settle(asked), _STATUSES[asked.verb])
            case Begin(ids):
                self._session.begin(ids)

    def _subscribe(self, wanted: Wanted) -> None:
        name = QueueName.parse(wanted.queue)
        selection = None if wanted.select is None else Selection.parse(wanted.select)
        self._session.subscribe(name.text, wanted.credit, self._world.now_ms())
        try:
            queue = self._world.queue(name)
            queue.check_life(self._world.now_ms())
            check_selection(queue, selection)
        except MqError:
            self._session.unsubscribe(name.text)
            raise
        subscription = Subscription(self, wanted, selection)
        self._subscriptions[name.text] = subscription
        queue.takers.join(subscription)

    def _unsubscribe(self, queue: str) -> None:
        self._session.unsubscribe(queue)
        self._leave(queue)

    def _grant(self, queue: str, credit: int) -> None:
        self._session.grant(queue, credit, self._world.now_ms())

    def _settle(self, asked: Settle) -> list[tuple[str, MqError | None]]:
        ends: dict[str, MqError | None] = {}
        for text, held in self._session.settle(asked.ids).items():
            if isinstance(held, Delivery):
                ends[text] = _error(partial(self._act, asked, held))
                self._session.settled(held, is_kept=False)
            else:
                ends[text] = held
        return [(text, ends[text]) for text in asked.ids]

    def _act(self, asked: Settle, held: Delivery) -> None:
        def is_its(receives: int) -> bool:
            return receives == held.stamp.receives

        world = self._world
        match asked.verb:
            case Verb.ACK:
                remove(world, world.queue(held.queue), held.id, is_its)
            case Verb.RELEASE:
                queue = world.queue(held.queue)
                given = GivenBack.UNHANDLED if asked.unhandled else GivenBack.YES
                reschedule(world, queue, held.id, 0, is_its, given)
            case Verb.SIDELINE:
                sideline(world, held.queue, held.id, Reason.REJECTED, is_its)

    def _done(
        self,
        command: Command,
        what: str,
        ends: Sequence[tuple[str, MqError | None]],
        status: int = _OK,
    ) -> None:
        results: list[dict[str, object]] = []
        for text, error in ends:
            result: dict[str, object] = {what: text, "status": status}
            if error is not None:
                problem = problem_item(error)
                result |= {"status": problem["status"], "problem": problem}
            results.append(result)
        self._answer(results_frame(command.ref, results))

    def _answer(self, text: bytes) -> None:
        self._out.append(text.decode("ascii"))

    # Its queues

    def has_room(self, queue: str) -> bool:
        """Whether another message of the queue may be claimed: it has credit, and not too many wait
        to be sent.
        """
        share = max(TURN_MESSAGES_MIN, CLAIMED_AHEAD_MAX // max(1, len(self._subscriptions)))
        waiting = self._ahead.get(queue, 0)
        return not self.is_over and waiting < share and self._session.credit(queue) > 0

    def arrived(self, delivery: Delivery) -> None:
        """A message was claimed for the client."""
        queue = delivery.queue.text
        self._session.arrived(delivery)
        self._ahead[queue] = self._ahead.get(queue, 0) + 1

    def lost(self, queue: str, error: MqError) -> None:
        """Nothing more comes of a queue: the client is told."""
        if queue in self._subscriptions:
            self._unsubscribe(queue)
            self._answer(unsubscribed_frame(queue, problem_item(error)))

    def _claim(self, queues: Sequence[str]) -> None:
        for name in queues:
            queue = self._world.queues.get(name)
            if queue is not None and name in self._subscriptions:
                self._world.serve(queue)

    def _leave(self, queue: str) -> None:
        subscription = self._subscriptions.pop(queue, None)
        found = self._world.queues.get(queue)
        if found is not None and subscription is not None:
            found.takers.leave(subscription)

    def end(self) -> None:
        """The connection is gone, or is about to: what the client holds is released."""
        if self.is_over:
            return
        self.is_over = True
        for name in list(self._subscriptions):
            self._leave(name)
        begun, unhandled = self._session.end()
        for delivery in begun:
            give_back(self._world, delivery, unhandled=False)
        for delivery in unhandled:
            give_back(self._world, delivery, unhandled=True)


def _error(act: Callable[[], None]) -> MqError | None:
    try:
        act()
    except MqError as error:
        return error
    return None
