"""Calls that publish: one message, or the lines of a body."""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from mq.client.bodies import GivenBody, body_of
from mq.client.calls.call import Again, Call
from mq.client.transport import Answer, BodyStream, Request
from mq.client.values import Absent, NewMessage, Published
from mq.client.wire import reading, rows, writing
from mq.client.wire.reading import Members

_CREATED: Final = 201
_OK: Final = 200


def publish(queue: str, message: NewMessage, idempotency_key: str) -> Call[str]:
    """Publishes a message; its id. Safe to repeat for its idempotency key."""
    body, default = _body(message)
    said = {
        **_when(message.delay_s, message.at),
        "priority": writing.whole(message.priority),
        "key": message.key,
        "visibility": writing.whole(message.visibility_s),
    }
    kept = writing.headers(message.content_type, message.headers, default)
    headers = (*kept, ("Idempotency-Key", writing.quoted(idempotency_key)))
    path = writing.path(queue, "messages")
    return Call(Request("POST", path, writing.query(said), headers, body), _id)


def _body(message: NewMessage) -> tuple[bytes | BodyStream, str | None]:
    """The body, and the Content-Type that it has where none is said."""
    if not isinstance(message.json, Absent):
        if message.body != b"":
            raise ValueError("a message has a body or a json, not both")
        return writing.json_body(message.json), writing.JSON
    return body_of(message.body), writing.TEXT if isinstance(message.body, str) else None


def _when(delay_s: float | None, at: datetime | None) -> dict[str, str | None]:
    return {"delay": writing.seconds(delay_s), "at": writing.time(at)}


def _id(answer: Answer) -> str:
    return Members.of(reading.checked(answer, _CREATED)).text("id")


def lines(
    queue: str,
    body: GivenBody,
    *,
    delay_s: float | None,
    at: datetime | None,
    priority: int | None,
    visibility_s: int | None,
    headers: Mapping[str, str] | None,
    content_type: str | None,
) -> Call[list[Published]]:
    """Publishes each line as a message. Nothing makes it safe to repeat."""
    said = {
        "split": "lines",
        **_when(delay_s, at),
        "priority": writing.whole(priority),
        "visibility": writing.whole(visibility_s),
    }
    default = writing.TEXT if isinstance(body, str) else None
    kept = writing.headers(content_type, headers, default)
    path = writing.path(queue, "messages")
    request = Request("POST", path, writing.query(said), kept, body_of(body))
    return Call(request, _published, Again.UNDONE)


def _published(answer: Answer) -> list[Published]:
    found = rows.lines(reading.checked(answer, _OK))
    return [_of_row(members) for members in found]


def _of_row(members: Members) -> Published:
    problem = members.problem("problem")
    return Published(None, problem) if problem is not None else Published(members.text("id"))
