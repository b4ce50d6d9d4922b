"""Signatures: those that botocore makes are good, and no other is."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

import pytest
from botocore.auth import SigV4Auth, SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st

from mq.sqs.errors import SqsError
from mq.sqs.signing import Signed, check, check_time, signature_of

SECRET = "a token's secret"
PATHS = st.sampled_from(["/", "/000000000000/orders", "/0/a%20b", "/0/orders/"])
QUERIES = st.sampled_from(
    ["", "Action=ListQueues&Version=2012-11-05", "b=2&a=%20x&a=1", "q=a%2Fb%20c"]
)


def signed(method: str, path: str, query: str, body: bytes, in_url: bool = False) -> Signed:
    request = AWSRequest(
        method=method,
        url=f"http://localhost:8080{path}" + (f"?{query}" if query else ""),
        data=body,
        headers={"X-Amz-Target": "AmazonSQS.ListQueues", "Two-Words": "a   b "},
    )
    kind = SigV4QueryAuth if in_url else SigV4Auth
    kind(Credentials("jobs", SECRET), "sqs", "eu-west-1").add_auth(request)
    sent = request.prepare()
    url = urlsplit(sent.url)
    headers = {name.lower(): str(value) for name, value in sent.headers.items()}
    headers.setdefault("host", "localhost:8080")
    return Signed(method, url.path, url.query, headers, body)


def test_a_target_that_is_not_signed_is_refused():
    request = signed("POST", "/", "Action=ListQueues", b"")
    bare = {name: value for name, value in request.headers.items() if name != "x-amz-target"}
    found = signature_of(Signed("POST", "/", "", bare))
    assert found is not None
    unsigned = replace(found, headers=tuple(each for each in found.headers if "target" not in each))
    with pytest.raises(SqsError, match="x-amz-target"):
        check(request, unsigned, SECRET)


def refusal(request: Signed, secret: str = SECRET, after: timedelta = timedelta()) -> str | None:
    found = signature_of(request)
    assert found is not None
    assert found.access_key == "jobs"
    try:
        check_time(found, datetime.now(UTC) + after)
        check(request, found, secret)
    except SqsError as error:
        return error.kind
    return None


@given(PATHS, QUERIES, st.binary(max_size=20), st.booleans())
def test_botocores_signature_is_good_for_its_request_alone(path, query, body, in_url):
    if in_url:
        body = b""
    request = signed("POST", path, query, body, in_url)
    assert refusal(request) is None
    bad = "InvalidSignatureException"
    assert refusal(request, "another") == bad
    late = "RequestExpired" if in_url else bad
    assert refusal(request, after=timedelta(hours=2)) == late
    assert refusal(request, after=timedelta(minutes=14)) is None
    assert refusal(request, after=timedelta(hours=-2)) == bad
    others = [
        Signed("GET", request.path, request.query, request.headers, body),
        Signed("POST", request.path + "x", request.query, request.headers, body),
        Signed("POST", request.path, request.query + "&c=1", request.headers, body),
        Signed("POST", request.path, request.query, request.headers | {"host": "evil"}, body),
        Signed("POST", request.path, request.query, request.headers, body + b"x"),
        Signed(
            "POST",
            request.path,
            request.query,
            request.headers | {"x-amz-target": "AmazonSQS.DeleteQueue"},
            body,
        ),
    ]
    assert [refusal(each) for each in others] == [bad] * len(others)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "Credential=jobs",
        "Credential=a/20260101/r/sqs/aws4_request, SignedHeaders=host, Signature=0",
    ],
)
def test_a_malformed_signature_is_refused(value):
    with pytest.raises(SqsError) as raised:
        signature_of(Signed("POST", "/", "", {"authorization": f"AWS4-HMAC-SHA256 {value}"}, b""))
    assert raised.value.kind == "IncompleteSignatureException"


@pytest.mark.parametrize("authorization", ["", "Bearer token"])
def test_a_request_without_a_signature_has_none(authorization):
    assert signature_of(Signed("POST", "/", "", {"authorization": authorization}, b"")) is None
