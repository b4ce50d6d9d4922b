"""A file of tokens: read, and trusted only where nobody else can write it.

Blocking.
"""

from pathlib import Path

from mq.access.errors import TokensUnusable
from mq.access.limits import TOKENS_FILE_BYTES_MAX
from mq.access.tokens import BadLine, Entry, parse_tokens
from mq.access.trusted_file import Untrusted, read_trusted


def read_tokens(path: Path) -> tuple[Entry, ...]:
    """The tokens of a file. Raises TokensUnusable: it cannot be read, its group or others may write
    it, or a line of it is none. Who may read it does not matter: it has no token.
    """
    return check_text(path, read_text(path))


def check_text(path: Path, text: str) -> tuple[Entry, ...]:
    """The tokens of a text that the file has, or is to have. Raises TokensUnusable."""
    if len(text.encode()) > TOKENS_FILE_BYTES_MAX:
        raise TokensUnusable(f"tokens {path}: would be larger than {TOKENS_FILE_BYTES_MAX} bytes")
    try:
        return parse_tokens(text)
    except BadLine as error:
        raise TokensUnusable(f"tokens {path}, line {error.number}: {error.why}") from None


def read_text(path: Path) -> str:
    """The file's text. Raises TokensUnusable as `read_tokens`, but for its lines."""
    try:
        return read_trusted(path, TOKENS_FILE_BYTES_MAX).decode()
    except Untrusted as error:
        raise TokensUnusable(f"tokens {path}: {error}") from None
    except UnicodeDecodeError:
        raise TokensUnusable(f"tokens {path}: is no UTF-8") from None
