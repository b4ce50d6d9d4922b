"""Errors of authentication, authorization, and files of tokens.

`mq/protocol/problems.py` maps the first two to statuses.
"""

from dataclasses import dataclass, field
from typing import Final

from mq.model.errors import MqError, StartupError

_REALM: Final = 'Bearer realm="mq"'


@dataclass(eq=False)
class Unauthenticated(MqError):
    """The caller is not known; `shown`: the request has a token, which is not valid.

    `challenge`, here and below, is the WWW-Authenticate of the answer (RFC 6750, section 3).
    """

    shown: bool
    challenge: str = field(init=False)

    def __post_init__(self) -> None:
        self.challenge = f'{_REALM}, error="invalid_token"' if self.shown else _REALM

    def __str__(self) -> str:
        return "the token is not valid" if self.shown else "the request has no token"


@dataclass(eq=False)
class Forbidden(MqError):
    """The caller is known and lacks a right. Answers have the right; only the log has the caller's
    name.
    """

    right: str
    caller: str
    noun: str = field(init=False)
    challenge: str = field(default=f'{_REALM}, error="insufficient_scope"', init=False)

    def __post_init__(self) -> None:
        is_any = self.right == "any"
        self.noun = "any right to the queue" if is_any else f"the right {self.right!r}"

    def __str__(self) -> str:
        return f"{self.caller} lacks {self.noun}"


class BadGrant(ValueError):
    """A malformed grant; the text says why."""


class TokensUnusable(StartupError):
    """A file of tokens that cannot be read or trusted; the text says where and why."""
