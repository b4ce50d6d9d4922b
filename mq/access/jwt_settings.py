"""A daemon's settings for the tokens that another service signs."""

from dataclasses import dataclass
from pathlib import Path

from mq.model.serving_limits import JWT_LEEWAY_S_DEFAULT


@dataclass(frozen=True, slots=True)
class JwtSettings:
    """Whose tokens are believed: those for the `audience`, from the `issuer` where one is said,
    signed for a key of a JWK set that is in a file or at a URL; one of the two is said.
    """

    audience: str
    issuer: str | None = None
    file: Path | None = None
    url: str | None = None
    leeway_s: float = JWT_LEEWAY_S_DEFAULT
