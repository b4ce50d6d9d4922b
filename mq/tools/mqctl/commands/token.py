"""`mqctl token`: the tokens of a daemon's file. Sends no request."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from mq.access.callers import GRANTS_MAX, Grant, parse_grant, printed
from mq.access.errors import BadGrant, TokensUnusable
from mq.access.secrets import secrets_path
from mq.access.tokens import is_name, line_of, new_token
from mq.tools.mqctl.exits import ExitCode, Failed
from mq.tools.mqctl.options import Options, shared_options
from mq.tools.mqctl.printing import Printer
from mq.tools.mqctl.token_file import NameTaken, NoSuchToken, TokenFile

F = TypeVar("F", bound=Callable[..., Any])


def _name(ctx: click.Context, param: click.Parameter, value: str) -> str:
    if not is_name(value):
        raise click.BadParameter(
            "may have letters, digits and _ . @ -, and starts with none of these signs"
        )
    return value


def _grants(
    ctx: click.Context, param: click.Parameter, value: tuple[str, ...]
) -> tuple[Grant, ...]:
    if len(value) > GRANTS_MAX:
        raise click.BadParameter(f"may be given {GRANTS_MAX} times at most")
    try:
        return tuple(map(parse_grant, value))
    except BadGrant as error:
        raise click.BadParameter(str(error)) from None


def _file(is_needed: bool) -> Callable[[F], F]:
    return click.option(
        "--file",
        "path",
        type=click.Path(path_type=Path, dir_okay=False),
        required=is_needed,
        envvar="MQ_TOKENS",
        show_envvar=True,
        help="The token file of mq --tokens.",
    )


_RELOAD: Final = "Send mq a SIGHUP to reload it."


@click.group()
def token() -> None:
    """Create, list or remove tokens in the file of mq --tokens."""


@token.command("new")
@click.option("--name", required=True, callback=_name, help="The token's name, which mq logs.")
@click.option(
    "--grant",
    "grants",
    required=True,
    multiple=True,
    metavar="PATTERN:RIGHTS",
    callback=_grants,
    help="Rights (publish, consume, admin) on queues: 'orders-*:publish,consume'. Repeatable.",
)
@_file(is_needed=False)
@shared_options
def new(options: Options, name: str, grants: tuple[Grant, ...], path: Path | None) -> None:
    """Create a token and print it. It is shown only this once.

    The file gets a line with the token's digest. Without --file the line is printed after the
    token.
    """
    made = new_token()
    printer = Printer(options.as_json)
    if path is not None:
        with _complained(options, name, path):
            TokenFile(path).add(name, made, grants)
    line = line_of(name, made, grants)
    if options.as_json:
        printer.document({"name": name, "token": made, "line": line})
        return
    printer.line(made)
    if path is None:
        printer.line(line)
    else:
        printer.note(f"added {name} to {path}. {_RELOAD}")


@token.command("list")
@_file(is_needed=True)
@shared_options
def list_(options: Options, path: Path) -> None:
    """List the tokens by name, with their rights."""
    printer = Printer(options.as_json)
    with _complained(options, "", path):
        callers = TokenFile(path).callers()
    found = [(each.name, [printed(grant) for grant in each.grants]) for each in callers]
    if options.as_json:
        tokens = [{"name": name, "grants": grants} for name, grants in found]
        printer.document({"tokens": tokens})
    else:
        printer.table(("name", "grants"), [(name, " ".join(grants)) for name, grants in found])


@token.command("secret")
@click.argument("name")
@_file(is_needed=True)
@shared_options
def secret(options: Options, name: str, path: Path) -> None:
    """Give the token NAME a secret for SQS clients, and print it. It replaces an older one.

    The access key id of the client is NAME. FILE.secrets keeps the secret in the clear.
    """
    made = new_token()
    printer = Printer(options.as_json)
    with _complained(options, name, path):
        TokenFile(path).set_secret(name, made)
    if options.as_json:
        printer.document({"name": name, "secret": made})
        return
    printer.line(made)
    printer.note(f"added the secret of {name} to {secrets_path(path)}. {_RELOAD}")


@token.command("remove")
@click.argument("name")
@_file(is_needed=True)
@shared_options
def remove(options: Options, name: str, path: Path) -> None:
    """Remove the token NAME, and its secret."""
    printer = Printer(options.as_json)
    with _complained(options, name, path):
        TokenFile(path).remove(name)
    if options.as_json:
        printer.document({"removed": name})
    else:
        printer.note(f"removed {name} from {path}. {_RELOAD}")


@contextmanager
def _complained(options: Options, name: str, path: Path) -> Iterator[None]:
    """Ends the command with a message for an error of the file."""
    try:
        yield
    except NameTaken:
        message = f"{path} already has a token called {name}. Remove it, or choose another name."
        raise Failed(ExitCode.REFUSED, message, as_json=options.as_json) from None
    except NoSuchToken:
        message = f"{path} has no token called {name}."
        raise Failed(ExitCode.NOTHING, message, as_json=options.as_json) from None
    except TokensUnusable as error:
        raise Failed(ExitCode.REFUSED, str(error), as_json=options.as_json) from None
    except OSError as error:
        message = f"{path}: {error.strerror or 'cannot be changed'}"
        raise Failed(ExitCode.REFUSED, message, as_json=options.as_json) from None
