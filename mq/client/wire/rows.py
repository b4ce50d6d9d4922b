"""Messages in answers: rows of NDJSON, and the headers of one that came alone. Pure."""

import base64
import binascii
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from mq.client.transport import Answer, Pairs
from mq.client.wire.reading import Members, not_mq, time
from mq.model.errors import BadName
from mq.model.headers import is_kept_name
from mq.model.names import CONTENT_TYPE_DEFAULT, MessageId

_CONTENT_TYPE: Final = "content-type"


@dataclass(frozen=True, slots=True)
class Row:
    """A message as an answer or a frame says it. `body` is None where that comes by itself."""

    id: str
    receives: int
    published: datetime
    due: datetime
    headers: Mapping[str, str]
    body: bytes = b""
    sidelined: str | None = None
    sidelined_at: datetime | None = None

    @property
    def content_type(self) -> str:
        """Its Content-Type."""
        return self.headers.get(_CONTENT_TYPE, CONTENT_TYPE_DEFAULT)


def lines(answer: Answer) -> Iterator[Members]:
    """The rows of an answer's body. Raises NotMq: also where the last has no end, since what was
    cut short is not all.
    """
    if answer.body and not answer.body.endswith(b"\n"):
        raise not_mq(answer, "ends in the middle of a row")
    for line in answer.body.split(b"\n")[:-1]:
        try:
            said = json.loads(line)
        except (ValueError, RecursionError):
            raise not_mq(answer, "has a row that is no JSON") from None
        yield Members(answer, said)


def row(answer: Answer, members: Members) -> Row:
    """What a row says of a message. Raises NotMq."""
    sidelined = members.inner("sidelined") if "sidelined" in members.said else None
    return Row(
        id=members.text("id"),
        receives=members.whole("receives"),
        published=members.time("published"),
        due=members.time("due"),
        headers=members.texts("headers"),
        body=body_of(answer, members),
        sidelined=None if sidelined is None else sidelined.text("reason"),
        sidelined_at=None if sidelined is None else sidelined.time_or_none("at"),
    )


def body_of(answer: Answer, members: Members) -> bytes:
    """A row's body, from `body` or `body_base64`; empty where there is neither. Raises NotMq."""
    text = members.text_or_none("body")
    if text is not None:
        try:
            return text.encode()
        except UnicodeEncodeError:
            raise not_mq(answer, "has a body that is no UTF-8") from None
    encoded = members.text_or_none("body_base64")
    if encoded is None:
        return b""
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise not_mq(answer, "has a body that is no base64") from None


def alone(answer: Answer) -> Row:
    """A message that is the answer's body, as a fetch without a count and a read have it. Raises
    NotMq.
    """
    try:
        return Row(
            id=_said(answer, "X-Message-Id"),
            receives=int(_said(answer, "X-Message-Receives")),
            published=time(_said(answer, "X-Message-Published")),
            due=time(_said(answer, "X-Message-Due")),
            headers=kept(answer.headers),
            body=answer.body,
            sidelined=answer.header("X-Message-Sidelined"),
        )
    except ValueError:
        raise not_mq(answer, "has headers of no message") from None


def _said(answer: Answer, name: str) -> str:
    value = answer.header(name)
    if value is None:
        raise not_mq(answer, f"has no {name}")
    return value


def kept(headers: Pairs) -> dict[str, str]:
    """Those of an answer's headers that the message has kept, as rows have them: by names in lower
    case, several of a name in one with commas; the Content-Type first.
    """
    found: dict[str, list[str]] = {_CONTENT_TYPE: []}
    for name, value in headers:
        lower = name.lower()
        if lower == _CONTENT_TYPE or is_kept_name(lower):
            found.setdefault(lower, []).append(value)
    if not found[_CONTENT_TYPE]:
        found[_CONTENT_TYPE] = [CONTENT_TYPE_DEFAULT]
    return {name: ", ".join(values) for name, values in found.items()}


def priority_and_key(message_id: str) -> tuple[int, str | None]:
    """What an id says; nothing where it is one of a newer mq's."""
    try:
        parsed = MessageId.parse(message_id)
    except BadName:
        return 0, None
    return parsed.priority, None if parsed.key is None else parsed.key.text
