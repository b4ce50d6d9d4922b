"""Who may do what by SQS's protocol: signatures, tokens and rights, without Amazon's client, whose
signatures `sqs/test_signing.py` has.
"""

import asyncio
import io
import json
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from harness.access import Tokens
from harness.clock import FakeClock
from harness.server import Serve, Server
from yarl import URL

from mq.access.errors import TokensUnusable
from mq.access.secrets import secrets_path, signers_of
from mq.access.tokens import read_tokens
from mq.sqs.signing import Signed, expected, signature_of
from mq.tools.mqctl.token_file import NoSuchToken, TokenFile

ACCOUNT = "000000000000"
COMMON = [
    f"com.amazon.coral.service#{name}Exception"
    for name in ("AccessDenied", "IncompleteSignature", "InvalidSignature", "UnrecognizedClient")
]
"""How AWS names refusals in JSON, of all services."""
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@dataclass
class Guarded:
    """An mq with tokens, some of which have secrets, and its clock."""

    server: Server
    tokens: Tokens
    clock: FakeClock

    def scope(self, name: str, ahead_s: int = 0) -> tuple[str, str]:
        now = datetime.fromtimestamp(self.clock.now_ms() // 1000 + ahead_s, UTC)
        return f"{now:%Y%m%dT%H%M%SZ}", f"{name}/{now:%Y%m%d}/eu-west-1/sqs/aws4_request"

    async def asked(
        self, method: str, target: str, body: bytes, headers: Mapping[str, str]
    ) -> tuple[int, str, Mapping[str, str]]:
        async with self.server.session.request(
            method,
            URL(self.server.url + target, encoded=True),
            data=io.BytesIO(body) if body else None,
            headers=dict(headers),
        ) as answer:
            return answer.status, await answer.text(), answer.headers

    async def call(self, name: str, operation: str, **said: Any) -> tuple[str, dict[str, Any]]:
        """The code of a signed request's failure, and its answer."""
        return await self.sent(name, operation, Forged(), said)

    async def sent(
        self, name: str, operation: str, forged: "Forged", said: Mapping[str, Any]
    ) -> tuple[str, dict[str, Any]]:
        made, credential = self.scope(name, forged.ahead_s)
        headers = {
            "host": "mq.example",
            "x-amz-date": made,
            "x-amz-target": f"AmazonSQS.{operation}",
        }
        names = ";".join(sorted(headers))
        claim = f"AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={names}, Signature="
        body = json.dumps(said).encode()
        request = Signed("POST", "/", "", {**headers, "authorization": claim + "0"}, body)
        found = signature_of(request)
        assert found is not None
        headers["authorization"] = claim + expected(
            request, found, forged.secret or secret_of(name)
        )
        status, text, answered = await self.asked("POST", "/", forged.body or body, headers)
        code = answered.get("x-amzn-query-error", ";").partition(";")[0]
        assert status == (403 if code else 200), text
        return code, json.loads(text)

    def url(self, query: str, lasts_s: int, ahead_s: int = 0) -> str:
        """A target for GET that the caller `jobs` has signed."""
        made, credential = self.scope("jobs", ahead_s)
        query += (
            f"&X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={quote(credential, safe='')}"
            f"&X-Amz-Date={made}&X-Amz-Expires={lasts_s}&X-Amz-SignedHeaders=host"
        )
        host = {"host": self.server.url.removeprefix("http://")}
        request = Signed("GET", f"/{ACCOUNT}/orders/", f"{query}&X-Amz-Signature=0", host)
        found = signature_of(request)
        assert found is not None
        text = expected(request, found, secret_of("jobs"))
        return f"{request.path}?{query}&X-Amz-Signature={text}"


@dataclass
class Forged:
    """What a request has in the place of what it should have."""

    secret: str = ""
    ahead_s: int = 0
    body: bytes = b""


def secret_of(name: str) -> str:
    return f"secret-of-{name}-0123456789"


@pytest.fixture
async def guarded(serve: Serve, tmp_path: Path, clock: FakeClock) -> Guarded:
    tokens = Tokens(tmp_path / "tokens")
    tokens.add("jobs", "orders*:admin")
    tokens.add("shop", "orders:publish")
    tokens.add("bare", "*:admin")
    for name in ("jobs", "shop"):
        TokenFile(tokens.path).set_secret(name, secret_of(name))
    return Guarded(await serve(tokens=tokens.path, clock=clock), tokens, clock)


async def test_a_signature_has_the_rights_of_its_token(guarded: Guarded) -> None:
    for name in ("orders", "orders-2"):
        assert (await guarded.call("jobs", "CreateQueue", QueueName=name))[0] == ""
    assert (await guarded.call("jobs", "CreateQueue", QueueName="others"))[0] == "AccessDenied"
    said = {"QueueUrl": "orders", "MessageBody": "x"}
    assert (await guarded.call("shop", "SendMessage", **said))[0] == ""
    for operation, more in (
        ("ReceiveMessage", {}),
        ("PurgeQueue", {}),
        ("DeleteMessage", {"ReceiptHandle": "x"}),
        ("SetQueueAttributes", {"Attributes": {"DelaySeconds": "1"}}),
    ):
        code, _ = await guarded.call("shop", operation, QueueUrl="orders", **more)
        assert code == "AccessDenied", operation
    _, listed = await guarded.call("shop", "ListQueues")
    assert [each.rpartition("/")[2] for each in listed["QueueUrls"]] == ["orders"]
    assert len((await guarded.call("jobs", "ListQueues"))[1]["QueueUrls"]) == 2
    # Another says who waits.
    said = {"QueueUrl": "orders-2", "WaitTimeSeconds": 20}
    waiting = asyncio.create_task(guarded.call("jobs", "ReceiveMessage", **said))
    async with asyncio.timeout(10):
        while True:
            mine = guarded.tokens.header("jobs")
            _, text, _ = await guarded.asked("GET", "/orders-2/consumers", b"", mine)
            if consumers := json.loads(text)["consumers"]:
                break
    assert consumers[0]["caller"] == "jobs"
    waiting.cancel()


@pytest.mark.certificate
async def test_a_redrive_needs_the_right_to_publish_to_each_queue(guarded: Guarded) -> None:
    tokens = guarded.tokens
    tokens.add("boss", "*:admin")
    tokens.add("mover", "orders-dead:admin", "orders-1:publish", "orders-2:consume")
    for name in ("boss", "mover"):
        TokenFile(tokens.path).set_secret(name, secret_of(name))
    await guarded.server.daemon.reload()
    arn = f"arn:aws:sqs:eu-west-1:{ACCOUNT}:orders-dead"
    policy = {"RedrivePolicy": json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1})}
    await guarded.call("boss", "CreateQueue", QueueName="orders-dead")

    async def moved(name: str) -> str:
        return (await guarded.call(name, "StartMessageMoveTask", SourceArn=arn))[0]

    await guarded.call("boss", "CreateQueue", QueueName="orders-1", Attributes=policy)
    assert await moved("mover") == ""
    await guarded.call("boss", "CreateQueue", QueueName="orders-2", Attributes=policy)
    async with asyncio.timeout(10):
        while guarded.server.daemon.service.shovels.running:
            await asyncio.sleep(0)
    before = await guarded.call("boss", "ListMessageMoveTasks", SourceArn=arn, MaxResults=10)
    assert await moved("mover") == "AccessDenied"
    after = await guarded.call("boss", "ListMessageMoveTasks", SourceArn=arn, MaxResults=10)
    assert after == before
    assert await moved("boss") == ""


@pytest.mark.parametrize(
    ("name", "forged", "code"),
    [
        ("jobs", Forged(secret="another-secret-here"), "SignatureDoesNotMatch"),
        ("jobs", Forged(body=b'{"QueueNamePrefix": "x"}'), "SignatureDoesNotMatch"),
        ("jobs", Forged(ahead_s=16 * 60), "SignatureDoesNotMatch"),
        ("jobs", Forged(ahead_s=-16 * 60), "SignatureDoesNotMatch"),
        ("jobs", Forged(ahead_s=14 * 60), ""),
        ("jobs", Forged(ahead_s=-14 * 60), ""),
        ("gone", Forged(), "InvalidClientTokenId"),
        ("bare", Forged(), "InvalidClientTokenId"),
    ],
)
async def test_another_signature_is_refused(
    guarded: Guarded, name: str, forged: Forged, code: str
) -> None:
    assert (await guarded.sent(name, "ListQueues", forged, {}))[0] == code


async def test_what_is_not_signed_is_refused_before_its_body_is_read(guarded: Guarded) -> None:
    target = {"X-Amz-Target": "AmazonSQS.ListQueues"}
    for headers, code, status in (
        ({}, "AccessDenied", 403),
        ({"Authorization": "Bearer mq_wrong"}, "InvalidClientTokenId", 403),
        ({"Authorization": "AWS4-HMAC-SHA256 Credential=x"}, "IncompleteSignature", 400),
    ):
        said = b"{" * (5 << 20)  # Beyond the limit of a body.
        found, text, answered = await guarded.asked("POST", "/", said, target | headers)
        assert (found, answered["x-amzn-query-error"]) == (status, f"{code};Sender")
        assert json.loads(text)["__type"] in COMMON
    found, text, _ = await guarded.asked("POST", "/", b"Action=ListQueues", FORM)
    assert (found, "<Code>AccessDenied</Code>" in text) == (403, True)


async def test_a_signed_url_lasts_as_long_as_it_says(guarded: Guarded) -> None:
    await guarded.call("jobs", "CreateQueue", QueueName="orders")
    send = "Action=SendMessage&MessageBody=a%20b"
    for target, status, text in (
        (guarded.url(send, 3600), 200, "<MD5OfMessageBody>"),
        (guarded.url(send, 60, ahead_s=-61), 400, "<Code>RequestExpired</Code>"),
        (guarded.url(send, 60).replace("a%20b", "c"), 403, ">SignatureDoesNotMatch<"),
        (guarded.url(send, 60).replace("=60", "=604801"), 400, ">IncompleteSignature<"),
        (guarded.url(send, 60).replace("%2Fsqs%2F", "%2Fs3%2F"), 403, "SignatureDoesNotMatch"),
    ):
        found, answer, _ = await guarded.asked("GET", target, b"", {})
        assert (found, text in answer) == (status, True), answer


async def test_secrets_reload_with_the_tokens(guarded: Guarded) -> None:
    path = guarded.tokens.path

    async def code() -> str:
        await guarded.server.daemon.reload()
        return (await guarded.call("jobs", "ListQueues"))[0]

    assert await code() == ""
    secrets_path(path).chmod(0o604)
    guarded.tokens.remove("bare")
    assert await code() == ""  # The old ones stay.
    secrets_path(path).chmod(0o600)
    TokenFile(path).set_secret("jobs", secret_of("another"))
    assert await code() == "SignatureDoesNotMatch"
    TokenFile(path).set_secret("jobs", secret_of("jobs"))
    assert await code() == ""
    guarded.tokens.remove("jobs")  # Its secret is left.
    assert await code() == "InvalidClientTokenId"


def test_a_file_of_secrets_is_for_few(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path / "tokens")
    tokens.add("jobs", "*:admin")
    tokens.add("shop", "*:admin")
    tokens.path.chmod(0o644)
    file, path = TokenFile(tokens.path), secrets_path(tokens.path)
    with pytest.raises(NoSuchToken):
        file.set_secret("gone", secret_of("gone"))
    for name in ("jobs", "shop", "jobs"):
        file.set_secret(name, secret_of(name))
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert path.read_text() == f"shop {secret_of('shop')}\njobs {secret_of('jobs')}\n"
    file.remove("jobs")
    assert path.read_text() == f"shop {secret_of('shop')}\n"
    for mode, why in ((0o604, "others may read it"), (0o620, "others may write it")):
        path.chmod(mode)
        with pytest.raises(TokensUnusable, match=why):
            file.set_secret("shop", secret_of("shop"))
    path.chmod(0o600)
    for text in ("shop", "shop short", "shop a b", f"shop {secret_of('x')}\n" * 2, "\xff"):
        path.write_text(text, encoding="latin-1")
        with pytest.raises(TokensUnusable) as raised:
            signers_of(read_tokens(tokens.path), tokens.path)
        assert secret_of("x") not in str(raised.value)
