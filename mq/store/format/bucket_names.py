"""Buckets: their names, the contents of names, and the bucket of an id.

FORMAT.md, "buckets", has the grammar. A `bucket` is the part of a path between a folder and the
message's name: "" or `{bucket}/` or `{bucket}/{two digits}/`.
"""

import re
from dataclasses import dataclass
from typing import Final

from mq.model.limits import BUCKET_DIGITS_MAX, BUCKET_DIGITS_MIN
from mq.model.names import MessageId, group_in

BUCKET_DIGITS_DEFAULT: Final = 8
DEEP_DIGITS: Final = 2
# How long an empty bucket stays at least after its window: clocks of daemons differ.
BUCKET_KEPT_S: Final = 60

_BUCKET: Final = re.compile(
    rf"(?:p([1-9])-)?([0-9a-f]{{{BUCKET_DIGITS_MIN},{BUCKET_DIGITS_MAX}}})(?:-([0-9]|1[0-5]))?"
)
_DEEP: Final = re.compile(rf"[0-9a-f]{{{DEEP_DIGITS}}}")
# The number of a UUIDv7's hexadecimal digits that hold its time, and of those before its first
# dash.
_TIME_DIGITS: Final = 12
_FIRST_DIGITS: Final = 8
# The first characters of a uuid that determine a place, with the dash; and those for the shard.
_DECIDES: Final = BUCKET_DIGITS_MAX + DEEP_DIGITS + 1
_SHARD: Final = slice(32, 36)


@dataclass(frozen=True, slots=True)
class Shape:
    """How a folder's buckets are named: the number of the id's first digits, the number of
    concurrency shards, and whether the priority is part of the name. Fixed for a queue's life.
    """

    digits: int = BUCKET_DIGITS_DEFAULT
    shards: int = 1
    by_priority: bool = True

    def bucket(self, message_id: MessageId) -> str:
        return self.deep(message_id)[: -DEEP_DIGITS - 1]

    def decides(self, message_id: MessageId) -> str:
        """The part of an id that determines its place."""
        uuid = message_id.uuid
        shard = "" if self.shards == 1 else message_id.group[-4:] or uuid[_SHARD]
        return f"{message_id.priority}-{uuid[:_DECIDES]}{shard}"

    def deep(self, message_id: MessageId) -> str:
        """The place of an id whose bucket is full."""
        uuid = message_id.uuid
        hex_digits = uuid.replace("-", "")
        bucket = hex_digits[: self.digits]
        if self.by_priority and message_id.priority:
            bucket = f"p{message_id.priority}-{bucket}"
        if self.shards > 1:
            bucket = f"{bucket}-{shard_of(message_id.text, self.shards)}"
        return f"{bucket}/{hex_digits[self.digits : self.digits + DEEP_DIGITS]}/"


IN_COMMON: Final = Shape(by_priority=False)
"""The shape of delay/ and remove/: it is the same for all queues, so that a process needs no
settings to move a message.
"""


def shard_of(name: str, shards: int) -> int:
    """The concurrency shard of an id: the last four digits of its group or, without one, of its
    uuid, modulo `shards`. So a group has one shard, and keeps its order.
    """
    return int(group_in(name)[-4:] or name[_SHARD], 16) % shards


@dataclass(frozen=True, slots=True)
class Bucket:
    """The parsed name of a bucket. `shard` is None if the name has none."""

    priority: int
    digits: str
    shard: int | None

    def ends_by(self, ms: int) -> bool:
        """Whether all ids of the bucket are at or before this time, in milliseconds since the
        epoch.
        """
        return _window_end_ms(self.digits) <= ms + 1

    def begins_after(self, ms: int) -> bool:
        """Whether all ids of the bucket are after this time, in milliseconds since the epoch."""
        return int(self.digits, 16) << _window_bits(self.digits) > ms

    def may_be_written(self, now_ms: int) -> bool:
        """Whether messages of now, or of a moment ago by some daemon's clock, may still go there:
        its window has not passed by as much again, or by a minute.
        """
        kept_ms = max(1 << _window_bits(self.digits), BUCKET_KEPT_S * 1000)
        return now_ms - _window_end_ms(self.digits) < kept_ms


def _window_end_ms(digits: str) -> int:
    """The end of the time window of an id's first digits, in milliseconds since the epoch."""
    return (int(digits, 16) + 1) << _window_bits(digits)


def _window_bits(digits: str) -> int:
    return 4 * (_TIME_DIGITS - len(digits))


def parse_bucket(name: str) -> Bucket | None:
    """Parses the name of a bucket's folder; None: it is not one."""
    match = _BUCKET.fullmatch(name)
    if match is None:
        return None
    priority, digits, shard = match.groups()
    return Bucket(int(priority or 0), digits, None if shard is None else int(shard))


def is_deep(name: str) -> bool:
    """Whether a folder of this name in a bucket holds the overflow of the bucket."""
    return _DEEP.fullmatch(name) is not None


def dashed(digits: str) -> str:
    """The beginning of ids with these first digits."""
    if len(digits) <= _FIRST_DIGITS:
        return digits
    return f"{digits[:_FIRST_DIGITS]}-{digits[_FIRST_DIGITS:]}"


def leading(folder: str, bucket: str) -> tuple[str, ...]:
    """The folders that lead to a bucket, and its own, the outer ones first, without `folder`."""
    return tuple(f"{folder}/{bucket[:end]}" for end, char in enumerate(bucket) if char == "/")
