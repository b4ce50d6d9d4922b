"""The name of a run that handles chosen messages again. Pure."""

import re
import secrets
from dataclasses import dataclass
from typing import Final, Self

from mq.model.errors import BadName

_REPLAY: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
_DIGITS: Final = 12


@dataclass(frozen=True, slots=True, order=True)
class ReplayId:
    """The name of a run that moves chosen messages to another queue, or publishes them again."""

    text: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises BadName when `text` is no replay id."""
        if _REPLAY.fullmatch(text) is None:
            raise BadName("replay id", "a letter or digit, then up to 39 of letters, digits, _ -")
        return cls(text)

    @classmethod
    def new(cls) -> Self:
        """One that nobody has."""
        return cls(secrets.token_hex(_DIGITS // 2))

    def __str__(self) -> str:
        return self.text
