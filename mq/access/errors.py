"""What stands in the way of a request for the sake of who asks, and of a file that says who may.

`mq/protocol/problems.py` maps the first two to statuses.
"""

from dataclasses import dataclass

from mq.model.errors import MqError, StartupError


@dataclass(eq=False)
class Unauthenticated(MqError):
    """Nobody knows who asks; `shown`: a token was shown, and is none that is good."""

    shown: bool

    def __str__(self) -> str:
        return "the token is none that is good" if self.shown else "no token was shown"


@dataclass(eq=False)
class Forbidden(MqError):
    """Who asks is known, and may not do that. The right is told, the caller's name only logged."""

    right: str
    caller: str

    def __str__(self) -> str:
        return f"{self.caller} has not the right: {self.right}"


class BadGrant(ValueError):
    """A text that grants nothing; what is wrong with it, for people."""


class TokensUnusable(StartupError):
    """A file of tokens that cannot be read, or not be trusted; the text says where and why."""
