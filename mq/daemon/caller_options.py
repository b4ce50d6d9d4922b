"""Flags of the command `mq` for callers with tokens of an issuer, or with client certificates."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

from mq.model.limits import JWT_LEEWAY_S_DEFAULT
from mq.runtime.options import Number
from mq.runtime.server_settings import JwtSettings

JWT_LEEWAY_S_MAX: Final = 300.0

_FILE: Final = click.Path(dir_okay=False, path_type=Path)
_JWT: Final = ("jwks", "jwks_url", "jwt_audience", "jwt_issuer", "jwt_leeway")

_OPTIONS: Final = (
    click.option(
        "--jwks",
        type=_FILE,
        default=None,
        show_envvar=True,
        help="Accept JSON Web Tokens signed by a key of this JWK set. Read again on SIGHUP.",
    ),
    click.option(
        "--jwks-url",
        default=None,
        show_envvar=True,
        help=(
            "The same, for a JWK set that an issuer serves by HTTPS. Requested in the background."
        ),
    ),
    click.option(
        "--jwt-audience",
        default=None,
        show_envvar=True,
        help=(
            "The audience of such a token, its claim `aud`. Required with --jwks and --jwks-url."
        ),
    ),
    click.option(
        "--jwt-issuer",
        default=None,
        show_envvar=True,
        help="The issuer of such a token, its claim `iss`.",
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
        help=(
            "A TOML file of client certificates and their rights. Needs "
            "--tls-client-ca. Read again on SIGHUP."
        ),
    ),
)


def caller_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds these flags to a command, and calls it with `jwt`, JwtSettings or None, and
    `tls_clients`, a path or None. Raises click's UsageError.
    """

    @functools.wraps(command)
    def with_options(**given: Any) -> Any:
        jwt = _jwt(*(given.pop(name) for name in _JWT))
        if given["tls_clients"] is not None and given.get("tls_client_ca", True) is None:
            raise click.UsageError(
                "--tls-clients names clients by their certificates, and needs --tls-client-ca."
            )
        return command(jwt=jwt, **given)

    for option in reversed(_OPTIONS):
        option(with_options)
    return with_options


def _jwt(
    file: Path | None, url: str | None, audience: str | None, issuer: str | None, leeway_s: float
) -> JwtSettings | None:
    if file is not None and url is not None:
        raise click.UsageError("--jwks and --jwks-url exclude each other; use one of them.")
    if file is None and url is None:
        if audience is not None or issuer is not None:
            raise click.UsageError("--jwt-audience and --jwt-issuer need --jwks or --jwks-url.")
        return None
    if not audience:
        raise click.UsageError("--jwks and --jwks-url need --jwt-audience.")
    return JwtSettings(audience, issuer, file, url, leeway_s)
