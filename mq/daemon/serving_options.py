"""Flags of the command `mq` for its connections: TLS, timeouts and limits."""

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, get_args

import click

from mq.access.tls import ClientAuth, TlsFiles
from mq.model.limits import WAITERS_MAX_DEFAULT
from mq.runtime.options import Number, Whole
from mq.runtime.server_settings import CONNECTIONS_MAX_DEFAULT, HEAD_S_DEFAULT, QUEUES_MAX_DEFAULT

_FILE: Final = click.Path(dir_okay=False, path_type=Path)
_COUNT: Final = Whole(1)
_TLS: Final = ("tls_cert", "tls_key", "tls_client_ca", "tls_client_auth")
# By their names in ServerSettings.
_FIELDS: Final[Mapping[str, str]] = {
    "head_timeout": "head_s",
    "connections_max": "connections_max",
    "waiters_max": "waiters_max",
    "queues_max": "queues_max",
}

_OPTIONS: Final = (
    click.option(
        "--tls-cert",
        type=_FILE,
        default=None,
        show_envvar=True,
        help="Serve HTTPS with this certificate, and those between it and a root, PEM. Read again "
        "on SIGHUP, with the files below.",
    ),
    click.option(
        "--tls-key",
        type=_FILE,
        default=None,
        show_envvar=True,
        help="The certificate's private key, PEM. Other users must not be able to read it.",
    ),
    click.option(
        "--tls-client-ca",
        type=_FILE,
        default=None,
        show_envvar=True,
        help="Ask clients for a certificate, and accept those of these authorities, PEM.",
    ),
    click.option(
        "--tls-client-auth",
        type=click.Choice(get_args(ClientAuth)),
        default="required",
        show_envvar=True,
        help="Whether a client needs a certificate. An invalid one is always refused.",
    ),
    click.option(
        "--head-timeout",
        type=Number(0.01),
        default=HEAD_S_DEFAULT,
        show_envvar=True,
        help="Seconds from the first byte of a request's head after which it is answered 408.",
    ),
    click.option(
        "--connections-max",
        type=_COUNT,
        default=CONNECTIONS_MAX_DEFAULT,
        show_envvar=True,
        help=(
            "The most connections of each process. For one more, an idle one is "
            "closed; without an idle one it is answered 503."
        ),
    ),
    click.option(
        "--waiters-max",
        type=_COUNT,
        default=WAITERS_MAX_DEFAULT,
        show_envvar=True,
        help=(
            "The most waiting fetches and subscriptions of each process; one more is answered 503."
        ),
    ),
    click.option(
        "--queues-max",
        type=_COUNT,
        default=QUEUES_MAX_DEFAULT,
        show_envvar=True,
        help="The most queues of the root, with sidelines; making one more is answered 429.",
    ),
)


def serving_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds these flags to a command, and calls it with `serving`: the values as fields of
    ServerSettings. Raises click's UsageError.
    """

    @functools.wraps(command)
    def with_options(**given: Any) -> Any:
        tls = _tls(**{name: given.pop(name) for name in _TLS})
        serving: dict[str, Any] = {field: given.pop(flag) for flag, field in _FIELDS.items()}
        return command(serving={**serving, "tls": tls}, **given)

    for option in reversed(_OPTIONS):
        option(with_options)
    return with_options


def _tls(
    tls_cert: Path | None,
    tls_key: Path | None,
    tls_client_ca: Path | None,
    tls_client_auth: ClientAuth,
) -> TlsFiles | None:
    if tls_cert is not None and tls_key is not None:
        return TlsFiles(tls_cert, tls_key, tls_client_ca, tls_client_auth)
    if tls_cert is not None or tls_key is not None:
        raise click.UsageError("--tls-cert and --tls-key go together; use both.")
    # A daemon that asks for certificates does not serve in clear.
    if tls_client_ca is not None:
        raise click.UsageError("--tls-client-ca needs --tls-cert and --tls-key.")
    return None
