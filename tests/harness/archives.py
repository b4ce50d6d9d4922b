"""A root that is archived, and what a job does that keeps only the names."""

import os
from pathlib import Path

from harness.leases import QUEUE, LeasingRoot
from mq.model.names import MessageId, QueueName, UuidSource
from mq.store.archive.archiving import ArchiveMark, begin_batch, enable, stored
from mq.store.archive.ledger import ArchiveBatch
from mq.store.archive.reaping import StoredReaping
from mq.store.leases.lease import acknowledge
from mq.store.operations.queues import delete_queue
from mq.store.operations.remove import remove
from mq_reaper.reaper import Reaper

TO = "/srv/archive"
OTHER = QueueName.parse("other")


class ArchivingRoot(LeasingRoot):
    """A root with the queue `q`, messages that come to remove/ in every way, and its archive."""

    def enable(self, to: str = TO) -> ArchiveMark:
        return enable(self.root, self.flusher, to, self.clock.now_ms())

    def begin(self, limit: int = 1000) -> ArchiveBatch | None:
        return begin_batch(self.root, self.flusher, limit)

    def begun(self, limit: int = 1000) -> ArchiveBatch:
        batch = self.begin(limit)
        assert batch is not None
        return batch

    def store(self, limit: int = 1000) -> list[str]:
        """One batch, begun and stored; its names."""
        batch = self.begun(limit)
        names = self.names(batch)
        stored(self.root, self.flusher, batch)
        return names

    def names(self, batch: ArchiveBatch) -> list[str]:
        names = list(batch.names(self.files))
        assert len(names) == batch.messages
        return names

    def remove(self, count: int = 1, queue: QueueName = QUEUE) -> list[str]:
        """So many that are published and deleted, by their paths below remove/."""
        return [self.take(message_id, queue) for message_id in self.publish(count, queue)]

    def take(self, message_id: MessageId, queue: QueueName = QUEUE) -> str:
        assert self.run(remove(self.root, queue, message_id))
        (path,) = (name for name in self.removed() if name.endswith(f":{message_id.text}"))
        return path

    def delete(self, queue: QueueName) -> None:
        self.run(delete_queue(self.root, queue, UuidSource(self.clock).next()))

    def acknowledge(self, limit: int = 1000) -> None:
        self.run(acknowledge(self.root, self.claimed(limit).name))

    def removed(self) -> list[str]:
        """The paths below remove/ of all files there, in the order of ledgers."""
        top = self.top / "remove"
        found = (Path(folder, name) for folder, _, names in os.walk(top) for name in names)
        return sorted((str(path.relative_to(top)) for path in found), key=lambda p: p.split("/"))

    def reaper(self, keep_s: float = 0, late_s: float = 3600) -> Reaper:
        return Reaper(self.files, self.clock, self.root.layout.remove, keep_s, late_s)

    def reap(self, reaper: Reaper | None = None) -> int:
        """Passes until one finds nothing; how many names went."""
        reaper, went = reaper or self.reaper(), 0
        self.pass_s(10)  # The files' times are the machine's.
        while now := reaper.run_once():
            went += now
            self.pass_s(1)
        return went

    def reaping(self, keep_ms: int = 0) -> StoredReaping:
        return StoredReaping(self.root, keep_ms)

    def ledgers(self) -> list[str]:
        return sorted(path.name for path in (self.top / "archive").glob("[0-9]*"))
