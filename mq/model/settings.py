"""Settings, frozen once read: a queue's, and the daemon's; and how a queue's are changed: pure.

Seconds and bytes stand in the names.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Literal, Self

from mq.model.clock import parse_rfc3339
from mq.model.errors import BadSetting, UnknownSetting
from mq.model.limits import (
    BODY_BYTES_MAX_DEFAULT,
    BODY_BYTES_SETTABLE_MAX,
    BUCKET_DIGITS_MAX,
    BUCKET_DIGITS_MIN,
    HISTORY_BYTES_DEFAULT,
    HISTORY_BYTES_MAX,
    HISTORY_BYTES_MIN,
    HISTORY_KEPT_S_DEFAULT,
    HISTORY_KEPT_S_MAX,
    HISTORY_KEPT_S_MIN,
    IDEMPOTENCY_S_DEFAULT,
    IDEMPOTENCY_S_MAX,
    PRIORITY_MAX,
    RECEIVES_MAX,
    SETTING_NAME_SHOWN_CHARS,
    SHARDS_MAX,
    VISIBILITY_S_DEFAULT,
    VISIBILITY_S_MAX,
    VISIBILITY_S_MIN,
)
from mq.model.setting_kinds import Kind, Setting, Switch, Time, Word
from mq.model.upkeep_limits import (
    EXPIRY_GRACE_S_DEFAULT,
    EXPIRY_GRACE_S_MAX,
    MAX_RECEIVES_MAX,
    MESSAGE_TTL_S_MAX,
    SHOVEL_CONCURRENCY_DEFAULT,
    SHOVEL_CONCURRENCY_MAX,
    SHOVEL_INTERVAL_S_MAX,
    SHOVEL_MAX_RECEIVES_DEFAULT,
    SWEEP_AFTER_S_DEFAULT,
    SWEEP_AFTER_S_MAX,
    SWEEP_AFTER_S_MIN,
)
from mq.model.worker_limits import CONSUMERS_MAX

_TAG_CHARS: Final = 16

CommitMode = Literal["auto", "fsync", "syncfs"]
Durability = Literal["media", "none"]


REMOVE: Final = "remove"
SIDELINE: Final = "sideline"
"""Where messages may go that have expired."""

SETTINGS: Final[Mapping[str, Kind]] = {
    "visibility_s": Setting(VISIBILITY_S_MIN, VISIBILITY_S_MAX, is_whole=False),
    "priority_default": Setting(0, PRIORITY_MAX),
    "idempotency_s": Setting(0, IDEMPOTENCY_S_MAX, is_whole=False),
    "body_bytes_max": Setting(0, BODY_BYTES_SETTABLE_MAX),
    "history": Switch(),
    "history_kept_s": Setting(HISTORY_KEPT_S_MIN, HISTORY_KEPT_S_MAX, is_whole=False),
    "history_bytes_max": Setting(HISTORY_BYTES_MIN, HISTORY_BYTES_MAX),
    "max_receives": Setting(0, MAX_RECEIVES_MAX),
    "message_ttl_s": Setting(0, MESSAGE_TTL_S_MAX, is_whole=False),
    "expired_to": Word((REMOVE, SIDELINE)),
    "expires_at": Time(),
    "expiry_grace_s": Setting(0, EXPIRY_GRACE_S_MAX, is_whole=False),
    "shovel_interval_s": Setting(0, SHOVEL_INTERVAL_S_MAX, is_whole=False),
    "shovel_concurrency": Setting(1, SHOVEL_CONCURRENCY_MAX),
    "shovel_max_receives": Setting(0, RECEIVES_MAX),
    "sweep_after_s": Setting(SWEEP_AFTER_S_MIN, SWEEP_AFTER_S_MAX, is_whole=False),
    "consumers": Setting(0, CONSUMERS_MAX),
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
    known: dict[str, Kind] = {**SETTINGS, **FIXED_SETTINGS}
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


def tag_of(effective: Mapping[str, object]) -> str:
    """An entity tag's text, which other effective values do not have."""
    text = json.dumps(effective, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:_TAG_CHARS]


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
    max_receives: int = 0
    """How often a message is delivered at most; 0: no matter how often."""
    message_ttl_s: float = 0.0
    """How long a message lives from its publish; 0: for ever."""
    expired_to: str = REMOVE
    """Where one goes that has lived longer."""
    expires_at: str | None = None
    """When the queue itself expires; None: never."""
    expiry_grace_s: float = EXPIRY_GRACE_S_DEFAULT
    """How long its name and messages are kept from then on."""
    shovel_interval_s: float = 0.0
    """How often its sideline's messages are moved back; 0: only when somebody asks."""
    shovel_concurrency: int = SHOVEL_CONCURRENCY_DEFAULT
    shovel_max_receives: int = SHOVEL_MAX_RECEIVES_DEFAULT
    """From so many receives on a message stays in the sideline."""
    sweep_after_s: float = SWEEP_AFTER_S_DEFAULT
    """How long after it was due a message goes to the sideline that cannot be brought back."""
    consumers: int = 0
    """How many of its messages a worker that follows it handles at a time; 0: not said."""

    @property
    def expires_ms(self) -> int | None:
        """When the queue expires, in milliseconds since the epoch; None: never."""
        return None if self.expires_at is None else parse_rfc3339(self.expires_at)

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
