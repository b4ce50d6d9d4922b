"""What a root must hold, by its operations alone: the model of `broker/test_model.py`.

Each operation of the interface is one method, which says what is to come of it and changes the
model; whoever adds an operation adds a method here and a rule there.
"""

from dataclasses import dataclass, field

from mq.errors import DeliveredAgain, MessageNotFound, MqError, QueueNotFound
from mq.message import Stamp
from mq.names import MessageId, QueueName

READY, DELAYED, REMOVED = "queues", "delay", "remove"


@dataclass
class Known:
    """What the model knows of a message; `due_ms` says something of what is in delay/."""

    queue: QueueName
    id: MessageId
    body: bytes
    folder: str
    due_ms: int
    receives: int = 0


@dataclass
class Model:
    """The queues, and every message that anything is left of, by its name in delay/."""

    visibility_s: float
    queues: set[QueueName] = field(default_factory=set)
    messages: dict[str, Known] = field(default_factory=dict)

    def find(self, queue: QueueName, message_id: MessageId) -> Known | None:
        return self.messages.get(f"{queue}:{message_id}")

    def within(self, queue: QueueName, folder: str) -> list[Known]:
        """The queue's messages of one folder, in the order of delivery."""
        found = [each for each in self.messages.values() if each.queue == queue]
        return sorted(
            (each for each in found if each.folder == folder),
            key=lambda each: (-each.id.priority, each.id.text),
        )

    def entries(self) -> dict[str, list[str]]:
        """What `message_files` must find."""
        found: dict[str, list[str]] = {"new": [], READY: [], DELAYED: [], REMOVED: []}
        for name, each in sorted(self.messages.items()):
            found[each.folder].append(name)
        return found

    def stamps(self) -> dict[str, Stamp]:
        """What lies in delay/ says of itself."""
        return {
            name: Stamp(each.due_ms, each.receives)
            for name, each in self.messages.items()
            if each.folder == DELAYED
        }

    # Operations.

    def create(self, queue: QueueName) -> bool:
        """Whether it is made."""
        made = queue not in self.queues
        self.queues.add(queue)
        return made

    def drop(self, queue: QueueName) -> type[MqError] | None:
        """What a queue's deletion must raise; None: it is deleted."""
        if queue not in self.queues:
            return QueueNotFound
        self.queues.remove(queue)
        for name, each in list(self.messages.items()):
            if each.queue == queue and each.folder == READY:
                del self.messages[name]  # Its folder went as one.
            elif each.queue == queue:
                each.folder = REMOVED
        return None

    def published(
        self, queue: QueueName, message_id: MessageId, body: bytes, due_ms: int, now_ms: int
    ) -> None:
        folder = DELAYED if due_ms > now_ms else READY
        known = Known(queue, message_id, body, folder, due_ms)
        self.messages[f"{queue}:{message_id}"] = known

    def fetch(self, queue: QueueName, visibility_s: float | None, now_ms: int) -> Known | None:
        """The message that a fetch must give, as it is then."""
        if not (ready := self.within(queue, READY)):
            return None
        taken = ready[0]
        shown_s = visibility_s or taken.id.visibility_s or self.visibility_s
        taken.folder, taken.due_ms = DELAYED, now_ms + round(shown_s * 1000)
        taken.receives += 1
        return taken

    def remove(
        self, queue: QueueName, message_id: MessageId, receives: int | None
    ) -> type[MqError] | None:
        """What a delete must raise; None: it is done, or was."""
        known = self.find(queue, message_id)
        if known is not None and known.folder == REMOVED and queue in self.queues:
            return None
        refusal = self._refusal(queue, known, receives)
        if refusal is None and known is not None:
            known.folder = REMOVED
        return refusal

    def reschedule(
        self,
        queue: QueueName,
        message_id: MessageId,
        due_in_s: float,
        receives: int | None,
        now_ms: int,
    ) -> type[MqError] | None:
        """What a PATCH must raise; None: it is done."""
        known = self.find(queue, message_id)
        refusal = self._refusal(queue, known, receives)
        if refusal is None and known is not None and (due_in_s > 0 or known.folder == DELAYED):
            known.folder = DELAYED if due_in_s > 0 else READY
            known.due_ms = now_ms + round(due_in_s * 1000)
        return refusal

    def time_is(self, now_ms: int) -> None:
        """A mover has brought back what is due."""
        for each in self.messages.values():
            if each.folder == DELAYED and each.due_ms <= now_ms:
                each.folder = READY

    def reaped(self) -> None:
        """Nothing is left of what was removed."""
        kept = {name: each for name, each in self.messages.items() if each.folder != REMOVED}
        self.messages = kept

    def _refusal(
        self, queue: QueueName, known: Known | None, receives: int | None
    ) -> type[MqError] | None:
        if queue not in self.queues:
            return QueueNotFound
        if known is None or known.folder == REMOVED:
            return MessageNotFound
        return DeliveredAgain if receives not in (None, known.receives) else None
