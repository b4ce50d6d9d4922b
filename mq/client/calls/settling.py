"""Calls that change what becomes of messages: delete, extend, release, sideline.

With `receives` they are of that delivery (If-Match), and are refused where there was another.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from mq.client.calls.call import Again, Call, done_after
from mq.client.errors import DeliveredAgain, MessageNotFound
from mq.client.transport import Answer, Request
from mq.client.values import Extended, Reason, Settled, Sidelined
from mq.client.wire import reading, writing
from mq.client.wire.reading import Members

_OK: Final = 200
_ACCEPTED: Final = 202
_JSON: Final = (("Content-Type", writing.JSON),)


def delete(queue: str, message_id: str, receives: int | None) -> Call[None]:
    """Deletes a message. Not found after an attempt whose answer was lost is deleted."""
    path = writing.path(queue, "messages", message_id)
    request = Request("DELETE", path, headers=writing.if_match(receives))
    return Call(request, _accepted, when_repeated=done_after(MessageNotFound))


def delete_key(queue: str, key: str, receives: int | None) -> Call[None]:
    """Deletes the message that has a key. A second one may take the next message that has it."""
    path = writing.path(queue, "keys", key)
    request = Request("DELETE", path, headers=writing.if_match(receives))
    return Call(request, _accepted, Again.UNDONE)


def _accepted(answer: Answer) -> None:
    reading.checked(answer, _ACCEPTED)


def delete_many(queue: str, ids: Sequence[str]) -> Call[list[Settled]]:
    """Deletes each of these, whoever has them."""
    body = writing.json_body({"ids": list(ids)})
    return Call(Request("POST", writing.path(queue, "acks"), (), _JSON, body), _settled)


def _settled(answer: Answer) -> list[Settled]:
    results = Members.of(reading.checked(answer, _OK)).each("results")
    return [
        Settled(each.text("id"), each.whole("status"), each.problem("problem")) for each in results
    ]


def extend(queue: str, message_id: str, seconds: float, receives: int | None) -> Call[Extended]:
    """Has a message be due so many seconds from now; with 0 it is ready at once."""
    return Call(
        _reschedule(queue, message_id, {"due_in_s": round(seconds, 3)}, receives), _extended
    )


def _reschedule(
    queue: str, message_id: str, said: Mapping[str, object], receives: int | None
) -> Request:
    path = writing.path(queue, "messages", message_id)
    headers = (*_JSON, *writing.if_match(receives))
    return Request("PATCH", path, (), headers, writing.json_body(said))


def release(
    queue: str, message_id: str, delay_s: float, receives: int, unhandled: bool = False
) -> Call[None]:
    """Gives a delivery back. Delivered again after an attempt whose answer was lost, or gone, it
    was given back.
    """
    how = "unhandled" if unhandled else "release"
    said = {"due_in_s": round(delay_s, 3), how: True}
    request = _reschedule(queue, message_id, said, receives)
    return Call(request, _released, when_repeated=done_after(DeliveredAgain, MessageNotFound))


def release_by_id(
    queue: str, message_id: str, delay_s: float, receives: int | None
) -> Call[Extended]:
    """Releases a message, whichever consumer holds it."""
    said = {"due_in_s": round(delay_s, 3), "release": True}
    return Call(_reschedule(queue, message_id, said, receives), _extended)


def _released(answer: Answer) -> None:
    _extended(answer)


def _extended(answer: Answer) -> Extended:
    said = Members.of(reading.checked(answer, _OK))
    return Extended(said.text("id"), said.time("due"), said.whole("receives"))


def sideline(queue: str, message_id: str, reason: Reason, receives: int | None) -> Call[Sidelined]:
    """Moves a message to its queue's sideline."""
    path = writing.path(queue, "messages", message_id, "sideline")
    headers = writing.if_match(receives)
    return Call(Request("POST", path, (("reason", reason),), headers), _sidelined)


def _sidelined(answer: Answer) -> Sidelined:
    said = Members.of(reading.checked(answer, _OK))
    return Sidelined(
        said.text("id"), said.text("queue"), said.whole("receives"), said.text("reason")
    )
