"""A row of a batch says what a publish of its own would, and is refused for the same."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict, MultiDict

from mq.model.errors import BadBody, BadParameter, BodyTooLarge, MqError, UnknownField
from mq.model.limits import ROW_BYTES_MAX
from mq.model.message import Envelope
from mq.protocol.batches import ROW_FIELDS, posted
from mq.protocol.envelopes import ATTRIBUTES, envelope_of

NOW_MS = 1_700_000_000_000

_NUMBERS = st.integers(-2, 12) | st.sampled_from([604_800, 604_801, 10**17, 10**400])
_DECIMALS = st.sampled_from([0, 0.5, 1.25, 0.0001, 1e22, 31_622_400_000, 31_622_400_001, -1])
_TEXTS = st.text(max_size=5) | st.sampled_from(["k", '"k"', "x" * 65, "é" * 22, "\n", ""])
_TIMES = st.sampled_from(["2030-01-01T00:00:00Z", "2030-01-01T00:00:00+02:00", "2001-01-01", "x"])
_VALUES = {"integer": _NUMBERS, "number": _DECIMALS, "string": _TEXTS | _TIMES}


def _values(kind: object) -> st.SearchStrategy[Any]:
    if kind == "array":
        return st.lists(_TEXTS, min_size=1, max_size=3)
    return _VALUES[str(kind)]


_HEADERS = st.dictionaries(
    st.sampled_from(["ce-type", "x-attribute-a", "X-Attribute-A", "traceparent", "ce-"]),
    st.sampled_from(["order", "ü", " a", "a\nb", "", "x" * 9000]),
    max_size=3,
)
_ROWS = st.fixed_dictionaries(
    {},
    optional={
        **{name: _values(each.schema.get("type")) for name, each in ATTRIBUTES.items()},
        "headers": _HEADERS,
        "content_type": st.sampled_from(["text/plain", "Text/HTML", "a/b; c=d", "none", ""]),
        "idempotency_key": _TEXTS,
    },
)


def _text(value: object) -> str:
    return format(value, "f") if isinstance(value, float) and value > 1e15 else str(value)


def _by_a_publish(row: dict[str, Any]) -> Envelope:
    """What the request that publishes this alone would say."""
    query: MultiDict[str] = MultiDict()
    for name, parameter in ATTRIBUTES.items():
        value = row.get(name)
        for each in value if isinstance(value, list) else () if value is None else (value,):
            query.add(parameter.name, _text(each))
    headers = CIMultiDict(row.get("headers", {}))
    headers["Content-Type"] = row.get("content_type", "text/plain")
    if "idempotency_key" in row:
        headers["Idempotency-Key"] = f'"{row["idempotency_key"]}"'
    return envelope_of(query, headers, NOW_MS)


def _end(work: Any) -> object:
    try:
        return work()
    except MqError as error:
        return type(error), getattr(error, "parameter", None)


@given(_ROWS)
def test_a_row_says_what_a_publish_says(row: dict[str, Any]) -> None:
    line = json.dumps({"body": "x", **row}).encode()
    assert _end(lambda: posted(line, NOW_MS).envelope) == _end(lambda: _by_a_publish(row))


@given(st.binary(max_size=40), st.text(max_size=20))
def test_bodies_arrive_as_they_are(data: bytes, text: str) -> None:
    encoded = base64.b64encode(data).decode()
    assert posted(json.dumps({"body_base64": encoded}).encode(), NOW_MS).body == data
    assert posted(json.dumps({"body": text}).encode(), NOW_MS).body == text.encode()
    found = posted(json.dumps({"json": {text: [text, 1, 0.5, None]}}).encode(), NOW_MS)
    assert json.loads(found.body) == {text: [text, 1, 0.5, None]}
    assert found.envelope.extension == "json"


def test_null_leaves_a_field_out_and_is_a_json() -> None:
    row = dict.fromkeys((each for each in ROW_FIELDS if each != "body"), None)
    with pytest.raises(BadBody):
        posted(json.dumps({"body": "x", **row}).encode(), NOW_MS)
    del row["json"]
    assert posted(json.dumps({"body": "x", **row}).encode(), NOW_MS).envelope.priority is None
    assert posted(b'{"json": null}', NOW_MS).body == b"null"


@pytest.mark.parametrize(
    "line",
    [
        b"x", b"[]", b"1", b"null", b"{}", b'{"key": "k"}', b'{"body": "x", "json": 1}',
        b'{"body": "x", "body_base64": ""}', b'{"body": 1}', b'{"body_base64": "="}',
        b'{"body_base64": "YQ"}', b'{"body_base64": "\xc3\xa9"}', b'{"body_base64": []}',
        rb'{"body": "\ud800"}', rb'{"json": "\ud800"}', b'{"json": NaN}', b'{"json": 1e999}',
        b'{"json": -Infinity}', b'{"body": "\xff"}', b'{"json": ' + b"[" * 100_000,
        b'{"json": ' + b"9" * 5000 + b"}",
    ],
)  # fmt: skip
def test_a_row_without_one_body_is_refused(line: bytes) -> None:
    with pytest.raises(BadBody):
        posted(line, NOW_MS)


@pytest.mark.parametrize(
    ("field", "value", "parameter"),
    [
        ("priority", "5", "priority"),
        ("priority", True, "priority"),
        ("priority", 5.5, "priority"),
        ("priority", [5], "priority"),
        ("delay_s", "1", "delay"),
        ("delay_s", 1e300, "delay"),
        ("key", 5, "key"),
        ("at", 5, "at"),
        ("headers", [], "headers"),
        ("headers", {"ce-type": 1}, "headers"),
        ("headers", {"X-Other": "x"}, "headers"),
        ("headers", {"content-type": "text/plain"}, "headers"),
        ("content_type", 1, "headers"),
        ("idempotency_key", 1, "idempotency-key"),
    ],
)
def test_a_value_of_another_type_is_refused(field: str, value: object, parameter: str) -> None:
    with pytest.raises(BadParameter) as refused:
        posted(json.dumps({"body": "x", field: value}).encode(), NOW_MS)
    assert refused.value.parameter == parameter


def test_whole_numbers_are_whole_however_they_are_written() -> None:
    assert posted(b'{"body": "", "priority": 9.0}', NOW_MS).envelope.priority == 9


def test_an_unknown_field_is_refused_with_the_nearest() -> None:
    with pytest.raises(UnknownField) as refused:
        posted(b'{"body": "x", "prioritty": 1}', NOW_MS)
    assert refused.value.hint == " (did you mean priority?)"


def test_a_row_is_bounded() -> None:
    with pytest.raises(BodyTooLarge):
        posted(b'{"body": "' + b"x" * ROW_BYTES_MAX + b'"}', NOW_MS)
