"""What the two sides of a consumer's WebSocket say: commands printed, frames parsed. Pure."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from mq.client.errors import Problem
from mq.client.transport import Answer
from mq.client.values import Subscription
from mq.client.wire.reading import Members, not_mq
from mq.client.wire.rows import Row, row

# As which answer a frame that is not mq's is told of.
_SWITCHING: Final = 101


class Verb(Enum):
    """What becomes of messages that came on a connection."""

    ACK = "ack"
    RELEASE = "release"
    SIDELINE = "sideline"


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a command for one queue or one id, in their order; None: it is done."""

    problem: Problem | None


@dataclass(frozen=True, slots=True)
class Results:
    """The answer to the command of this ref."""

    ref: int
    results: tuple[Result, ...]


@dataclass(frozen=True, slots=True)
class Malformed:
    """That a command was none; `ref` where that could be told."""

    ref: int | None
    problem: Problem


@dataclass(frozen=True, slots=True)
class Unsubscribed:
    """That nothing more comes of a queue."""

    queue: str
    problem: Problem


@dataclass(frozen=True, slots=True)
class Header:
    """What is said of a message before its body comes."""

    queue: str
    row: Row
    size: int


Said: TypeAlias = Results | Malformed | Unsubscribed | Header


def subscribe(ref: int, wanted: Iterable[tuple[Subscription, int]]) -> str:
    """Messages of these queues are wanted, each with this credit."""
    said = [_subscription(each, credit) for each, credit in wanted]
    return json.dumps({"subscribe": said, "ref": ref})


def _subscription(wanted: Subscription, credit: int) -> dict[str, object]:
    said: dict[str, object] = {
        "queue": wanted.queue,
        "priority": wanted.priority,
        "credit": credit,
    }
    if wanted.visibility_s is not None:
        said["visibility_s"] = wanted.visibility_s
    if wanted.select is not None:
        said["select"] = wanted.select
    return said


def grant(ref: int, credit: Mapping[str, int]) -> str:
    """So many more messages may come, by queue."""
    return json.dumps({"credit": dict(credit), "ref": ref})


def settle(ref: int, verb: Verb, ids: Sequence[str]) -> str:
    """What is to become of these."""
    return json.dumps({verb.value: list(ids), "ref": ref})


def begin(ids: Sequence[str]) -> str:
    """The program has these from now on; it is not answered."""
    return json.dumps({"begin": list(ids)})


def parse(text: str) -> Said:
    """What a text frame of the server says. Raises NotMq."""
    answer = Answer(_SWITCHING, body=text.encode("utf-8", "replace"))
    said = Members.of(answer)
    if "id" in said.said:
        size = said.whole("size")
        return Header(said.text("queue"), row(answer, said), size)
    if "results" in said.said:
        results = tuple(_result(each) for each in said.each("results"))
        return Results(said.whole("ref"), results)
    problem = said.problem("problem")
    if problem is None:
        raise not_mq(answer, "is no frame of mq's")
    if "event" in said.said:
        return Unsubscribed(said.text("queue"), problem)
    return Malformed(said.whole_or_none("ref"), problem)


def _result(said: Members) -> Result:
    problem = said.problem("problem")
    if problem is None and said.whole("status") not in (200, 202):
        problem = Problem({"status": said.whole("status")})
    return Result(problem)
