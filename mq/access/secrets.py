"""Secrets that callers sign SQS requests with, in a file beside that of the tokens.

    line = name SP secret

The name is a token's: SQS calls it the access key id. A signature can only be checked with the
secret itself, so the file has it in the clear, and its mode is checked. Empty lines and lines that
begin with `#` are ignored, and so is the secret of a token that does not exist.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from mq.access.callers import Caller
from mq.access.errors import TokensUnusable
from mq.access.tokens import TOKENS_FILE_BYTES_MAX, Entry, name_of
from mq.access.trusted_file import Untrusted, read_trusted

SUFFIX: Final = ".secrets"
_SECRET: Final = re.compile(r"[!-~]{16,128}")


@dataclass(frozen=True, slots=True)
class Signer:
    """A caller that signs, and its secret."""

    caller: Caller
    secret: str = field(repr=False)


def secrets_path(tokens: Path) -> Path:
    """The file of secrets that belongs to a file of tokens."""
    return tokens.with_name(tokens.name + SUFFIX)


def signers_of(entries: Iterable[Entry], tokens: Path) -> Mapping[str, Signer]:
    """Those of the tokens that have a secret, by name; no secrets without a file. Blocking. Raises
    TokensUnusable as `read_secrets`.
    """
    path = secrets_path(tokens)
    secrets = parse_secrets(path, read_secrets(path)) if path.exists() else {}
    callers = {each.caller.name: each.caller for each in entries}
    return {name: Signer(callers[name], secrets[name]) for name in secrets if name in callers}


def read_secrets(path: Path) -> str:
    """The file's text. Blocking. Raises TokensUnusable if it cannot be read, if others may read it,
    or if its group or others may write it.
    """
    try:
        return read_trusted(path, TOKENS_FILE_BYTES_MAX, is_secret=True).decode()
    except Untrusted as error:
        raise TokensUnusable(f"secrets {path}: {error}") from None
    except UnicodeDecodeError:
        raise TokensUnusable(f"secrets {path}: not UTF-8") from None


def parse_secrets(path: Path, text: str) -> Mapping[str, str]:
    """The secrets of the file's text, by name. Raises TokensUnusable, which has no secret."""
    found: dict[str, str] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        if name_of(line) is None:
            continue
        name, *more = line.split()
        if len(more) != 1 or _SECRET.fullmatch(more[0]) is None or name in found:
            raise TokensUnusable(
                f"secrets {path}, line {number}: not a new name and 16 to 128 signs of ASCII"
            )
        found[name] = more[0]
    return found
