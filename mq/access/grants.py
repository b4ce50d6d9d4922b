"""Grants as text, `orders-*:publish,consume`: how files, tokens and commands say them. Pure.

    grant   = pattern ":" right *("," right)
    pattern = 1*( ALPHA / DIGIT / "_" / "." / "-" / "*" )
    right   = "publish" / "consume" / "admin"

A `*` stands for any characters, also none. Nothing else in a pattern is more than itself.
"""

import re
from collections.abc import Iterable
from typing import Final

from mq.access.callers import Grant, Right
from mq.access.errors import BadGrant
from mq.access.limits import PATTERN_CHARS_MAX

_GRANT: Final = re.compile(rf"(?P<pattern>[A-Za-z0-9_.*-]{{1,{PATTERN_CHARS_MAX}}}):(?P<rights>.*)")
_SHOWN_CHARS: Final = 80


def parse_grant(text: str) -> Grant:
    """The grant that a text says. Raises BadGrant."""
    match = _GRANT.fullmatch(text)
    if match is None:
        raise BadGrant(f"{_shown(text)} is no PATTERN:RIGHTS, such as orders-*:publish,consume")
    try:
        found = [Right(each) for each in match["rights"].split(",")]
    except ValueError:
        raise BadGrant(f"{_shown(text)}: rights are {', '.join(Right)}, with commas") from None
    if len(set(found)) < len(found):
        raise BadGrant(f"{_shown(text)} says a right twice")
    return Grant(match["pattern"], frozenset(found))


def parse_grants(texts: Iterable[str]) -> tuple[Grant, ...]:
    """The grants that these say. Raises BadGrant."""
    return tuple(map(parse_grant, texts))


def printed(grant: Grant) -> str:
    """The text that `parse_grant` makes the same of."""
    return f"{grant.pattern}:{','.join(each for each in Right if each in grant.rights)}"


def _shown(text: str) -> str:
    return repr(text[:_SHOWN_CHARS])
