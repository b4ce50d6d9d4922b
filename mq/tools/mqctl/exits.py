"""mqctl's exit codes, and the error that ends a command with one."""

import json
from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Final

import click

_SIGNAL: Final = 128


class ExitCode(IntEnum):
    """All exit codes. A command that a signal ends exits with 128 plus its number."""

    DONE = 0
    REFUSED = 1
    """mq answered with a problem, or a local file cannot be used."""
    USAGE = 2
    NOTHING = 3
    """There is no message to receive, or no such queue, message, key, schedule, shovel or
    consumer."""
    UNREACHABLE = 4
    PARTLY = 5
    """A part failed, or a check found something wrong."""
    INTERRUPTED = 130
    PIPE_CLOSED = 141
    """The reader of the output closed it early, as `head` does."""


class Failed(click.ClickException):
    """Ends a command with a code, and a message on stderr unless it is empty.

    `facts`: more fields of the message under --json; `as_json`: whether --json is set.
    """

    def __init__(
        self,
        code: int,
        message: str = "",
        facts: Mapping[str, Any] | None = None,
        *,
        as_json: bool = False,
    ) -> None:
        super().__init__(message)
        # click declares it on the class, and reads it from the instance.
        self.exit_code = int(code)  # type: ignore[misc]
        self.facts = dict(facts or {})
        self.as_json = as_json

    def show(self, file: Any = None) -> None:
        """See click. With --json: one line, `{"error": {"exit", "message", facts}}`."""
        if self.message and self.as_json:
            error = {"exit": self.exit_code, "message": self.message, **self.facts}
            click.echo(json.dumps({"error": error}, ensure_ascii=False), file=file, err=True)
        elif self.message:
            super().show(file)


def of_signal(number: int) -> int:
    """The exit code of a command that this signal ended."""
    return _SIGNAL + number
