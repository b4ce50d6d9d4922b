"""The Query form, as older SDKs write and read it."""

import json
from xml.etree import ElementTree

import pytest
from harness.sqs import values
from hypothesis import given
from hypothesis import strategies as st

from mq.sqs import json_form, query_form
from mq.sqs.errors import SqsError
from mq.sqs.shapes import OPERATIONS, Fields, Many, Named, Shape


def form(name: str, shape: Shape, value: object) -> dict[str, str]:
    """A value's parameters, as an SDK of old writes them."""
    if isinstance(shape, Fields):
        found: dict[str, str] = {}
        for field, each in shape.fields.items():
            if field in value:
                at = each.name if isinstance(each, Many | Named) else field
                found |= form(f"{name}.{at}" if name else at, each, value[field])
        return found
    if isinstance(shape, Many):
        items = [form(f"{name}.{n}", shape.of, each) for n, each in enumerate(value, 1)]
        return {k: v for item in items for k, v in item.items()}
    if isinstance(shape, Named):
        found = {}
        for n, (key, each) in enumerate(value.items(), 1):
            found[f"{name}.{n}.{shape.key}"] = key
            found |= form(f"{name}.{n}.{shape.value}", shape.of, each)
        return found
    if isinstance(value, bytes):
        return {name: json.loads(json_form.written({"v": value}))["v"]}
    return {name: str(value).lower() if isinstance(value, bool) else str(value)}


@given(st.data())
def test_the_query_form_reads_what_it_is_sent(data):
    name = data.draw(st.sampled_from(sorted(OPERATIONS)))
    taken, _ = OPERATIONS[name]
    said = data.draw(values(taken, least=1))
    assert query_form.read(name, form("", taken, said)) == said


@pytest.mark.parametrize(
    ("parameters", "kind"),
    [
        ({"QueueUrl": "u"}, "MissingRequiredParameterException"),
        ({"QueueUrl": "u", "Entries.1.Id": "1"}, "MissingRequiredParameterException"),
        (
            {"QueueUrl": "u", "SendMessageBatchRequestEntry.1.Id": "1"},
            "MissingRequiredParameterException",
        ),
        (
            {
                "QueueUrl": "u",
                "SendMessageBatchRequestEntry.1.Id": "1",
                "SendMessageBatchRequestEntry.1.MessageBody": "b",
                "SendMessageBatchRequestEntry.1.DelaySeconds": "soon",
            },
            "SerializationException",
        ),
    ],
)
def test_a_bad_query_is_refused(parameters, kind):
    with pytest.raises(SqsError) as raised:
        query_form.read("SendMessageBatch", parameters)
    assert raised.value.kind == kind


@given(st.data())
def test_an_answer_has_the_result(data):
    name = data.draw(st.sampled_from(sorted(OPERATIONS)))
    gives = OPERATIONS[name][1]
    result = data.draw(values(gives, least=1))
    root = ElementTree.fromstring(query_form.written(name, result, "one"))
    space = f"{{{query_form.NAMESPACE}}}"
    assert root.tag == f"{space}{name}Response"
    assert root.find(f"{space}ResponseMetadata/{space}RequestId").text == "one"
    found = root.find(f"{space}{name}Result")
    assert (found is None) == (not gives.fields)
    if found is not None:
        assert sum(1 for each in found.iter()) - 1 == len(list(elements(gives, result)))


def elements(shape, value):
    """An element for each of a result's fields, items and their parts."""
    if isinstance(shape, Fields):
        for name, each in shape.fields.items():
            if name in value:
                yield from elements(each, value[name])
                if isinstance(each, str | Fields):
                    yield name
    elif isinstance(shape, Many):
        for each in value:
            yield shape.name
            yield from elements(shape.of, each)
    elif isinstance(shape, Named):
        for each in value.values():
            yield from (shape.name, shape.key, shape.value)
            yield from elements(shape.of, each)
