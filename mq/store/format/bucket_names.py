"""Buckets: their names, what their names say, and which one an id goes to.

FORMAT.md, "buckets", has the grammar. A `bucket` is what stands between a folder and the message's
name: "" or `{bucket}/` or `{bucket}/{two digits}/`.
"""

import re
from dataclasses import dataclass
from typing import Final

from mq.model.limits import (
    BUCKET_DIGITS_DEFAULT,
    BUCKET_DIGITS_MAX,
    BUCKET_DIGITS_MIN,
    BUCKET_KEPT_S,
    DEEP_DIGITS,
)
from mq.model.names import MessageId

_BUCKET: Final = re.compile(
    rf"(?:p([1-9])-)?([0-9a-f]{{{BUCKET_DIGITS_MIN},{BUCKET_DIGITS_MAX}}})(?:-([0-9]|1[0-5]))?"
)
_DEEP: Final = re.compile(rf"[0-9a-f]{{{DEEP_DIGITS}}}")
# The hexadecimal digits of a UUIDv7 that tell its time, and those before its first dash.
_TIME_DIGITS: Final = 12
_FIRST_DIGITS: Final = 8
# So many characters of a uuid have the digits that a place follows from, the dash among them; and
# those of the shard.
_DECIDES: Final = BUCKET_DIGITS_MAX + DEEP_DIGITS + 1
_SHARD: Final = slice(32, 36)


@dataclass(frozen=True, slots=True)
class Shape:
    """How a folder's buckets are named: by how many of the id's first digits, by how many
    concurrency shards, and whether by priority too. Fixed for a queue's life.
    """

    digits: int = BUCKET_DIGITS_DEFAULT
    shards: int = 1
    by_priority: bool = True

    def bucket(self, message_id: MessageId) -> str:
        """The bucket of an id."""
        return self.deep(message_id)[: -DEEP_DIGITS - 1]

    def decides(self, message_id: MessageId) -> str:
        """What of an id its place follows from."""
        uuid = message_id.uuid
        shard = "" if self.shards == 1 else uuid[_SHARD]
        return f"{message_id.priority}-{uuid[:_DECIDES]}{shard}"

    def deep(self, message_id: MessageId) -> str:
        """Where an id goes whose bucket is full."""
        uuid = message_id.uuid
        hex_digits = uuid.replace("-", "")
        bucket = hex_digits[: self.digits]
        if self.by_priority and message_id.priority:
            bucket = f"p{message_id.priority}-{bucket}"
        if self.shards > 1:
            bucket = f"{bucket}-{shard_of(uuid, self.shards)}"
        return f"{bucket}/{hex_digits[self.digits : self.digits + DEEP_DIGITS]}/"


IN_COMMON: Final = Shape(by_priority=False)
"""The shape of delay/ and remove/: whoever moves a message need not know its queue's settings."""


def shard_of(name: str, shards: int) -> int:
    """The concurrency shard of an id: the last four digits of its uuid, modulo."""
    return int(name[_SHARD], 16) % shards


@dataclass(frozen=True, slots=True)
class Bucket:
    """What a bucket's name says. `shard` is None where the name has none."""

    priority: int
    digits: str
    shard: int | None

    def ends_by(self, ms: int) -> bool:
        """Whether no id that belongs there is after this time, milliseconds since the epoch."""
        return _window_end_ms(self.digits) <= ms + 1

    def begins_after(self, ms: int) -> bool:
        """Whether every id that belongs there is after this time, milliseconds since the epoch."""
        return int(self.digits, 16) << _window_bits(self.digits) > ms

    def may_be_written(self, now_ms: int) -> bool:
        """Whether what is published now, or was a moment ago by some daemon's clock, may go there:
        its window, and as long again, or a minute, have not passed.
        """
        kept_ms = max(1 << _window_bits(self.digits), BUCKET_KEPT_S * 1000)
        return now_ms - _window_end_ms(self.digits) < kept_ms


def _window_end_ms(digits: str) -> int:
    """When the time is over that an id's first digits stand for, milliseconds since the epoch."""
    return (int(digits, 16) + 1) << _window_bits(digits)


def _window_bits(digits: str) -> int:
    return 4 * (_TIME_DIGITS - len(digits))


def parse_bucket(name: str) -> Bucket | None:
    """Reads a bucket folder's name; None: it is none's."""
    match = _BUCKET.fullmatch(name)
    if match is None:
        return None
    priority, digits, shard = match.groups()
    return Bucket(int(priority or 0), digits, None if shard is None else int(shard))


def is_deep(name: str) -> bool:
    """Whether a folder of this name in a bucket holds what the bucket could not."""
    return _DEEP.fullmatch(name) is not None


def dashed(digits: str) -> str:
    """How an id begins that has these first digits."""
    if len(digits) <= _FIRST_DIGITS:
        return digits
    return f"{digits[:_FIRST_DIGITS]}-{digits[_FIRST_DIGITS:]}"


def leading(folder: str, bucket: str) -> tuple[str, ...]:
    """The folders that lead to a bucket, and its own, the outer ones first; `folder` is not
    among them.
    """
    return tuple(f"{folder}/{bucket[:end]}" for end, char in enumerate(bucket) if char == "/")
