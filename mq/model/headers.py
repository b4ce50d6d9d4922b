"""The headers that a message keeps, and the header block before its body.

FORMAT.md, "The header block", has the grammar: one line a header, in UTF-8, in the order of the
request. The block's length is in the message's name.
"""

import contextlib
import re
from collections.abc import Iterable
from typing import Final, TypeAlias

from mq.model.errors import BadName, BadParameter, HeadersTooLarge
from mq.model.limits import HEADER_BLOCK_BYTES_MAX, HEADERS_MAX
from mq.model.names import Key, extension_for, is_default

Headers: TypeAlias = tuple[tuple[str, str], ...]

_CONTENT_TYPE: Final = "content-type"
FIRED_BY: Final = "X-Message-Schedule"
"""mq-mover writes it into messages of schedules; requests cannot set it."""
GROUPED_BY: Final = "X-Message-Group"
"""mq writes it into messages that are published with a group; requests cannot set it."""
TAGS: Final = "X-Message-Tags"
"""mq writes it into messages that are published with tags."""
_OWN: Final = frozenset({FIRED_BY, GROUPED_BY, TAGS})
_TAG_SEPARATOR: Final = ", "
KEPT: Final = frozenset({"content-encoding", "traceparent", "tracestate"})
KEPT_BEGINNINGS: Final = ("ce-", "x-attribute-")
"""Prefixes of the names of kept headers."""
# Most headers of most requests match none of these.
_MAY_BE_KEPT: Final = re.compile(
    rf"(?:{_CONTENT_TYPE}|{'|'.join(sorted(KEPT))})$|{'|'.join(KEPT_BEGINNINGS)}", re.IGNORECASE
).match
# A field line of RFC 9110, section 5; no value begins or ends with white space.
_LINE: Final = re.compile(
    r"([!#$%&'*+.^_`|~0-9A-Za-z-]+): ((?![\t ])[\t\x20-\x7e\x80-\U0010ffff]*(?<![\t ])|)"
)


def kept(headers: Iterable[tuple[str, str]]) -> Headers:
    """The headers of a request that its message keeps beside what its name says: CloudEvents
    (binary mode), trace context, attributes, Content-Encoding, and a Content-Type that has no
    extension. Raises HeadersTooLarge, BadParameter.
    """
    found = tuple([each for each in headers if _MAY_BE_KEPT(each[0]) and _is_kept(*each)])
    if not found:
        return found
    try:
        size = len(print_block(found))
    except UnicodeEncodeError:
        raise BadParameter("headers", "in UTF-8") from None
    if len(found) > HEADERS_MAX or size > HEADER_BLOCK_BYTES_MAX:
        raise HeadersTooLarge(HEADERS_MAX, HEADER_BLOCK_BYTES_MAX)
    # Checked here, so that everything that was kept can be given back.
    if parse_block(print_block(found)) != found:
        raise BadParameter("headers", "free of control characters")
    return found


def with_own(headers: Headers, name: str, value: str) -> Headers:
    """Adds a header of mq's own to a message's headers. Raises HeadersTooLarge."""
    found = (*headers, (name, value))
    if len(found) > HEADERS_MAX or len(print_block(found)) > HEADER_BLOCK_BYTES_MAX:
        raise HeadersTooLarge(HEADERS_MAX, HEADER_BLOCK_BYTES_MAX)
    return found


def _is_kept(name: str, value: str) -> bool:
    name = name.lower()
    if name == _CONTENT_TYPE:
        return not is_default(value) and not extension_for(value)
    return is_kept_name(name)


def with_tags(headers: Headers, tags: Iterable[Key]) -> Headers:
    """Adds the header with a message's tags. Raises HeadersTooLarge."""
    return with_own(headers, TAGS, _TAG_SEPARATOR.join(tag.written() for tag in tags))


def tags_in(headers: Headers) -> tuple[Key, ...]:
    """The tags in a message's headers; invalid ones are skipped."""
    return tuple(tag for name, value in headers if name == TAGS for tag in tags_of(value))


def tags_in_block(block: bytes) -> tuple[str, ...]:
    """The texts of the tags in a message's header block."""
    return tuple(tag.text for tag in tags_in(parse_block(block))) if block else ()


def tags_of(value: str) -> tuple[Key, ...]:
    """The tags in the value of the tags header; invalid ones are skipped."""
    found = []
    for written in value.split(_TAG_SEPARATOR):
        with contextlib.suppress(BadName):
            found.append(Key.parse_written(written))
    return tuple(found)


def is_kept_name(name: str) -> bool:
    """Whether messages keep a header of this lower-case name, whatever its value."""
    return name in KEPT or name.startswith(KEPT_BEGINNINGS)


def print_block(headers: Headers) -> bytes:
    """The header block with these headers."""
    return "".join(f"{name}: {value}\n" for name, value in headers).encode()


def parse_block(block: bytes) -> Headers:
    """Parses a header block. Skips lines that mq would not have written, so that no other header
    gets into an answer, and a last line without its end.
    """
    pairs = (_pair(line) for line in block.split(b"\n")[:-1])
    return tuple(
        pair for pair in pairs if pair is not None and (pair[0] in _OWN or _is_kept(*pair))
    )


def _pair(line: bytes) -> tuple[str, str] | None:
    try:
        match = _LINE.fullmatch(line.decode())
    except UnicodeDecodeError:
        return None
    return None if match is None else (match[1], match[2])
