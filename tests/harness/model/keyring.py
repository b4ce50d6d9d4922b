"""What keys must say: the links of lookup and idempotency keys, by operations alone."""

import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mq.model.clock import Clock
from mq.model.limits import FORGOTTEN_AFTER_S
from mq.model.names import Key, MessageId, QueueName
from mq.store.disk.files import Files

_NS_PER_MS = 1_000_000


class ClockedFiles(Files):
    """A disk whose kernel has the test's clock where mq asks it for the time: a link is as old as
    its own mtime, which mq never sets.
    """

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def link(self, path: str, target: str) -> None:
        super().link(path, target)
        now_ns = self._clock.now_ms() * _NS_PER_MS
        os.utime(path, ns=(now_ns, now_ns), follow_symlinks=False)


@dataclass
class Link:
    """What a link says, and since when."""

    queue: QueueName
    target: str
    made_ms: int

    def is_young(self, now_ms: int, for_s: float) -> bool:
        return now_ms - self.made_ms < for_s * 1000


Links = dict[str, Link]
"""By `{queue}/{key}`."""


@dataclass
class Keyring:
    """The links of both kinds."""

    lookup: Links = field(default_factory=dict)
    idempotency: Links = field(default_factory=dict)

    def linked(self, queue: QueueName, key: Key) -> str | None:
        """What the lookup key's link says."""
        link = self.lookup.get(f"{queue}/{key.written()}")
        return None if link is None else link.target

    def first(self, queue: QueueName, key: Key, now_ms: int, for_s: float) -> str | None:
        """The earlier publish of an idempotency key that a repeat gets."""
        link = self.idempotency.get(f"{queue}/{key.written()}")
        return link.target if link is not None and link.is_young(now_ms, for_s) else None

    def taken(
        self, queue: QueueName, message_id: MessageId, idempotency: Key | None, now_ms: int
    ) -> None:
        """A message was published."""
        link = Link(queue, message_id.text, now_ms)
        if message_id.key is not None:
            self.lookup[f"{queue}/{message_id.key.written()}"] = link
        if idempotency is not None:
            self.idempotency[f"{queue}/{idempotency.written()}"] = link

    def free(self, queue: QueueName, message_id: MessageId) -> None:
        """A message was removed for good."""
        if message_id.key is not None and self.linked(queue, message_id.key) == message_id.text:
            del self.lookup[f"{queue}/{message_id.key.written()}"]

    def drop(self, queue: QueueName) -> None:
        """Its queue was deleted."""
        for links in (self.lookup, self.idempotency):
            for name in [name for name, link in links.items() if link.queue == queue]:
                del links[name]

    def swept(
        self, alive: Collection[str], idempotency_s: Mapping[QueueName, float], now_ms: int
    ) -> None:
        """A sweeper has passed; `alive` are the living messages' names, as in delay/."""
        for name, link in list(self.lookup.items()):
            is_orphan = f"{link.queue}:{link.target}" not in alive
            if is_orphan and not link.is_young(now_ms, FORGOTTEN_AFTER_S):
                del self.lookup[name]
        for name, link in list(self.idempotency.items()):
            if not link.is_young(now_ms, idempotency_s[link.queue]):
                del self.idempotency[name]

    def on_disk(self) -> dict[str, dict[str, str]]:
        """What `links_below` must find of each kind."""
        return {
            "keys": {name: link.target for name, link in self.lookup.items()},
            "idempotency": {name: link.target for name, link in self.idempotency.items()},
        }


def links_below(root: Path) -> dict[str, dict[str, str]]:
    """What the links of each kind say, by `{queue}/{key}`."""
    return {kind: dict(_links(root / "queues", kind)) for kind in ("keys", "idempotency")}


def _links(queues: Path, kind: str) -> Iterator[tuple[str, str]]:
    for path in queues.glob(f"*/.{kind}/*/*"):
        if not path.name.startswith("."):
            yield f"{path.parts[-4]}/{path.name}", os.readlink(path)
