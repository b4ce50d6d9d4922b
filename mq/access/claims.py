"""What a token's claims say of its caller: pure.

Grants stand in `mq_grants`, a list of texts such as `orders-*:publish,consume`, or in the
standard `scope` (RFC 8693), as `mq:orders-*:publish,consume` among others; both add up.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from mq.access.callers import Caller, Grant
from mq.access.errors import BadGrant
from mq.access.grants import parse_grants
from mq.access.limits import GRANTS_MAX
from mq.model.serving_limits import CALLER_NAME_CHARS_MAX

GRANTS_CLAIM: Final = "mq_grants"
SCOPE_CLAIM: Final = "scope"
_NAME_CLAIMS: Final = ("sub", "client_id")
_SCOPE_PREFIX: Final = "mq:"


class BadClaims(ValueError):
    """Claims that say nothing that mq understands; the text says why, for the log."""


def granted(texts: Iterable[str]) -> tuple[Grant, ...]:
    """The grants that these say. Raises BadClaims."""
    try:
        return parse_grants(texts)
    except BadGrant as error:
        raise BadClaims(str(error)) from None


def caller_of(claims: Mapping[str, object]) -> Caller:
    """The caller of a token's claims, who may have no grant at all. A grant that is malformed makes
    all of them no good: nobody is to wonder which of them count. Raises BadClaims.
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
        raise BadClaims(f"{claim} is no name")
    raise BadClaims(f"neither {' nor '.join(_NAME_CLAIMS)}")


def _said(claims: Mapping[str, object]) -> list[str]:
    return _texts(claims.get(GRANTS_CLAIM, []), GRANTS_CLAIM)


def _scoped(claims: Mapping[str, object]) -> list[str]:
    """Scopes of others are none of mq's business."""
    scope = claims.get(SCOPE_CLAIM, "")
    found = scope.split() if isinstance(scope, str) else _texts(scope, SCOPE_CLAIM)
    return [each.removeprefix(_SCOPE_PREFIX) for each in found if each.startswith(_SCOPE_PREFIX)]


def _texts(value: object, claim: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise BadClaims(f"{claim} is no list of texts")
    return value
