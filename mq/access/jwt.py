"""Callers by JSON Web Tokens (RFC 7519) that another service signs.

Needs the extra `jwt`.
"""

import math
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import jwt

from mq.access.callers import Caller
from mq.access.claims import BadClaims, caller_of
from mq.access.keys import ALGORITHMS, Keys, PublicKey
from mq.model.clock import Clock
from mq.model.limits import JWT_LEEWAY_S_DEFAULT
from mq.model.log import logger

# The limit of remembered tokens.
JWTS_KNOWN_MAX: Final = 1024

_log = logger("mq.access")

# Malformed tokens raise these, also tokens that are nested too deeply or have an impossible time.
_BAD: Final = (jwt.PyJWTError, BadClaims, ValueError, TypeError, RecursionError, OverflowError)
# The injected clock checks times.
_OPTIONS: Any = {
    "require": ["exp", "aud"],
    "verify_exp": False,
    "verify_nbf": False,
    "verify_iat": False,
}


@dataclass(frozen=True, slots=True)
class _Known:
    """A verified token's caller, and its validity in seconds since the epoch."""

    caller: Caller
    from_s: float
    until_s: float


class JwtVerifier:
    """A Verifier of tokens that an issuer's keys verify.

    A token must have the `audience`, the `issuer` if one is set, and an expiry; `leeway_s` is the
    tolerated difference between clocks, in seconds. The verifier remembers verified tokens until
    the keys change, and checks only their times again.
    """

    def __init__(
        self,
        keys: Keys,
        clock: Clock,
        *,
        audience: str,
        issuer: str | None = None,
        leeway_s: float = JWT_LEEWAY_S_DEFAULT,
    ) -> None:
        self._keys = keys
        self._clock = clock
        self._audience = audience
        self._issuer = issuer
        self._leeway_s = leeway_s
        self._of: tuple[PublicKey, ...] = ()
        self._known: OrderedDict[str, _Known] = OrderedDict()

    def caller(self, token: str) -> Caller | None:
        keys = self._keys.known()
        if keys is not self._of:
            self._known.clear()
            self._of = keys
        known = self._known.get(token)
        if known is None:
            try:
                known = self._verified(token, keys)
            except _BAD as error:
                _log.debug("a token is refused", extra={"fields": {"error": str(error)}})
                return None
            self._known[token] = known
            if len(self._known) > JWTS_KNOWN_MAX:
                self._known.popitem(last=False)
        now_s = self._clock.now_ms() / 1000
        if known.from_s - self._leeway_s <= now_s < known.until_s + self._leeway_s:
            return known.caller
        return None

    def _verified(self, token: str, keys: tuple[PublicKey, ...]) -> _Known:
        header = jwt.get_unverified_header(token)
        if "crit" in header:
            raise BadClaims("its header has extensions that are to be understood")
        claims = self._claims(token, header, keys)
        from_s = _time(claims, "nbf") if "nbf" in claims else -math.inf
        return _Known(caller_of(claims), from_s, _time(claims, "exp"))

    def _claims(
        self, token: str, header: Mapping[str, Any], keys: tuple[PublicKey, ...]
    ) -> Mapping[str, object]:
        """The claims of a token, verified by one of the keys."""
        algorithm, kid = header.get("alg"), header.get("kid")
        if algorithm not in ALGORITHMS:
            raise BadClaims("no algorithm that may be")
        named = [key for key in keys if kid is None or key.kid == kid]
        if not named:
            self._keys.missed()
            raise BadClaims("no such key")
        error: jwt.PyJWTError | BadClaims = BadClaims("no key of its algorithm")
        for key in named:
            if algorithm not in key.algorithms:
                continue
            try:
                return self._decoded(token, key, algorithm)
            except jwt.InvalidSignatureError as refused:
                error = refused  # Perhaps another key verifies it.
        if kid is None:
            self._keys.missed()
        raise error

    def _decoded(self, token: str, key: PublicKey, algorithm: str) -> Mapping[str, object]:
        claims: Mapping[str, object] = jwt.decode(
            token,
            key.key,
            algorithms=[algorithm],
            audience=self._audience,
            issuer=self._issuer,
            options=_OPTIONS,
        )
        return claims


def _time(claims: Mapping[str, object], claim: str) -> float:
    """A NumericDate: seconds since the epoch."""
    value = claims[claim]
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise BadClaims(f"{claim} is not a time")
    return value
