"""What the two sides of `/-/consume` say: commands parsed, frames printed. Pure.

A command is a text frame with one JSON object. What of it is malformed as a whole raises BadFrame;
what is wrong with one of several queues is that one's result.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias, cast

from mq.model.limits import BATCH_MESSAGES_MAX, PRIORITY_MAX, VISIBILITY_S_MAX, VISIBILITY_S_MIN
from mq.model.message import Delivery
from mq.protocol.consume.errors import BadFrame
from mq.protocol.consume.limits import CREDIT_MAX, REF_CHARS_MAX, REF_MAX, SUBSCRIPTIONS_MAX
from mq.protocol.rows import delivered

Ref: TypeAlias = str | int | None
"""What a client calls a command, so that it knows the answer; None: it has no name for it."""


class Verb(Enum):
    """What becomes of messages that a connection holds."""

    ACK = "ack"
    RELEASE = "release"
    SIDELINE = "sideline"


@dataclass(frozen=True, slots=True)
class Wanted:
    """A subscription that is asked for; the queue's name and the selection as they were said."""

    queue: str
    priority: int = 0
    credit: int = 1
    visibility_s: float | None = None
    select: str | None = None


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Messages of these queues are wanted."""

    wanted: tuple[Wanted, ...]


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """Nothing more of these queues is wanted."""

    queues: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Grant:
    """So many more messages may come, by queue."""

    credit: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Settle:
    """What is to become of these messages. `unhandled`, of a release: no program had them."""

    verb: Verb
    ids: tuple[str, ...]
    unhandled: bool = False


@dataclass(frozen=True, slots=True)
class Begin:
    """The client's program has these messages from now on. It is not answered. The first one, which
    may have no ids, says that the client tells it of each.
    """

    ids: tuple[str, ...]


Does: TypeAlias = Subscribe | Unsubscribe | Grant | Settle | Begin


@dataclass(frozen=True, slots=True)
class Command:
    """One command of a client."""

    ref: Ref
    does: Does


_ONE_COMMAND: Final = (
    "a JSON object with one of subscribe, unsubscribe, ack, release, sideline, credit and begin, "
    "and perhaps a ref"
)
_REF: Final = f"a ref that is text of at most {REF_CHARS_MAX} characters, or a whole number"
_SUBSCRIBE: Final = (
    f'{{"subscribe": [1 to {SUBSCRIPTIONS_MAX} of {{"queue": text, "priority": 0 to '
    f'{PRIORITY_MAX}, "credit": 0 to {CREDIT_MAX}, "visibility_s": {VISIBILITY_S_MIN} to '
    f'{VISIBILITY_S_MAX}, "select": text}}]}}'
)
_UNSUBSCRIBE: Final = f'{{"unsubscribe": [1 to {SUBSCRIPTIONS_MAX} queues]}}'
_CREDIT: Final = f'{{"credit": {{1 to {SUBSCRIPTIONS_MAX} queues, each with 1 to {CREDIT_MAX}}}}}'
_IDS: Final = f"an object with a list of 1 to {BATCH_MESSAGES_MAX} ids as its"
_BEGIN: Final = f'{{"begin": [0 to {BATCH_MESSAGES_MAX} ids]}}'
_RELEASE: Final = f'{{"release": [1 to {BATCH_MESSAGES_MAX} ids], "unhandled": true or false}}'
_MEMBERS: Final = frozenset({"queue", "priority", "credit", "visibility_s", "select"})


def parse(text: str) -> Command:
    """The command that a text frame says. Raises BadFrame, which has its ref when it has one."""
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        raise BadFrame(_ONE_COMMAND, is_json=False) from None
    if not isinstance(said, dict):
        raise BadFrame(_ONE_COMMAND)
    ref = said.pop("ref", None)
    if not _is_ref(ref):
        raise BadFrame(_REF)
    unhandled = said.pop("unhandled", False) if "release" in said else False
    if not isinstance(unhandled, bool):
        raise BadFrame(_RELEASE, ref)
    if len(said) != 1:
        raise BadFrame(_ONE_COMMAND, ref)
    [(name, value)] = said.items()
    return Command(ref, _does(name, value, unhandled, ref))


def _is_ref(ref: object) -> bool:
    if isinstance(ref, str):
        return len(ref) <= REF_CHARS_MAX
    return ref is None or _is_whole(ref, -REF_MAX, REF_MAX)


def _does(name: str, value: object, unhandled: bool, ref: Ref) -> Does:
    match name:
        case "subscribe":
            return Subscribe(_wanted(value, ref))
        case "unsubscribe":
            return Unsubscribe(_texts(value, SUBSCRIPTIONS_MAX, _UNSUBSCRIBE, ref))
        case "credit":
            return Grant(_credit(value, ref))
        case "ack" | "release" | "sideline":
            ids = _texts(value, BATCH_MESSAGES_MAX, f"{_IDS} {name}", ref)
            return Settle(Verb(name), ids, unhandled)
        case "begin":
            return Begin(() if value == [] else _texts(value, BATCH_MESSAGES_MAX, _BEGIN, ref))
    raise BadFrame(_ONE_COMMAND, ref)


def _texts(value: object, most: int, expected: str, ref: Ref) -> tuple[str, ...]:
    if not isinstance(value, list) or not 1 <= len(value) <= most:
        raise BadFrame(expected, ref)
    if not all(isinstance(each, str) for each in value):
        raise BadFrame(expected, ref)
    return tuple(value)


def _credit(value: object, ref: Ref) -> dict[str, int]:
    if not isinstance(value, dict) or not 1 <= len(value) <= SUBSCRIPTIONS_MAX:
        raise BadFrame(_CREDIT, ref)
    if not all(_is_whole(each, 1, CREDIT_MAX) for each in value.values()):
        raise BadFrame(_CREDIT, ref)
    return value


def _wanted(value: object, ref: Ref) -> tuple[Wanted, ...]:
    if not isinstance(value, list) or not 1 <= len(value) <= SUBSCRIPTIONS_MAX:
        raise BadFrame(_SUBSCRIBE, ref)
    if not all(_is_wanted(each) for each in value):
        raise BadFrame(_SUBSCRIBE, ref)
    return tuple(Wanted(**each) for each in value)


def _is_wanted(each: object) -> bool:
    if not isinstance(each, dict) or not isinstance(each.get("queue"), str):
        return False
    visibility_s, select = each.get("visibility_s", VISIBILITY_S_MIN), each.get("select", "")
    return (
        each.keys() <= _MEMBERS
        and _is_whole(each.get("priority", 0), 0, PRIORITY_MAX)
        and _is_whole(each.get("credit", 1), 0, CREDIT_MAX)
        and _is_number(visibility_s)
        and VISIBILITY_S_MIN <= cast(float, visibility_s) <= VISIBILITY_S_MAX
        and isinstance(select, str)
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_whole(value: object, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def header_frame(delivery: Delivery) -> bytes:
    """What is said of a message before its body comes."""
    members = {"queue": delivery.queue.text, **delivered(delivery), "size": delivery.size}
    return _printed(members)


def results_frame(ref: Ref, results: Sequence[Mapping[str, object]]) -> bytes:
    """The answer to a command: a result for each that it named, in their order."""
    return _printed({"ref": ref, "results": results})


def problem_frame(ref: Ref, problem: Mapping[str, object]) -> bytes:
    """The answer to a command that is none."""
    return _printed({"ref": ref, "problem": problem})


def unsubscribed_frame(queue: str, problem: Mapping[str, object]) -> bytes:
    """That nothing more comes of a queue, which the client did not ask for."""
    return _printed({"event": "unsubscribed", "queue": queue, "problem": problem})


def _printed(content: Mapping[str, object]) -> bytes:
    # In ASCII: a client's own text may have what UTF-8 has no bytes for.
    return json.dumps(content).encode("ascii")
