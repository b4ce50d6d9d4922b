"""A queue's settings and the daemon's, frozen, and changes of a queue's settings. Pure.

Names end with their units: seconds and bytes.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Literal, Self, get_args

from mq.model.clock import parse_rfc3339
from mq.model.errors import BadSetting, UnknownSetting
from mq.model.limits import (
    BODY_BYTES_MAX_DEFAULT,
    BUCKET_DIGITS_MAX,
    BUCKET_DIGITS_MIN,
    CONSUMERS_MAX,
    HISTORY_BYTES_MIN,
    IDEMPOTENCY_S_DEFAULT,
    MESSAGE_TTL_S_MAX,
    PACK_MESSAGES_MAX,
    PRIORITY_MAX,
    RECEIVES_MAX,
    SHARDS_MAX,
    VISIBILITY_S_DEFAULT,
    VISIBILITY_S_MAX,
    VISIBILITY_S_MIN,
)
from mq.model.names import QueueName
from mq.model.setting_kinds import Kind, Labels, Setting, SidelineName, Switch, Time, Word

IDEMPOTENCY_S_MAX: Final = 7 * 24 * 3600
BODY_BYTES_SETTABLE_MAX: Final = 1 << 40
MESSAGES_SETTABLE_MAX: Final = 10**12
BYTES_SETTABLE_MAX: Final = 1 << 50
SETTING_NAME_SHOWN_CHARS: Final = 64
HISTORY_KEPT_S_DEFAULT: Final = 7.0 * 24 * 3600
HISTORY_KEPT_S_MIN: Final = 3600
HISTORY_KEPT_S_MAX: Final = 366 * 24 * 3600
HISTORY_BYTES_DEFAULT: Final = 1 << 30
HISTORY_BYTES_MAX: Final = 1 << 40
_DAY_S: Final = 24 * 3600
# One less than the highest count of receives, where counting stops.
MAX_RECEIVES_MAX: Final = RECEIVES_MAX - 1
DELAY_DEFAULT_S_MAX: Final = 366 * _DAY_S
EXPIRY_GRACE_S_DEFAULT: Final = float(_DAY_S)
EXPIRY_GRACE_S_MAX: Final = 366 * _DAY_S
SHOVEL_INTERVAL_S_MAX: Final = 7 * _DAY_S
SHOVEL_CONCURRENCY_DEFAULT: Final = 4
SHOVEL_CONCURRENCY_MAX: Final = 32
SHOVEL_MAX_RECEIVES_DEFAULT: Final = 20
SWEEP_AFTER_S_DEFAULT: Final = 1200.0
SWEEP_AFTER_S_MIN: Final = 1.0
SWEEP_AFTER_S_MAX: Final = 366 * _DAY_S
IN_FLIGHT_MAX: Final = 10_000
DELIVERIES_PER_S_MAX: Final = 1_000_000

_TAG_CHARS: Final = 16

CommitMode = Literal["auto", "fsync", "syncfs"]
Durability = Literal["media", "none"]


REMOVE: Final = "remove"
SIDELINE: Final = "sideline"
"""Where expired messages may go."""

Paused = Literal["none", "deliveries", "publishes", "both"]
"""The parts of a queue that may be paused."""
Overflow = Literal["refuse", "drop-oldest", "sideline-oldest"]
"""The effect of a publish to a queue at its limit."""
ActiveConsumer = Literal["any", "single"]
"""How many of a queue's consumers get messages at a time."""
_PUBLISHES_REST: Final = frozenset({"publishes", "both"})
_DELIVERIES_REST: Final = frozenset({"deliveries", "both"})

SETTINGS: Final[Mapping[str, Kind]] = {
    "visibility_s": Setting(VISIBILITY_S_MIN, VISIBILITY_S_MAX, is_whole=False),
    "priority_default": Setting(0, PRIORITY_MAX),
    "delay_default_s": Setting(0, DELAY_DEFAULT_S_MAX, is_whole=False),
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
    "in_flight_max": Setting(0, IN_FLIGHT_MAX),
    "deliveries_per_s_max": Setting(0, DELIVERIES_PER_S_MAX, is_whole=False),
    "active_consumer": Word(get_args(ActiveConsumer)),
    "paused": Word(get_args(Paused)),
    "messages_max": Setting(0, MESSAGES_SETTABLE_MAX),
    "bytes_max": Setting(0, BYTES_SETTABLE_MAX),
    "overflow": Word(get_args(Overflow)),
    "pack_messages_max": Setting(0, PACK_MESSAGES_MAX),
    "sideline_to": SidelineName(),
    "labels": Labels(),
}
"""Settings that may be changed; QueueSettings has a field for each."""
DIGITS_SETTING: Final = "bucket"
SHARDS_SETTING: Final = "shards"
FIXED_SETTINGS: Final[Mapping[str, Setting]] = {
    DIGITS_SETTING: Setting(BUCKET_DIGITS_MIN, BUCKET_DIGITS_MAX),
    SHARDS_SETTING: Setting(1, SHARDS_MAX),
}
"""Settings of the queue's shape, fixed when the queue is made."""


def check_patch(patch: Mapping[str, object]) -> None:
    """Raises UnknownSetting for a field that no queue has, else BadSetting for an invalid value.
    null is valid for each.
    """
    known: dict[str, Kind] = {**SETTINGS, **FIXED_SETTINGS}
    for name in patch:
        if name not in known:
            raise UnknownSetting(name[:SETTING_NAME_SHOWN_CHARS], known)
    for name, value in patch.items():
        is_good = value is None or known[name].accepts(value)
        if not is_good or not _is_utf_8(value):
            raise BadSetting(name, known[name].expected)


def _is_utf_8(value: object) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def merged(fields: Mapping[str, object], patch: Mapping[str, object]) -> dict[str, object]:
    """Applies a merge patch (RFC 7396) to flat fields: null removes a field; settings that are not
    named stay.
    """
    found = {**fields, **patch}
    return {name: value for name, value in found.items() if value is not None or name not in patch}


def tag_of(effective: Mapping[str, object]) -> str:
    """The text of an entity tag: a digest of the effective values."""
    text = json.dumps(effective, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:_TAG_CHARS]


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """A queue's settings without its shape, which is fixed when the queue is made."""

    visibility_s: float = VISIBILITY_S_DEFAULT
    priority_default: int = 0
    delay_default_s: float = 0.0
    """The delay of a message whose publish names no time; 0: ready at once."""
    idempotency_s: float = IDEMPOTENCY_S_DEFAULT
    body_bytes_max: int = BODY_BYTES_MAX_DEFAULT
    history: bool = False
    """Whether the events of its messages are recorded."""
    history_kept_s: float = HISTORY_KEPT_S_DEFAULT
    history_bytes_max: int = HISTORY_BYTES_DEFAULT
    max_receives: int = 0
    """The limit of deliveries of a message; 0: none."""
    message_ttl_s: float = 0.0
    """The lifetime of a message from its publish; 0: unlimited."""
    expired_to: str = REMOVE
    """Where expired messages go."""
    expires_at: str | None = None
    """When the queue itself expires; None: never."""
    expiry_grace_s: float = EXPIRY_GRACE_S_DEFAULT
    """How long an expired queue keeps its name and messages."""
    shovel_interval_s: float = 0.0
    """The interval of scheduled shovel runs; 0: only by request."""
    shovel_concurrency: int = SHOVEL_CONCURRENCY_DEFAULT
    shovel_max_receives: int = SHOVEL_MAX_RECEIVES_DEFAULT
    """A message with this many receives stays in the sideline."""
    sweep_after_s: float = SWEEP_AFTER_S_DEFAULT
    """How long after its due time a message that cannot be returned goes to the sideline."""
    consumers: int = 0
    """The number of messages that a worker which follows the queue handles at a time; 0: not set.
    """
    in_flight_max: int = 0
    """The limit of messages in flight; 0: none."""
    deliveries_per_s_max: float = 0.0
    """The limit of deliveries in a second; 0: none."""
    active_consumer: ActiveConsumer = "any"
    """"single": one consumer gets all messages as long as it is connected."""
    paused: Paused = "none"
    """Whether publishes, deliveries, or both are paused."""
    messages_max: int = 0
    """The limit of ready, delayed and in-flight messages; 0: none."""
    bytes_max: int = 0
    """The limit of the bytes of all message files; 0: none."""
    overflow: Overflow = "refuse"
    """The effect of a publish at one of the two limits."""
    pack_messages_max: int = 0
    """The limit of messages in a pack; below 2: they are stored singly."""
    sideline_to: str | None = None
    """The sideline for its messages; None: its own."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Texts that other programs keep with the queue; mq does not read them."""

    @property
    def expires_ms(self) -> int | None:
        """When the queue expires, in milliseconds since the epoch; None: never."""
        return None if self.expires_at is None else parse_rfc3339(self.expires_at)

    @property
    def is_limited(self) -> bool:
        """Whether the queue has a limit of messages or bytes."""
        return self.messages_max > 0 or self.bytes_max > 0

    @property
    def takes_packs(self) -> bool:
        """Whether packs may be stored and delivered whole: its limits count single messages."""
        return not (self.is_limited or self.needs_permits)

    @property
    def refuses(self) -> bool:
        """Whether publishes beyond the limit are refused; otherwise old messages make room."""
        return self.overflow == "refuse"

    @property
    def takes(self) -> bool:
        """Whether publishes are allowed."""
        return self.paused not in _PUBLISHES_REST

    @property
    def gives(self) -> bool:
        """Whether deliveries are allowed."""
        return self.paused not in _DELIVERIES_REST

    @property
    def is_single(self) -> bool:
        """Whether a single consumer gets all messages."""
        return self.active_consumer == "single"

    @property
    def delivery_limits(self) -> tuple[int, float]:
        return self.in_flight_max, self.deliveries_per_s_max

    @property
    def needs_permits(self) -> bool:
        """Whether deliveries are limited."""
        return any(self.delivery_limits)

    def aside(self, queue: QueueName) -> QueueName:
        """The sideline for messages of this queue, which has these settings."""
        return queue.sideline() if self.sideline_to is None else QueueName(self.sideline_to)

    def due_ms_default(self, published_ms: int) -> int | None:
        """The due time of a message whose publish names none, in milliseconds since the epoch;
        None: at once.
        """
        if not self.delay_default_s:
            return None
        return published_ms + round(self.delay_default_s * 1000)

    def with_fields(self, fields: Mapping[str, object]) -> Self:
        """A copy with these fields; others stay. Raises BadSetting."""
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
