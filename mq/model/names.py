"""Names: queues, message ids and keys, each made only by its parser or its generator.

The one module that knows the grammar of an id:

    id         = uuid [",p=" priority] [",k=" key] [",v=" seconds] [",h=" bytes] ["." extension]
    key        = 1*( ALPHA / DIGIT / "-" / "_" / "=" HEXDIG HEXDIG )

Printing what was parsed gives the same text, and parsing what was printed the same value: a
text that says the same thing in another way (`p=0`, leading zeros, `=41` for `A`) is no id.
Attributes follow maildir++; UUIDv7 is RFC 9562, section 5.7.
"""

import hashlib
import os
import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Self

from mq.model.bulk_limits import CONSUMER_NAME_CHARS_MAX, PARTITION_BITS, ROWS_PER_MS
from mq.model.clock import Clock
from mq.model.errors import BadName
from mq.model.limits import (
    EXTENSION_CHARS_MAX,
    HEADER_BLOCK_BYTES_MAX,
    KEY_WRITTEN_BYTES_MAX,
    PUBLISHED_MS_MAX,
    QUEUE_NAME_CHARS_MAX,
    SCHEDULE_NAME_CHARS_MAX,
    SIDELINE_SUFFIX,
    UUID_CHARS,
    VISIBILITY_S_MAX,
)

# Extension -> content type, one to one: the name alone says the type of what is common.
EXTENSIONS: Final = {
    "avro": "application/avro",
    "cbor": "application/cbor",
    "csv": "text/csv",
    "gif": "image/gif",
    "gz": "application/gzip",
    "html": "text/html",
    "jpg": "image/jpeg",
    "json": "application/json",
    "msgpack": "application/msgpack",
    "ndjson": "application/x-ndjson",
    "parquet": "application/vnd.apache.parquet",
    "pb": "application/x-protobuf",
    "pdf": "application/pdf",
    "png": "image/png",
    "svg": "image/svg+xml",
    "txt": "text/plain",
    "webp": "image/webp",
    "xml": "application/xml",
    "yaml": "application/yaml",
    "zip": "application/zip",
}
CONTENT_TYPES: Final = {content_type: ext for ext, content_type in EXTENSIONS.items()}
CONTENT_TYPE_DEFAULT: Final = "application/octet-stream"
# What curl says of a body that nobody told it the type of.
FORM_DEFAULT: Final = "application/x-www-form-urlencoded"

if any(len(extension) > EXTENSION_CHARS_MAX for extension in EXTENSIONS):
    raise AssertionError("names: an extension is longer than the limit")

_CONSUMER: Final = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_-]{{0,{CONSUMER_NAME_CHARS_MAX - 1}}}")
SCHEDULE_PATTERN: Final = rf"[A-Za-z0-9][A-Za-z0-9_-]{{0,{SCHEDULE_NAME_CHARS_MAX - 1}}}"
_SCHEDULE: Final = re.compile(SCHEDULE_PATTERN)
QUEUE_PATTERN: Final = (
    rf"[A-Za-z0-9][A-Za-z0-9_.-]{{0,{QUEUE_NAME_CHARS_MAX - 1}}}(?:{SIDELINE_SUFFIX})?"
)
_QUEUE: Final = re.compile(QUEUE_PATTERN)
_KEY_WRITTEN: Final = re.compile(r"(?:[A-Za-z0-9_-]|=[0-9A-F]{2})+")
UUID_V7: Final = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
"""How an id begins. Not all that does so is one: there is a last time that one may tell."""
ATTRIBUTES_PATTERN: Final = (
    r"(?:,p=(?P<priority>[1-9]))?"
    r"(?:,k=(?P<key>[A-Za-z0-9_=-]+))?"
    r"(?:,v=(?P<visibility>[1-9][0-9]{0,5}))?"
    r"(?:,h=(?P<headers>[1-9][0-9]{0,3}))?"
    rf"(?:\.(?P<extension>{'|'.join(EXTENSIONS)}))?"
)
"""How what stands behind an id's uuid is written, but for the numbers and the key in it."""
ID_PATTERN: Final = rf"(?P<uuid>{UUID_V7.pattern}){ATTRIBUTES_PATTERN}"
"""The same of a whole id."""
_ID: Final = re.compile(ID_PATTERN)
# The ids without attributes, which are nearly all.
_PLAIN_ID: Final = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}(?:\.[a-z0-9]+)?"
)
UUIDS_END: Final = f"{PUBLISHED_MS_MAX >> 16:08x}-{PUBLISHED_MS_MAX & 0xFFFF:04x}-8"
"""The text that all ids are before."""
_KEY_BYTES_AS_THEY_ARE: Final = frozenset(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"
)


@dataclass(frozen=True, slots=True, order=True)
class QueueName:
    """A queue's name: at most 55 characters, or such a name with `_SIDELINE`."""

    text: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises BadName when `text` is no queue's name."""
        if _QUEUE.fullmatch(text) is None:
            raise BadName("queue", "a letter or digit, then up to 54 of letters, digits, _ . -")
        return cls(text)

    def sideline(self) -> "QueueName":
        """The queue that takes what this one's consumers could not handle."""
        if self.is_sideline:
            return self
        return QueueName(self.text + SIDELINE_SUFFIX)

    @property
    def is_sideline(self) -> bool:
        """Whether it is the sideline of another."""
        return self.text.endswith(SIDELINE_SUFFIX)

    def counterpart(self) -> "QueueName":
        """Its sideline; of a sideline, the queue whose it is."""
        if self.is_sideline:
            return QueueName(self.text.removesuffix(SIDELINE_SUFFIX))
        return self.sideline()

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True, order=True)
class ConsumerName:
    """The name of a consumer that leases many messages at a time."""

    text: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises BadName when `text` is no consumer's name."""
        if _CONSUMER.fullmatch(text) is None:
            raise BadName("consumer", "a letter or digit, then up to 39 of letters, digits, _ -")
        return cls(text)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True, order=True)
class ScheduleName:
    """The name of a queue's schedule."""

    text: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises BadName when `text` is no schedule's name."""
        if _SCHEDULE.fullmatch(text) is None:
            raise BadName("schedule", "a letter or digit, then up to 39 of letters, digits, _ -")
        return cls(text)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Key:
    """A lookup key: any text whose written form has at most 64 bytes."""

    text: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises BadName when the key is empty, too long when written, or no Unicode."""
        try:
            key = cls(text)
            written = key.written()
        except UnicodeEncodeError:
            raise BadName("key", "valid Unicode") from None
        if not 1 <= len(written) <= KEY_WRITTEN_BYTES_MAX:
            wanted = f"1 to {KEY_WRITTEN_BYTES_MAX} bytes as written in a name, not {len(written)}"
            raise BadName("key", f"{wanted}: each byte outside of A-Z a-z 0-9 _ - takes 3")
        return key

    @classmethod
    def parse_written(cls, written: str) -> Self:
        """Reads the form that names carry. Raises BadName when it is not how a key is written."""
        if _KEY_WRITTEN.fullmatch(written) is None:
            raise BadName("key", "letters, digits, _ - and =XX")
        raw = re.sub(
            rb"=([0-9A-F]{2})", lambda m: bytes([int(m.group(1), 16)]), written.encode("ascii")
        )
        try:
            key = cls.parse(raw.decode("utf-8"))
        except UnicodeDecodeError:
            raise BadName("key", "valid UTF-8") from None
        if key.written() != written:
            raise BadName("key", "bytes that need no escape are not escaped")
        return key

    def written(self) -> str:
        """The key as it stands in names: bytes outside [A-Za-z0-9_-] as =XX."""
        return "".join(
            chr(byte) if byte in _KEY_BYTES_AS_THEY_ARE else f"={byte:02X}"
            for byte in self.text.encode("utf-8")
        )


@dataclass(frozen=True, slots=True)
class MessageId:
    """A message's id, which is also its file's name and never changes.

    `uuid` is a UUIDv7 in its usual text; `visibility_s` is None where the queue's applies;
    `header_bytes` is the length of the header block before the body; `extension` is one of
    EXTENSIONS or empty. `text` is the whole id, opaque to clients.
    """

    uuid: str
    priority: int = 0
    key: Key | None = None
    visibility_s: int | None = None
    header_bytes: int = 0
    extension: str = ""
    text: str = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", self._print())

    def _print(self) -> str:
        parts = [self.uuid]
        if self.priority:
            parts.append(f",p={self.priority}")
        if self.key is not None:
            parts.append(f",k={self.key.written()}")
        if self.visibility_s is not None:
            parts.append(f",v={self.visibility_s}")
        if self.header_bytes:
            parts.append(f",h={self.header_bytes}")
        if self.extension:
            parts.append(f".{self.extension}")
        return "".join(parts)

    def with_uuid(self, uuid: str) -> "MessageId":
        """The id of another message, of which the same is said."""
        # For many at once: by the fields, in a third of the time that making one takes.
        made = object.__new__(MessageId)
        put = object.__setattr__
        put(made, "uuid", uuid)
        put(made, "priority", self.priority)
        put(made, "key", self.key)
        put(made, "visibility_s", self.visibility_s)
        put(made, "header_bytes", self.header_bytes)
        put(made, "extension", self.extension)
        put(made, "text", uuid + self.text[UUID_CHARS:])
        return made

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises BadName when `text` is not exactly how some id is written."""
        match = _ID.fullmatch(text)
        if match is None:
            raise BadName("id", "as it was given by the publish or the fetch")
        uuid, priority, key, visibility, headers, extension = match.groups()
        try:
            written_key = None if key is None else Key.parse_written(key)
        except BadName as error:
            raise BadName("id", f"a key of {error.expected}") from None
        message_id = cls(
            uuid=uuid,
            priority=int(priority or 0),
            key=written_key,
            visibility_s=None if visibility is None else int(visibility),
            header_bytes=int(headers or 0),
            extension=extension or "",
        )
        if message_id.published_ms > PUBLISHED_MS_MAX:
            raise BadName("id", "a time before the year 10000")
        if (message_id.visibility_s or 0) > VISIBILITY_S_MAX:
            raise BadName("id", f"a visibility of at most {VISIBILITY_S_MAX} s")
        if message_id.header_bytes > HEADER_BLOCK_BYTES_MAX:
            raise BadName("id", f"a header block of at most {HEADER_BLOCK_BYTES_MAX} bytes")
        return message_id

    @staticmethod
    def is_written(text: str) -> bool:
        """Whether `text` is how some id is written: what `parse` takes, for many names at once."""
        if _PLAIN_ID.fullmatch(text) is not None and text < UUIDS_END:
            return len(text) == UUID_CHARS or text[UUID_CHARS + 1 :] in EXTENSIONS
        try:
            MessageId.parse(text)
        except BadName:
            return False
        return True

    @property
    def published_ms(self) -> int:
        """When it was published: the UUIDv7's milliseconds since the Unix epoch."""
        return int(self.uuid[:8] + self.uuid[9:13], 16)

    @property
    def content_type(self) -> str:
        """The content type that the extension stands for."""
        return content_type_of(self.extension)

    def __str__(self) -> str:
        return self.text


_RANDOM_WORDS: Final = 512
_RANDOM_MASK: Final = (1 << 62) - 1
# Where a UUIDv7 has its count, and the digit of its variant for each digit by chance.
_COUNT_PLACE: Final = 15
_VARIANTS: Final = {f"{digit:x}": "89ab"[digit & 3] for digit in range(16)}


class UuidSource:
    """UUIDv7s that rise strictly in this process (RFC 9562, section 6.2, method 1).

    The 12 bits after the version count within a millisecond, from a random start in the lower
    half; a millisecond that runs out borrows the next, and a clock that steps back is not
    followed. One thread at a time: it belongs to the event loop.
    """

    __slots__ = ("_clock", "_count", "_ms", "_random")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ms = -1
        self._count = 0
        self._random: Iterator[int] = iter(())

    def next(self) -> str:
        """The next UUID, in its usual text."""
        now_ms = self._clock.now_ms()
        if now_ms <= self._ms and self._count < 0xFFF:
            self._count += 1
        else:
            self._ms = max(now_ms, self._ms + 1)
            self._count = self._random_bits() & 0x7FF
        tail = (0b10 << 62) | (self._random_bits() & _RANDOM_MASK)
        return (
            f"{self._ms >> 16:08x}-{self._ms & 0xFFFF:04x}-7{self._count:03x}-"
            f"{tail >> 48:04x}-{tail & 0xFFFFFFFFFFFF:012x}"
        )

    def end_moment(self) -> int:
        """A time (milliseconds since the epoch) that no id made so far is after, and every later
        one is.
        """
        self.go_past(max(self._clock.now_ms(), self._ms))
        return self._ms

    def go_past(self, ms: int) -> None:
        """Every id from here on is after this time, milliseconds since the epoch."""
        if ms >= self._ms:
            self._ms, self._count = ms, 0xFFF

    def many(self, count: int) -> list[str]:
        """The next UUIDs, so many, for one look at the clock in each of their milliseconds."""
        made: list[str] = []
        while len(made) < count:
            first = self.next()
            made.append(first)
            before = first[:_COUNT_PLACE]
            more = min(count - len(made), 0xFFF - self._count)
            tails = os.urandom(8 * more).hex()
            for at in range(0, 16 * more, 16):
                self._count += 1
                variant = _VARIANTS[tails[at]]
                made.append(
                    f"{before}{self._count:03x}-{variant}{tails[at + 1 : at + 4]}-"
                    f"{tails[at + 4 : at + 16]}"
                )
        return made

    def _random_bits(self) -> int:
        """64 random bits, asked of the kernel many at a time: it is a system call."""
        for bits in self._random:
            return bits
        self._random = iter(struct.unpack(f"={_RANDOM_WORDS}Q", os.urandom(8 * _RANDOM_WORDS)))
        return next(self._random)


def extension_for(content_type: str) -> str:
    """The extension for a Content-Type header; empty where the name cannot carry all of it: a type
    that is not in the table, or one with parameters.
    """
    return CONTENT_TYPES.get(content_type.strip().lower(), "")


def content_type_of(extension: str) -> str:
    """The content type that an extension stands for; none stands for the default."""
    return EXTENSIONS.get(extension, CONTENT_TYPE_DEFAULT)


def is_default(content_type: str) -> bool:
    """Whether a Content-Type header says no more than none would."""
    return content_type.strip().lower() in ("", CONTENT_TYPE_DEFAULT, FORM_DEFAULT)


# Ids as text, many at once: it takes a fraction of the time.

_UUID_FORM: Final = b"00000000-0000-0000-0000-000000000000"
_DIGITS_TO_0: Final = bytes.maketrans(b"0123456789abcdef", b"0" * 16)
# Where a uuid has its version, 7, and its variant.
_VERSION: Final = 14
_VARIANT: Final = 19


def are_uuids(texts: Sequence[str]) -> bool:
    """Whether all of these are ids that are a uuid and nothing more: many at once, which takes a
    fraction of the time.
    """
    if set(map(len, texts)) != {UUID_CHARS}:
        return not texts
    joined = "".join(texts)
    return (
        joined.isascii()
        and joined.encode("ascii").translate(_DIGITS_TO_0) == _UUID_FORM * len(texts)
        and not joined[_VERSION::UUID_CHARS].strip("7")
        and not joined[_VARIANT::UUID_CHARS].strip("89ab")
        and max(texts) < UUIDS_END
    )


# Ids that a bulk publish makes again when it is tried again: UUIDv7s out of its name and the rows.

_HASH_BITS: Final = 62 - PARTITION_BITS
_HIGH_BITS: Final = 7
_HASH_MASK: Final = (1 << _HASH_BITS) - 1


class RepeatableIds:
    """The UUIDs of one partition of a publish that began at `begun_ms` (since the epoch)."""

    __slots__ = ("_begun_ms", "_hash", "_partition")

    def __init__(self, publish_id: Key, begun_ms: int, partition: int) -> None:
        self._begun_ms = begun_ms
        self._partition = (partition & ((1 << PARTITION_BITS) - 1)) << _HASH_BITS
        # What comes first has an end that no key has in it.
        self._hash = hashlib.sha256(f"{publish_id.written()}\n{partition}\n".encode("ascii"))

    def uuid(self, row: int) -> str:
        """That of the partition's row, 0 and up, in its usual text."""
        digest = self._hash.copy()
        digest.update(b"%d" % row)
        bits = int.from_bytes(digest.digest()[:8], "big")
        ms = self._begun_ms + row // ROWS_PER_MS
        count = (row % ROWS_PER_MS) << _HIGH_BITS | bits >> (64 - _HIGH_BITS)
        tail = (0b10 << 62) | self._partition | (bits & _HASH_MASK)
        return (
            f"{ms >> 16:08x}-{ms & 0xFFFF:04x}-7{count:03x}-"
            f"{tail >> 48:04x}-{tail & 0xFFFFFFFFFFFF:012x}"
        )
