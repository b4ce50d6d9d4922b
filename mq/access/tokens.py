"""Tokens, and the lines of a file that say whose they are and what they may. Pure.

    line    = name SP digest 1*( SP grant )
    digest  = "sha256:" 64HEXDIG

Empty lines, and those that begin with `#`, say nothing. A file has the digest of each token and
never the token. The digest is a plain SHA-256, on purpose: a slow hash makes guesses costly where
people choose what is guessed, and nobody guesses 256 random bits, so that it would cost every
connection its time and protect nothing.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from mq.access.callers import Caller, Grant
from mq.access.errors import BadGrant
from mq.access.grants import parse_grants, printed
from mq.access.limits import CALLER_NAME_CHARS_MAX, GRANTS_MAX, TOKEN_BYTES, TOKENS_MAX

PREFIX: Final = "mq_"
"""What tokens begin with, so that one is seen for what it is where it does not belong."""

_NAME: Final = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_.@-]{{0,{CALLER_NAME_CHARS_MAX - 1}}}")
_DIGEST: Final = re.compile(r"sha256:([0-9a-f]{64})")
_COMMENT: Final = "#"


@dataclass(eq=False)
class BadLine(ValueError):
    """A line that says nothing that can be meant; lines are numbered from 1."""

    number: int
    why: str


@dataclass(frozen=True, slots=True)
class Entry:
    """A token that is known: whose, and its digest."""

    caller: Caller
    digest: bytes


def new_token() -> str:
    """A token that nobody has."""
    return PREFIX + secrets.token_urlsafe(TOKEN_BYTES)


def digest_of(token: str) -> bytes:
    """What is kept of a token."""
    return hashlib.sha256(token.encode()).digest()


def is_name(text: str) -> bool:
    """Whether a token may be called so."""
    return _NAME.fullmatch(text) is not None


def line_of(name: str, token: str, grants: Sequence[Grant]) -> str:
    """The line of a token, without its end."""
    return " ".join((name, f"sha256:{digest_of(token).hex()}", *map(printed, grants)))


def name_of(line: str) -> str | None:
    """The name of the token that a line is of; None: of none."""
    words = line.split()
    return words[0] if words and not words[0].startswith(_COMMENT) else None


def parse_tokens(text: str) -> tuple[Entry, ...]:
    """The tokens that a file's text tells of. Raises BadLine: also for a name, or a digest, that
    stands there twice.
    """
    entries: list[Entry] = []
    names: set[str] = set()
    digests: set[bytes] = set()
    # Not `splitlines`, which knows ends that editors do not count.
    for number, line in enumerate(text.split("\n"), start=1):
        if name_of(line) is None:
            continue
        entry = _entry(line, number)
        if entry.caller.name in names or entry.digest in digests:
            raise BadLine(number, "the name, or the digest, stands above already")
        names.add(entry.caller.name)
        digests.add(entry.digest)
        entries.append(entry)
        if len(entries) > TOKENS_MAX:
            raise BadLine(number, f"more than {TOKENS_MAX} tokens")
    return tuple(entries)


def _entry(line: str, number: int) -> Entry:
    name, *more = line.split()
    if not is_name(name):
        raise BadLine(number, "a name is of letters, digits and _ . @ -, and begins with no sign")
    digest = _DIGEST.fullmatch(more[0]) if more else None
    if digest is None:
        raise BadLine(number, "behind the name stands sha256: and 64 hexadecimal digits")
    if not 1 <= len(more) - 1 <= GRANTS_MAX:
        raise BadLine(number, f"behind the digest stand 1 to {GRANTS_MAX} grants")
    try:
        grants = parse_grants(more[1:])
    except BadGrant as error:
        raise BadLine(number, str(error)) from None
    return Entry(Caller(name, grants), bytes.fromhex(digest[1]))


class TokenVerifier:
    """Knows callers by tokens of a file."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._entries = tuple(entries)

    def caller(self, token: str) -> Caller | None:
        """Who shows this token; None: none of these. How long it takes tells nothing of how much
        of it is right, nor of which it is.
        """
        shown = digest_of(token)
        found: Caller | None = None
        for entry in self._entries:
            if hmac.compare_digest(entry.digest, shown):
                found = entry.caller
        return found
