"""The frames of a consumer's WebSocket: prints commands, parses mq's frames. Pure."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from mq.client.errors import Problem
from mq.client.message import Said, Target
from mq.client.transport import Answer
from mq.client.values import Subscription
from mq.client.wire import Members, Row, not_mq
from mq.protocol.consume.frames import Verb

# The status in the error of a malformed frame, which has none.
SWITCHING: Final = 101
_DONE: Final = (200, 202)


@dataclass(frozen=True, slots=True)
class Result:
    """A command's result for one queue or id; None: it is done."""

    problem: Problem | None


@dataclass(frozen=True, slots=True)
class Results:
    """The answer to the command of this ref: a result each, in order."""

    ref: int
    results: tuple[Result, ...]


@dataclass(frozen=True, slots=True)
class Malformed:
    """A command was malformed; `ref`: which, where mq could read it."""

    ref: int | None
    problem: Problem


@dataclass(frozen=True, slots=True)
class Unsubscribed:
    """mq ended a subscription."""

    queue: str
    problem: Problem


@dataclass(frozen=True, slots=True)
class Header:
    """A message, whose body of `size` bytes is in the next frame."""

    queue: str
    row: Row
    size: int


Frame: TypeAlias = Results | Malformed | Unsubscribed | Header


def subscribe(ref: int, wanted: Iterable[tuple[Subscription, int]]) -> str:
    """The command that subscribes to queues, each with a first credit."""
    found = [_subscription(each, credit) for each, credit in wanted]
    return json.dumps({"subscribe": found, "ref": ref})


def _subscription(wanted: Subscription, credit: int) -> dict[str, object]:
    found: dict[str, object] = {
        "queue": wanted.queue,
        "priority": wanted.priority,
        "credit": credit,
    }
    if wanted.visibility_s is not None:
        found["visibility_s"] = wanted.visibility_s
    if wanted.select is not None:
        found["select"] = wanted.select
    if wanted.packs:
        found["packs"] = True
    return found


def grant(ref: int, credit: Mapping[str, int]) -> str:
    """The command that lets mq send more messages, by queue."""
    return json.dumps({"credit": dict(credit), "ref": ref})


def settle(ref: int, verb: Verb, ids: Sequence[str], reason: Said = None) -> str:
    """The command that settles messages; `reason`: why."""
    why = {} if reason is None else {"reason": reason}
    return json.dumps({verb.value: list(ids), **why, "ref": ref})


def begin(ids: Sequence[str]) -> str:
    """The report that the program has these messages; mq does not answer it."""
    return json.dumps({"begin": list(ids)})


def prefetched(fetched: Iterable[Target]) -> str:
    """The report that the program does not have these messages yet, which were fetched by requests;
    mq does not answer it.
    """
    found = [{"queue": one.queue, "id": one.id, "receives": one.receives} for one in fetched]
    return json.dumps({"prefetched": found})


def follow(queue: str, select: str | None, last: int) -> str:
    """The command that follows a queue, after the `last` past messages."""
    wanted: dict[str, object] = {"queue": queue, "last": last}
    if select is not None:
        wanted["select"] = select
    return json.dumps({"follow": [wanted], "ref": 1})


def parse_followed(text: str | bytes) -> tuple[Members, int] | None:
    """A message of a followed queue, and how many before it were dropped; None: it is followed from
    now on. Raises Problem, also for a queue that has ended; NotMq.
    """
    body = text if isinstance(text, bytes) else text.encode("utf-8", "replace")
    answer = Answer(SWITCHING, body=body)
    found = Members.of(answer)
    results = [_result(each) for each in found.each("results")] if "results" in found.raw else []
    problems = [found.problem("problem"), *(each.problem for each in results)]
    for problem in problems:
        if problem is not None:
            raise problem
    if results:
        return None
    return Members(answer, found.raw.get("message")), found.whole("dropped")


def parse(text: str) -> Frame:
    """mq's text frame. Raises NotMq."""
    answer = Answer(SWITCHING, body=text.encode("utf-8", "replace"))
    found = Members.of(answer)
    if "id" in found.raw:
        return Header(found.text("queue"), found.row(), found.whole("size"))
    if "results" in found.raw:
        results = tuple(_result(each) for each in found.each("results"))
        return Results(found.whole("ref"), results)
    problem = found.problem("problem")
    if problem is None:
        raise not_mq(answer, "is not a frame of mq")
    if "event" in found.raw:
        return Unsubscribed(found.text("queue"), problem)
    return Malformed(found.whole_or_none("ref"), problem)


def _result(found: Members) -> Result:
    problem = found.problem("problem")
    if problem is None and found.whole("status") not in _DONE:
        problem = Problem({"status": found.whole("status")})
    return Result(problem)
