"""The headers that a message keeps, and the block before its body that they stand in.

FORMAT.md, "The header block", has its grammar: one line a header, in the order in which
they came, in UTF-8. Its length is in the message's name.
"""

import re
from collections.abc import Iterable
from typing import Final, TypeAlias

from mq.model.errors import BadParameter, HeadersTooLarge
from mq.model.limits import HEADER_BLOCK_BYTES_MAX, HEADERS_MAX
from mq.model.names import extension_for, is_default

Headers: TypeAlias = tuple[tuple[str, str], ...]

_CONTENT_TYPE: Final = "content-type"
_KEPT: Final = frozenset({"content-encoding", "traceparent", "tracestate"})
_KEPT_BEGINNINGS: Final = ("ce-", "x-attribute-")
# A field line of RFC 9110, section 5; no value begins or ends with white space.
_LINE: Final = re.compile(
    r"([!#$%&'*+.^_`|~0-9A-Za-z-]+): ((?![\t ])[\t\x20-\x7e\x80-\U0010ffff]*(?<![\t ])|)"
)


def kept(headers: Iterable[tuple[str, str]]) -> Headers:
    """Those of a request's headers that its message keeps beside what its name says: CloudEvents'
    (binary mode), trace context's, attributes, Content-Encoding, and a Content-Type that no
    extension stands for. Raises HeadersTooLarge, BadParameter.
    """
    found = tuple((name, value) for name, value in headers if _is_kept(name.lower(), value))
    try:
        size = len(print_block(found))
    except UnicodeEncodeError:
        raise BadParameter("headers", "values in UTF-8") from None
    if len(found) > HEADERS_MAX or size > HEADER_BLOCK_BYTES_MAX:
        raise HeadersTooLarge(HEADERS_MAX, HEADER_BLOCK_BYTES_MAX)
    # So that all that was kept is given back.
    if parse_block(print_block(found)) != found:
        raise BadParameter("headers", "values without control characters")
    return found


def _is_kept(name: str, value: str) -> bool:
    if name == _CONTENT_TYPE:
        return not is_default(value) and not extension_for(value)
    return is_kept_name(name)


def is_beginning(name: str) -> bool:
    """Whether a header's name, in lower case, says none: only what names begin with."""
    return name in _KEPT_BEGINNINGS


def is_kept_name(name: str) -> bool:
    """Whether messages keep the header of this name, in lower case, whatever its value is."""
    return name in _KEPT or name.startswith(_KEPT_BEGINNINGS)


def print_block(headers: Headers) -> bytes:
    """The block that says these."""
    return "".join(f"{name}: {value}\n" for name, value in headers).encode()


def parse_block(block: bytes) -> Headers:
    """What a block says. A line that mq would not have written is passed over, so that nothing
    gets into an answer that no request could have brought; and so is a last line without its end.
    """
    pairs = (_pair(line) for line in block.split(b"\n")[:-1])
    return tuple(pair for pair in pairs if pair is not None and _is_kept(pair[0].lower(), pair[1]))


def _pair(line: bytes) -> tuple[str, str] | None:
    try:
        match = _LINE.fullmatch(line.decode())
    except UnicodeDecodeError:
        return None
    return None if match is None else (match[1], match[2])
