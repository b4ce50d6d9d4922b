"""Settings, frozen once read: a queue's, and the daemon's.

Floor 0. Seconds and bytes stand in the names.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from mq.limits import (
    BODY_BYTES_MAX_DEFAULT,
    BODY_IDLE_S_DEFAULT,
    DRAIN_S_DEFAULT,
    FOLDER_FILES_MAX,
    IDEMPOTENCY_S_DEFAULT,
    PEERS_DEFAULT,
    VISIBILITY_S_DEFAULT,
)

CommitMode = Literal["auto", "fsync", "syncfs"]
Durability = Literal["media", "none"]


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """A queue's settings but for its shape, which is fixed when it is made."""

    visibility_s: float = VISIBILITY_S_DEFAULT
    priority_default: int = 0
    idempotency_s: float = IDEMPOTENCY_S_DEFAULT
    body_bytes_max: int = BODY_BYTES_MAX_DEFAULT

    def as_json(self) -> dict[str, object]:
        """The effective values, by field."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """What one mq process is told by its flags and environment. With more than one of
    `processes` it is the one with this index among them, under a supervisor.
    """

    root: Path
    address: str = "127.0.0.1"
    port: int = 8080
    workers: int = 8
    processes: int = 1
    process_index: int = 0
    peers: int = PEERS_DEFAULT
    commit: CommitMode = "auto"
    durability: Durability = "media"
    force: bool = False
    reserve_bytes: int | None = None
    body_idle_s: float = BODY_IDLE_S_DEFAULT
    drain_s: float = DRAIN_S_DEFAULT
    folder_max: int = FOLDER_FILES_MAX
    peer_index: int | None = None
    """Whose share of the messages a process with peers begins with; None: one that it draws."""
    queue: QueueSettings = QueueSettings()

    @property
    def is_supervised(self) -> bool:
        """Whether a supervisor started the process and ends it."""
        return self.processes > 1
