"""Which bytes of a body a request asks for (RFC 9110, section 14): pure.

One range is served. Several, another unit or a malformed header are passed over, as if the header
were not there.
"""

import re
from dataclasses import dataclass
from typing import Final

from mq.model.errors import RangeUnsatisfiable
from mq.model.looking import Part
from mq.protocol.query import Header

# Empty elements of the list of ranges are ignored. Long numbers are numbers: some say "to the end"
# with the largest of 64 bits.
_RANGE: Final = re.compile(r"bytes=[ \t,]*([0-9]{0,100})-([0-9]{0,100})[ \t,]*", re.IGNORECASE)

RANGE: Final = Header(
    "Range", {"type": "string"},
    "`bytes=` with one range. Several, another unit and what is malformed are passed over.",
    example="bytes=0-99",
)  # fmt: skip
IF_RANGE: Final = Header(
    "If-Range", {"type": "string"},
    "The entity tag without which the range is passed over.",
    example='"1"',
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Wanted:
    """The bytes from `first` to `last`, both counted in, or to the end where `last` is None; where
    `first` is None, so many at the end as `last` says.
    """

    first: int | None
    last: int | None

    def of(self, size: int) -> Part:
        """The part of a body of so many bytes; of an empty body, its end is the whole of it. Raises
        RangeUnsatisfiable.
        """
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
    """What a request's Range headers ask for of what has this entity tag; None: the whole."""
    match = _RANGE.fullmatch(ranges[0].strip()) if len(ranges) == 1 else None
    if match is None or (if_range is not None and if_range.strip() != etag):
        return None
    first, last = (int(text) if text else None for text in match.groups())
    if first is None:
        return None if last is None else Wanted(None, last)
    return None if last is not None and last < first else Wanted(first, last)
