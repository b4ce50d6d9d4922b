"""Names: queues, message ids and keys, each made only by its parser or its generator.

The one module that knows the grammar of an id:

    id         = uuid [",p=" priority] [",k=" key] [",g=" group] [",t=" tags] [",v=" seconds]
                 [",e=" seconds] [",n=" items]
                 [",h=" bytes] ["." extension]
    key        = 1*( ALPHA / DIGIT / "-" / "_" / "=" HEXDIG HEXDIG )
    group      = 16( DIGIT / "a"-"f" )        of its name's SHA-256
    items      = 2..1000                      without k=, g=, t=, e=

An id with `n=` is of a pack or of one of its items: the three digits behind the uuid's variant
are the place, 000 of the pack, 001 to n of an item. So either follows from the other.

A name has one spelling: printing a parsed name gives the same text. Another spelling of the same
value (`p=0`, leading zeros, `=41` for `A`) is not an id. Attributes follow maildir++; UUIDv7 is
RFC 9562, section 5.7.
"""

import hashlib
import os
import re
import secrets
import struct
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, Self

from mq.model.clock import Clock
from mq.model.errors import BadName
from mq.model.limits import (
    GROUP_CHARS_MAX,
    GROUP_DIGITS,
    HEADER_BLOCK_BYTES_MAX,
    KEY_WRITTEN_BYTES_MAX,
    MESSAGE_TTL_S_MAX,
    PACK_MESSAGES_MAX,
    PACK_MESSAGES_MIN,
    PUBLISHED_MS_MAX,
    SIDELINE_SUFFIX,
    UUID_CHARS,
    VISIBILITY_S_MAX,
)

QUEUE_NAME_CHARS_MAX: Final = 55
EXTENSION_CHARS_MAX: Final = 8
SCHEDULE_NAME_CHARS_MAX: Final = 40
CONSUMER_NAME_CHARS_MAX: Final = 40
# The ids of a bulk publish: bits of the task, and ids of one millisecond.
PARTITION_BITS: Final = 20
ROWS_PER_MS: Final = 32

# Extension to content type, one to one: common types are in the name alone.
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
# The type that curl sends by default.
FORM_DEFAULT: Final = "application/x-www-form-urlencoded"

if any(len(extension) > EXTENSION_CHARS_MAX for extension in EXTENSIONS):
    raise AssertionError("names: an extension is longer than the limit")

CONSUMER_PATTERN: Final = rf"[A-Za-z0-9][A-Za-z0-9_-]{{0,{CONSUMER_NAME_CHARS_MAX - 1}}}"
_CONSUMER: Final = re.compile(CONSUMER_PATTERN)
SCHEDULE_PATTERN: Final = rf"[A-Za-z0-9][A-Za-z0-9_-]{{0,{SCHEDULE_NAME_CHARS_MAX - 1}}}"
_SCHEDULE: Final = re.compile(SCHEDULE_PATTERN)
QUEUE_PATTERN: Final = (
    rf"[A-Za-z0-9][A-Za-z0-9_.-]{{0,{QUEUE_NAME_CHARS_MAX - 1}}}(?:{SIDELINE_SUFFIX})?"
)
_QUEUE: Final = re.compile(QUEUE_PATTERN)
SIDELINE_PATTERN: Final = QUEUE_PATTERN.replace("(?:", "").replace(")?", "")
_KEY_WRITTEN: Final = re.compile(r"(?:[A-Za-z0-9_-]|=[0-9A-F]{2})+")
UUID_V7: Final = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
"""The beginning of an id. Not every match is an id: publish times have an upper limit."""
ATTRIBUTES_PATTERN: Final = (
    r"(?:,p=(?P<priority>[1-9]))?"
    r"(?:,k=(?P<key>[A-Za-z0-9_=-]+))?"
    rf"(?:,g=(?P<group>[0-9a-f]{{{GROUP_DIGITS}}}))?"
    r"(?:,t=(?P<tags>[1-9]))?"
    r"(?:,v=(?P<visibility>[1-9][0-9]{0,5}))?"
    r"(?:,e=(?P<ttl>[1-9][0-9]{0,7}))?"
    r"(?:,n=(?P<items>[1-9][0-9]{0,3}))?"
    r"(?:,h=(?P<headers>[1-9][0-9]{0,3}))?"
    rf"(?:\.(?P<extension>{'|'.join(EXTENSIONS)}))?"
)
"""The attributes behind an id's uuid. `parse` checks the values of numbers and of the key."""
ID_PATTERN: Final = rf"(?P<uuid>{UUID_V7.pattern}){ATTRIBUTES_PATTERN}"
"""A whole id, likewise."""
_ID: Final = re.compile(ID_PATTERN)
# Ids without attributes but `n=`: nearly all ids.
_PLAIN_ID: Final = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
    r"(?:,n=([1-9][0-9]{0,3}))?(?:\.([a-z0-9]+))?"
)
PACKED: Final = ",n="
"""What the ids of packs and of their items have in them, and no others."""
_PLACE: Final = slice(20, 23)
_PACKS_PLACE: Final = "000"
GROUP_PATTERN: Final = rf"[^\x00-\x20\x7f]{{1,{GROUP_CHARS_MAX}}}"
UUIDS_END: Final = f"{PUBLISHED_MS_MAX >> 16:08x}-{PUBLISHED_MS_MAX & 0xFFFF:04x}-8"
"""The text before which all ids sort."""
_KEY_BYTES_AS_THEY_ARE: Final = frozenset(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"
)


@dataclass(frozen=True, slots=True, order=True)
class QueueName:
    """A queue's name: at most 55 characters, optionally followed by `_SIDELINE`."""

    text: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parses a queue's name. Raises BadName."""
        if _QUEUE.fullmatch(text) is None:
            raise BadName("queue", "a letter or digit, then up to 54 of letters, digits, _ . -")
        return cls(text)

    def sideline(self) -> "QueueName":
        """The name of the queue's sideline."""
        if self.is_sideline:
            return self
        return QueueName(self.text + SIDELINE_SUFFIX)

    @property
    def is_sideline(self) -> bool:
        """Whether it is a sideline's name."""
        return self.text.endswith(SIDELINE_SUFFIX)

    def counterpart(self) -> "QueueName":
        """The sideline of a queue; the queue of a sideline."""
        if self.is_sideline:
            return QueueName(self.text.removesuffix(SIDELINE_SUFFIX))
        return self.sideline()

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True, order=True)
class ConsumerName:
    """The name of a Spark consumer that leases messages, or of a consumer that polls."""

    text: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parses a consumer's name. Raises BadName."""
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
        """Parses a schedule's name. Raises BadName."""
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
        """Parses a key. Raises BadName if it is empty, too long when written, or not Unicode."""
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
        """Parses a key as names hold it. Raises BadName for another form."""
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
            raise BadName("key", "escaped only where a byte needs it")
        return key

    def written(self) -> str:
        """The key as names hold it: bytes outside [A-Za-z0-9_-] as =XX."""
        return "".join(
            chr(byte) if byte in _KEY_BYTES_AS_THEY_ARE else f"={byte:02X}"
            for byte in self.text.encode("utf-8")
        )


_GROUP: Final = re.compile(GROUP_PATTERN)
GROUP_BEGINS: Final = ",g="
"""What the ids of messages of groups have in them, and no others."""


@dataclass(frozen=True, slots=True)
class Group:
    """The name of a message group: 1 to 128 visible characters."""

    text: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parses a group's name. Raises BadName."""
        try:
            text.encode()
        except UnicodeEncodeError:
            raise BadName("group", "valid Unicode") from None
        if _GROUP.fullmatch(text) is None:
            raise BadName("group", f"1 to {GROUP_CHARS_MAX} characters, none of them a space")
        return cls(text)

    @property
    def digits(self) -> str:
        """The group's digits in ids. Groups with equal digits are delivered as one."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:GROUP_DIGITS]


def group_in(name: str) -> str:
    """The group's digits in the text of an id; "" without a group. Does not validate, for speed:
    the result for another text is undefined.
    """
    place = name.find(GROUP_BEGINS, UUID_CHARS)
    return name[place + 3 : place + 3 + GROUP_DIGITS] if place > 0 else ""


def uuid_beginning(ms: int) -> str:
    """The first 13 characters of the UUIDs of a millisecond since the epoch."""
    return f"{ms >> 16:08x}-{ms & 0xFFFF:04x}"


@dataclass(slots=True, unsafe_hash=True, init=False)
class MessageId:
    """A message's id, which is also its file's name and never changes. (Not `frozen`, for speed.)

    `uuid` is a UUIDv7 in its usual text. `visibility_s` is None if the queue's applies; `ttl_s` is
    None if the message has no time to live of its own. `tags` is their number, `header_bytes` the
    length of the header block before the body, `extension` one of EXTENSIONS or empty, `group` the
    digits of its group or empty. `items` is the number of a pack's messages, 0 for a message;
    `pack_size` the same number for a message that is or was an item of a pack, else 0. `text` is
    the whole id, opaque to clients.
    """

    uuid: str
    priority: int
    key: Key | None
    visibility_s: int | None
    header_bytes: int
    extension: str
    ttl_s: int | None
    group: str
    tags: int
    items: int
    pack_size: int
    text: str = field(init=False, compare=False, repr=False)

    def __init__(
        self,
        uuid: str,
        priority: int = 0,
        key: Key | None = None,
        visibility_s: int | None = None,
        header_bytes: int = 0,
        extension: str = "",
        ttl_s: int | None = None,
        group: str = "",
        tags: int = 0,
        items: int = 0,
        pack_size: int = 0,
        text: str = "",
    ) -> None:
        """`text`: the whole id, if it is known."""
        self.uuid = uuid
        self.priority = priority
        self.key = key
        self.visibility_s = visibility_s
        self.header_bytes = header_bytes
        self.extension = extension
        self.ttl_s = ttl_s
        self.group = group
        self.tags = tags
        self.items = items
        self.pack_size = pack_size
        if text:
            self.text = text
            return
        text = uuid
        if priority:
            text += f",p={priority}"
        if key is not None:
            text += f",k={key.written()}"
        if group or tags or visibility_s is not None or ttl_s is not None or items or pack_size:
            text += self._rarer()
        if header_bytes:
            text += f",h={header_bytes}"
        if extension:
            text += f".{extension}"
        self.text = text

    def _rarer(self) -> str:
        text = f"{GROUP_BEGINS}{self.group}" if self.group else ""
        if self.tags:
            text += f",t={self.tags}"
        if self.visibility_s is not None:
            text += f",v={self.visibility_s}"
        if self.ttl_s is not None:
            text += f",e={self.ttl_s}"
        if self.items or self.pack_size:
            text += f"{PACKED}{self.items or self.pack_size}"
        return text

    def with_uuid(self, uuid: str) -> "MessageId":
        """The id of another message with the same attributes; of a pack, that of another pack."""
        made = copy(self)
        made.uuid, made.text = uuid, uuid + self.text[UUID_CHARS:]
        return made

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parses an id. Raises BadName unless `text` is exactly the written form of one."""
        if len(text) == UUID_CHARS and text < UUIDS_END and UUID_V7.fullmatch(text) is not None:
            return cls(text, text=text)
        match = _ID.fullmatch(text)
        if match is None:
            raise BadName("id", "exactly as the publish or the fetch returned it")
        uuid, priority, key, group, tags, visibility, ttl, n, headers, extension = match.groups()
        try:
            written_key = None if key is None else Key.parse_written(key)
        except BadName as error:
            raise BadName("id", f"an id whose key is {error.expected}") from None
        items, is_pack = int(n or 0), uuid[_PLACE] == _PACKS_PLACE
        if items and not PACK_MESSAGES_MIN <= items <= PACK_MESSAGES_MAX:
            raise BadName(
                "id", f"an id of a pack of {PACK_MESSAGES_MIN} to {PACK_MESSAGES_MAX} messages"
            )
        if items and (key or group or tags or ttl):
            raise BadName("id", "an id without key, group, tags and time to live beside n=")
        message_id = cls(
            uuid=uuid,
            priority=int(priority or 0),
            key=written_key,
            visibility_s=None if visibility is None else int(visibility),
            header_bytes=int(headers or 0),
            extension=extension or "",
            ttl_s=None if ttl is None else int(ttl),
            group=group or "",
            tags=int(tags or 0),
            items=items if is_pack else 0,
            pack_size=0 if is_pack else items,
            text=text,
        )
        if message_id.published_ms > PUBLISHED_MS_MAX:
            raise BadName("id", "an id with a time before the year 10000")
        if (message_id.visibility_s or 0) > VISIBILITY_S_MAX:
            raise BadName("id", f"an id with a visibility of at most {VISIBILITY_S_MAX} s")
        if (message_id.ttl_s or 0) > MESSAGE_TTL_S_MAX:
            raise BadName("id", f"an id with a time to live of at most {MESSAGE_TTL_S_MAX} s")
        if message_id.header_bytes > HEADER_BLOCK_BYTES_MAX:
            raise BadName(
                "id", f"an id with a header block of at most {HEADER_BLOCK_BYTES_MAX} bytes"
            )
        return message_id

    @staticmethod
    def is_written(text: str) -> bool:
        """Whether `parse` accepts the text; fast, for many names."""
        return items_of(text) > 0

    @property
    def place(self) -> int:
        """The place of an item in its pack, from 1 on; 0 of a pack."""
        return int(self.uuid[_PLACE], 16)

    @property
    def is_possible(self) -> bool:
        """Whether it can be a message's: not a pack's, nor of a place that its pack has not."""
        return not self.items and (not self.pack_size or self.place <= self.pack_size)

    def pack(self) -> "MessageId":
        """The pack that an item is or was of."""
        return self._of_pack(_PACKS_PLACE)

    def item(self, place: int) -> "MessageId":
        """The message at a place of the pack, from 1 on."""
        return self._of_pack(f"{place:03x}")

    def all_items(self) -> list["MessageId"]:
        """The messages of a pack, in their order."""
        return [self.item(place) for place in range(1, self.items + 1)]

    def _of_pack(self, place: str) -> "MessageId":
        made = self.with_uuid(self.uuid[: _PLACE.start] + place + self.uuid[_PLACE.stop :])
        size = self.items or self.pack_size
        is_pack = place == _PACKS_PLACE
        made.items, made.pack_size = (size, 0) if is_pack else (0, size)
        return made

    @property
    def published_ms(self) -> int:
        """The publish time: the UUIDv7's milliseconds since the Unix epoch."""
        return int(self.uuid[:8] + self.uuid[9:13], 16)

    @property
    def expires_ms(self) -> int | None:
        """When the message's own time to live ends, in milliseconds since the epoch; None: it has
        none.
        """
        return None if self.ttl_s is None else self.published_ms + self.ttl_s * 1000

    @property
    def is_entered(self) -> bool:
        """Whether the message has entries in an index (tags, own expiry), beside its id and key."""
        return self.ttl_s is not None or self.tags > 0

    @property
    def content_type(self) -> str:
        """The extension's content type."""
        return content_type_of(self.extension)

    def __str__(self) -> str:
        return self.text


def items_of(text: str) -> int:
    """How many messages a file of this name has: 0 of a foreign one, 1 of a message, more of a
    pack. Fast, for many names.
    """
    match = _PLAIN_ID.fullmatch(text)
    if match is not None and text < UUIDS_END:
        if match.lastindex is None:
            return 1
        n, extension = match.groups()
        if n is None or text[_PLACE] != _PACKS_PLACE:
            return int(_is_one(n, extension))
        return int(n) if _is_one(n, extension) else 0
    try:
        return MessageId.parse(text).items or 1
    except BadName:
        return 0


def _is_one(n: str | None, extension: str | None) -> bool:
    is_known = extension is None or extension in EXTENSIONS
    return is_known and (n is None or PACK_MESSAGES_MIN <= int(n) <= PACK_MESSAGES_MAX)


def messages_of(text: str) -> list[str]:
    """The ids of the messages that a file of this id has, as texts: of a pack its items."""
    if PACKED not in text or (items := items_of(text)) <= 1:
        return [text]
    before, after = text[: _PLACE.start], text[_PLACE.stop :]
    return [f"{before}{place:03x}{after}" for place in range(1, items + 1)]


def pack_of(text: str) -> str:
    """The id of the file in which a message is published, as text: of its pack for an item, else
    its own. Does not validate, for speed.
    """
    if PACKED not in text:
        return text
    return text[: _PLACE.start] + _PACKS_PLACE + text[_PLACE.stop :]


_RANDOM_WORDS: Final = 512
# The place of a UUIDv7's counter, and the variant digit for each random digit.
_COUNT_PLACE: Final = 15
_VARIANTS: Final = {f"{digit:x}": "89ab"[digit & 3] for digit in range(16)}


class UuidSource:
    """Generates UUIDv7s that rise strictly in this process (RFC 9562, section 6.2, method 1).

    The 12 bits after the version count within a millisecond, from a random start in the lower half.
    A millisecond that runs out borrows the next one, and the generator does not follow a clock that
    steps back. Not thread-safe: it belongs to the event loop.
    """

    __slots__ = ("_clock", "_count", "_random", "ms")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.ms = -1
        """The time of the last one, in milliseconds since the epoch."""
        self._count = 0
        self._random = chain.from_iterable(iter(_random_words, ()))

    def next(self) -> str:
        """The next UUID as text."""
        now_ms = self._clock.now_ms()
        if now_ms <= self.ms and self._count < 0xFFF:
            self._count += 1
        else:
            self.ms = max(now_ms, self.ms + 1)
            self._count = next(self._random) & 0x7FF
        ms, tail = self.ms, next(self._random)
        return (
            f"{ms >> 16:08x}-{ms & 0xFFFF:04x}-7{self._count:03x}-"
            f"{0x8000 | tail >> 50:04x}-{tail & 0xFFFFFFFFFFFF:012x}"
        )

    def end_moment(self) -> int:
        """A time in milliseconds since the epoch: all ids made so far are at or before it, all
        later ids after it.
        """
        self.go_past(max(self._clock.now_ms(), self.ms))
        return self.ms

    def go_past(self, ms: int) -> None:
        """Makes all further ids later than this time, in milliseconds since the epoch."""
        if ms >= self.ms:
            self.ms, self._count = ms, 0xFFF

    def many(self, count: int) -> list[str]:
        """The next `count` UUIDs; reads the clock once for each millisecond."""
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

    def packs(self, count: int) -> list[str]:
        """The next `count` UUIDs of packs: their items' UUIDs are before the next one too."""
        return [
            each[: _PLACE.start] + _PACKS_PLACE + each[_PLACE.stop :] for each in self.many(count)
        ]


def _random_words() -> tuple[int, ...]:
    """Many times 64 random bits, to save calls of the kernel."""
    return struct.unpack(f"={_RANDOM_WORDS}Q", os.urandom(8 * _RANDOM_WORDS))


def extension_for(content_type: str) -> str:
    """The extension for a Content-Type header; empty for a type outside the table, or with
    parameters.
    """
    return CONTENT_TYPES.get(content_type.strip().lower(), "")


def content_type_of(extension: str) -> str:
    """The content type of an extension; the default type for ""."""
    return EXTENSIONS.get(extension, CONTENT_TYPE_DEFAULT)


def is_default(content_type: str) -> bool:
    """Whether a Content-Type header has the default value."""
    return content_type.strip().lower() in ("", CONTENT_TYPE_DEFAULT, FORM_DEFAULT)


# Many ids as text: takes a fraction of the time of parsing each.

_UUID_FORM: Final = b"00000000-0000-0000-0000-000000000000"
_DIGITS_TO_0: Final = bytes.maketrans(b"0123456789abcdef", b"0" * 16)
# The places of a uuid's version, 7, and of its variant.
_VERSION: Final = 14
_VARIANT: Final = 19


def are_uuids(texts: Sequence[str]) -> bool:
    """Whether all texts are ids without attributes; takes a fraction of the time of parsing
    each.
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


# Ids that a repeated bulk publish makes again: UUIDv7s of its publish id and the rows.

_HASH_BITS: Final = 62 - PARTITION_BITS
_HIGH_BITS: Final = 7
_HASH_MASK: Final = (1 << _HASH_BITS) - 1


class RepeatableIds:
    """The UUIDs of one partition of a bulk publish that began at `begun_ms` (since the epoch)."""

    __slots__ = ("_begun_ms", "_hash", "_partition")

    def __init__(self, publish_id: Key, begun_ms: int, partition: int) -> None:
        self._begun_ms = begun_ms
        self._partition = (partition & ((1 << PARTITION_BITS) - 1)) << _HASH_BITS
        # The separator behind the publish id cannot be part of a key, so the input is unambiguous.
        self._hash = hashlib.sha256(f"{publish_id.written()}\n{partition}\n".encode("ascii"))

    def uuid(self, row: int) -> str:
        """The UUID of the partition's row, counted from 0."""
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


_REPLAY: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
_DIGITS: Final = 12


@dataclass(frozen=True, slots=True, order=True)
class ReplayId:
    """The id of a job's run that replays messages: moves them to another queue, or publishes them
    again.
    """

    text: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parses a replay id. Raises BadName."""
        if _REPLAY.fullmatch(text) is None:
            raise BadName("replay id", "a letter or digit, then up to 39 of letters, digits, _ -")
        return cls(text)

    @classmethod
    def new(cls) -> Self:
        return cls(secrets.token_hex(_DIGITS // 2))

    def __str__(self) -> str:
        return self.text
