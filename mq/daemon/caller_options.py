"""Flags of the command `mq` that say whose callers it knows beside those of its own tokens."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

from mq.access.jwt_settings import JwtSettings
from mq.model.serving_limits import JWT_LEEWAY_S_DEFAULT, JWT_LEEWAY_S_MAX
from mq.runtime.options import Number

_FILE: Final = click.Path(dir_okay=False, path_type=Path)
_JWT: Final = ("jwks", "jwks_url", "jwt_audience", "jwt_issuer", "jwt_leeway")

_OPTIONS: Final = (
    click.option(
        "--jwks",
        type=_FILE,
        default=None,
        show_envvar=True,
        help="Believe JSON Web Tokens signed for a key of this JWK set. Read again on SIGHUP.",
    ),
    click.option(
        "--jwks-url",
        default=None,
        show_envvar=True,
        help="The same, of a JWK set that an issuer serves by HTTPS; asked for in the background.",
    ),
    click.option(
        "--jwt-audience",
        default=None,
        show_envvar=True,
        help="Whom such a token must be for: its claim `aud`. Must be said.",
    ),
    click.option(
        "--jwt-issuer",
        default=None,
        show_envvar=True,
        help="Whom such a token must be from: its claim `iss`.",
    ),
    click.option(
        "--jwt-leeway",
        type=Number(0, JWT_LEEWAY_S_MAX),
        default=JWT_LEEWAY_S_DEFAULT,
        show_envvar=True,
        help="Seconds that the issuer's clock and this one may be apart.",
    ),
    click.option(
        "--tls-clients",
        type=_FILE,
        default=None,
        show_envvar=True,
        help="Who may do what with which client certificate, TOML. Needs --tls-client-ca. Read "
        "again on SIGHUP.",
    ),
)


def caller_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a command these flags, and calls it with `jwt`, JwtSettings or None, and `tls_clients`,
    a path or None. Raises click's UsageError.
    """

    @functools.wraps(command)
    def with_options(**given: Any) -> Any:
        jwt = _jwt(*(given.pop(name) for name in _JWT))
        if given["tls_clients"] is not None and given.get("tls_client_ca", True) is None:
            raise click.UsageError("--tls-clients needs --tls-client-ca.")
        return command(jwt=jwt, **given)

    for option in reversed(_OPTIONS):
        option(with_options)
    return with_options


def _jwt(
    file: Path | None, url: str | None, audience: str | None, issuer: str | None, leeway_s: float
) -> JwtSettings | None:
    if file is not None and url is not None:
        raise click.UsageError("--jwks and --jwks-url: say one of them.")
    if file is None and url is None:
        if audience is not None or issuer is not None:
            raise click.UsageError("--jwt-audience and --jwt-issuer need --jwks or --jwks-url.")
        return None
    if not audience:
        raise click.UsageError("--jwks and --jwks-url need --jwt-audience.")
    return JwtSettings(audience, issuer, file, url, leeway_s)
