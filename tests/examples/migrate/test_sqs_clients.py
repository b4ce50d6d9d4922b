"""What others wrote for SQS, unmodified, against a real mq: Celery, Dramatiq, kombu's own suite,
aiobotocore, the AWS CLI, and Amazon's SDK for JavaScript.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from harness.audits import assert_audits_clean
from harness.needs import program
from harness.pages import sections_of
from harness.processes import Process, Processes, eventually
from harness.sqs import sqs
from harness.sqs_clients import AWS, PROGRAMS, client

TOP = Path(__file__).parents[3]
SECTION = sections_of((TOP / "deploy" / "MIGRATE.md").read_text(encoding="utf-8"))
SETTINGS = dict(
    re.findall(r"```python\n# (\w+)\n(.*?)```", SECTION["Keep an SQS client"], re.DOTALL)
)
VISIBLE_S = 6


@pytest.fixture
def mq(daemons: Processes, root: Path) -> Iterator[Process]:
    process = daemons.mq(root, "--standalone")
    yield process
    process.terminate()
    assert_audits_clean(root)


def settings(name: str, mq: Process, folder: Path) -> Path:
    """A program's settings as the page has them, but for the address, and for how long a message
    of a worker that was killed stays invisible.
    """
    path = folder / f"{name}.py"
    text = SETTINGS[name].replace("localhost:8080", f"127.0.0.1:{mq.port}")
    path.write_text(text.replace("3600", str(VISIBLE_S)), encoding="utf-8")
    return path


def run(*command: str, **env: str) -> str:
    done = subprocess.run(
        command, cwd=PROGRAMS, env=os.environ | AWS | env, capture_output=True, text=True,
        timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@contextmanager
def worker(*command: str, **env: str) -> Iterator["subprocess.Popen[bytes]"]:
    """A worker and what it starts, in a group of its own."""
    with subprocess.Popen(
        command, cwd=PROGRAMS, env=os.environ | AWS | env, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, start_new_session=True,
    ) as popen:  # fmt: skip
        try:
            yield popen
            popen.terminate()
            popen.wait(30)
        finally:
            if popen.poll() is None:
                os.killpg(popen.pid, signal.SIGKILL)


SEND = """
from celery_tasks import gated, plain, retried
sent = [plain.delay() for _ in range(30)]
sent += [gated.delay() for _ in range(2)] + [plain.delay() for _ in range(10)]
sent += [plain.apply_async(countdown=1) for _ in range(3)]
sent += [retried.delay() for _ in range(3)]
print(*(each.id for each in sent))
"""


def test_tasks_of_celery_outlive_their_worker(mq: Process, tmp_path: Path) -> None:
    """Each ends at least once; what was acknowledged never begins again."""
    log, gate = tmp_path / "log", tmp_path / "gate"
    env = {
        "CELERY_SETTINGS": str(settings("Celery", mq, tmp_path)),
        "LOG": str(log),
        "GATE": str(gate),
    }
    command = [client("celery"), "-A", "celery_tasks", "worker", "-c", "2"]

    def noted() -> list[tuple[str, str]]:
        lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
        return [(event, task) for event, _, task in (line.partition(" ") for line in lines)]

    def ended() -> set[str]:
        return {task.partition("/")[0] for event, task in noted() if event == "ended"}

    tasks = set(run(client("python"), "-c", SEND, **env).split())
    with worker(*command, **env) as first:
        # Both of its processes wait at the gate.
        eventually(lambda: [e for e, _ in noted()].count("began") > len(ended()) + 1, patience_s=60)
        os.killpg(first.pid, signal.SIGKILL)
    assert ended() < tasks
    gate.touch()
    with worker(*command, **env):
        eventually(lambda: ended() == tasks, "the end of all tasks", patience_s=90)
        with sqs(mq.url) as amazon:
            asked = {"QueueUrl": "celery", "AttributeNames": ["All"]}

            def left() -> int:
                found = amazon.get_queue_attributes(**asked)["Attributes"]
                return sum(int(n) for name, n in found.items() if name.startswith("Approximate"))

            eventually(lambda: not left(), "an empty queue")
    acknowledged: set[str] = set()
    for event, task in noted():
        assert event != "began" or task not in acknowledged
        if event == "acked":
            acknowledged.add(task)
    assert {task.partition("/")[0] for task in acknowledged} == tasks
    assert sum(event == "retried" for event, _ in noted()) >= 6


def test_actors_of_dramatiq_are_retried_to_their_end(mq: Process, tmp_path: Path) -> None:
    log = tmp_path / "log"
    env = {"DRAMATIQ_SETTINGS": str(settings("Dramatiq", mq, tmp_path)), "LOG": str(log)}
    send = "from dramatiq_tasks import double\nfor n in range(5): double.send(n)"
    run(client("python"), "-c", send, **env)
    with worker(client("dramatiq"), "dramatiq_tasks", "-p", "1", "-t", "2", **env):
        wanted = [str(2 * n) for n in range(5)]
        eventually(
            lambda: log.exists() and sorted(log.read_text(encoding="utf-8").split()) == wanted,
            "the end of all actors",
        )


def test_aiobotocore(mq: Process) -> None:
    said = json.loads(run(client("python"), "aiobotocore_round.py", mq.url))
    assert said == {
        "sent": 10,
        "received": sorted([*map(str, range(10)), "one"]),
        "deleted": 10,
        "order": ["a", "b"],
        "left": "0",
    }


def test_amazon_s_sdk_for_javascript(mq: Process, tmp_path: Path) -> None:
    package = Path(client("@aws-sdk/client-sqs"))
    (tmp_path / "node_modules").symlink_to(package.parents[1])
    program_path = tmp_path / "sdk.mjs"
    program_path.write_text((PROGRAMS / "sdk.mjs").read_text(encoding="utf-8"), encoding="utf-8")
    said = json.loads(run(program("node"), str(program_path), mq.url))
    assert said == {
        "first": "ett 🎈",
        "picture": [0, 255],
        "sent": 3,
        "received": ["1", "2", "3"],
        "deleted": 3,
        "error": "QueueDoesNotExist",
    }


def test_the_aws_cli(mq: Process) -> None:
    def aws(*words: str) -> Any:
        python = (client("python"), client("aws"), "--endpoint-url", mq.url, "--output", "json")
        said = run(*python, "sqs", *words)
        return json.loads(said) if said else None

    dead = aws("create-queue", "--queue-name", "dead")["QueueUrl"]
    arn = aws("get-queue-attributes", "--queue-url", dead, "--attribute-names", "QueueArn")
    source = arn["Attributes"]["QueueArn"]
    policy = json.dumps({"deadLetterTargetArn": source, "maxReceiveCount": "1"})
    wanted = json.dumps({"RedrivePolicy": policy, "VisibilityTimeout": "1"})
    url = aws("create-queue", "--queue-name", "orders", "--attributes", wanted)["QueueUrl"]
    assert sorted(aws("list-queues")["QueueUrls"]) == sorted([dead, url])
    sent = aws("send-message", "--queue-url", url, "--message-body", "two pizzas")
    receive = ("receive-message", "--wait-time-seconds", "20", "--queue-url")
    (found,) = aws(*receive, url)["Messages"]
    assert (found["MessageId"], found["Body"]) == (sent["MessageId"], "two pizzas")
    (found,) = aws(*receive, dead, "--visibility-timeout", "0")["Messages"]
    assert aws("start-message-move-task", "--source-arn", source)["TaskHandle"]
    (found,) = aws(*receive, url, "--visibility-timeout", "60")["Messages"]
    handle = ("--receipt-handle", found["ReceiptHandle"])
    assert aws("delete-message", "--queue-url", url, *handle) is None
    found = aws("get-queue-attributes", "--queue-url", url, "--attribute-names", "All")
    assert found["Attributes"]["ApproximateNumberOfMessages"] == "0"


KOMBU_DIFFERS = {
    "test_SQSBaseExchangeTypes::test_fanout": "of SNS, which mq does not have",
    "test_ack_invalid_receipt_with_backoff": "a second delete is a success for Amazon",
}
"""Where kombu's suite expects what Amazon's queues do not do."""


def test_the_suite_of_kombu(mq: Process, tmp_path: Path) -> None:
    """Its source has its tests."""
    python = client("python")
    said = "import kombu; print(kombu.__version__)"
    wanted = f"kombu=={run(python, '-c', said).strip()}"
    run(sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", "kombu",
        "-d", str(tmp_path), wanted)  # fmt: skip
    (source,) = tmp_path.glob("kombu-*.tar.gz")
    with tarfile.open(source) as archive:
        archive.extractall(tmp_path, filter="data")
    (suite,) = tmp_path.glob("kombu-*/")
    done = subprocess.run(
        [python, "-m", "pytest", "-q", "-rA", "--color=no", "--tb=short", "-p", "no:cacheprovider",
         "-c", os.devnull, "--rootdir", suite, "-W", "ignore", "-o", "python_classes=test_*",
         # These wait until a port without a server has been tried often enough.
         "-k", "not test_failed_", "t/integration/test_sqs.py"],
        cwd=suite,
        env=os.environ | {"SQS_HOST": "127.0.0.1", "SQS_PORT": str(mq.port)},
        capture_output=True,
        text=True,
        timeout=170,
    )  # fmt: skip
    lines = done.stdout.splitlines()
    failed = [line.split(" ")[1] for line in lines if line.startswith(("FAILED", "ERROR"))]
    unknown = [each for each in failed if not any(name in each for name in KOMBU_DIFFERS)]
    assert not unknown, done.stdout[-5000:]
    passed = [line for line in lines if line.startswith("PASSED")]
    assert len(passed) >= 35, done.stdout[-5000:] + done.stderr[-5000:]
