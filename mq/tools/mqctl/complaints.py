"""Turns an error of the client into mqctl's message and exit code. Pure."""

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
    NotMq,
    Problem,
    QueueNotFound,
    TimedOut,
    Unanswered,
    Unauthenticated,
    UpgradeRefused,
)
from mq.model.errors import nearest
from mq.model.limits import SIDELINE_SUFFIX
from mq.tools.mqctl.exits import ExitCode, Failed
from mq.tools.mqctl.options import Options
from mq.tools.mqctl.printing import shown

_WHERE: Final = "Set its address with --url or MQ_URL."
_ASKED: Final = ": is mq running there?"
_NEAR_MAX: Final = 3
_UNAUTHORIZED: Final = (401, 403)
_ABSENT: Final = "-not-found"


def failed(error: ClientError, options: Options, names: Iterable[str] = ()) -> Failed:
    """The end of a command for this error. `names`: the existing queues, to name the nearest where
    one is not found.
    """
    code, message, facts = _explained(error, options, names)
    return Failed(code, message, facts, as_json=options.as_json)


def _explained(
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
        why = f"The connection to mq at {url} broke before the answer."
    return f"{why} mq may have carried out the request." if error.was_sent else why


def _why(error: BaseException) -> str:
    """The system's reason where there is one, else the client's."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, socket.gaierror):
            return "no such host"
        if isinstance(cause, ssl.SSLError):
            # Its errno is none of the system's; aiohttp's own kind has no reason.
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
            f"{url} requires a valid token (status {error.status}). Give one with --token-file or "
            "MQ_TOKEN.",
            {"status": error.status},
        )
    what = "cannot open a WebSocket" if isinstance(error, UpgradeRefused) else "is not an mq server"
    return (
        ExitCode.UNREACHABLE,
        f"{url} {what}: {shown(error)}. {_WHERE}",
        {"status": error.status},
    )


def _problem(error: Problem, names: list[str]) -> tuple[ExitCode, str, Mapping[str, Any]]:
    facts = {"problem": problem_said(error)}
    if isinstance(error, QueueNotFound):
        name = str(error.facts.get("queue", ""))
        message = f"There is no queue {shown(name)}."
        if name.endswith(SIDELINE_SUFFIX) and name.removesuffix(SIDELINE_SUFFIX) in names:
            message += " mq creates it when it sidelines the first message."
        elif near := nearest(name, names, _NEAR_MAX):
            message += f" Did you mean {' or '.join(near)}?"
        elif name:
            message += f" Create it with `mqctl create {shown(name)}`."
        return ExitCode.NOTHING, message, facts
    message = problem_text(error)
    if isinstance(error, Unauthenticated):
        message += " Give a token with --token-file or MQ_TOKEN."
    if error.retryable:
        message += " Try again later."
    code = ExitCode.NOTHING if error.slug.endswith(_ABSENT) else ExitCode.REFUSED
    return code, message, facts


def problem_text(error: BaseException) -> str:
    """A problem in one line: its detail, its type, and its facts."""
    if not isinstance(error, Problem):
        return shown(error) or type(error).__name__
    detail = error.detail or error.title or "A problem."
    facts = [error.slug, *(f"{name}={shown(value)}" for name, value in error.facts.items())]
    return f"{shown(detail)} ({', '.join(facts)})"


def problem_said(error: BaseException) -> Mapping[str, Any]:
    """The problem as a JSON object, as mq sent it."""
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
