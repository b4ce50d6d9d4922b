"""Entity tags, and what If-Match says of them: pure."""

import re
from collections.abc import Callable
from typing import Final

from mq.model.errors import BadPrecondition
from mq.protocol.query import Header

# A list of entity tags; empty elements are ignored (RFC 9110, section 5.6.1).
_ENTITY_TAGS: Final = re.compile(r'[\s,]*(?:W/)?"[^"]*"(?:\s*,[\s,]*(?:W/)?"[^"]*")*[\s,]*')
_ENTITY_TAG: Final = re.compile(r'(W/)?"([^"]*)"')

IF_MATCH: Final = Header(
    "If-Match", {"type": "string", "pattern": rf"^(?:\s*\*\s*|{_ENTITY_TAGS.pattern})$"},
    "The entity tag of what the client knows, several with commas, or `*` for any.",
    example='"1"',
)  # fmt: skip
IF_NONE_MATCH: Final = Header(
    "If-None-Match", {"type": "string"},
    "Entity tags of what the client has, several with commas, or `*`: 304 where it is one of them.",
    example='"0123456789abcdef"',
)  # fmt: skip


def etag(receives: int) -> str:
    """A message's entity tag."""
    return f'"{receives}"'


def parse_if_match(values: list[str]) -> Callable[[int], bool] | None:
    """What If-Match says of a message's receives. None without the header. Raises
    BadPrecondition.
    """
    matches = parse_tags(values)
    return None if matches is None else lambda receives: matches(str(receives))


def parse_tags(values: list[str]) -> Callable[[str], bool] | None:
    """Which entity tags If-Match names: any of a list, or `*` for any at all.

    None without the header. A weak tag never matches (RFC 9110, section 13.1.1), nor one that
    no answer gives out. Raises BadPrecondition.
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
    """Whether If-None-Match names this tag, compared weakly (RFC 9110, section 13.1.2). What is no
    list of tags names none.
    """
    text = ", ".join(values).strip()
    if text == "*":
        return True
    return _ENTITY_TAGS.fullmatch(text) is not None and any(
        f'"{each}"' == tag for _, each in _ENTITY_TAG.findall(text)
    )
