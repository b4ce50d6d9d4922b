"""Callers by JSON Web Tokens (RFC 7519) that another service has signed.

Needs the extra `jwt`.
"""

import logging
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
from mq.model.serving_limits import JWT_LEEWAY_S_DEFAULT, JWTS_KNOWN_MAX

_log = logging.getLogger("mq.access")

# What a token of no worth may raise: also one that is nested too deeply, or of a time beyond all.
_BAD: Final = (
    jwt.PyJWTError,
    BadClaims,
    ValueError,
    TypeError,
    RecursionError,
    OverflowError,
)
# What time it is, the injected clock says.
_OPTIONS: Any = {
    "require": ["exp", "aud"],
    "verify_exp": False,
    "verify_nbf": False,
    "verify_iat": False,
}


@dataclass(frozen=True, slots=True)
class _Known:
    """A token whose signature was good, and between which seconds since the epoch it is."""

    caller: Caller
    from_s: float
    until_s: float


class JwtVerifier:
    """Knows callers by tokens signed for one of the keys. A Verifier.

    A token must be for the `audience`, from the `issuer` where one is said, and must say when it
    expires; `leeway_s` is how far clocks may be apart. What was verified is remembered until the
    keys are others, so that asking with each request costs little, and each is told the time anew.
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
        """See Verifier."""
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
        """What a token says that is signed for one of the keys."""
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
                error = refused  # Another one's, perhaps.
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
        raise BadClaims(f"{claim} is no time")
    return value
