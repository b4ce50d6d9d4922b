"""Where SQS requests come to, beside mq's own endpoints, and how metrics count them."""

import json
from collections.abc import Mapping

import pytest
from harness.api import make_queue
from harness.server import Server

from mq.http.metering import OF_SQS
from mq.sqs.shapes import OPERATIONS

ACCOUNT = "000000000000"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
SIGNED = {"Authorization": "AWS4-HMAC-SHA256 Credential=a/20260101/us-east-1/sqs/aws4_request, x"}


async def asked(
    server: Server, method: str, path: str, body: str = "", headers: Mapping[str, str] = FORM
) -> tuple[int, str]:
    async with server.request(method, path, data=body or None, headers=headers) as answer:
        return answer.status, await answer.text()


@pytest.mark.parametrize("name", ["messages", "settings", "acks"])
async def test_a_queue_may_have_the_name_of_a_path(server: Server, name: str) -> None:
    json_to = {"X-Amz-Target": "AmazonSQS.CreateQueue"}
    assert (await asked(server, "POST", "/", json.dumps({"QueueName": name}), json_to))[0] == 200
    at = f"/{ACCOUNT}/{name}"
    said = json.dumps({"QueueUrl": at, "MessageBody": "json"})
    for slash in ("", "/"):
        status, _ = await asked(
            server, "POST", at + slash, said, {"X-Amz-Target": "AmazonSQS.SendMessage"}
        )
        assert status == 200
    form = "Action=SendMessage&MessageBody=form"
    assert (await asked(server, "POST", at, form, FORM | SIGNED))[0] == 200
    assert (await asked(server, "POST", f"{at}?{form}", ""))[0] == 200
    for read in ("?Action=GetQueueAttributes&AttributeName.1=All", "?Action=ListQueueTags"):
        status, text = await asked(server, "GET", at + read)
        assert (status, "Response" in text) == (200, True)
    status, text = await asked(server, "GET", f"{at}?Action=GetQueueAttributes&AttributeName.1=All")
    assert "<Name>ApproximateNumberOfMessages</Name><Value>4</Value>" in text


async def test_mqs_own_endpoints_stay(server: Server) -> None:
    await make_queue(server, ACCOUNT)
    form = "Action=SendMessage&MessageBody=form"
    assert (await asked(server, "POST", f"/{ACCOUNT}/messages", form))[0] == 201
    status, text = await asked(server, "GET", f"/{ACCOUNT}/messages")
    assert (status, text) == (200, form)
    status, text = await asked(server, "GET", "/")
    assert (status, "ListQueuesResponse" in text) == (200, False)
    status, text = await asked(server, "GET", "/?Action=ListQueues&Version=2012-11-05")
    assert (status, "ListQueuesResponse" in text) == (200, True)
    status, text = await asked(server, "GET", "/?Action=CreateQueue&QueueName=x")
    assert (status, "<Code>InvalidAction</Code>" in text) == (400, True)


async def test_operations_are_counted_by_name(server: Server) -> None:
    assert OF_SQS.keys() == OPERATIONS.keys()
    await asked(server, "GET", "/?Action=ListQueues")
    for operation in ("GetQueueUrl", "Nonsense"):
        await asked(server, "POST", "/", "{}", {"X-Amz-Target": f"AmazonSQS.{operation}"})
    _, text = await asked(server, "GET", "/-/metrics")
    counts = {
        line.partition(" ")[0]: float(line.split(" ")[1])
        for line in text.splitlines()
        if line.startswith("mq_request_seconds_count{")
    }
    for operation, outcome in (
        ("sqs_ListQueues", "2xx"),
        ("sqs_GetQueueUrl", "4xx"),
        ("unknown", "4xx"),
    ):
        key = f'mq_request_seconds_count{{operation="{operation}",outcome="{outcome}"}}'
        assert counts[key] == 1, counts
