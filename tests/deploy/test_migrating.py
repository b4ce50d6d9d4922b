"""The page of migrations: its programs, before and after, and its commands, each against what it is
of; and mq has what the tables say.
"""

import os
import re
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from pathlib import Path

import boto3
import greenstalk
import pika
import pytest
from harness import sources
from harness.pages import sections_of
from harness.processes import Process, Processes

from mq import Client
from mq.http.openapi.document import document
from mq.model.settings import QueueSettings

TOP = Path(__file__).parents[2]
SECTION = sections_of((TOP / "deploy" / "MIGRATE.md").read_text(encoding="utf-8"))
BLOCK = re.compile(r"```(python|sh|)\n(.*?)```", re.DOTALL)
REQUEST = re.compile(r"`(GET|HEAD|PUT|POST|PATCH|DELETE) (/[^`?\s]*|\.\.\.\S*?)(?:\?([^`]*))?`")
WORD = re.compile(r"`([a-z]+_[a-z_]+)`")
MQ = "http://localhost:8080"
AMAZON = "https://sqs.eu-central-1.amazonaws.com"
BODIES = ("first", "second", "third")


def send_to_sqs(address: str) -> None:
    with closing(boto3.client("sqs")) as client:
        url = client.get_queue_url(QueueName="orders")["QueueUrl"]
        assert url == f"{address}/123456789012/orders"
        for body in BODIES:
            client.send_message(QueueUrl=url, MessageBody=body)


def send_to_rabbitmq(address: str) -> None:
    with closing(pika.BlockingConnection(pika.URLParameters(address))) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for body in BODIES:
            channel.basic_publish("", "orders", body.encode())


def send_to_beanstalkd(address: str) -> None:
    host, _, port = address.rpartition(":")
    with greenstalk.Client((host, int(port)), use="orders") as client:
        for body in BODIES:
            client.put(body)


Way = tuple[Callable[[Path], AbstractContextManager[str]], Callable[[str], None], dict[str, str]]
WAYS: dict[str, Way] = {
    "SQS": (sources.sqs, send_to_sqs, {AMAZON: "{address}"}),
    "RabbitMQ": (sources.rabbitmq, send_to_rabbitmq, {"amqp://localhost": "{address}"}),
    "beanstalkd": (
        sources.beanstalkd,
        send_to_beanstalkd,
        {"localhost:11300": "{address}", '("localhost", 11300)': '("{host}", {port})'},
    ),
}


@pytest.fixture
def mq(daemons: Processes, root: Path) -> Process:
    return daemons.mq(root, "--standalone")


def blocks(section: str) -> Iterator[tuple[str, str]]:
    return ((kind, content) for kind, content in BLOCK.findall(section))


def run(*command: str) -> str:
    done = subprocess.run(command, cwd=TOP, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return done.stdout


def run_in_shell(script: str) -> str:
    python = f'python() {{ {sys.executable} "$@"; }}'
    return run("bash", "-euo", "pipefail", "-c", f"{python}\n{script}")


@pytest.mark.parametrize("name", WAYS)
def test_before_and_after_do_the_same_and_what_is_left_is_moved(
    name: str, mq: Process, tmp_path: Path
) -> None:
    serve, send, places = WAYS[name]
    folder = tmp_path / "source"
    folder.mkdir()
    with serve(folder) as address:
        section = SECTION[name].replace(MQ, mq.url)
        host, _, port = address.rpartition(":")
        for said, place in places.items():
            assert said in section
            section = section.replace(said, place.format(address=address, host=host, port=port))
        found = list(blocks(section))
        kinds = [kind for kind, _ in found]
        assert kinds == ["python", "python", "", "sh", ""]
        (_, old), (_, new), (_, shown), (_, command), (_, told) = found
        for program in (old, new):
            assert run(sys.executable, "-c", program) == shown
        send(address)
        assert run_in_shell(command) == told
    with Client(mq.url) as client:
        orders = client.queue("orders")
        assert [each.text() for each in orders.browse(["ready"])] == list(BODIES)
        assert orders.settings()["idempotency_s"] == 604_800
        ((_, restore),) = blocks(SECTION["How to move"])
        assert '"idempotency_s":300.0' in run_in_shell(
            restore.replace(MQ.removeprefix("http://"), mq.url).replace("curl ", "curl -sS ")
        ).replace(" ", "")


def test_messages_of_the_original_s_folders_are_published(mq: Process, tmp_path: Path) -> None:
    folder = tmp_path / "queues" / "orders"
    folder.mkdir(parents=True)
    for number, body in enumerate(BODIES):
        path = folder / str(uuid.uuid1())
        path.write_text(body)
        os.utime(path, (number, number))
    ((_, commands),) = blocks(SECTION["SoftLayer's mq"])
    with Client(mq.url) as client:
        orders = client.queue("orders")
        orders.create()
        run_in_shell(f"old={tmp_path} mq={mq.url}\n{commands}")
        assert [each.text() for each in orders.browse(["ready"])] == list(BODIES)
    assert not list(folder.iterdir())


TABLES = [
    name
    for name, text in SECTION.items()
    if text.lstrip("\n").count("\n| ") > 5 and name != "Keep an SQS client"
]


def test_each_source_has_a_table() -> None:
    assert set(TABLES) == {
        *WAYS, "Celery", "SoftLayer's mq", "Astyanax's message queue", "IgnisMQ",
        "Qpid Broker-J", "ActiveMQ",
    }  # fmt: skip


@pytest.mark.parametrize("name", TABLES)
def test_mq_has_what_the_table_says(name: str) -> None:
    rows = [line.split(" | ") for line in SECTION[name].splitlines() if line.startswith("| ")]
    assert len(rows) >= (16 if name in WAYS else 10)
    paths = document()["paths"]
    fields = set(QueueSettings.__dataclass_fields__)
    for row in rows[1:]:
        assert len(row) == 3, row
        for method, path, query in REQUEST.findall(row[1]):
            full = path.replace("...", "/{queue}/messages").replace("_SIDELINE", "")
            assert full in paths, row
            operation = paths[full].get(method.lower()) or paths[full]["get"]
            names = {each["name"] for each in operation.get("parameters", ()) if "name" in each}
            assert {each.partition("=")[0] for each in query.split("&") if each} <= names, row
        assert set(WORD.findall(row[1])) <= fields | {
            "publish_many",
            "due_in_s",
            "on_error",
            "on_false",
            "follow_setting",
        }, row
