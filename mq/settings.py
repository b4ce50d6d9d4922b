"""Settings, frozen once read: a queue's, and the daemon's; and how a queue's are changed: pure.

Floor 0. Seconds and bytes stand in the names.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal, Self

from mq.errors import BadSetting, UnknownSetting
from mq.limits import (
    BODY_BYTES_MAX_DEFAULT,
    BODY_BYTES_SETTABLE_MAX,
    BODY_IDLE_S_DEFAULT,
    BUCKET_DIGITS_MAX,
    BUCKET_DIGITS_MIN,
    DRAIN_S_DEFAULT,
    FOLDER_FILES_MAX,
    HISTORY_BYTES_DEFAULT,
    HISTORY_BYTES_MAX,
    HISTORY_BYTES_MIN,
    HISTORY_KEPT_S_DEFAULT,
    HISTORY_KEPT_S_MAX,
    HISTORY_KEPT_S_MIN,
    IDEMPOTENCY_S_DEFAULT,
    IDEMPOTENCY_S_MAX,
    MEMORY_BYTES_DEFAULT,
    PEERS_DEFAULT,
    PING_S_DEFAULT,
    PRIORITY_MAX,
    SETTING_NAME_SHOWN_CHARS,
    SHARDS_MAX,
    VISIBILITY_S_DEFAULT,
    VISIBILITY_S_MAX,
    VISIBILITY_S_MIN,
)

CommitMode = Literal["auto", "fsync", "syncfs"]
Durability = Literal["media", "none"]


@dataclass(frozen=True, slots=True)
class Setting:
    """What a setting may be: a number between these, whole where `is_whole`."""

    least: float
    most: float
    is_whole: bool = True

    @property
    def expected(self) -> str:
        """In words."""
        kind = "a whole number" if self.is_whole else "a number"
        return f"{kind} from {self.least:.12g} to {self.most:.15g}"

    def accepts(self, value: object) -> bool:
        """Whether a value, as JSON gives it, is one that the setting may have."""
        if isinstance(value, bool) or not isinstance(value, int if self.is_whole else int | float):
            return False
        return bool(self.least <= value <= self.most)

    def taken(self, value: Any) -> Any:
        """An accepted value, as settings hold it."""
        return value if self.is_whole else float(value)


@dataclass(frozen=True, slots=True)
class Switch:
    """A setting that is on or off."""

    expected: str = "true or false"

    def accepts(self, value: object) -> bool:
        """Whether a value, as JSON gives it, is one of the two."""
        return isinstance(value, bool)

    def taken(self, value: Any) -> Any:
        """An accepted value, as settings hold it."""
        return value


SETTINGS: Final[Mapping[str, Setting | Switch]] = {
    "visibility_s": Setting(VISIBILITY_S_MIN, VISIBILITY_S_MAX, is_whole=False),
    "priority_default": Setting(0, PRIORITY_MAX),
    "idempotency_s": Setting(0, IDEMPOTENCY_S_MAX, is_whole=False),
    "body_bytes_max": Setting(0, BODY_BYTES_SETTABLE_MAX),
    "history": Switch(),
    "history_kept_s": Setting(HISTORY_KEPT_S_MIN, HISTORY_KEPT_S_MAX, is_whole=False),
    "history_bytes_max": Setting(HISTORY_BYTES_MIN, HISTORY_BYTES_MAX),
}
"""Those that may be changed; QueueSettings has a field of each."""
DIGITS_SETTING: Final = "bucket"
SHARDS_SETTING: Final = "shards"
FIXED_SETTINGS: Final[Mapping[str, Setting]] = {
    DIGITS_SETTING: Setting(BUCKET_DIGITS_MIN, BUCKET_DIGITS_MAX),
    SHARDS_SETTING: Setting(1, SHARDS_MAX),
}
"""Those of its shape, which stay as they were when the queue was made."""


def check_patch(patch: Mapping[str, object]) -> None:
    """Raises UnknownSetting for a field that no queue has, else BadSetting for a value that its
    setting cannot have; null is one that each can.
    """
    known: dict[str, Setting | Switch] = {**SETTINGS, **FIXED_SETTINGS}
    for name in patch:
        if name not in known:
            raise UnknownSetting(name[:SETTING_NAME_SHOWN_CHARS])
    for name, value in patch.items():
        if value is not None and not known[name].accepts(value):
            raise BadSetting(name, known[name].expected)


def merged(fields: Mapping[str, object], patch: Mapping[str, object]) -> dict[str, object]:
    """What a merge patch (RFC 7396) makes of fields none of which is an object: null takes a field
    away, what is not named stays.
    """
    found = {**fields, **patch}
    return {name: value for name, value in found.items() if value is not None or name not in patch}


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """A queue's settings but for its shape, which is fixed when it is made."""

    visibility_s: float = VISIBILITY_S_DEFAULT
    priority_default: int = 0
    idempotency_s: float = IDEMPOTENCY_S_DEFAULT
    body_bytes_max: int = BODY_BYTES_MAX_DEFAULT
    history: bool = False
    """Whether what becomes of its messages is written down."""
    history_kept_s: float = HISTORY_KEPT_S_DEFAULT
    history_bytes_max: int = HISTORY_BYTES_DEFAULT

    def with_fields(self, fields: Mapping[str, object]) -> Self:
        """With what the fields say; others stay as they are. Raises BadSetting."""
        said: dict[str, Any] = {}
        for name, setting in SETTINGS.items():
            if name in fields:
                value: Any = fields[name]
                if not setting.accepts(value):
                    raise BadSetting(name, setting.expected)
                said[name] = setting.taken(value)
        return replace(self, **said)

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
    memory_bytes: int = MEMORY_BYTES_DEFAULT
    """Of all processes together."""
    body_idle_s: float = BODY_IDLE_S_DEFAULT
    drain_s: float = DRAIN_S_DEFAULT
    ping_s: float = PING_S_DEFAULT
    """How long a WebSocket's client may be silent before it is asked whether it is there."""
    folder_max: int = FOLDER_FILES_MAX
    inotify: bool = True
    """Whether the kernel is asked to tell what comes to queues in which somebody waits."""
    peer_index: int | None = None
    """Whose share of the messages a process with peers begins with; None: one that it draws."""
    queue: QueueSettings = QueueSettings()

    @property
    def is_supervised(self) -> bool:
        """Whether a supervisor started the process and ends it."""
        return self.processes > 1
