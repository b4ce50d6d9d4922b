"""What an exit code of mqctl means, and the errors that end a command with one."""

import json
from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Final

import click

_SIGNAL: Final = 128


class ExitCode(IntEnum):
    """All codes there are; one that a signal ended has 128 and the signal's number."""

    DONE = 0
    REFUSED = 1
    """mq refused, or failed: there is a problem; or a file of this machine cannot be used."""
    USAGE = 2
    NOTHING = 3
    """Nothing is there: no message, or no such queue, message, key, schedule."""
    UNREACHABLE = 4
    PARTLY = 5
    """Part of it is done; or something is wrong with what was looked at."""
    INTERRUPTED = 130
    PIPE_CLOSED = 141
    """Whoever read the output went away before its end."""


class Failed(click.ClickException):
    """Ends a command with a code, and a message on stderr (none where it is empty).

    `facts`: what is said beside it with --json; `as_json`: whether that was asked for.
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
        # click means it to be the class's, and reads it of the error.
        self.exit_code = int(code)  # type: ignore[misc]
        self.facts = dict(facts or {})
        self.as_json = as_json

    def show(self, file: Any = None) -> None:
        """See click. With JSON, one line with `error`: its `exit`, `message` and facts."""
        if self.message and self.as_json:
            said = {"exit": self.exit_code, "message": self.message, **self.facts}
            click.echo(json.dumps({"error": said}, ensure_ascii=False), file=file, err=True)
        elif self.message:
            super().show(file)


def of_signal(number: int) -> int:
    """The code of a command that this signal ended."""
    return _SIGNAL + number
