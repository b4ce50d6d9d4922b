"""Tokens, the header that carries one (RFC 6750), and the file that grants them rights.

    line    = name SP digest 1*( SP grant )
    digest  = "sha256:" 64HEXDIG

Empty lines and lines that begin with `#` are ignored. The file has each token's digest, never the
token. The digest is a plain SHA-256 on purpose: a slow hash protects passwords that people choose,
but 256 random bits cannot be guessed, so it would only cost each connection time.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mq.access.callers import GRANTS_MAX, Caller, Grant, parse_grants, printed
from mq.access.errors import BadGrant, TokensUnusable, Unauthenticated
from mq.access.trusted_file import Untrusted, read_trusted
from mq.model.limits import MIB

# 256 bits cannot be guessed, however cheap the hash.
TOKEN_BYTES: Final = 32
TOKENS_FILE_BYTES_MAX: Final = MIB
TOKENS_MAX: Final = 1000
NAME_CHARS_MAX: Final = 64
# A token of any kind must fit into a header.
TOKEN_SHOWN_CHARS_MAX: Final = 8 * 1024

PREFIX: Final = "mq_"
"""The beginning of each token, so that secret scanners recognize a leaked one."""

_NAME: Final = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_.@-]{{0,{NAME_CHARS_MAX - 1}}}")
_DIGEST: Final = re.compile(r"sha256:([0-9a-f]{64})")
_COMMENT: Final = "#"


@dataclass(eq=False)
class BadLine(ValueError):
    """A malformed line; lines are numbered from 1."""

    number: int
    why: str


@dataclass(frozen=True, slots=True)
class Entry:
    """A known token: its caller and its digest."""

    caller: Caller
    digest: bytes


def new_token() -> str:
    return PREFIX + secrets.token_urlsafe(TOKEN_BYTES)


def digest_of(token: str) -> bytes:
    """The digest that the file has instead of the token."""
    return hashlib.sha256(token.encode()).digest()


def is_name(text: str) -> bool:
    """Whether the text is a valid name of a token."""
    return _NAME.fullmatch(text) is not None


def line_of(name: str, token: str, grants: Sequence[Grant]) -> str:
    """A token's line, without its line feed."""
    return " ".join((name, f"sha256:{digest_of(token).hex()}", *map(printed, grants)))


def name_of(line: str) -> str | None:
    """The name of a line's token; None: the line has none."""
    words = line.split()
    return words[0] if words and not words[0].startswith(_COMMENT) else None


def parse_tokens(text: str) -> tuple[Entry, ...]:
    """The tokens of a file's text. Raises BadLine, also for a repeated name or digest."""
    entries: list[Entry] = []
    names: set[str] = set()
    digests: set[bytes] = set()
    # Not `splitlines`, which splits at more characters than editors count as line ends.
    for number, line in enumerate(text.split("\n"), start=1):
        if name_of(line) is None:
            continue
        entry = _entry(line, number)
        if entry.caller.name in names or entry.digest in digests:
            raise BadLine(number, "the name or the digest is used on an earlier line")
        names.add(entry.caller.name)
        digests.add(entry.digest)
        entries.append(entry)
        if len(entries) > TOKENS_MAX:
            raise BadLine(number, f"more than {TOKENS_MAX} tokens")
    return tuple(entries)


def _entry(line: str, number: int) -> Entry:
    name, *more = line.split()
    if not is_name(name):
        raise BadLine(
            number, "the name must be letters, digits and _ . @ -, and begin with a letter or digit"
        )
    digest = _DIGEST.fullmatch(more[0]) if more else None
    if digest is None:
        raise BadLine(number, "sha256: and 64 hexadecimal digits must follow the name")
    if not 1 <= len(more) - 1 <= GRANTS_MAX:
        raise BadLine(number, f"1 to {GRANTS_MAX} grants must follow the digest")
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
        """The caller of a token; None: unknown. Takes the same time for every token, against timing
        attacks.
        """
        shown = digest_of(token)
        found: Caller | None = None
        for entry in self._entries:
            if hmac.compare_digest(entry.digest, shown):
                found = entry.caller
        return found


def read_tokens(path: Path) -> tuple[Entry, ...]:
    """The tokens of a file. Raises TokensUnusable if the file cannot be read, if its group or
    others may write it, or if a line is malformed. All users may read it: it holds no token, only
    digests.
    """
    return check_text(path, read_text(path))


def check_text(path: Path, text: str) -> tuple[Entry, ...]:
    """The tokens of a file's present or future text. Raises TokensUnusable."""
    if len(text.encode()) > TOKENS_FILE_BYTES_MAX:
        raise TokensUnusable(f"tokens {path}: would be larger than {TOKENS_FILE_BYTES_MAX} bytes")
    try:
        return parse_tokens(text)
    except BadLine as error:
        raise TokensUnusable(f"tokens {path}, line {error.number}: {error.why}") from None


def read_text(path: Path) -> str:
    """The file's text. Raises TokensUnusable as `read_tokens`, except for malformed lines."""
    try:
        return read_trusted(path, TOKENS_FILE_BYTES_MAX).decode()
    except Untrusted as error:
        raise TokensUnusable(f"tokens {path}: {error}") from None
    except UnicodeDecodeError:
        raise TokensUnusable(f"tokens {path}: not UTF-8") from None


_BEARER: Final = re.compile(
    rf"bearer +(?P<token>[A-Za-z0-9._~+/-]{{1,{TOKEN_SHOWN_CHARS_MAX}}}=*) *", re.IGNORECASE
)
_SCHEME: Final = re.compile(r"bearer(?: .*)?", re.IGNORECASE | re.DOTALL)


def token_of(values: Sequence[str]) -> str | None:
    """The token of the Authorization headers; None: there is none, or another scheme. Raises
    Unauthenticated for a malformed token, and for several headers.
    """
    if not values or (len(values) == 1 and _SCHEME.fullmatch(values[0]) is None):
        return None
    match = _BEARER.fullmatch(values[0])
    if match is None or len(values) > 1:
        raise Unauthenticated(shown=True)
    return match["token"]
