"""The caller of a token's claims. Pure.

Grants are in the claim `mq_grants`, a list of texts such as `orders-*:publish,consume`, and in the
standard claim `scope` (RFC 8693), as `mq:orders-*:publish,consume`, among other scopes. A caller
has the grants of both.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from mq.access.callers import CALLER_NAME_CHARS_MAX, GRANTS_MAX, Caller, Grant, parse_grants
from mq.access.errors import BadGrant

GRANTS_CLAIM: Final = "mq_grants"
SCOPE_CLAIM: Final = "scope"
_NAME_CLAIMS: Final = ("sub", "client_id")
_SCOPE_PREFIX: Final = "mq:"


class BadClaims(ValueError):
    """Claims that mq does not accept; the text says why, for the log."""


def granted(texts: Iterable[str]) -> tuple[Grant, ...]:
    """The grants of these texts. Raises BadClaims."""
    try:
        return parse_grants(texts)
    except BadGrant as error:
        raise BadClaims(str(error)) from None


def caller_of(claims: Mapping[str, object]) -> Caller:
    """The caller of a token's claims, perhaps without grants. One malformed grant invalidates the
    token. Raises BadClaims.
    """
    texts = [*_said(claims), *_scoped(claims)]
    if len(texts) > GRANTS_MAX:
        raise BadClaims(f"more than {GRANTS_MAX} grants")
    return Caller(_name(claims), granted(texts))


def _name(claims: Mapping[str, object]) -> str:
    for claim in _NAME_CLAIMS:
        name = claims.get(claim)
        if name is None:
            continue
        if isinstance(name, str) and name.isprintable() and 0 < len(name) <= CALLER_NAME_CHARS_MAX:
            return name
        raise BadClaims(
            f"{claim} is not a printable name of at most {CALLER_NAME_CHARS_MAX} characters"
        )
    raise BadClaims(f"the token has neither {' nor '.join(_NAME_CLAIMS)}")


def _said(claims: Mapping[str, object]) -> list[str]:
    return _texts(claims.get(GRANTS_CLAIM, []), GRANTS_CLAIM)


def _scoped(claims: Mapping[str, object]) -> list[str]:
    """Only the scopes that are meant for mq."""
    scope = claims.get(SCOPE_CLAIM, "")
    found = scope.split() if isinstance(scope, str) else _texts(scope, SCOPE_CLAIM)
    return [each.removeprefix(_SCOPE_PREFIX) for each in found if each.startswith(_SCOPE_PREFIX)]


def _texts(value: object, claim: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise BadClaims(f"{claim} is not a list of strings")
    return value
