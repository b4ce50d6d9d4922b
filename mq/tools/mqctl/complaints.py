"""What a person is told of an error of the client, and the exit code that it means. Pure."""

import difflib
import errno
import os
import socket
import ssl
from collections.abc import Iterable, Mapping
from typing import Any, Final

from mq.client.errors import (
    BadName,
    ClientError,
    CouldNotConnect,
    Forbidden,
    KeyNotFound,
    MessageNotFound,
    NotMq,
    Problem,
    QueueNotFound,
    ScheduleNotFound,
    ShovelNotFound,
    TimedOut,
    Unanswered,
    Unauthenticated,
    UpgradeRefused,
)
from mq.model.limits import SIDELINE_SUFFIX
from mq.tools.mqctl.exits import ExitCode, Failed
from mq.tools.mqctl.options import Options
from mq.tools.mqctl.printing import shown

_WHERE: Final = "--url or MQ_URL says where."
_ASKED: Final = ": is mq running there?"
_NEAR_MAX: Final = 3
_UNAUTHORIZED: Final = (401, 403)
_ABSENT: Final = (QueueNotFound, MessageNotFound, KeyNotFound, ScheduleNotFound, ShovelNotFound)


def failed(error: ClientError, options: Options, names: Iterable[str] = ()) -> Failed:
    """How a command ends that met this error. `names`: of the queues that there are, where one is
    not found.
    """
    code, message, facts = _told(error, options, names)
    return Failed(code, message, facts, as_json=options.as_json)


def _told(
    error: ClientError, options: Options, names: Iterable[str]
) -> tuple[ExitCode, str, Mapping[str, Any]]:
    if isinstance(error, Unanswered):
        return ExitCode.UNREACHABLE, _unanswered(error, options), {}
    if isinstance(error, NotMq):
        return _not_mq(error, options.shown_url)
    if isinstance(error, Problem):
        return _problem(error, list(names))
    code = ExitCode.USAGE if isinstance(error, BadName) else ExitCode.REFUSED
    return code, shown(error), {}


def _unanswered(error: Unanswered, options: Options) -> str:
    url = options.shown_url
    if isinstance(error, CouldNotConnect):
        return f"mq cannot be reached at {url}: {_why(error)}. Is mq running there? {_WHERE}"
    if isinstance(error, TimedOut):
        why = f"mq at {url} has not answered for {options.timeout_s:g} s (--timeout)."
    else:
        why = f"The connection to mq at {url} was lost before the answer."
    return f"{why} It may have done what it was asked for." if error.was_sent else why


def _why(error: BaseException) -> str:
    """What the system said, where it said something."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, socket.gaierror):
            return "no such host"
        if isinstance(cause, ssl.SSLError):
            # Its number is none of the system's; that of aiohttp's own kind has no reason.
            if why := getattr(cause, "reason", None):
                return f"TLS failed ({str(why).lower().replace('_', ' ')})"
        elif isinstance(cause, OSError) and (number := cause.errno or 0) in errno.errorcode:
            return os.strerror(number).lower()
        cause = cause.__cause__ or cause.__context__
    return shown(error).removesuffix(_ASKED)


def _not_mq(error: NotMq, url: str) -> tuple[ExitCode, str, Mapping[str, Any]]:
    if error.status in _UNAUTHORIZED:
        return (
            ExitCode.REFUSED,
            f"{url} refuses the token, or wants one (status {error.status}). --token-file or "
            "MQ_TOKEN says it.",
            {"status": error.status},
        )
    what = "no WebSocket gets through" if isinstance(error, UpgradeRefused) else "that is no mq"
    return (
        ExitCode.UNREACHABLE,
        f"At {url} {what}: {shown(error)}. {_WHERE}",
        {"status": error.status},
    )


def _problem(error: Problem, names: list[str]) -> tuple[ExitCode, str, Mapping[str, Any]]:
    facts = {"problem": problem_said(error)}
    if isinstance(error, QueueNotFound):
        name = str(error.facts.get("queue", ""))
        message = f"There is no queue {shown(name)}."
        if name.endswith(SIDELINE_SUFFIX) and name.removesuffix(SIDELINE_SUFFIX) in names:
            message += " mq creates it when it sidelines the first message."
        elif near := near_names(name, names):
            message += f" Is it {' or '.join(near)}?"
        elif name:
            message += f" `mqctl create {shown(name)}` makes it."
        return ExitCode.NOTHING, message, facts
    message = problem_text(error)
    if isinstance(error, Unauthenticated | Forbidden):
        message += " --token-file or MQ_TOKEN says the token."
    if error.retryable:
        message += " The same may succeed later."
    code = ExitCode.NOTHING if isinstance(error, _ABSENT) else ExitCode.REFUSED
    return code, message, facts


def problem_text(error: BaseException) -> str:
    """A problem in a line: what mq says, its type, and its facts."""
    if not isinstance(error, Problem):
        return shown(error) or type(error).__name__
    said = error.detail or error.title or "A problem."
    told = [error.slug, *(f"{name}={shown(value)}" for name, value in error.facts.items())]
    return f"{shown(said)} ({', '.join(told)})"


def problem_said(error: BaseException) -> Mapping[str, Any]:
    """The same for --json: the problem as mq said it."""
    if not isinstance(error, Problem):
        return {"title": type(error).__name__, "detail": problem_text(error)}
    return {
        "type": error.type,
        "title": error.title,
        "status": error.status,
        "detail": error.detail,
        "retryable": error.retryable,
        **error.facts,
    }


def near_names(name: str, names: list[str]) -> list[str]:
    """Those that somebody may have meant who said `name`."""
    by_folded = {each.casefold(): each for each in names}
    found = difflib.get_close_matches(name.casefold(), by_folded, _NEAR_MAX, 0.6)
    return [by_folded[each] for each in found]
