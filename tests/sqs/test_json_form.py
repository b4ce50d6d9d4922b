"""The JSON form, written and read by botocore."""

import botocore.session
import pytest
from botocore.parsers import create_parser
from botocore.serialize import create_serializer
from harness.sqs import values
from hypothesis import given
from hypothesis import strategies as st

from mq.sqs import json_form
from mq.sqs.errors import SqsError
from mq.sqs.shapes import OPERATIONS

MODEL = botocore.session.get_session().get_service_model("sqs")


@given(st.data())
def test_botocore_writes_what_the_json_form_reads_and_the_reverse(data):
    name = data.draw(st.sampled_from(sorted(OPERATIONS)))
    taken, gives = OPERATIONS[name]
    operation = MODEL.operation_model(name)
    said = data.draw(values(taken))
    request = create_serializer("json", include_validation=False).serialize_to_request(
        said, operation
    )
    assert request["headers"]["X-Amz-Target"] == json_form.TARGET + name
    assert json_form.read(request["body"], taken) == said
    result = data.draw(values(gives))
    answer = {"status_code": 200, "headers": {}, "body": json_form.written(result)}
    parsed = create_parser("json").parse(answer, operation.output_shape)
    assert {k: v for k, v in parsed.items() if k != "ResponseMetadata"} == result


@pytest.mark.parametrize(
    "body",
    [b"[]", b"{", b'{"QueueUrl": 1}', b'{"QueueUrl": "u", "DelaySeconds": "1"}', b"[" * 10**5],
)
def test_a_bad_json_request_is_refused(body):
    with pytest.raises(SqsError) as raised:
        json_form.read(body, OPERATIONS["SendMessage"][0])
    assert raised.value.kind == "SerializationException"
