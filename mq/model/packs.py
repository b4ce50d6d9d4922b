"""Packs: files that hold several messages. Their contents, and how messages are cut into them.

    contents = header-block index *( body LF )
    index    = '{"sizes": [' size *( ", " size ) ']}' LF

The header block is that of all items, as long as the pack's `h=` says; `sizes` are those of the
bodies, in bytes. The index has one spelling: what differs from it by one byte is unreadable, as is
a file whose size differs from what its index says. Pure.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from mq.model.errors import MessageUnreadable
from mq.model.limits import PACK_BYTES_MAX, PACK_MESSAGES_MIN
from mq.model.names import MessageId, pack_of

_BEGINS: Final = b'{"sizes": ['
_BETWEEN: Final = b", "
_ENDS: Final = b"]}\n"
_LF: Final = 10
_SIZE_DIGITS_MAX: Final = len(str(PACK_BYTES_MAX))
_SIZE: Final = rb"(?:0|[1-9][0-9]{0,%d})" % (_SIZE_DIGITS_MAX - 1)
_INDEX: Final = re.compile(rb'\{"sizes": \[(%s(?:, %s)*)\]\}\n' % (_SIZE, _SIZE))


class Span(NamedTuple):
    """The place of an item's body in its pack's file, in bytes."""

    offset: int
    size: int

    @property
    def end(self) -> int:
        return self.offset + self.size


def contents(bodies: Sequence[bytes]) -> bytes:
    """The bytes of a pack behind its header block."""
    parts = [_index(len(body) for body in bodies)]
    for body in bodies:
        parts += (body, b"\n")
    return b"".join(parts)


def spans_in(content: bytes, pack: MessageId) -> list[Span]:
    """The places of the items' bodies in the whole bytes of a pack's file, in their order. Raises
    MessageUnreadable unless these are exactly such a file's.
    """
    end_max = pack.header_bytes + _index_bytes(pack.items, pack.items * _SIZE_DIGITS_MAX)
    match = _INDEX.match(content, pack.header_bytes, end_max)
    if match is None or len(content) > PACK_BYTES_MAX:
        raise MessageUnreadable(pack.text)
    spans, offset = [], match.end()
    for size in map(int, match[1].split(_BETWEEN)):
        spans.append(Span(offset, size))
        offset += size + 1
    if len(spans) != pack.items or offset != len(content):
        raise MessageUnreadable(pack.text)
    if any(content[span.end] != _LF for span in spans):
        raise MessageUnreadable(pack.text)
    return spans


def bodies_in(content: bytes, pack: MessageId) -> list[bytes]:
    """The items' bodies in the whole bytes of a pack's file. Raises MessageUnreadable."""
    return [content[span.offset : span.end] for span in spans_in(content, pack)]


def cut(sizes: Iterable[int], header_bytes: int, messages_max: int) -> list[int]:
    """Cuts bodies of these sizes, in their order, into packs: returns how many bodies each next
    file has. 1 is a message's own file: of a body that no pack has room for, or one that is left
    over. `header_bytes`: the length of the header block of each file. `messages_max`: the limit of
    messages in a pack; below 2 there are none.
    """
    runs: list[int] = []
    count = digits = held = 0
    for size in sizes:
        written = len(str(size))
        filled = header_bytes + held + size + count + 1 + _index_bytes(count + 1, digits + written)
        if count and (count >= messages_max or filled > PACK_BYTES_MAX):
            runs.append(count)
            count = digits = held = 0
        count, digits, held = count + 1, digits + written, held + size
    return [*runs, count] if count else runs


def by_pack(ids: Iterable[MessageId]) -> dict[str, list[MessageId]]:
    """The ids by the id of the file in which each was published, as text: of their pack for items
    of one, else their own. In the order of the first of each.
    """
    found: dict[str, list[MessageId]] = {}
    for each in ids:
        found.setdefault(pack_of(each.text), []).append(each)
    return found


def is_whole(ids: Sequence[MessageId]) -> bool:
    """Whether ids of one pack's items are all that it has."""
    size = ids[0].pack_size
    possible = {each.text for each in ids if each.is_possible}
    return size >= PACK_MESSAGES_MIN and len(possible) == size


def _index(sizes: Iterable[int]) -> bytes:
    return _BEGINS + _BETWEEN.join(b"%d" % size for size in sizes) + _ENDS


def _index_bytes(count: int, digits: int) -> int:
    """The length of an index of `count` sizes with `digits` digits together."""
    return len(_BEGINS) + digits + (count - 1) * len(_BETWEEN) + len(_ENDS)
