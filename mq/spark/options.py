"""Parses the options of `format("mq")`: a bad one raises an error that names it and its values.

Pure Python. Spark passes names in any case, and values as text. Unknown names are refused, since a
mistyped option would otherwise have no effect.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, Self, TypeVar
from urllib.parse import unquote

from mq.model.errors import BadName, MqError, suggestion
from mq.model.names import ConsumerName, Key, QueueName
from mq.spark.narrowing import NO_CONDITION, Narrowed
from mq.store.format.pipeline import LeaseName
from mq.store.leases.manifest import LEASE_S_DEFAULT, LEASE_S_MAX

PARTITIONS_MAX: Final = 100_000
MESSAGES_PER_PARTITION_DEFAULT: Final = 25_000
MESSAGES_PER_PARTITION_MAX: Final = 1_000_000
MESSAGES_PER_TRIGGER_DEFAULT: Final = 100_000
MESSAGES_PER_TRIGGER_MAX: Final = 10_000_000
READ_THREADS_DEFAULT: Final = 1
READ_THREADS_MAX: Final = 64

T = TypeVar("T")
ReadState = Literal["ready", "delayed", "leased", "removed"]
Sync = Literal["syncfs", "fsync"]
OnKeyTaken = Literal["fail", "skip"]

_WHOLE: Final = re.compile(r"0|[1-9][0-9]{0,18}")
_FILE_URI: Final = re.compile(r"file:(?://(?=/))?(/(?!/).*)", re.DOTALL)
# Spark's own options, which it passes to sinks too.
_SPARKS_OWN: Final = ("checkpointLocation", "queryName")


@dataclass(eq=False)
class BadOption(MqError):
    """An option is missing, or its value is not allowed."""

    option: str
    expected: str
    value: str | None = None

    def __str__(self) -> str:
        if self.value is None:
            return f"mq: option {self.option}: {self.expected}"
        return f"mq: option {self.option} is {self.value!r}; it takes {self.expected}"


@dataclass(eq=False)
class UnknownOption(MqError):
    """This way of reading or writing has no such option."""

    option: str
    known: tuple[str, ...]

    def __str__(self) -> str:
        meant = suggestion(self.option, self.known)
        return f"mq: no option {self.option}{meant}; known: {', '.join(self.known)}"


@dataclass(frozen=True, slots=True)
class Subscription:
    """The queues to read: the named ones, in order, or all whose whole name matches the pattern."""

    queues: tuple[QueueName, ...] = ()
    pattern: re.Pattern[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """The options of a batch read. `partitions_min`: None if not given. `lease`: a lease's
    `{consumer}.{seq}`, for `mq.spark.lease` alone, instead of subscription and state. `where`:
    conditions that decide before files are opened.
    """

    path: Path
    subscription: Subscription | None
    state: ReadState
    include_value: bool
    partitions_min: int | None
    messages_per_partition_max: int
    read_threads: int
    lease: str | None
    where: Narrowed

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Raises BadOption, UnknownOption."""
        given = _Given(options, _READ)
        lease = given.optional("lease", _lease)
        if lease is not None:
            given.only_without("lease", "subscribe", "subscribePattern", "state", "where")
        return cls(
            path=given.required("path", _path, "the root of an mq"),
            subscription=given.subscription() if lease is None else None,
            state=given.get("state", _one_of("ready", "delayed", "leased", "removed"), "ready"),
            lease=lease,
            where=given.get("where", _where, NO_CONDITION),
            **given.reading(),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """The options of a stream. `consumer`: a name that one query uses at a time; `lease_s`:
    seconds.
    """

    path: Path
    subscription: Subscription
    consumer: str
    messages_per_trigger_max: int
    lease_s: int
    fail_on_data_loss: bool
    include_value: bool
    partitions_min: int | None
    messages_per_partition_max: int
    read_threads: int

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Raises BadOption, UnknownOption."""
        given = _Given(options, _STREAM)
        return cls(
            path=given.required("path", _path, "the root of an mq"),
            subscription=given.subscription(),
            consumer=given.required("consumer", _consumer, "the name of what consumes"),
            messages_per_trigger_max=given.get(
                "maxMessagesPerTrigger",
                _whole(1, MESSAGES_PER_TRIGGER_MAX),
                MESSAGES_PER_TRIGGER_DEFAULT,
            ),
            lease_s=given.get("leaseSeconds", _whole(1, LEASE_S_MAX), LEASE_S_DEFAULT),
            fail_on_data_loss=given.get("failOnDataLoss", _boolean, True),
            **given.reading(),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """The options of a publish, batch or stream. Without a queue each row names its own."""

    path: Path
    queue: QueueName | None
    sync: Sync
    publish_id: Key | None
    on_key_taken: OnKeyTaken

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Raises BadOption, UnknownOption."""
        given = _Given(options, _WRITE, _SPARKS_OWN)
        return cls(
            path=given.required("path", _path, "the root of an mq"),
            queue=given.optional("queue", _queue),
            sync=given.get("sync", _one_of("syncfs", "fsync"), "syncfs"),
            publish_id=given.optional("publishId", _publish_id),
            on_key_taken=given.get("onKeyTaken", _one_of("fail", "skip"), "fail"),
        )


_READING: Final = ("includeValue", "minPartitions", "maxMessagesPerPartition", "readThreads")
_SELECTING: Final = ("path", "subscribe", "subscribePattern")
_READ: Final = (*_SELECTING, "state", "where", *_READING, "lease")
_STREAM: Final = (
    *_SELECTING, "consumer", "maxMessagesPerTrigger", "leaseSeconds", "failOnDataLoss", *_READING
)  # fmt: skip
_WRITE: Final = ("path", "queue", "sync", "publishId", "onKeyTaken")


class _Given:
    """The given options, under mq's spelling of their names."""

    def __init__(
        self, options: Mapping[str, str], known: tuple[str, ...], others: tuple[str, ...] = ()
    ) -> None:
        lower = {name.lower(): name for name in (*known, *others)}
        self._values: dict[str, str] = {}
        for name, value in options.items():
            if name.lower() not in lower:
                raise UnknownOption(name, known)
            self._values[lower[name.lower()]] = str(value)

    def optional(self, name: str, parser: Callable[[str, str], T]) -> T | None:
        value = self._values.get(name)
        return None if value is None else parser(name, value)

    def get(self, name: str, parser: Callable[[str, str], T], default: T) -> T:
        value = self._values.get(name)
        return default if value is None else parser(name, value)

    def required(self, name: str, parser: Callable[[str, str], T], what: str) -> T:
        if name not in self._values:
            raise BadOption(name, f"is missing: {what}")
        return parser(name, self._values[name])

    def only_without(self, name: str, *others: str) -> None:
        for other in others:
            if other in self._values:
                raise BadOption(name, f"does not go with {other}")

    def subscription(self) -> Subscription:
        if "subscribePattern" in self._values:
            self.only_without("subscribePattern", "subscribe")
            return Subscription(
                pattern=_pattern("subscribePattern", self._values["subscribePattern"])
            )
        return Subscription(
            queues=self.required(
                "subscribe", _queues, "a queue, or several with commas; or subscribePattern"
            )
        )

    def reading(self) -> dict[str, Any]:
        """The options that batch reads and streams share."""
        return {
            "include_value": self.get("includeValue", _boolean, True),
            "partitions_min": self.optional("minPartitions", _whole(1, PARTITIONS_MAX)),
            "messages_per_partition_max": self.get(
                "maxMessagesPerPartition",
                _whole(1, MESSAGES_PER_PARTITION_MAX),
                MESSAGES_PER_PARTITION_DEFAULT,
            ),
            "read_threads": self.get(
                "readThreads", _whole(1, READ_THREADS_MAX), READ_THREADS_DEFAULT
            ),
        }


def _path(name: str, value: str) -> Path:
    """A folder of this machine or of a shared mount, at the same path on every worker."""
    uri = _FILE_URI.fullmatch(value)
    text = value if uri is None else unquote(uri.group(1))
    if "\0" in text or not text.startswith("/"):
        raise BadOption(name, "an absolute path of the file system, as every worker sees it", value)
    return Path(text)


def _queues(name: str, value: str) -> tuple[QueueName, ...]:
    """Names separated by commas, blanks around them ignored; repeated names once."""
    return tuple(dict.fromkeys(_queue(name, part.strip()) for part in value.split(",")))


def _queue(name: str, value: str) -> QueueName:
    try:
        return QueueName.parse(value)
    except BadName as error:
        raise BadOption(name, f"a queue's name: {error.expected}", value) from None


def _pattern(name: str, value: str) -> re.Pattern[str]:
    try:
        return re.compile(value)
    except (re.error, RecursionError, OverflowError) as error:
        raise BadOption(name, f"a regular expression of Python ({error})", value) from None


def _publish_id(name: str, value: str) -> Key:
    try:
        return Key.parse(value)
    except BadName as error:
        raise BadOption(name, error.expected, value) from None


def _consumer(name: str, value: str) -> str:
    try:
        return ConsumerName.parse(value).text
    except BadName as error:
        raise BadOption(name, error.expected, value) from None


def _lease(name: str, value: str) -> str:
    try:
        return LeaseName.parse(value).text
    except BadName:
        raise BadOption(name, "a lease's name, consumer.number", value) from None


def _where(name: str, value: str) -> Narrowed:
    try:
        return Narrowed.parse(value)
    except ValueError as error:
        raise BadOption(name, str(error), value) from None


def _boolean(name: str, value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise BadOption(name, "true or false", value)
    return value.lower() == "true"


def _whole(least: int, most: int) -> Callable[[str, str], int]:
    def parse(name: str, value: str) -> int:
        if _WHOLE.fullmatch(value) is None or not least <= int(value) <= most:
            raise BadOption(name, f"a whole number from {least} to {most}", value)
        return int(value)

    return parse


def _one_of(*words: str) -> Callable[[str, str], Any]:
    def parse(name: str, value: str) -> str:
        if value.lower() not in words:
            raise BadOption(name, " or ".join(words), value)
        return value.lower()

    return parse


# Column -> Spark's name of its type, in order. `size`: bytes of the body.
COLUMNS: Final = {
    "queue": "string",
    "id": "string",
    "key": "string",
    "value": "binary",
    "headers": "map<string,string>",
    "priority": "int",
    "published": "timestamp",
    "due": "timestamp",
    "receives": "int",
    "size": "bigint",
    "state": "string",
}
SCHEMA: Final = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())


@dataclass(eq=False)
class OtherSchema(MqError):
    """The reader has a schema of its own that is not mq's."""

    given: str

    def __str__(self) -> str:
        return f"mq: a message's columns are fixed, read without schema(...): {SCHEMA}"


def check_schema(columns: Iterable[tuple[str, str]]) -> None:
    """Raises OtherSchema for columns (name, Spark's name of the type) other than a message's."""
    found = list(columns)
    if found != list(COLUMNS.items()):
        raise OtherSchema(", ".join(f"{name} {kind}" for name, kind in found))
