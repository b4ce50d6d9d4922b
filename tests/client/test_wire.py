"""The wire: what is written is what mq reads, and what mq writes is read; of anything else, only
what a client raises comes.
"""

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from urllib.parse import parse_qsl, unquote

import pytest
from harness.chance import examples
from hypothesis import example, given
from hypothesis import settings as few
from hypothesis import strategies as st
from multidict import MultiDict

from mq import AsyncClient
from mq.client import wire
from mq.client.consuming import frames
from mq.client.consuming.frames import Header, Malformed, Results, Unsubscribed
from mq.client.errors import ClientError, NotMq, Problem, problem_of
from mq.client.options import Retry
from mq.client.queue import AsyncQueue
from mq.client.transport import Answer, Limits, Request, Socket
from mq.client.values import Subscription
from mq.client.wire import Members
from mq.model.clock import rfc3339
from mq.protocol import parameters
from mq.protocol import rows as served
from mq.protocol.consume import frames as spoken
from mq.protocol.endpoints import ENDPOINTS
from mq.protocol.routes import Routes, bound

ID = "0192f3a2-7c4e-7d2a-9b1e-0123456789ab,p=3,k=a=20b.json"
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=9,
)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
MESSAGE = {
    "id": ID,
    "receives": 2,
    "published": "2026-01-31T12:00:00.000Z",
    "due": "2026-01-31T12:00:30.000Z",
    "headers": {"content-type": "text/plain", "ce-id": "7"},
}
ASKS: list[Callable[[AsyncClient, AsyncQueue], Awaitable[object]]] = [
    lambda client, queue: queue.create(bucket=8, shards=1),
    lambda client, queue: queue.publish(b"x", delay_s=1, priority=2, key="k", visibility_s=3),
    lambda client, queue: queue.fetch(wait_s=1, visibility_s=2, select="key:k"),
    lambda client, queue: queue.shovel(limit=1, rate=2, older_than_s=3, key="k", dry_run=True),
    lambda client, queue: queue.change_settings({"history": True}, if_match='"x"'),
    lambda client, queue: queue.describe(),
    lambda client, queue: queue.purge(),
    lambda client, queue: anext(client.queues()),
    lambda client, queue: queue.publish(b"x"),
    lambda client, queue: queue.publish_lines(b"x\ny"),
    lambda client, queue: queue.fetch_many(3),
    lambda client, queue: queue.fetch(),
    lambda client, queue: queue.read(ID, length=5),
    lambda client, queue: queue.peek(),
    lambda client, queue: queue.history(ID),
    lambda client, queue: queue.delete_messages([ID]),
    lambda client, queue: queue.extend(ID, 5, receives=1),
    lambda client, queue: queue.sideline(ID, receives=1),
    lambda client, queue: queue.settings(),
    lambda client, queue: queue.schedule("s", b"x", every_s=1),
    lambda client, queue: queue.get_schedule("s"),
    lambda client, queue: queue.schedules(),
    lambda client, queue: queue.shovel(),
    lambda client, queue: queue.shovel_progress(),
    lambda client, queue: client.readiness(),
    lambda client, queue: client.members("q"),
    lambda client, queue: client.refresh(),
    lambda client, queue: client.is_alive(),
    lambda client, queue: client.memory(),
]


@dataclass
class Answers:
    """A transport that answers everything so."""

    answer: Answer
    asked: list[Request] = field(default_factory=list)

    async def request(self, request: Request, limits: Limits) -> Answer:
        self.asked.append(request)
        return self.answer

    async def connect(self, request: Request, limits: Limits) -> Socket:
        raise AssertionError("a consumer was not asked for")

    async def close(self) -> None:
        """There is nothing to end."""


def asking(answer: Answer) -> AsyncClient:
    """A client whose every request has this answer."""
    return AsyncClient(transport=Answers(answer), retry=Retry(attempts=1))


def read_rows(answer: Answer) -> None:
    for members in wire.rows_in(answer):
        members.body()
        members.row()


def in_query(request: Request) -> MultiDict[str]:
    """As mq reads it."""
    return MultiDict(parse_qsl(request.target.partition("?")[2], keep_blank_values=True))


@given(st.binary(max_size=200))
@example(b"\xff")
@example(b'"\\\n')
def test_a_row_that_mq_writes_is_read(body: bytes) -> None:
    answer = Answer(200, (), served.row(MESSAGE, body) * 2)
    for members in wire.rows_in(answer):
        found = members.row()
        assert (found.id, found.receives, found.body) == (ID, 2, body)
        assert found.due - found.published == timedelta(seconds=30)
        assert found.headers == MESSAGE["headers"]


@few(max_examples=examples(60))
@given(st.integers(200, 599), st.binary(max_size=60) | JSON, st.booleans())
def test_an_answer_of_anything_raises_only_what_a_client_raises(
    status: int, said: Any, is_problem: bool
) -> None:
    body = said if isinstance(said, bytes) else json.dumps(said).encode() + b"\n"
    kind = "application/problem+json" if is_problem else "application/json"
    answer = Answer(status, (("Content-Type", kind),), body)

    async def ask() -> None:
        client = asking(answer)
        for each in ASKS:
            # No page of queues is the end of all.
            with contextlib.suppress(ClientError, StopAsyncIteration):
                await each(client, client.queue("q"))

    asyncio.run(ask())


def test_requests_are_those_that_mq_declares() -> None:
    names = {each.name.removesuffix("_head") for each in ENDPOINTS}
    routes = Routes(bound(dict.fromkeys(names, "")))
    asked: list[Request] = []

    async def ask() -> None:
        transport = Answers(Answer(500), asked)
        client = AsyncClient(transport=transport, retry=Retry(attempts=1))
        for each in ASKS:
            with contextlib.suppress(ClientError):
                await each(client, client.queue("q"))

    asyncio.run(ask())
    assert len(asked) == len(ASKS)
    for request in asked:
        found = routes.find(request.path)
        assert found is not None, request
        endpoint = found[0].operations[request.method].endpoint
        assert {name for name, _ in request.query} <= endpoint.names
        assert request.expected == tuple(each.status for each in endpoint.answers)


@given(st.sampled_from(sorted(MESSAGE)), JSON)
def test_a_row_with_a_strange_member(name: str, value: Any) -> None:
    answer = Answer(200, (), json.dumps({**MESSAGE, name: value}).encode() + b"\n")
    with contextlib.suppress(NotMq):
        read_rows(answer)


@pytest.mark.parametrize(
    "body", [b'{"body_base64": "?"}', b'{"body": "\\ud800"}', b"{}\n{", b"[]\n", b'{"body": 1}']
)
def test_a_row_that_is_none(body: bytes) -> None:
    answer = Answer(200, (), body + (b"\n" if body.endswith(b"}") else b""))
    with pytest.raises(NotMq):
        read_rows(answer)


@given(st.dictionaries(TEXT, TEXT, max_size=3))
def test_an_error_says_what_it_knows(facts: dict[str, str]) -> None:
    said = {**facts, "type": "urn:mq:problem:new", "status": 400, "detail": "Why."}
    found = problem_of(said)
    assert found.slug == "new"
    assert str(found).startswith("Why.")
    for name in facts:
        assert name in found.facts or name in ("type", "status", "detail", "title", "retryable")


@given(st.datetimes(datetime(1970, 1, 1), datetime(9999, 12, 31)), st.integers(-14, 14))
@example(datetime(2026, 1, 1, 0, 0, 0, 999_999), 0)
def test_a_time_is_written_as_mq_reads_it(moment: datetime, hours: int) -> None:
    said = moment.replace(tzinfo=timezone(timedelta(hours=hours)))
    try:
        in_utc = said.astimezone(UTC)
    except OverflowError:
        return
    if in_utc.year < 1970:
        return
    request = Request("GET", "/q", (("at", wire.time_text(said)),))
    found = parameters.time_ms(in_query(request), "at")
    assert found == (in_utc - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    assert wire.time_of(rfc3339(found)) == in_utc - timedelta(
        microseconds=in_utc.microsecond % 1000
    )


@given(st.floats(0, 1e12))
@example(0.0)
@example(1e-9)
@example(604800.0)
def test_seconds_are_written_as_mq_reads_them(value: float) -> None:
    request = Request("GET", "/q", (("delay", wire.seconds_text(value)),))
    found = parameters.seconds(in_query(request), "delay", 0)
    assert found == pytest.approx(value, abs=0.0006)


@given(TEXT, TEXT)
def test_what_is_said_comes_through_a_url(key: str, value: str) -> None:
    made = wire.request_to("read_by_key", "q", key)
    request = replace(made, query=(("select", value),))
    assert request.target.isascii()
    assert " " not in request.target
    path, _, query = request.target.partition("?")
    assert unquote(path.removeprefix("/q/keys/")) == key
    assert path.count("/") == 3
    assert dict(parse_qsl(query, keep_blank_values=True)) == {"select": value}


@pytest.mark.parametrize(
    ("value", "date", "expected"),
    [
        (None, None, None),
        ("", None, None),
        ("5", None, 5.0),
        (" 12 ", None, 12.0),
        ("-1", None, None),
        ("1.5", None, None),
        ("9" * 400, None, 604800.0),
        ("Sun, 06 Nov 1994 08:49:37 GMT", None, None),
        ("Sun, 06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:49:30 GMT", 7.0),
        ("Sun, 06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 09:00:00 GMT", 0.0),
        ("Sunday, 06-Nov-94 08:49:37 GMT", "Sun, 06 Nov 1994 08:49:36 GMT", 1.0),
        ("²", None, None),
    ],
)
def test_retry_after(value: str | None, date: str | None, expected: float | None) -> None:
    assert wire.retry_after_s(value, date) == expected


@few(max_examples=examples(40))
@given(st.text(max_size=20), st.text(max_size=20))
def test_retry_after_is_anything(value: str, date: str) -> None:
    found = wire.retry_after_s(value, date)
    assert found is None or 0 <= found <= 604800


def test_commands_are_those_that_mq_understands() -> None:
    wanted = [
        (Subscription("a"), 7),
        (Subscription("b", priority=3, visibility_s=1.5, select="key:x*"), 1),
    ]
    said = spoken.parse(frames.subscribe(1, wanted))
    assert said.ref == 1
    assert said.does == spoken.Subscribe(
        (spoken.Wanted("a", 0, 7), spoken.Wanted("b", 3, 1, 1.5, "key:x*"))
    )
    assert spoken.parse(frames.grant(2, {"a": 5})).does == spoken.Grant({"a": 5})
    for verb in spoken.Verb:
        found = spoken.parse(frames.settle(3, verb, [ID]))
        assert found.does == spoken.Settle(verb, (ID,))


def test_what_mq_says_on_a_websocket_is_understood() -> None:
    gone = {"type": "urn:mq:problem:queue-not-found", "status": 404}
    said = spoken.results_frame(4, [{"id": ID, "status": 202}, {"status": 404, "problem": gone}])
    found = frames.parse(said.decode())
    assert isinstance(found, Results)
    assert found.results[0].problem is None
    assert isinstance(found.results[1].problem, Problem)
    event = frames.parse(spoken.unsubscribed_frame("q", gone).decode())
    assert isinstance(event, Unsubscribed)
    assert (event.queue, event.problem.slug) == ("q", "queue-not-found")
    malformed = frames.parse(spoken.problem_frame(None, gone).decode())
    assert isinstance(malformed, Malformed)
    header = frames.parse(json.dumps({"queue": "q", **MESSAGE, "size": 3}))
    assert isinstance(header, Header)
    assert (header.queue, header.size, header.row.id) == ("q", 3, ID)


@given(st.text(max_size=60) | JSON)
def test_a_frame_of_anything(said: Any) -> None:
    try:
        frames.parse(said if isinstance(said, str) else json.dumps(said))
    except NotMq:
        return


def test_what_an_id_says() -> None:
    assert wire.priority_and_key(ID) == (3, "a b")
    assert wire.priority_and_key("of a newer mq") == (0, None)


async def test_members_that_nobody_knows_are_passed_over() -> None:
    answer = Answer(
        200, (), json.dumps({"queues": 1, "new": 2, "changed": 3, "gone": 4, "x": 5}).encode()
    )
    assert (await asking(answer).refresh()).gone == 4
    with pytest.raises(NotMq):
        Members(answer, [])
