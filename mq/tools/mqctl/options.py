"""The global options: before the command's name, after it, or in the environment. A value after the
name overrides one before it, and that one the environment. Only `mqctl --help` lists them.

    @click.command()
    @click.argument("queue")
    @shared_options
    def describe(options: Options, queue: str) -> None: ...
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import click
from click.core import ParameterSource

from mq.access.tls import Certificates
from mq.runtime.options import Number

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
    """The values of the global options. `timeout_s`: how long mq may stay silent."""

    url: str = URL_DEFAULT
    token: str | None = field(default=None, repr=False)
    timeout_s: float = TIMEOUT_S_DEFAULT
    as_json: bool = False
    files: Certificates = field(default_factory=Certificates)

    @property
    def certificates(self) -> Certificates:
        """The certificate files, for a client of the URL. Raises click's UsageError."""
        _check(self.files, self.url)
        return self.files

    @property
    def shown_url(self) -> str:
        """The URL without its user name and password."""
        parts = urlsplit(self.url)
        if parts.username is None and parts.password is None:
            return self.url
        return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


class _Global(click.Option):
    """An option of every command. A command's help has one line in place of them all."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        if ctx.parent is None:
            return super().get_help_record(ctx)
        if self.name == "url":
            return "--url, --token, --json, ...", "Global options: see `mqctl --help`."
        return None


def _option(
    flag: str, variable: str, about: str, kind: Any = None, cls: type[click.Option] = _Global
) -> Callable[..., Any]:
    names = (flag, "as_json") if flag == _JSON else (flag,)
    option: Callable[..., Any] = click.option(
        *names, cls=cls, type=kind, default=None, envvar=variable, show_envvar=True, help=about
    )
    return option


_JSON: Final = "--json/--no-json"
_JSON_ABOUT: Final = "Print JSON: one document, or one line per result."
_FILE: Final = click.Path(dir_okay=False)
_GLOBALS: Final = (
    _option(_JSON, "MQ_JSON", _JSON_ABOUT),
    _option("--url", "MQ_URL", f"The URL of mq. [default: {URL_DEFAULT}]"),
    _option(
        "--token",
        "MQ_TOKEN",
        "The bearer token. Other users of this machine can see a command line: prefer MQ_TOKEN or "
        "--token-file.",
    ),
    _option("--token-file", "MQ_TOKEN_FILE", "A file that contains the token.", _FILE),
    _option(
        "--ca-file",
        "MQ_CA_FILE",
        "The certificate authorities (PEM) to trust for https, in place of the system's.",
        _FILE,
    ),
    _option("--cert", "MQ_CERT", "A client certificate (PEM), for an mq that requires one.", _FILE),
    _option(
        "--cert-key",
        "MQ_CERT_KEY",
        "The private key of --cert (PEM), unless it is in the same file.",
        _FILE,
    ),
    _option(
        "--timeout",
        "MQ_TIMEOUT",
        "Seconds without an answer from mq before the command fails. "
        f"[default: {TIMEOUT_S_DEFAULT:g}]",
        Number(0.001, TIMEOUT_S_MAX),
    ),
)


def shared_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a command the global options, and calls it with their values as `options: Options`.
    Raises click's UsageError for an unusable value.
    """
    return _declare(command, lambda context: {"options": options_of(context)})


def group_options(group: Callable[..., Any]) -> Callable[..., Any]:
    """Gives the group the same options, and keeps their values for its command."""
    return _declare(group, lambda context: {})


def json_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """--json alone, for a command that sends no request. Calls it with `as_json: bool`."""

    @functools.wraps(command)
    def with_json(**given: Any) -> Any:
        context = click.get_current_context()
        remember(context, {"as_json": given.pop("as_json", None)})
        return command(as_json=bool(_given(context).get("as_json", (0, False))[1]), **given)

    made: Callable[..., Any] = _option(_JSON, "MQ_JSON", _JSON_ABOUT, cls=click.Option)(with_json)
    return made


def _declare(
    command: Callable[..., Any], extra: Callable[[click.Context], Mapping[str, Any]]
) -> Callable[..., Any]:
    @functools.wraps(command)
    def with_options(**given: Any) -> Any:
        context = click.get_current_context()
        remember(context, given)
        own = {name: value for name, value in given.items() if name not in _NAMES}
        return command(**extra(context), **own)

    made: Callable[..., Any] = with_options
    for option in reversed(_GLOBALS):
        made = option(made)
    return made


def remember(context: click.Context, given: Mapping[str, Any]) -> None:
    """Keeps the values given here. A later place overrides an earlier one, either overrides the
    environment.
    """
    known = _given(context)
    for name in _NAMES:
        value = given.get(name)
        if value is None:
            continue
        from_environment = context.get_parameter_source(name) is ParameterSource.ENVIRONMENT
        rank = 0 if from_environment else 1
        if name not in known or rank >= known[name][0]:
            known[name] = (rank, value)


def _given(context: click.Context) -> dict[str, tuple[int, Any]]:
    given: dict[str, tuple[int, Any]] = context.meta.setdefault(_META, {})
    return given


def was_given(name: str) -> bool:
    """Whether an option (`url`; `token`, itself or by its file) was given, in place of its
    default.
    """
    given = _given(click.get_current_context())
    return name in given or (name == "token" and "token_file" in given)


def options_of(context: click.Context) -> Options:
    """The values so far. Raises click's UsageError."""
    given = _given(context)
    rank = {name: each[0] for name, each in given.items()}
    value = {name: each[1] for name, each in given.items()}
    url = _url(value.get("url", URL_DEFAULT))
    files = Certificates(value.get("ca_file"), value.get("cert"), value.get("cert_key"))
    # A worker may have a URL of its own.
    _check(files, url if "url" in given else "https://")
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
        text = f"http://{text}"
    try:
        parts = urlsplit(text)
        is_one = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_one = False
    if not is_one or parts.query or parts.fragment:
        raise click.BadParameter(
            "must be of the form http://HOST:PORT or https://HOST:PORT", param_hint="--url (MQ_URL)"
        )
    return text.rstrip("/")


def _token(value: Mapping[str, Any], rank: Mapping[str, int]) -> str | None:
    if "token" in value and "token_file" in value:
        if rank["token"] == rank["token_file"]:
            raise click.UsageError("Give --token or --token-file, not both.")
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
        raise click.BadParameter(
            f"{path} does not contain a token", param_hint="--token-file"
        ) from None


def _usable(token: str, hint: str) -> str:
    # The message does not show it: it may be a token with a typing error.
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise click.BadParameter(
            "must be printable ASCII without spaces, and not empty", param_hint=hint
        )
    return token
