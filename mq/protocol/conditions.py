"""Conditions and ranges of requests (RFC 9110, sections 13 and 14). Pure.

One range is served. Several ranges, another unit and malformed headers are ignored.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from mq.model.errors import BadPrecondition, RangeUnsatisfiable
from mq.model.message import Part
from mq.protocol.query import Header

# A list of entity tags; empty elements are ignored (RFC 9110, section 5.6.1).
_ENTITY_TAGS: Final = re.compile(r'[\s,]*(?:W/)?"[^"]*"(?:\s*,[\s,]*(?:W/)?"[^"]*")*[\s,]*')
_ENTITY_TAG: Final = re.compile(r'(W/)?"([^"]*)"')

IF_MATCH: Final = Header(
    "If-Match", {"type": "string", "pattern": rf"^(?:\s*\*\s*|{_ENTITY_TAGS.pattern})$"},
    "Act only if the current entity tag is one of these, or `*`.",
    example='"1"',
)  # fmt: skip
IF_NONE_MATCH: Final = Header(
    "If-None-Match", {"type": "string"},
    "Answer 304 if the current entity tag is one of these, or `*`.",
    example='"0123456789abcdef"',
)  # fmt: skip


def etag(receives: int) -> str:
    return f'"{receives}"'


def parse_if_match(values: list[str]) -> Callable[[int], bool] | None:
    """A test of a message's receives by If-Match; None without the header. Raises
    BadPrecondition.
    """
    matches = parse_tags(values)
    return None if matches is None else lambda receives: matches(str(receives))


def parse_tags(values: list[str]) -> Callable[[str], bool] | None:
    """A test of entity tags by If-Match: a list, or `*` for any; None without the header.

    A weak tag never matches (RFC 9110, section 13.1.1). Raises BadPrecondition.
    """
    if not values:
        return None
    text = ", ".join(values).strip()
    if text == "*":
        return lambda tag: True
    if _ENTITY_TAGS.fullmatch(text) is None:
        raise BadPrecondition
    tags = {tag for weak, tag in _ENTITY_TAG.findall(text) if not weak}
    return lambda tag: tag in tags


def is_known(values: list[str], tag: str) -> bool:
    """Whether If-None-Match names this tag, compared weakly (RFC 9110, section 13.1.2). A malformed
    header names none.
    """
    text = ", ".join(values).strip()
    if text == "*":
        return True
    return _ENTITY_TAGS.fullmatch(text) is not None and any(
        f'"{each}"' == tag for _, each in _ENTITY_TAG.findall(text)
    )


# Ranges

# Empty elements of the list are ignored. Numbers may be long: some clients write "to the end" as
# the largest 64-bit number.
_RANGE: Final = re.compile(r"bytes=[ \t,]*([0-9]{0,100})-([0-9]{0,100})[ \t,]*", re.IGNORECASE)

RANGE: Final = Header(
    "Range", {"type": "string"},
    "`bytes=` and one range; anything else is ignored.",
    example="bytes=0-99",
)  # fmt: skip
IF_RANGE: Final = Header(
    "If-Range", {"type": "string"},
    "Ignore the range unless this is the current entity tag.",
    example='"1"',
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Wanted:
    """The bytes from `first` to `last`, both included, or to the end if `last` is None; without
    `first` the last `last` bytes.
    """

    first: int | None
    last: int | None

    def of(self, size: int) -> Part:
        """The part of a body of `size` bytes. Raises RangeUnsatisfiable."""
        if self.first is None:
            if not self.last:
                raise RangeUnsatisfiable(size)
            count = min(self.last, size)
            return Part(size - count, count)
        if self.first >= size:
            raise RangeUnsatisfiable(size)
        end = size if self.last is None else min(self.last + 1, size)
        return Part(self.first, end - self.first)


def wanted(ranges: list[str], if_range: str | None, etag: str) -> Wanted | None:
    """The range that a request asks for of a body with this entity tag; None: the whole."""
    match = _RANGE.fullmatch(ranges[0].strip()) if len(ranges) == 1 else None
    if match is None or (if_range is not None and if_range.strip() != etag):
        return None
    first, last = (int(text) if text else None for text in match.groups())
    if first is None:
        return None if last is None else Wanted(None, last)
    return None if last is not None and last < first else Wanted(first, last)
