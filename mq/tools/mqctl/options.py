"""The options that all commands share: before the command's name, behind it, or in the environment.

What stands behind the name goes before what stands in front of it, and that before the
environment.

    @click.command()
    @click.argument("queue")
    @shared_options
    def describe(options: Options, queue: str) -> None: ...
"""

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import click
from click.core import ParameterSource

from mq.access.client_certificates import Certificates

URL_DEFAULT: Final = "http://127.0.0.1:8080"
TIMEOUT_S_DEFAULT: Final = 30.0
TIMEOUT_S_MAX: Final = 86_400.0
TOKEN_BYTES_MAX: Final = 64 * 1024
_NAMES: Final = (
    "url", "token", "token_file", "ca_file", "cert", "cert_key", "timeout", "as_json"
)  # fmt: skip
_META: Final = "mq.tools.mqctl.options"


@dataclass(frozen=True, slots=True)
class Options:
    """What was said of all commands. `timeout_s`: for each sign of life of mq."""

    url: str = URL_DEFAULT
    token: str | None = field(default=None, repr=False)
    timeout_s: float = TIMEOUT_S_DEFAULT
    as_json: bool = False
    files: Certificates = field(default_factory=Certificates)

    @property
    def certificates(self) -> Certificates:
        """The files, for a client of the URL. Raises click's UsageError."""
        _check(self.files, self.url)
        return self.files

    @property
    def shown_url(self) -> str:
        """The URL without what is secret in it."""
        parts = urlsplit(self.url)
        if parts.username is None and parts.password is None:
            return self.url
        return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def shared_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a command --url, --token, --token-file, --timeout, --json and those for
    certificates, and calls it with an `options: Options` of what was said anywhere. Raises click's
    UsageError for what cannot be.
    """

    @functools.wraps(command)
    def with_options(**given: Any) -> Any:
        context = click.get_current_context()
        remember(context, given)
        for name in _NAMES:
            given.pop(name, None)
        return command(options=options_of(context), **given)

    return _declare(with_options)


def group_options(group: Callable[..., Any]) -> Callable[..., Any]:
    """The same for the group: what is said there is kept for its command."""

    @functools.wraps(group)
    def with_options(**given: Any) -> Any:
        remember(click.get_current_context(), given)
        for name in _NAMES:
            given.pop(name, None)
        return group(**given)

    return _declare(with_options)


def json_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """--json alone, for a command that speaks to no mq. Calls it with `as_json: bool`."""

    @functools.wraps(command)
    def with_json(**given: Any) -> Any:
        context = click.get_current_context()
        remember(context, {"as_json": given.pop("as_json", None)})
        return command(as_json=bool(_said(context).get("as_json", (0, False))[1]), **given)

    return _json(with_json)


def _declare(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option(
            "--timeout",
            type=_Seconds(),
            default=None,
            envvar="MQ_TIMEOUT",
            show_envvar=True,
            help=f"Seconds that mq may be silent before it counts as gone. "
            f"[default: {TIMEOUT_S_DEFAULT:g}]",
        ),
        _file(
            "--cert-key",
            "MQ_CERT_KEY",
            "The private key of --cert, PEM, unless it stands in the same file.",
        ),
        _file("--cert", "MQ_CERT", "A certificate to show to an mq that asks who comes, PEM."),
        _file(
            "--ca-file",
            "MQ_CA_FILE",
            "Whose certificates an https URL's mq may have, PEM, instead of those that the system "
            "believes.",
        ),
        click.option(
            "--token-file",
            type=click.Path(dir_okay=False),
            default=None,
            envvar="MQ_TOKEN_FILE",
            show_envvar=True,
            help="A file whose text is the token.",
        ),
        click.option(
            "--token",
            default=None,
            envvar="MQ_TOKEN",
            show_envvar=True,
            help="Sent as `Authorization: Bearer`. On a command line others of the machine can "
            "see it: say MQ_TOKEN or --token-file.",
        ),
        click.option(
            "--url",
            default=None,
            envvar="MQ_URL",
            show_envvar=True,
            help=f"Where mq is. [default: {URL_DEFAULT}]",
        ),
    ):
        command = option(command)
    return _json(command)


def _json(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--json/--no-json",
        "as_json",
        default=None,
        envvar="MQ_JSON",
        show_envvar=True,
        help="Print JSON: one document, or a line each where there may be many.",
    )(command)


def _file(flag: str, variable: str, about: str) -> Callable[..., Any]:
    return click.option(
        flag,
        type=click.Path(dir_okay=False),
        default=None,
        envvar=variable,
        show_envvar=True,
        help=about,
    )


class _Seconds(click.FloatRange):
    name = "seconds"

    def __init__(self) -> None:
        super().__init__(0.001, TIMEOUT_S_MAX)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            self.fail(f"{value!r} is no number", param, ctx)
        return number


def remember(context: click.Context, given: Mapping[str, Any]) -> None:
    """Keeps what was said here: a later place goes before an earlier one, and either before the
    environment.
    """
    said = _said(context)
    for name in _NAMES:
        value = given.get(name)
        if value is None:
            continue
        from_environment = context.get_parameter_source(name) is ParameterSource.ENVIRONMENT
        rank = 0 if from_environment else 1
        if name not in said or rank >= said[name][0]:
            said[name] = (rank, value)


def _said(context: click.Context) -> dict[str, tuple[int, Any]]:
    said: dict[str, tuple[int, Any]] = context.meta.setdefault(_META, {})
    return said


def was_said(name: str) -> bool:
    """Whether an option (`url`; `token`, by itself or by its file) was said anywhere, so that it is
    not merely its default.
    """
    said = _said(click.get_current_context())
    return name in said or (name == "token" and "token_file" in said)


def options_of(context: click.Context) -> Options:
    """What was said so far. Raises click's UsageError."""
    said = _said(context)
    rank = {name: said[name][0] for name in said}
    value = {name: said[name][1] for name in said}
    url = _url(value.get("url", URL_DEFAULT))
    files = Certificates(value.get("ca_file"), value.get("cert"), value.get("cert_key"))
    # A worker's own URL is one that nobody said here.
    _check(files, url if "url" in said else "https://")
    return Options(
        url=url,
        token=_token(value, rank),
        timeout_s=value.get("timeout", TIMEOUT_S_DEFAULT),
        as_json=bool(value.get("as_json", False)),
        files=files,
    )


def _check(files: Certificates, url: str) -> None:
    try:
        files.context(url)
    except ValueError as error:
        raise click.UsageError(f"--ca-file, --cert, --cert-key: {error}.") from None


def _url(text: str) -> str:
    if "://" not in text:
        text = f"http://{text}"  # localhost:8080 is of HTTP.
    try:
        parts = urlsplit(text)
        is_one = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_one = False
    if not is_one or parts.query or parts.fragment:
        raise click.BadParameter("is no http://HOST:PORT", param_hint="--url (MQ_URL)")
    return text.rstrip("/")


def _token(value: Mapping[str, Any], rank: Mapping[str, int]) -> str | None:
    if "token" in value and "token_file" in value:
        if rank["token"] == rank["token_file"]:
            raise click.UsageError("--token and --token-file: say one of them.")
        if rank["token"] > rank["token_file"]:
            return _usable(value["token"], "--token")
    if "token_file" in value:
        return _usable(_read(value["token_file"]), "--token-file")
    return _usable(value["token"], "--token") if "token" in value else None


def _read(path: str) -> str:
    try:
        with Path(path).open("rb") as file:
            return file.read(TOKEN_BYTES_MAX).decode("ascii").strip()
    except OSError as error:
        raise click.BadParameter(
            f"{path}: {error.strerror or 'cannot be read'}", param_hint="--token-file"
        ) from None
    except UnicodeDecodeError:
        raise click.BadParameter(f"{path}: is no token", param_hint="--token-file") from None


def _usable(token: str, hint: str) -> str:
    # What it is stays unsaid: it may be a token with a slip of the hand in it.
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise click.BadParameter("is no token", param_hint=hint)
    return token
