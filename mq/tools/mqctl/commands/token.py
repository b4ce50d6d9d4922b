"""`mqctl token`: the tokens of a daemon's file; mq itself is not asked for anything."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from mq.access.callers import Grant
from mq.access.errors import BadGrant, TokensUnusable
from mq.access.grants import parse_grant, printed
from mq.access.limits import GRANTS_MAX
from mq.access.tokens import is_name, line_of, new_token
from mq.tools.mqctl.exits import ExitCode, Failed
from mq.tools.mqctl.options import Options, shared_options
from mq.tools.mqctl.printing import Printer
from mq.tools.mqctl.token_file import NameTaken, NoSuchToken, TokenFile

F = TypeVar("F", bound=Callable[..., Any])


def _name(ctx: click.Context, param: click.Parameter, value: str) -> str:
    if not is_name(value):
        raise click.BadParameter("is of letters, digits and _ . @ -, and begins with no sign")
    return value


def _grants(
    ctx: click.Context, param: click.Parameter, value: tuple[str, ...]
) -> tuple[Grant, ...]:
    if len(value) > GRANTS_MAX:
        raise click.BadParameter(f"are at most {GRANTS_MAX}")
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
        help="The file that mq --tokens names.",
    )


_AGAIN: Final = "mq reads it again on SIGHUP."


@click.group()
def token() -> None:
    """Make, list and remove the tokens of a file: mq --tokens has it."""


@token.command("new")
@click.option("--name", required=True, callback=_name, help="Whose it is, for the log.")
@click.option(
    "--grant",
    "grants",
    required=True,
    multiple=True,
    metavar="PATTERN:RIGHTS",
    callback=_grants,
    help="Rights (publish, consume, admin) to queues, such as 'orders-*:publish,consume'. May be "
    "said again.",
)
@_file(is_needed=False)
@shared_options
def new(options: Options, name: str, grants: tuple[Grant, ...], path: Path | None) -> None:
    """Make a token, and print it: it is nowhere else, and is not shown again.

    Its line, which has no more than its digest, goes into the file. Without --file it is printed
    too, behind the token.
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
        printer.note(f"{name} is in {path}. {_AGAIN}")


@token.command("list")
@_file(is_needed=True)
@shared_options
def list_(options: Options, path: Path) -> None:
    """List whose tokens there are, and what each may do."""
    printer = Printer(options.as_json)
    with _complained(options, "", path):
        callers = TokenFile(path).callers()
    found = [(each.name, [printed(grant) for grant in each.grants]) for each in callers]
    if options.as_json:
        tokens = [{"name": name, "grants": grants} for name, grants in found]
        printer.document({"tokens": tokens})
    else:
        printer.table(("name", "grants"), [(name, " ".join(grants)) for name, grants in found])


@token.command("remove")
@click.argument("name")
@_file(is_needed=True)
@shared_options
def remove(options: Options, name: str, path: Path) -> None:
    """Take the token NAME away."""
    printer = Printer(options.as_json)
    with _complained(options, name, path):
        TokenFile(path).remove(name)
    if options.as_json:
        printer.document({"removed": name})
    else:
        printer.note(f"{name} is no more in {path}. {_AGAIN}")


@contextmanager
def _complained(options: Options, name: str, path: Path) -> Iterator[None]:
    """What goes wrong with the file ends the command."""
    try:
        yield
    except NameTaken:
        message = f"{path} has a token called {name}: remove it first, or take another name."
        raise Failed(ExitCode.REFUSED, message, as_json=options.as_json) from None
    except NoSuchToken:
        message = f"{path} has no token called {name}."
        raise Failed(ExitCode.NOTHING, message, as_json=options.as_json) from None
    except TokensUnusable as error:
        raise Failed(ExitCode.REFUSED, str(error), as_json=options.as_json) from None
    except OSError as error:
        message = f"{path}: {error.strerror or 'cannot be changed'}"
        raise Failed(ExitCode.REFUSED, message, as_json=options.as_json) from None
