"""The header by which a token is shown (RFC 6750), and the one by which it is asked for. Pure."""

import re
from collections.abc import Sequence
from typing import Final

from mq.access.errors import Forbidden, Unauthenticated
from mq.access.limits import TOKEN_SHOWN_CHARS_MAX

_REALM: Final = 'Bearer realm="mq"'
_BEARER: Final = re.compile(
    rf"bearer +(?P<token>[A-Za-z0-9._~+/-]{{1,{TOKEN_SHOWN_CHARS_MAX}}}=*) *", re.IGNORECASE
)
_SCHEME: Final = re.compile(r"bearer(?: .*)?", re.IGNORECASE | re.DOTALL)


def token_of(values: Sequence[str]) -> str | None:
    """The token that the Authorization headers show; None: none is, or something of another scheme.
    Raises Unauthenticated for a malformed one, and for several.
    """
    if not values or (len(values) == 1 and _SCHEME.fullmatch(values[0]) is None):
        return None
    match = _BEARER.fullmatch(values[0])
    if match is None or len(values) > 1:
        raise Unauthenticated(shown=True)
    return match["token"]


def challenge(error: Unauthenticated | Forbidden) -> str:
    """The WWW-Authenticate of an answer (RFC 6750, section 3): an error is told of to those who
    showed a token.
    """
    if isinstance(error, Forbidden):
        return f'{_REALM}, error="insufficient_scope"'
    return f'{_REALM}, error="invalid_token"' if error.shown else _REALM
