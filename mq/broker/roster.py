"""The consumers of a queue in all processes of one mq, and the end of a consumer by request."""

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from mq.broker.consumers import Consumer
from mq.broker.queue import Queue
from mq.model.clock import rfc3339
from mq.model.errors import ConsumerEnded, ConsumerNotFound
from mq.model.names import QueueName
from mq.runtime.exchange import Exchange

# Consumers of one queue that a process lists, and rows in one part of its answer to others: the
# longest selections and names of callers fit a datagram.
CONSUMERS_LISTED_MAX: Final = 1000
_ROWS_PER_PART: Final = 10
_SEPARATOR: Final = "-"
_TOKEN_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class Listed:
    """A queue's consumers, as rows for JSON. `complete`: all processes answered in time, with all
    of theirs.
    """

    consumers: Sequence[Mapping[str, Any]]
    complete: bool


class Roster:
    """One process's consumers, for requests to any process. Use it on the event loop's thread."""

    def __init__(self, used: Callable[[str], Queue | None], index: int, exchange: Exchange) -> None:
        """`used`: the queue of a name that this process has used."""
        self._used = used
        self._index = index
        self._exchange = exchange
        # A prefix of the ids, so that ids of an earlier process match no consumer.
        self._token = secrets.token_hex(_TOKEN_BYTES)

    def begin(self) -> None:
        """Answers other processes from here on."""
        self._exchange.begin(self._answer)

    def end(self) -> None:
        self._exchange.end()

    async def consumers(self, name: QueueName) -> Listed:
        """The queue's consumers in all processes, the oldest first."""
        parts, all_answered = await self._exchange.ask({"consumers_of": name.text})
        rows = self._rows(name.text)
        complete = all_answered and len(rows) <= CONSUMERS_LISTED_MAX
        rows = rows[:CONSUMERS_LISTED_MAX]
        for part in parts:
            rows += part["rows"]
            complete = complete and part["complete"]
        return Listed(sorted(rows, key=lambda row: (row["since"], row["id"])), complete)

    async def end_consumer(self, name: QueueName, consumer: str) -> None:
        """Ends one of the queue's consumers, in any process. On return its messages are released,
        unless the storage takes longer than a moment. Raises ConsumerNotFound.
        """
        if await self._end_own(name.text, consumer):
            return
        parts, _ = await self._exchange.ask({"end": consumer, "of": name.text})
        if not any(part["was_there"] for part in parts):
            raise ConsumerNotFound(consumer)

    async def others_give_turn(self, name: QueueName, consumer: str) -> bool:
        """Asks the other processes to give back the queue's turn, if their active consumer is this
        one and it no longer polls there. Whether one did.
        """
        parts, _ = await self._exchange.ask({"turn_at": name.text, "to": consumer})
        return any(part["gave"] for part in parts)

    async def _answer(self, question: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
        if "turn_at" in question:
            queue = self._used(question["turn_at"])
            active = None if queue is None else queue.active
            return [{"gave": active is not None and await active.yields(question["to"])}]
        if "end" in question:
            return [{"was_there": await self._end_own(question["of"], question["end"])}]
        rows = self._rows(question["consumers_of"])
        complete = len(rows) <= CONSUMERS_LISTED_MAX
        rows = rows[:CONSUMERS_LISTED_MAX]
        firsts = range(0, max(1, len(rows)), _ROWS_PER_PART)
        return [{"rows": rows[at : at + _ROWS_PER_PART], "complete": complete} for at in firsts]

    def _own(self, queue: str) -> list[Consumer]:
        found = self._used(queue)
        members = [] if found is None else found.members
        return [each for each in members if isinstance(each, Consumer)]

    def _rows(self, queue: str) -> list[dict[str, Any]]:
        return [self._row(each) for each in self._own(queue)]

    def _row(self, consumer: Consumer) -> dict[str, Any]:
        origin = consumer.terms.origin
        seen = None if origin is None else asdict(origin.seen(consumer.queue.name.text))
        root = consumer.queue.root
        return {
            "id": f"{self._token}{_SEPARATOR}{consumer.serial}",
            "process": self._index,
            **(seen or {"via": "poll", "address": "", "caller": None, "in_flight": 0}),
            "since": rfc3339(consumer.since_ms),
            "priority": consumer.priority,
            "active": consumer.is_active,
            "credit": max(0, consumer.credit + consumer.in_flight),
            "select": None if consumer.selection is None else consumer.selection.text,
            "delivered": consumer.delivered,
            "deliveries_per_s": round(consumer.rate(root.clock.steady_s()), 3),
        }

    async def _end_own(self, queue: str, consumer: str) -> bool:
        token, _, serial = consumer.partition(_SEPARATOR)
        if token != self._token:
            return False
        for each in self._own(queue):
            if str(each.serial) == serial:
                each.failed(ConsumerEnded(queue))
                if each.terms.origin is not None:
                    await each.terms.origin.released()
                return True
        return False
