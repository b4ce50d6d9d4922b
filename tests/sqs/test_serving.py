"""Amazon's own client, and the suite of another server, against real daemons."""

import json
import os
import signal
import subprocess
import sys
import tarfile
import threading
import urllib.error
import urllib.request
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError, ClientError
from harness.access import Tokens
from harness.audits import assert_audits_clean
from harness.processes import Process, Processes, eventually
from harness.sqs import sqs

from mq import Client
from mq.tools.mqctl.token_file import TokenFile

TESTS = Path(__file__).parents[1]
TARGET = {"X-Amz-Target": "AmazonSQS.SendMessage", "Content-Type": "application/x-amz-json-1.0"}


@pytest.fixture
def mq(daemons: Processes, root: Path) -> Process:
    return daemons.mq(root, "--standalone")


def refusal(act: Any, **said: Any) -> tuple[str, str]:
    with pytest.raises(ClientError) as raised:
        act(**said)
    error = raised.value.response["Error"]
    return error["Code"], error["Message"]


def test_a_message_lives_as_sqs_says(mq: Process) -> None:
    attributes = {
        "color": {"DataType": "String", "StringValue": "red"},
        "lines": {"DataType": "String", "StringValue": " a\nü "},
        "count": {"DataType": "Number.int", "StringValue": "3"},
        "picture": {"DataType": "Binary.png", "BinaryValue": b"\x00\xff"},
    }
    with sqs(mq.url) as client:
        url = client.create_queue(QueueName="orders", tags={"team": "shop"})["QueueUrl"]
        assert url == f"{mq.url}/000000000000/orders"
        assert client.create_queue(QueueName="orders")["QueueUrl"] == url
        assert client.get_queue_url(QueueName="orders")["QueueUrl"] == url
        assert client.list_queues(QueueNamePrefix="ord")["QueueUrls"] == [url]
        assert client.list_queue_tags(QueueUrl=url)["Tags"] == {"team": "shop"}
        sent = client.send_message(QueueUrl=url, MessageBody="two", MessageAttributes=attributes)
        (found,) = client.receive_message(
            QueueUrl=url, MessageAttributeNames=["All"], AttributeNames=["All"]
        )["Messages"]
        assert found["MessageId"] == sent["MessageId"]
        assert found["MessageAttributes"] == attributes
        assert found["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]
        assert found["Attributes"]["ApproximateReceiveCount"] == "1"
        assert "Messages" not in client.receive_message(QueueUrl=url)
        handle = found["ReceiptHandle"]
        client.change_message_visibility(QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=0)
        (again,) = client.receive_message(QueueUrl=url, WaitTimeSeconds=5)["Messages"]
        assert "MessageAttributes" not in again
        # Any handle of a standard queue's message deletes it, and twice is a success.
        for _ in range(2):
            client.delete_message(QueueUrl=url, ReceiptHandle=handle)
        assert counts(client, url) == ("0", "0", "0")
        client.delete_queue(QueueUrl=url)
        code, _ = refusal(client.send_message, QueueUrl=url, MessageBody="x")
        assert code == "AWS.SimpleQueueService.NonExistentQueue"


def counts(client: Any, url: str) -> tuple[str, ...]:
    found = client.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    names = ("", "NotVisible", "Delayed")
    return tuple(found[f"ApproximateNumberOfMessages{name}"] for name in names)


def test_a_queue_of_groups_keeps_order_and_takes_a_message_once(mq: Process) -> None:
    wanted = {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
    with sqs(mq.url) as client:
        url = client.create_queue(QueueName="jobs.fifo", Attributes=wanted)["QueueUrl"]
        first = [
            client.send_message(QueueUrl=url, MessageBody=body, MessageGroupId=group)
            for body, group in (("a", "g"), ("b", "g"), ("c", "h"))
        ]
        again = client.send_message(QueueUrl=url, MessageBody="a", MessageGroupId="g")
        assert again["MessageId"] == first[0]["MessageId"]
        assert again["SequenceNumber"] == first[0]["SequenceNumber"]
        numbers = [each["SequenceNumber"] for each in first]
        assert numbers == sorted(numbers)
        assert {len(each) for each in numbers} == {20}
        asked = {"QueueUrl": url, "MaxNumberOfMessages": 10, "AttributeNames": ["All"]}
        found = client.receive_message(**asked)["Messages"]
        assert [each["Body"] for each in found] == ["a", "c"]
        assert found[0]["Attributes"]["MessageGroupId"] == "g"
        handle = found[0]["ReceiptHandle"]
        client.change_message_visibility(QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=0)
        (found,) = client.receive_message(**asked, WaitTimeSeconds=5)["Messages"]
        assert found["Body"] == "a"
        code, why = refusal(client.delete_message, QueueUrl=url, ReceiptHandle=handle)
        assert (code, why.endswith("The receipt handle has expired.")) == (
            "InvalidParameterValue",
            True,
        )
        client.delete_message(QueueUrl=url, ReceiptHandle=found["ReceiptHandle"])
        (found,) = client.receive_message(**asked, WaitTimeSeconds=5)["Messages"]
        assert found["Body"] == "b"
        code, _ = refusal(client.send_message, QueueUrl=url, MessageBody="x")
        assert code == "MissingParameter"


def test_dead_letters_come_to_the_queue_that_a_policy_names(mq: Process) -> None:
    with sqs(mq.url) as client:
        dead = client.create_queue(QueueName="dead")["QueueUrl"]
        arn = client.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]
        policy = {"deadLetterTargetArn": arn["QueueArn"], "maxReceiveCount": 1}
        wanted = {"VisibilityTimeout": "1", "RedrivePolicy": json.dumps(policy)}
        url = client.create_queue(QueueName="orders", Attributes=wanted)["QueueUrl"]
        assert client.list_dead_letter_source_queues(QueueUrl=dead)["queueUrls"] == [url]
        client.send_message(QueueUrl=url, MessageBody="poison")
        assert client.receive_message(QueueUrl=url)["Messages"]
        asked = {"QueueUrl": dead, "VisibilityTimeout": 0}
        (found,) = eventually(lambda: client.receive_message(**asked).get("Messages"))
        assert found["Body"] == "poison"
        task = client.start_message_move_task(SourceArn=arn["QueueArn"])
        assert task["TaskHandle"]
        (back,) = eventually(
            lambda: client.receive_message(QueueUrl=url, VisibilityTimeout=60).get("Messages")
        )
        assert back["Body"] == "poison"
        (listed,) = client.list_message_move_tasks(SourceArn=arn["QueueArn"])["Results"]
        assert listed["Status"] in ("RUNNING", "COMPLETED")


def test_both_faces_of_a_queue_see_the_same_messages(mq: Process) -> None:
    with sqs(mq.url) as client, Client(mq.url) as own:
        url = client.create_queue(QueueName="orders")["QueueUrl"]
        orders = own.queue("orders")
        color = {"color": {"DataType": "String", "StringValue": "red"}}
        client.send_message(QueueUrl=url, MessageBody="from SQS", MessageAttributes=color)
        found = orders.fetch()
        assert found is not None
        assert (found.text(), found.headers["x-attribute-color"]) == ("from SQS", "red")
        found.delete()
        orders.publish("from mq", headers={"X-Attribute-Color": "blue"})
        orders.publish(b"\xff\x00")
        asked = {"QueueUrl": url, "MessageAttributeNames": ["All"]}
        (text,) = client.receive_message(**asked)["Messages"]
        (binary,) = client.receive_message(**asked)["Messages"]
        assert text["Body"] == "from mq"
        assert text["MessageAttributes"]["Color"]["StringValue"] == "blue"
        assert binary["Body"] == "/wA="
        assert binary["MessageAttributes"]["mq.encoding"]["StringValue"] == "base64"


def test_what_was_answered_outlives_a_kill(daemons: Processes, root: Path) -> None:
    first = daemons.mq(root)
    with sqs(first.url) as client:
        url = client.create_queue(QueueName="orders")["QueueUrl"]
        sent = set()
        for n in range(5):
            entries = [{"Id": str(m), "MessageBody": f"{n}.{m}"} for m in range(10)]
            answer = client.send_message_batch(QueueUrl=url, Entries=entries)
            sent |= {each["MessageId"] for each in answer["Successful"]}
        (gone,) = client.receive_message(QueueUrl=url)["Messages"]
        client.delete_message(QueueUrl=url, ReceiptHandle=gone["ReceiptHandle"])
    first.kill()
    with sqs(daemons.mq(root).url) as client:
        found = set()
        while messages := client.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get(
            "Messages"
        ):
            found |= {each["MessageId"] for each in messages}
    assert found == sent - {gone["MessageId"]}


def test_a_group_keeps_its_order_over_kills(daemons: Processes, root: Path) -> None:
    """Senders repeat a send without an answer, with its id: each message comes, in its place."""
    mq = daemons.mq(root, "--standalone")
    url = f"{mq.url}/000000000000/jobs.fifo"
    with sqs(mq.url) as client:
        wanted = {"FifoQueue": "true", "VisibilityTimeout": "2"}
        client.create_queue(QueueName="jobs.fifo", Attributes=wanted)
    groups, count, sent = ("g", "h", "i"), 14, Counter[str]()
    pause = threading.Event()

    def send(group: str) -> None:
        with sqs(mq.url) as client:
            while sent[group] < count:
                said = {"MessageGroupId": group, "MessageBody": str(sent[group])}
                with suppress(BotoCoreError, ClientError):
                    once = f"{group}{sent[group]}"
                    client.send_message(QueueUrl=url, MessageDeduplicationId=once, **said)
                    sent[group] += 1
                    continue
                pause.wait(0.05)

    found: dict[str, list[int]] = {group: [] for group in groups}

    def receive() -> None:
        asked = {"QueueUrl": url, "WaitTimeSeconds": 1, "AttributeNames": ["MessageGroupId"]}
        with sqs(mq.url) as client:
            while not all(each and each[-1] == count - 1 for each in found.values()):
                with suppress(BotoCoreError, ClientError):
                    for each in client.receive_message(**asked).get("Messages", ()):
                        found[each["Attributes"]["MessageGroupId"]].append(int(each["Body"]))
                        client.delete_message(QueueUrl=url, ReceiptHandle=each["ReceiptHandle"])
                    continue
                pause.wait(0.05)

    with ThreadPoolExecutor() as pool:
        ends = [*(pool.submit(send, group) for group in groups), pool.submit(receive)]
        for most in (10, 28):
            eventually(lambda: sent.total() >= most)  # noqa: B023
            mq.kill()
            mq.kill_children()
            mq = daemons.mq(root, "--standalone", port=mq.port)
        for end in ends:
            end.result(120)
    for numbers in found.values():
        assert numbers[0] == 0
        assert {after - before for before, after in pairwise(numbers)} <= {0, 1}, numbers
    mq.terminate()
    assert_audits_clean(root)


def test_a_queue_that_http_made_keeps_what_no_attribute_names(mq: Process) -> None:
    with sqs(mq.url) as client, Client(mq.url) as own:
        orders = own.queue("orders")
        orders.create()
        orders.change_settings(labels={"team": "shop"}, delay_default_s=5)
        wanted = {"QueueName": "orders", "Attributes": {"VisibilityTimeout": "7"}}
        url = client.create_queue(**wanted)["QueueUrl"]
        assert client.create_queue(**wanted)["QueueUrl"] == url
        client.tag_queue(QueueUrl=url, Tags={"a": "b"})
        settings = orders.settings()
        assert settings["visibility_s"] == 7
        assert settings["message_ttl_s"] == 0
        assert settings["delay_default_s"] == 5
        assert settings["labels"]["team"] == "shop"
        code, _ = refusal(
            client.create_queue, QueueName="orders", Attributes={"VisibilityTimeout": "8"}
        )
        assert code == "QueueAlreadyExists"


def test_what_terraform_sets_is_what_it_reads(mq: Process) -> None:
    """The requests of its resources: it waits until a queue shows each attribute as it was sent,
    an unset one as absent, and until a deleted queue is not there.
    """
    numbers = {
        "DelaySeconds": "90", "MaximumMessageSize": "2048", "MessageRetentionPeriod": "86400",
        "ReceiveMessageWaitTimeSeconds": "10", "VisibilityTimeout": "45",
    }  # fmt: skip
    allow = {"redrivePermission": "byQueue", "sourceQueueArns": ["arn:aws:sqs:eu-west-1:0:a"]}
    fifo = {
        "FifoQueue": "true", "ContentBasedDeduplication": "true", "DelaySeconds": "0",
        "DeduplicationScope": "messageGroup", "FifoThroughputLimit": "perMessageGroupId",
    }  # fmt: skip
    with sqs(mq.url) as client:

        def shown(url: str) -> dict[str, str]:
            answer = client.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])
            return dict(answer["Attributes"])

        dead = client.create_queue(QueueName="dead", tags={"team": "shop"})["QueueUrl"]
        arn = shown(dead)["QueueArn"]
        redrive = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 4})
        wanted = {**numbers, "RedrivePolicy": redrive, "SqsManagedSseEnabled": "false"}
        url = client.create_queue(QueueName="orders", Attributes=wanted)["QueueUrl"]
        assert len(url.partition("://")[2].split("/")) == 3
        assert shown(url).items() >= wanted.items()
        assert "FifoQueue" not in shown(url)
        for name, value in (
            ("Policy", json.dumps({"Version": "2012-10-17", "Statement": []})),
            ("RedriveAllowPolicy", json.dumps(allow)),
            ("RedrivePolicy", redrive),
            ("KmsMasterKeyId", "alias/aws/sqs"),
        ):
            client.set_queue_attributes(QueueUrl=url, Attributes={name: value})
            assert shown(url)[name] == value
            client.set_queue_attributes(QueueUrl=url, Attributes={name: ""})
            assert name not in shown(url)
        client.tag_queue(QueueUrl=url, Tags={"team": "shop", "old": "1"})
        client.untag_queue(QueueUrl=url, TagKeys=["old"])
        assert client.list_queue_tags(QueueUrl=url)["Tags"] == {"team": "shop"}
        ordered = client.create_queue(QueueName="jobs.fifo", Attributes=fifo)["QueueUrl"]
        assert shown(ordered).items() >= fifo.items()
        client.delete_queue(QueueUrl=url)
        code, _ = refusal(shown, url=url)
        assert code == "AWS.SimpleQueueService.NonExistentQueue"


def test_a_worker_of_laravel_gets_what_it_asks_for(mq: Process) -> None:
    """Its queue is the URL's prefix and a name; a job that fails is released after its backoff."""
    with sqs(mq.url) as client:
        client.create_queue(QueueName="orders")
        url = f"{mq.url}/000000000000/orders"
        client.send_message(QueueUrl=url, MessageBody="{}")
        client.send_message(QueueUrl=url, MessageBody="later", DelaySeconds=900)
        assert counts(client, url) == ("1", "0", "1")
        asked = {"QueueUrl": url, "AttributeNames": ["ApproximateReceiveCount"]}
        for receives in ("1", "2"):
            (job,) = client.receive_message(**asked, WaitTimeSeconds=5)["Messages"]
            assert job["Attributes"] == {"ApproximateReceiveCount": receives}
            job = {"QueueUrl": url, "ReceiptHandle": job["ReceiptHandle"]}
            if receives == "1":
                client.change_message_visibility(**job, VisibilityTimeout=0)
        client.delete_message(**job)
        eventually(lambda: counts(client, url) == ("0", "0", "1"))
        client.purge_queue(QueueUrl=url)
        eventually(lambda: counts(client, url) == ("0", "0", "0"))


def test_names_that_mq_does_not_have_are_those_of_their_queues(mq: Process) -> None:
    names = ["-" + "x" * 79, "_", "y" * 75 + ".fifo"]
    with sqs(mq.url) as client:
        for name in names:
            fifo = {"Attributes": {"FifoQueue": "true"}} if name.endswith(".fifo") else {}
            url = client.create_queue(QueueName=name, **fifo)["QueueUrl"]
            assert url.endswith(f"/{name}")
            assert client.get_queue_url(QueueName=name)["QueueUrl"] == url
        listed = client.list_queues()["QueueUrls"]
        assert sorted(each.rpartition("/")[2] for each in listed) == sorted(names)
        first = client.list_queues(MaxResults=2)
        rest = client.list_queues(MaxResults=2, NextToken=first["NextToken"])
        assert sorted(first["QueueUrls"] + rest["QueueUrls"]) == sorted(listed)
        client.send_message(
            QueueUrl=client.get_queue_url(QueueName="_")["QueueUrl"], MessageBody="x"
        )


def test_a_signature_needs_the_secret_of_its_token(
    daemons: Processes, root: Path, tmp_path: Path
) -> None:
    tokens = Tokens(tmp_path / "tokens")
    secret = tokens.add("jobs", "*:admin")
    process = daemons.mq(root, "--tokens", str(tokens.path))
    with sqs(process.url, secret) as client, sqs(process.url) as forger:
        code, _ = refusal(client.create_queue, QueueName="orders")
        assert code == "InvalidClientTokenId"
        TokenFile(tokens.path).set_secret("jobs", secret)
        process.popen.send_signal(signal.SIGHUP)
        process.wait_for_log("callers reloaded")
        assert refusal(forger.list_queues)[0] == "SignatureDoesNotMatch"
        url = client.create_queue(QueueName="messages")["QueueUrl"]
        client.send_message(QueueUrl=url, MessageBody="ü")
        (message,) = client.receive_message(QueueUrl=url)["Messages"]
        assert message["Body"] == "ü"


def post(url: str, body: bytes, headers: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, headers)) as answer:
            return answer.status, dict(answer.headers), answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, dict(error.headers), error.read()


def test_bad_requests_get_errors_of_their_form(mq: Process) -> None:
    for body, kind in (
        (b"{", "com.amazon.coral.service#SerializationException"),
        (b"[]", "com.amazon.coral.service#SerializationException"),
        (b'{"QueueUrl": "x"}', "com.amazon.coral.service#MissingRequiredParameterException"),
        (b'{"QueueUrl": "x", "MessageBody": "y"}', "com.amazonaws.sqs#QueueDoesNotExist"),
        (b'{"QueueUrl": "\\u0000/", "MessageBody": "y"}', "com.amazonaws.sqs#QueueDoesNotExist"),
    ):
        status, headers, answer = post(mq.url + "/", body, TARGET)
        assert status == 400
        assert json.loads(answer)["__type"] == kind
        assert headers["x-amzn-query-error"].endswith(";Sender")
    nothing = TARGET | {"X-Amz-Target": "AmazonSQS.Nothing"}
    status, headers, answer = post(mq.url + "/", b"{}", nothing)
    assert (status, headers["x-amzn-query-error"]) == (400, "InvalidAction;Sender")
    assert json.loads(answer)["__type"] == "com.amazon.coral.service#UnknownOperationException"
    status, _, _ = post(mq.url + "/", b"x" * (9 << 20), TARGET)
    assert status == 400
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    status, _, answer = post(mq.url + "/", b"Action=CreateQueue&QueueName=orders", form)
    assert (status, b"<QueueUrl>" in answer) == (200, True)
    account = f"{mq.url}/000000000000"
    status, _, _ = post(f"{account}/orders/", b"Action=SendMessage&MessageBody=hi", form)
    assert status == 200
    status, _, answer = post(f"{account}/orders", b"Action=ReceiveMessage", form)
    assert (status, b"<Body>hi</Body>" in answer) == (200, True)
    status, _, answer = post(f"{account}/nothing", b"Action=ReceiveMessage", form)
    assert (status, b"NonExistentQueue</Code>" in answer) == (400, True)
    # A web page of another origin may send a form.
    status, _, _ = post(
        f"{account}/orders", b"Action=DeleteQueue", form | {"Origin": "http://elsewhere.example"}
    )
    assert status == 403
    # mq's own paths stay its own.
    status, _, _ = post(f"{mq.url}/orders/messages", b"Action=DeleteQueue", form)
    assert status == 201


AMAZON_DIFFERS = {
    "test_create_queue_with_different_attributes_fail": "FifoQueue of a standard queue is unknown",
    "test_create_fifo_queue_with_dlq": "the same",
    "test_message_becomes_inflight_when_received": "an attribute's name with a space is unknown",
    "test_receive_message_with_explicit_visibility_timeout": "the same",
    "test_change_message_visibility": "the same",
    "test_queue_length": "the same",
    "test_delete_batch_operation": "the same",
    "test_delete_message_after_visibility_timeout": "the same",
    "test_message_retention_period": "at least 60 seconds",
    "test_send_messages_to_fifo_without_message_group_id": "an entry fails, not its batch",
    "test_fifo_dedupe_error_no_message_dedupe_id_batch": "the same",
    "test_message_delay_is_more_than_15_minutes": "no deduplication id in a standard queue",
}
"""Where moto's suite expects what Amazon does not do."""
MQ_DIFFERS = {
    "test_create_queues_in_multiple_region": "a root has no regions",
    "test_receive_messages_with_message_group_id": "a group's messages come one at a time",
    "test_fifo_send_message_when_same_group_id_is_in_dlq": "mq-mover takes up to a second",
}


def test_the_suite_of_moto_finds_what_amazon_does(mq: Process, tmp_path: Path) -> None:
    """Its source has its tests. A proxy answers for the services that are none of mq's."""
    wanted = f"moto=={version('moto')}"
    subprocess.run(
        [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", "moto", "-d",
         tmp_path, wanted],
        check=True,
        timeout=300,
    )  # fmt: skip
    (source,) = tmp_path.glob("moto-*.tar.gz")
    with tarfile.open(source) as archive:
        archive.extractall(tmp_path, filter="data")
    (suite,) = tmp_path.glob("moto-*/")
    shim = [sys.executable, "-m", "harness.moto_shim", mq.url]
    with subprocess.Popen(shim, cwd=TESTS, stdout=subprocess.PIPE, text=True) as proxy:
        try:
            assert proxy.stdout is not None
            assert proxy.stdout.readline() == "ready\n"
            done = subprocess.run(
                [sys.executable, "-m", "pytest", "-q", "-rA", "--color=no", "--tb=short",
                 "-p", "no:cacheprovider", "-p", "no:hypothesispytest", "--timeout=60",
                 "tests/test_sqs/test_sqs.py", "tests/test_sqs/test_sqs_message_attributes.py"],
                cwd=suite,
                env=os.environ
                | {
                    "TEST_SERVER_MODE": "true",
                    "TEST_SERVER_MODE_ENDPOINT": "http://localhost:5000",
                },
                capture_output=True,
                text=True,
                timeout=300,
            )  # fmt: skip
        finally:
            proxy.send_signal(signal.SIGTERM)
    lines = done.stdout.splitlines()
    failed = {each.split("::")[1].split()[0] for each in lines if each.startswith("FAILED")}
    passed = [each for each in lines if each.startswith("PASSED")]
    assert failed <= AMAZON_DIFFERS.keys() | MQ_DIFFERS.keys(), done.stdout[-5000:]
    assert len(passed) >= 130, done.stdout[-5000:] + done.stderr[-5000:]
