"""Calls that fetch, and those that look without fetching: read, peek, history."""

import re
from collections.abc import Iterable
from typing import Final, cast

from mq.client.calls.call import Again, Call
from mq.client.transport import Answer, Pairs, Request
from mq.client.values import History, HistoryEvent, PeekedMessage, State, StoredMessage
from mq.client.wire import reading, rows, writing
from mq.client.wire.reading import Members
from mq.client.wire.rows import Row

_OK: Final = 200
_NO_CONTENT: Final = 204
_PARTIAL: Final = 206
_RANGE: Final = re.compile(r"bytes \d{1,18}-\d{1,18}/(\d{1,18})")


def fetch(
    queue: str, wait_s: float, visibility_s: float | None, select: str | Iterable[str] | None
) -> Call[Row | None]:
    """Fetches the next message, if there is one. Not repeated when its answer was lost: what it
    fetched comes back by itself, and another would be delayed for it.
    """
    said = _terms(wait_s, visibility_s, select)
    request = Request("GET", writing.path(queue, "messages"), said, wait_s=wait_s)
    return Call(request, _fetched, Again.ANSWERED)


def fetch_many(
    queue: str,
    count: int,
    wait_s: float,
    visibility_s: float | None,
    select: str | Iterable[str] | None,
) -> Call[list[Row]]:
    """Fetches at most so many. Not repeated when its answer was lost."""
    said = (("count", str(count)), *_terms(wait_s, visibility_s, select))
    request = Request("GET", writing.path(queue, "messages"), said, wait_s=wait_s)
    return Call(request, _fetched_rows, Again.ANSWERED)


def _terms(wait_s: float, visibility_s: float | None, select: str | Iterable[str] | None) -> Pairs:
    return writing.query(
        {
            "wait": writing.seconds(wait_s) if wait_s else None,
            "visibility": writing.seconds(visibility_s),
            "select": writing.terms(select),
        }
    )


def _fetched(answer: Answer) -> Row | None:
    if reading.checked(answer, _OK, _NO_CONTENT).status == _NO_CONTENT:
        return None
    return rows.alone(answer)


def _fetched_rows(answer: Answer) -> list[Row]:
    if reading.checked(answer, _OK, _NO_CONTENT).status == _NO_CONTENT:
        return []
    return [rows.row(answer, members) for members in rows.lines(answer)]


def read(
    queue: str, message_id: str, start: int = 0, length: int | None = None
) -> Call[StoredMessage]:
    """Reads a message, or a part of its body, whatever its state is."""
    return _read(queue, writing.path(queue, "messages", message_id), start, length)


def read_key(
    queue: str, key: str, start: int = 0, length: int | None = None
) -> Call[StoredMessage]:
    """The same of the message that has a key."""
    return _read(queue, writing.path(queue, "keys", key), start, length)


def _read(queue: str, path: str, start: int, length: int | None) -> Call[StoredMessage]:
    if start < 0 or (length is not None and length < 1):
        raise ValueError("a part begins at 0 or later, and has a length of 1 or more")
    is_part = start > 0 or length is not None
    last = "" if length is None else str(start + length - 1)
    headers = (("Range", f"bytes={start}-{last}"),) if is_part else ()

    def stored(answer: Answer) -> StoredMessage:
        reading.checked(answer, _OK, *((_PARTIAL,) if is_part else ()))
        return _stored(queue, answer)

    return Call(Request("GET", path, headers=headers), stored)


def _stored(queue: str, answer: Answer) -> StoredMessage:
    size = len(answer.body)
    if answer.status == _PARTIAL:
        part = _RANGE.fullmatch(answer.header("Content-Range") or "")
        if part is None:
            raise reading.not_mq(answer, "says no part of what it is")
        size = int(part[1])
    row = rows.alone(answer)
    priority, key = rows.priority_and_key(row.id)
    return StoredMessage(
        *(queue, row.id, row.body, row.headers, row.receives, row.published, row.due),
        *(priority, key, row.sidelined),
        state=_state(answer.header("X-Message-State") or ""),
        size=size,
    )


def _state(text: str) -> State:
    # A newer mq may have others: it is told as it is.
    return cast(State, text)


def peek(
    queue: str, states: Iterable[State], count: int, after: str | None
) -> Call[list[PeekedMessage]]:
    """A page of what lies there, in order."""
    said = writing.query({"state": ",".join(states), "count": str(count), "after": after})

    def peeked(answer: Answer) -> list[PeekedMessage]:
        found = rows.lines(reading.checked(answer, _OK))
        return [_peeked(queue, answer, members) for members in found]

    return Call(Request("GET", writing.path(queue, "peek"), said), peeked)


def _peeked(queue: str, answer: Answer, members: Members) -> PeekedMessage:
    row = rows.row(answer, members)
    priority, key = rows.priority_and_key(row.id)
    return PeekedMessage(
        *(queue, row.id, row.body, row.headers, row.receives, row.published, row.due),
        *(priority, key, row.sidelined),
        state=_state(members.text("state")),
        size=members.whole("size"),
        sidelined_at=row.sidelined_at,
    )


def history(queue: str, message_id: str) -> Call[History]:
    """What became of a message."""
    path = writing.path(queue, "messages", message_id, "history")
    return Call(Request("GET", path), _history)


def _history(answer: Answer) -> History:
    said = Members.of(reading.checked(answer, _OK))
    events = tuple(_event(each) for each in said.each("events"))
    return History(said.text("id"), said.truth("recording"), said.whole("left_out"), events)


def _event(said: Members) -> HistoryEvent:
    return HistoryEvent(
        time=said.time("time"),
        event=said.text("event"),
        receives=said.whole_or_none("receives"),
        due=said.time_or_none("due"),
        lease=said.text_or_none("lease"),
        reason=said.text_or_none("reason"),
        process=said.text_or_none("process"),
    )
