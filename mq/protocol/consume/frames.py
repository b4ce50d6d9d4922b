"""Frames of `/-/consume`: commands parsed, server frames printed. Pure.

A command is a text frame with one JSON object. A malformed one raises BadFrame; an error with one
of several queues is that queue's result.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias, cast

from mq.model.errors import BadBody, BadFrame, BadName, MessageNotFound, suggestion
from mq.model.failure import EXPECTED, Failure
from mq.model.limits import (
    BATCH_MESSAGES_MAX,
    PRIORITY_MAX,
    RECEIVES_MAX,
    VISIBILITY_S_MAX,
    VISIBILITY_S_MIN,
)
from mq.model.message import Delivery, Reason
from mq.model.names import MessageId, QueueName
from mq.protocol.parameters import message_id
from mq.protocol.rows import body_member, delivered
from mq.protocol.sidelines import why_of

SUBSCRIPTIONS_MAX: Final = 1000
# Queues that a connection follows, and past messages of each that it may ask for.
FOLLOWS_MAX: Final = 16
LAST_MAX: Final = 1000
CREDIT_MAX: Final = 10_000
REF_CHARS_MAX: Final = 128
REF_MAX: Final = 2**53 - 1

Ref: TypeAlias = str | int | None
"""A client's name for a command, repeated in the answer; None: it has none."""


class Verb(Enum):
    """How a client settles messages that it holds."""

    ACK = "ack"
    RELEASE = "release"
    SIDELINE = "sideline"


@dataclass(frozen=True, slots=True)
class Wanted:
    """A requested subscription, with the queue's name and the selection unparsed."""

    queue: str
    priority: int = 0
    credit: int = 1
    visibility_s: float | None = None
    select: str | None = None
    packs: bool = False
    """Whether packs come whole; the last one may exceed the credit."""


@dataclass(frozen=True, slots=True)
class Subscribe:
    wanted: tuple[Wanted, ...]


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """End the subscriptions to these queues."""

    queues: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Followed:
    """A queue to follow, its name and the selection unparsed; `last`: that many past messages come
    first.
    """

    queue: str
    select: str | None = None
    last: int = 0


@dataclass(frozen=True, slots=True)
class Follow:
    """Send the new messages of these queues, and consume none."""

    wanted: tuple[Followed, ...]


@dataclass(frozen=True, slots=True)
class Unfollow:
    queues: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Grant:
    """More messages may come, by queue."""

    credit: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Settle:
    """Settle these messages. `unhandled`, of a release: no program had them. `reason`, of a
    sideline: for what they go there. `failure` is kept with each.
    """

    verb: Verb
    ids: tuple[str, ...]
    unhandled: bool = False
    reason: Reason = Reason.REJECTED
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Begin:
    """The client's program has these messages now; not answered. The first one, which may have no
    ids, announces that the client reports each message.
    """

    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Fetched:
    """A delivery that a client has by a request."""

    queue: QueueName
    id: MessageId
    receives: int


@dataclass(frozen=True, slots=True)
class Prefetched:
    """The client has these by requests, and its program does not have them yet; not answered."""

    fetched: tuple[Fetched, ...]


Does: TypeAlias = Subscribe | Unsubscribe | Grant | Settle | Begin | Prefetched | Follow | Unfollow


@dataclass(frozen=True, slots=True)
class Command:
    ref: Ref
    does: Does


_ONE_COMMAND: Final = (
    "a JSON object with one of subscribe, unsubscribe, ack, release, sideline, credit, begin, "
    "prefetched, follow or unfollow, and optionally a ref"
)
_COMMANDS: Final = (
    "subscribe",
    "unsubscribe",
    "follow",
    "unfollow",
    "ack",
    "release",
    "sideline",
    "credit",
    "begin",
    "prefetched",
)
_REF: Final = f"sent with a ref of at most {REF_CHARS_MAX} characters, or a whole number as ref"
_SUBSCRIBE: Final = (
    f'{{"subscribe": [1 to {SUBSCRIPTIONS_MAX} of {{"queue": text, "priority": 0 to '
    f'{PRIORITY_MAX}, "credit": 0 to {CREDIT_MAX}, "visibility_s": {VISIBILITY_S_MIN} to '
    f'{VISIBILITY_S_MAX}, "select": text, "packs": true or false}}]}}'
)
_FOLLOW: Final = (
    f'{{"follow": [1 to {FOLLOWS_MAX} of {{"queue": text, "select": text, "last": 0 to '
    f"{LAST_MAX}}}]}}"
)
_FOLLOWED: Final = frozenset({"queue", "select", "last"})
_UNFOLLOW: Final = f'{{"unfollow": [1 to {FOLLOWS_MAX} queues]}}'
_UNSUBSCRIBE: Final = f'{{"unsubscribe": [1 to {SUBSCRIPTIONS_MAX} queues]}}'
_CREDIT: Final = f'{{"credit": {{1 to {SUBSCRIPTIONS_MAX} queues, each with 1 to {CREDIT_MAX}}}}}'
_IDS: Final = f"an object with a list of 1 to {BATCH_MESSAGES_MAX} message ids as its"
_BEGIN: Final = f'{{"begin": [0 to {BATCH_MESSAGES_MAX} ids]}}'
_PREFETCHED: Final = (
    f'{{"prefetched": [1 to {BATCH_MESSAGES_MAX} of {{"queue": text, "id": text, "receives": 1 to '
    f"{RECEIVES_MAX}}}]}}"
)
_RELEASE: Final = (
    f'{{"release": [1 to {BATCH_MESSAGES_MAX} ids], "unhandled": true or false}}, or with '
    f'"unhandled" left out and a "reason": {EXPECTED}'
)
_SIDELINE: Final = (
    f'{{"sideline": [1 to {BATCH_MESSAGES_MAX} ids], "reason": why}}: rejected, exception, '
    f"{EXPECTED}"
)
_WITH: Final[Mapping[Verb, frozenset[str]]] = {
    Verb.ACK: frozenset(),
    Verb.RELEASE: frozenset({"unhandled", "reason"}),
    Verb.SIDELINE: frozenset({"reason"}),
}
_MEMBERS: Final = frozenset({"queue", "priority", "credit", "visibility_s", "select", "packs"})


def parse(text: str) -> Command:
    """The command of a text frame. Raises BadFrame, with its ref if it has one."""
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        raise BadFrame(_ONE_COMMAND, is_json=False) from None
    if not isinstance(said, dict):
        raise BadFrame(_ONE_COMMAND)
    ref = said.pop("ref", None)
    if not _is_ref(ref):
        raise BadFrame(_REF)
    verb = next((each for each in Verb if each.value in said), None)
    if verb is not None and said.keys() <= {verb.value, *_WITH[verb]}:
        return Command(ref, _settle(verb, said, ref))
    if len(said) != 1:
        raise BadFrame(_ONE_COMMAND, ref)
    [(name, value)] = said.items()
    return Command(ref, _does(name, value, ref))


def _settle(verb: Verb, said: Mapping[str, object], ref: Ref) -> Settle:
    ids = _texts(said[verb.value], BATCH_MESSAGES_MAX, f"{_IDS} {verb.value}", ref)
    if len(said) == 1:
        return Settle(verb, ids)
    expected = _SIDELINE if verb is Verb.SIDELINE else _RELEASE
    unhandled = said.get("unhandled", False)
    if not isinstance(unhandled, bool) or (unhandled and "reason" in said):
        raise BadFrame(expected, ref)
    try:
        reason, failure = why_of(said, is_sidelined=verb is Verb.SIDELINE)
    except BadBody:
        raise BadFrame(expected, ref) from None
    return Settle(verb, ids, unhandled, reason, failure)


def _is_ref(ref: object) -> bool:
    if isinstance(ref, str):
        return len(ref) <= REF_CHARS_MAX
    return ref is None or _is_whole(ref, -REF_MAX, REF_MAX)


def _does(name: str, value: object, ref: Ref) -> Does:
    does = _of_queues(name, value, ref)
    if does is not None:
        return does
    match name:
        case "begin":
            return Begin(() if value == [] else _texts(value, BATCH_MESSAGES_MAX, _BEGIN, ref))
        case "prefetched":
            return Prefetched(_fetched(value, ref))
    raise BadFrame(f"{_ONE_COMMAND}{suggestion(name, _COMMANDS)}", ref)


def _of_queues(name: str, value: object, ref: Ref) -> Does | None:
    """A command about queues; None: it is none."""
    match name:
        case "subscribe":
            return Subscribe(_wanted(value, ref))
        case "unsubscribe":
            return Unsubscribe(_texts(value, SUBSCRIPTIONS_MAX, _UNSUBSCRIBE, ref))
        case "credit":
            return Grant(_credit(value, ref))
        case "follow":
            return Follow(_followed(value, ref))
        case "unfollow":
            return Unfollow(_texts(value, FOLLOWS_MAX, _UNFOLLOW, ref))
    return None


def _texts(value: object, most: int, expected: str, ref: Ref) -> tuple[str, ...]:
    if not isinstance(value, list) or not 1 <= len(value) <= most:
        raise BadFrame(expected, ref)
    if not all(isinstance(each, str) for each in value):
        raise BadFrame(expected, ref)
    return tuple(value)


def _fetched(value: object, ref: Ref) -> tuple[Fetched, ...]:
    if not isinstance(value, list) or not 1 <= len(value) <= BATCH_MESSAGES_MAX:
        raise BadFrame(_PREFETCHED, ref)
    found = []
    for each in value:
        if not isinstance(each, dict) or each.keys() != {"queue", "id", "receives"}:
            raise BadFrame(_PREFETCHED, ref)
        queue, text, receives = each["queue"], each["id"], each["receives"]
        if not isinstance(queue, str) or not isinstance(text, str):
            raise BadFrame(_PREFETCHED, ref)
        if not _is_whole(receives, 1, RECEIVES_MAX):
            raise BadFrame(_PREFETCHED, ref)
        try:
            found.append(Fetched(QueueName.parse(queue), message_id(text), receives))
        except (BadName, MessageNotFound):
            raise BadFrame(_PREFETCHED, ref) from None
    return tuple(found)


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


def _followed(value: object, ref: Ref) -> tuple[Followed, ...]:
    if not isinstance(value, list) or not 1 <= len(value) <= FOLLOWS_MAX:
        raise BadFrame(_FOLLOW, ref)
    if not all(_is_followed(each) for each in value):
        raise BadFrame(_FOLLOW, ref)
    return tuple(Followed(**each) for each in value)


def _is_followed(each: object) -> bool:
    return (
        isinstance(each, dict)
        and each.keys() <= _FOLLOWED
        and isinstance(each.get("queue"), str)
        and isinstance(each.get("select", ""), str)
        and _is_whole(each.get("last", 0), 0, LAST_MAX)
    )


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
        and isinstance(each.get("packs", False), bool)
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_whole(value: object, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def header_frame(delivery: Delivery) -> bytes:
    """The frame before a message's body."""
    members = {"queue": delivery.queue.text, **delivered(delivery), "size": delivery.size}
    return _printed(members)


def results_frame(ref: Ref, results: Sequence[Mapping[str, object]]) -> bytes:
    """The answer to a command: a result for each queue or id, in order."""
    return _printed({"ref": ref, "results": results})


def problem_frame(ref: Ref, problem: Mapping[str, object]) -> bytes:
    """The answer to a malformed command."""
    return _printed({"ref": ref, "problem": problem})


def followed_frame(queue: str, members: Mapping[str, object], body: bytes, dropped: int) -> bytes:
    """A message of a followed queue, with the first bytes of its body; `dropped`: how many before
    it were left out, since the client was slow.
    """
    message = {**members, **body_member(body)}
    return _printed({"event": "message", "queue": queue, "dropped": dropped, "message": message})


def unsubscribed_frame(queue: str, problem: Mapping[str, object]) -> bytes:
    """Reports a subscription that ended without the client's request."""
    return _printed({"event": "unsubscribed", "queue": queue, "problem": problem})


def _printed(content: Mapping[str, object]) -> bytes:
    # In ASCII: a client's text may have lone surrogates, which UTF-8 cannot encode.
    return json.dumps(content).encode("ascii")
