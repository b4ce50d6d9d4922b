"""The headers that a message keeps, and the block before its body that they stand in.

Floor 0. The block is one line a header, in the order in which they came: name, colon, space,
value, line feed, in UTF-8. Its length is in the message's name.
"""

import re
from collections.abc import Iterable
from typing import Final, TypeAlias

from mq.errors import BadParameter, HeadersTooLarge
from mq.limits import HEADER_BLOCK_BYTES_MAX, HEADERS_MAX
from mq.names import extension_for, is_default

Headers: TypeAlias = tuple[tuple[str, str], ...]

_CONTENT_TYPE: Final = "content-type"
_KEPT: Final = frozenset({"content-encoding", "traceparent", "tracestate"})
_KEPT_BEGINNINGS: Final = ("ce-", "x-attribute-")
# A field line of RFC 9110, section 5.
_LINE: Final = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+): ([\t\x20-\x7e\x80-\U0010ffff]*)")


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
    return found


def _is_kept(name: str, value: str) -> bool:
    if name == _CONTENT_TYPE:
        return not is_default(value) and not extension_for(value)
    return name in _KEPT or name.startswith(_KEPT_BEGINNINGS)


def print_block(headers: Headers) -> bytes:
    """The block that says these."""
    return "".join(f"{name}: {value}\n" for name, value in headers).encode()


def parse_block(block: bytes) -> Headers:
    """What a block says. A line that mq would not have written is passed over, so that nothing
    gets into an answer that no request could have brought.
    """
    lines = (_LINE.fullmatch(line) for line in block.decode(errors="replace").split("\n"))
    pairs = (line.groups() for line in lines if line is not None)
    return tuple((name, value) for name, value in pairs if _is_kept(name.lower(), value))
