"""What a root must hold, by its operations alone: the model of `broker/test_broker_model.py`.

Each operation of the interface is one method, which says what is to come of it and changes the
model; whoever adds an operation adds a method here and a rule there. What keys mean is in
`keyring.py`.
"""

from collections.abc import Collection
from dataclasses import dataclass, field

from harness.model.keyring import Keyring
from mq.model.errors import DeliveredAgain, KeyNotFound, MessageNotFound, MqError, QueueNotFound
from mq.model.headers import Headers
from mq.model.message import Stamp
from mq.model.names import Key, MessageId, QueueName
from mq.model.settings import QueueSettings
from mq.store.operations.purge import PURGE_MARK_KEPT_S

READY, DELAYED, REMOVED = "queues", "delay", "remove"
WHOLE = "whole"
"""In remove/, in a folder that went there as one."""
ALIVE = (READY, DELAYED)


@dataclass
class Known:
    """What the model knows of a message; `due_ms` says something of what is in delay/."""

    queue: QueueName
    id: MessageId
    body: bytes
    headers: Headers
    folder: str
    due_ms: int
    receives: int = 0


@dataclass
class Model:
    """The queues, and every message that anything is left of, by its name in delay/."""

    defaults: QueueSettings
    queues: dict[QueueName, QueueSettings] = field(default_factory=dict)
    messages: dict[str, Known] = field(default_factory=dict)
    marks_ms: dict[QueueName, int] = field(default_factory=dict)
    """Up to when queues were purged."""
    keys: Keyring = field(default_factory=Keyring)

    def find(self, queue: QueueName, message_id: MessageId) -> Known | None:
        return self.messages.get(f"{queue}:{message_id}")

    def is_purged(self, each: Known) -> bool:
        return each.id.published_ms <= self.marks_ms.get(each.queue, -1)

    def lives(self, each: Known | None) -> bool:
        return each is not None and each.folder in ALIVE and not self.is_purged(each)

    def within(self, queue: QueueName, folder: str) -> list[Known]:
        """The queue's messages of one folder that are shown there, in the order of delivery."""
        found = [
            each
            for each in self.messages.values()
            if each.queue == queue and each.folder == folder
            if self.lives(each) or folder == REMOVED
        ]
        return sorted(found, key=lambda each: (-each.id.priority, each.id.text))

    def entries(self) -> dict[str, list[str]]:
        """What `message_files`, and whoever looks into the folders that went as one, must find."""
        found: dict[str, list[str]] = {"new": [], READY: [], DELAYED: [], REMOVED: [], WHOLE: []}
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

    # Queues.

    def create(self, queue: QueueName) -> bool:
        """Whether it is made."""
        made = queue not in self.queues
        self.queues.setdefault(queue, self.defaults)
        return made

    def drop(self, queue: QueueName) -> type[MqError] | None:
        """What a queue's deletion must raise; None: it is deleted."""
        if queue not in self.queues:
            return QueueNotFound
        del self.queues[queue]
        self.marks_ms.pop(queue, None)
        self.keys.drop(queue)
        for each in self.messages.values():
            if each.queue == queue and each.folder in ALIVE:
                each.folder = WHOLE if each.folder == READY else REMOVED
        return None

    def purge(self, queue: QueueName, mark_ms: int) -> None:
        self.marks_ms[queue] = max(mark_ms, self.marks_ms.get(queue, -1))

    def take_purged(self, queue: QueueName, whole: Collection[str]) -> bool:
        """What is purged is taken away, `whole` being what is in folders that went as one. Whether
        any went by itself.
        """
        alone = False
        for name, each in self.messages.items():
            if each.queue == queue and each.folder in ALIVE and self.is_purged(each):
                assert name not in whole or each.folder == READY
                each.folder = WHOLE if name in whole else REMOVED
                alone = alone or each.folder == REMOVED
        return alone

    # Messages.

    def published(
        self,
        queue: QueueName,
        message_id: MessageId,
        body: bytes,
        headers: Headers,
        due_ms: int,
        now_ms: int,
    ) -> None:
        assert message_id.published_ms > self.marks_ms.get(queue, -1)
        folder = DELAYED if due_ms > now_ms else READY
        known = Known(queue, message_id, body, headers, folder, due_ms)
        assert self.find(queue, message_id) is None
        self.messages[f"{queue}:{message_id}"] = known

    def fetch(self, queue: QueueName, visibility_s: float | None, now_ms: int) -> Known | None:
        """The message that a fetch must give, as it is then."""
        if not (ready := self.within(queue, READY)):
            return None
        taken = ready[0]
        of_queue_s = self.queues[queue].visibility_s
        shown_s = visibility_s or taken.id.visibility_s or of_queue_s
        taken.folder, taken.due_ms = DELAYED, now_ms + round(shown_s * 1000)
        taken.receives += 1
        return taken

    def remove(
        self, queue: QueueName, message_id: MessageId, receives: int | None
    ) -> type[MqError] | None:
        """What a delete must raise; None: it is done, or was."""
        known = self.find(queue, message_id)
        refusal = self._refusal(queue, known, receives)
        if known is not None and known.folder == REMOVED and queue in self.queues:
            refusal = MessageNotFound if self.is_purged(known) else None
        if refusal is None and known is not None:
            known.folder = REMOVED
            self.keys.free(queue, message_id)
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

    def read(
        self, queue: QueueName, message_id: MessageId, with_removed: bool
    ) -> type[MqError] | Known:
        """The message that a read must give, or what it must raise."""
        if queue not in self.queues:
            return QueueNotFound
        known = self.find(queue, message_id)
        if known is None or not (self.lives(known) or known.folder == REMOVED):
            return MessageNotFound
        return MessageNotFound if known.folder == REMOVED and not with_removed else known

    def holder(self, queue: QueueName, key: Key) -> Known | None:
        """The living message that has the key."""
        linked = self.keys.linked(queue, key)
        known = None if linked is None else self.messages.get(f"{queue}:{linked}")
        return known if self.lives(known) else None

    def remove_key(self, queue: QueueName, key: Key, receives: int | None) -> type[MqError] | None:
        """What a delete by key must raise; None: it is done, or was."""
        if queue not in self.queues:
            return QueueNotFound
        linked = self.keys.linked(queue, key)
        if linked is None:
            return KeyNotFound
        refusal = self.remove(queue, MessageId.parse(linked), receives)
        return KeyNotFound if refusal is MessageNotFound else refusal

    # The daemons.

    def time_is(self, now_ms: int) -> None:
        """A mover has brought back what is due."""
        for each in self.messages.values():
            if each.folder == DELAYED and each.due_ms <= now_ms:
                each.folder = REMOVED if self.is_purged(each) else READY

    def swept(self, whole: Collection[str], now_ms: int) -> None:
        """A sweeper has passed."""
        for queue, mark_ms in list(self.marks_ms.items()):
            met = self.take_purged(queue, whole)
            if not met and now_ms - mark_ms >= PURGE_MARK_KEPT_S * 1000:
                del self.marks_ms[queue]
        idempotency_s = {queue: each.idempotency_s for queue, each in self.queues.items()}
        self.keys.swept(self.names_alive(), idempotency_s, now_ms)

    def reaped(self) -> None:
        """Nothing is left of what was removed."""
        for name, each in list(self.messages.items()):
            if each.folder == REMOVED:
                self.keys.free(each.queue, each.id)
            if each.folder not in ALIVE:
                del self.messages[name]

    def names_alive(self) -> frozenset[str]:
        """The living messages' names, as in delay/."""
        return frozenset(name for name, each in self.messages.items() if self.lives(each))

    def _refusal(
        self, queue: QueueName, known: Known | None, receives: int | None
    ) -> type[MqError] | None:
        if queue not in self.queues:
            return QueueNotFound
        if known is None or not self.lives(known):
            return MessageNotFound
        return DeliveredAgain if receives not in (None, known.receives) else None
