"""Commands parsed and frames printed, held against whatever JSON there is."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mq.model.errors import BadFrame
from mq.model.failure import FAILURE_BYTES_MAX, Failure
from mq.model.limits import BATCH_MESSAGES_MAX, PRIORITY_MAX, VISIBILITY_S_MAX, VISIBILITY_S_MIN
from mq.model.message import Delivery, Reason, Stamp
from mq.model.names import MessageId, QueueName
from mq.protocol.consume.frames import (
    CREDIT_MAX,
    FOLLOWS_MAX,
    LAST_MAX,
    REF_CHARS_MAX,
    REF_MAX,
    SUBSCRIPTIONS_MAX,
    Command,
    Follow,
    Followed,
    Grant,
    Settle,
    Subscribe,
    Unfollow,
    Unsubscribe,
    Verb,
    Wanted,
    header_frame,
    parse,
    problem_frame,
    results_frame,
    unsubscribed_frame,
)

ID = "0192f3a2-7c4e-7d2a-9b1e-0123456789ab,p=9.json"
REFS = st.none() | st.text(max_size=REF_CHARS_MAX) | st.integers(-REF_MAX, REF_MAX)
TEXTS = st.lists(st.text(), min_size=1, max_size=20)
WANTED = st.fixed_dictionaries(
    {"queue": st.text()},
    optional={
        "priority": st.integers(0, PRIORITY_MAX),
        "credit": st.integers(0, CREDIT_MAX),
        "visibility_s": st.integers(1, VISIBILITY_S_MAX)
        | st.floats(VISIBILITY_S_MIN, VISIBILITY_S_MAX),
        "select": st.text(),
    },
)
FOLLOWED = st.fixed_dictionaries(
    {"queue": st.text()}, optional={"select": st.text(), "last": st.integers(0, LAST_MAX)}
)
COMMANDS = st.one_of(
    st.builds(lambda each: {"subscribe": each}, st.lists(WANTED, min_size=1, max_size=5)),
    st.builds(lambda each: {"unsubscribe": each}, TEXTS),
    st.builds(lambda each: {"follow": each}, st.lists(FOLLOWED, min_size=1, max_size=5)),
    st.builds(lambda each: {"unfollow": each}, TEXTS.map(lambda each: each[:FOLLOWS_MAX])),
    st.builds(
        lambda each: {"credit": each},
        st.dictionaries(st.text(), st.integers(1, CREDIT_MAX), min_size=1),
    ),
    *(st.builds(lambda each, verb=verb: {verb.value: each}, TEXTS) for verb in Verb),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)
# What looks like a command, and is one now and then.
NEAR = st.dictionaries(
    st.sampled_from(
        [
            *("subscribe", "unsubscribe", "follow", "unfollow", "ack", "release", "sideline"),
            *("credit", "prefetched", "ref"),
        ]
    ),
    JSON | st.lists(WANTED) | TEXTS,
    max_size=3,
)


@given(COMMANDS, REFS)
def test_a_command_is_what_it_says(said: dict[str, Any], ref: Any) -> None:
    command = parse(json.dumps({**said, "ref": ref}))
    assert command.ref == ref
    [(name, value)] = said.items()
    match command.does:
        case Subscribe(wanted):
            assert name == "subscribe"
            assert wanted == tuple(Wanted(**each) for each in value)
        case Follow(followed):
            assert name == "follow"
            assert followed == tuple(Followed(**each) for each in value)
        case Unfollow(queues):
            assert (name, list(queues)) == ("unfollow", value)
        case Unsubscribe(queues):
            assert (name, list(queues)) == ("unsubscribe", value)
        case Grant(credit):
            assert (name, credit) == ("credit", value)
        case Settle(verb, ids):
            assert (name, list(ids)) == (verb.value, value)


@given(JSON | NEAR)
def test_whatever_json_comes_is_a_command_or_a_bad_frame(said: Any) -> None:
    with contextlib.suppress(BadFrame):
        command = parse(json.dumps(said))
        assert isinstance(command, Command)
        assert command.ref == said.get("ref")


@given(st.text())
def test_whatever_text_comes_is_a_command_or_a_bad_frame(text: str) -> None:
    with pytest.raises(BadFrame):
        parse(text)


def test_a_subscription_has_defaults() -> None:
    command = parse('{"subscribe": [{"queue": "q"}]}')
    assert command == Command(None, Subscribe((Wanted("q", 0, 1, None, None),)))


@pytest.mark.parametrize(
    ("verb", "why", "reason", "failure"),
    [
        ("release", "exception", Reason.REJECTED, Failure("exception")),
        ("release", {"type": "E"}, Reason.EXCEPTION, Failure(type="E")),
        ("sideline", "exception", Reason.EXCEPTION, None),
        ("sideline", "why", Reason.REJECTED, Failure("why")),
        ("sideline", {"type": "E", "text": "x"}, Reason.EXCEPTION, Failure("x", "E")),
    ],
)
def test_what_settles_says_why(verb: str, why: Any, reason: Reason, failure: Failure) -> None:
    command = parse(json.dumps({verb: ["x"], "reason": why}))
    assert command.does == Settle(Verb(verb), ("x",), reason=reason, failure=failure)


@pytest.mark.parametrize(
    "said",
    [
        {"subscribe": []},
        {"subscribe": {}},
        {"subscribe": ["q"]},
        {"subscribe": [{}]},
        {"subscribe": [{"queue": 1}]},
        {"subscribe": [{"queue": "q", "more": 1}]},
        {"subscribe": [{"queue": "q", "priority": PRIORITY_MAX + 1}]},
        {"subscribe": [{"queue": "q", "priority": -1}]},
        {"subscribe": [{"queue": "q", "priority": True}]},
        {"subscribe": [{"queue": "q", "priority": 1.5}]},
        {"subscribe": [{"queue": "q", "credit": CREDIT_MAX + 1}]},
        {"subscribe": [{"queue": "q", "credit": -1}]},
        {"subscribe": [{"queue": "q", "credit": None}]},
        {"subscribe": [{"queue": "q", "visibility_s": 0}]},
        {"subscribe": [{"queue": "q", "visibility_s": VISIBILITY_S_MAX + 1}]},
        {"subscribe": [{"queue": "q", "visibility_s": float("nan")}]},
        {"subscribe": [{"queue": "q", "visibility_s": "1"}]},
        {"subscribe": [{"queue": "q", "visibility_s": None}]},
        {"subscribe": [{"queue": "q", "select": 1}]},
        {"subscribe": [{"queue": "q"}] * (SUBSCRIPTIONS_MAX + 1)},
        {"unsubscribe": []},
        {"follow": []},
        {"follow": ["q"]},
        {"follow": [{}]},
        {"follow": [{"queue": "q", "last": LAST_MAX + 1}]},
        {"follow": [{"queue": "q", "select": None}]},
        {"follow": [{"queue": "q", "credit": 1}]},
        {"follow": [{"queue": "q"}] * (FOLLOWS_MAX + 1)},
        {"unfollow": []},
        {"unsubscribe": "q"},
        {"unsubscribe": [1]},
        {"credit": {}},
        {"credit": ["q"]},
        {"credit": {"q": 0}},
        {"credit": {"q": True}},
        {"credit": {"q": CREDIT_MAX + 1}},
        {"ack": []},
        {"ack": [None]},
        {"release": ["x"] * (BATCH_MESSAGES_MAX + 1)},
        {"sideline": {}},
        {"prefetched": []},
        {"prefetched": [{"queue": "q", "id": ID}]},
        {"prefetched": [{"queue": "q", "id": ID, "receives": 0}]},
        {"prefetched": [{"queue": "q", "id": "../x", "receives": 1}]},
        {"prefetched": [{"queue": "a b", "id": ID, "receives": 1}]},
        {"prefetched": [{"queue": 1, "id": ID, "receives": 1}]},
        {"ack": ["x"], "release": ["y"]},
        {"ack": ["x"], "reason": "why"},
        {"release": ["x"], "reason": ""},
        {"release": ["x"], "reason": None},
        {"release": ["x"], "reason": "x" * (FAILURE_BYTES_MAX + 1)},
        {"release": ["x"], "unhandled": True, "reason": "why"},
        {"sideline": ["x"], "reason": {"more": "x"}},
        {"sideline": ["x"], "unhandled": True},
        {"nack": ["x"]},
        {},
    ],
)
def test_what_is_malformed_is_told_with_its_ref(said: dict[str, Any]) -> None:
    with pytest.raises(BadFrame) as told:
        parse(json.dumps({**said, "ref": "r"}))
    assert told.value.ref == "r"
    assert told.value.is_json


@pytest.mark.parametrize(
    "ref", [1.5, True, [], {}, "x" * (REF_CHARS_MAX + 1), REF_MAX + 1, -REF_MAX - 1]
)
def test_a_ref_is_short_text_or_a_whole_number(ref: Any) -> None:
    with pytest.raises(BadFrame) as told:
        parse(json.dumps({"ack": ["x"], "ref": ref}))
    assert told.value.ref is None


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "1" * 5000, '{"ack": ["x"]} x'])
def test_what_is_no_json_is_told_so(text: str) -> None:
    with pytest.raises(BadFrame) as told:
        parse(text)
    assert not told.value.is_json


@given(REFS, st.lists(st.dictionaries(st.text(), JSON, max_size=2), max_size=3))
def test_answers_are_json_in_ascii(ref: Any, results: list[dict[str, object]]) -> None:
    for frame, member in (
        (results_frame(ref, results), {"results": results}),
        (problem_frame(ref, {"each": results}), {"problem": {"each": results}}),
    ):
        assert frame.isascii()
        assert repr(json.loads(frame)) == repr({"ref": ref, **member})


def test_a_lone_surrogate_comes_back_as_it_came() -> None:
    command = parse('{"ack": ["\\ud800"], "ref": "\\udfff"}')
    assert isinstance(command.does, Settle)
    answer = results_frame(command.ref, [{"id": command.does.ids[0], "status": 404}])
    assert json.loads(answer)["results"] == [{"id": "\ud800", "status": 404}]


def test_a_message_s_header_says_all_of_it() -> None:
    message_id = MessageId.parse(ID)
    headers = (("ce-type", "order.cr\u00e9ated"), ("CE-Type", "other"))
    delivery = Delivery(
        QueueName.parse("orders"), message_id, Stamp(5000, 3), 12, 40, b"x" * 12, None, "", headers
    )
    assert json.loads(header_frame(delivery)) == {
        "queue": "orders",
        "id": ID,
        "receives": 3,
        "published": "2024-11-03T20:06:05.134Z",
        "due": "1970-01-01T00:00:05.000Z",
        "headers": {"content-type": "application/json", "ce-type": "order.cr\u00e9ated, other"},
        "size": 12,
    }


def test_a_subscription_s_end_says_why() -> None:
    frame = unsubscribed_frame("q", {"status": 404})
    assert json.loads(frame) == {"event": "unsubscribed", "queue": "q", "problem": {"status": 404}}
