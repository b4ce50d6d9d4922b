"""The load tool's figures: they agree with the disk, and a wrong answer is never a message."""

import os
import shlex
import socket
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from harness.access import Tokens
from harness.needs import program
from harness.pages import CURL, check_shown, examples_in, run_examples, script_of, section
from harness.processes import PATIENCE_S, Processes

from deploy.bench.load import BenchError, Latency, Run, load

TOP = Path(__file__).parents[2]
QUEUE = "q"
CONNECTIONS = 7
BODY_BYTES = 123


@pytest.fixture(autouse=True)
def _needs_cc() -> None:
    program("cc")


@pytest.fixture
def messages_url(root: Path, daemons: Processes) -> str:
    """Of an empty queue of a real mq."""
    url = f"{daemons.mq(root).url}/{QUEUE}"
    with urllib.request.urlopen(urllib.request.Request(url, method="PUT")) as answer:
        assert answer.status == 201
    return f"{url}/messages"


def files(folder: Path) -> set[str]:
    return {entry.name.removeprefix(f"{QUEUE}:") for entry in os.scandir(folder)}


def assert_ordered(latency: Latency, count: int) -> None:
    assert latency.count == count
    assert 0 < latency.p50_us <= latency.p99_us <= latency.p999_us <= latency.max_us
    assert latency.p50_us < latency.max_us


def assert_sound(run: Run, count: int) -> None:
    assert (run.messages, run.errors, run.first_error) == (count, 0, None)
    assert_ordered(run.whole, count)
    longest_us = max(each.max_us for each in run.latency.values())
    assert longest_us <= run.seconds * 1e6 + 1
    assert 0 < run.stall_us <= run.seconds * 1e6 + 1


def test_publish_fetch_and_delete_agree_with_the_disk(
    messages_url: str, root: Path, tmp_path: Path
) -> None:
    ids = tmp_path / "ids"
    published = load(
        "publish", messages_url, messages=200, connections=CONNECTIONS, body_bytes=BODY_BYTES,
        ids_out=ids,
    )  # fmt: skip
    assert_sound(published, 200)
    ready = root / "queues" / QUEUE
    assert files(ready) == set(ids.read_text().splitlines())
    assert {(ready / name).read_bytes() for name in files(ready)} == {b"x" * BODY_BYTES}

    some = load(
        "fetch", messages_url, messages=50, connections=CONNECTIONS, body_bytes=BODY_BYTES,
        ids_out=ids,
    )  # fmt: skip
    assert_sound(some, 50)
    assert files(root / "delay") == set(ids.read_text().splitlines())
    rest = load("fetch", messages_url, connections=CONNECTIONS, body_bytes=BODY_BYTES)
    assert_sound(rest, 150)
    assert rest.empty == CONNECTIONS
    assert files(ready) == set()

    deleted = load("delete", messages_url, connections=CONNECTIONS, ids=ids)
    assert_sound(deleted, 50)
    assert files(root / "remove") == set(ids.read_text().splitlines())


def test_a_timed_publish_counts_what_was_under_way_when_the_time_was_over(
    messages_url: str, root: Path
) -> None:
    run = load("publish", messages_url, seconds=0.2, connections=CONNECTIONS)
    assert_sound(run, len(files(root / "queues" / QUEUE)))


def test_a_cycle_leaves_nothing_behind(messages_url: str, root: Path) -> None:
    run = load("cycle", messages_url, seconds=0.2, connections=CONNECTIONS)
    assert_sound(run, len(files(root / "remove")))
    assert files(root / "queues" / QUEUE) == files(root / "delay") == set()
    for kind in ("publish", "fetch", "delete", "cycle"):
        assert_ordered(run.latency[kind], run.messages)


def test_an_error_status_is_no_message(messages_url: str) -> None:
    missing = messages_url.replace(QUEUE, "missing")
    run = load("publish", missing, messages=100, connections=3, errors_allowed=True)
    assert (run.messages, run.errors) == (0, 3)
    assert run.first_error is not None
    assert run.first_error.startswith("publish: HTTP/1.1 404")
    with pytest.raises(BenchError, match="404"):
        load("publish", missing, messages=100)


def test_the_token_of_mq_token_is_sent(
    root: Path, daemons: Processes, tokens: Tokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"{daemons.mq(root, '--tokens', str(tokens.path)).url}/{QUEUE}/messages"
    (root / "queues" / QUEUE).mkdir()
    monkeypatch.setenv("MQ_TOKEN", tokens.of["everybody"])
    assert_sound(load("cycle", url, messages=20, connections=2), 20)
    monkeypatch.setenv("MQ_TOKEN", "x")
    refused = load("publish", url, messages=1, connections=1, errors_allowed=True)
    assert refused.first_error is not None
    assert refused.first_error.startswith("publish: HTTP/1.1 401")


def test_the_page_measures_a_users_machine(
    daemons: Processes, root: Path, tmp_path: Path, curl: str
) -> None:
    examples = examples_in(section("deploy/bench/RESULTS.md", "Benchmarks"))
    script = script_of(examples).replace("http://127.0.0.1:8080", daemons.mq(root).url)
    script = script.replace("/tmp/load", str(tmp_path / "load")).replace("=10 ", "=0.2 ")
    check_shown(examples, run_examples(f"cd {shlex.quote(str(TOP))}\n{CURL}{script}"))
    assert files(root / "queues") == set()


def test_a_body_of_another_length_is_no_message(messages_url: str) -> None:
    load("publish", messages_url, messages=2, connections=1)
    run = load("fetch", messages_url, connections=1, body_bytes=299, errors_allowed=True)
    assert (run.messages, run.errors) == (0, 1)


@contextmanager
def answering(*answers: bytes) -> Iterator[int]:
    """A server for one connection that gives these answers, one to each request; its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                for answer in answers:
                    if answer.startswith(b"INFO") or connection.recv(65536):
                        connection.sendall(answer)
                connection.settimeout(PATIENCE_S)
                while connection.recv(65536):
                    pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        thread.join(PATIENCE_S)


HTTP_GOOD = b"HTTP/1.1 201 Created\r\nX-Message-Id: 1\r\nContent-Length: 2\r\n\r\n{}"
HTTP_FULL = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 2\r\n\r\n{}"
STOMP_HELLO = b"CONNECTED\nversion:1.2\n\n\0"
NATS_HELLO = (b"INFO {}\r\n", b"PONG\r\n")


@pytest.mark.parametrize(
    ("scheme", "answers"),
    [
        ("http", (HTTP_GOOD, HTTP_FULL)),
        ("http", (HTTP_GOOD, b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n")),
        ("http", (HTTP_GOOD, HTTP_GOOD.replace(b"201 Created", b"200 OK"))),
        ("beanstalkd", (b"USING q\r\nWATCHING 2\r\n", b"INSERTED 1\r\n", b"DRAINING\r\n")),
        ("beanstalkd", (b"USING q\r\nWATCHING 2\r\n", b"INSERTED 1\r\n", b"BURIED 2\r\n")),
        ("redis", (b"+OK\r\n", b"$3\r\n1-0\r\n", b"-MISCONF no disk\r\n")),
        (
            "nats",
            (*NATS_HELLO, b'MSG a 1 9\r\n{"seq":1}\r\n', b'MSG a 1 20\r\n{"error":{},"seq":0}\r\n'),
        ),
        ("nats", (*NATS_HELLO, b'MSG a 1 9\r\n{"seq":1}\r\n', b'MSG a 1 10\r\n{"no":true}\r\n')),
        ("nats", (*NATS_HELLO, b'MSG a 1 9\r\n{"seq":1}\r\n', b"-ERR 'no'\r\n")),
        ("stomp", (STOMP_HELLO, b"RECEIPT\nreceipt-id:p\n\n\0", b"ERROR\nmessage:no\n\n\0")),
    ],
)
def test_what_another_protocol_refuses_is_no_message(
    scheme: str, answers: tuple[bytes, ...]
) -> None:
    with answering(*answers) as port:
        url = f"{scheme}://127.0.0.1:{port}/q"
        run = load("publish", url, connections=1, messages=9, errors_allowed=True)
    assert (run.messages, run.errors) == (1, 1)
    assert run.first_error is not None
    assert answers[-1].decode().split("\r\n")[0].split("\0")[0] in run.first_error


def test_no_answer_is_an_error() -> None:
    with answering(HTTP_GOOD) as port:
        url = f"http://127.0.0.1:{port}/q"
        run = load(
            "publish", url, connections=1, messages=2, answer_wait_s=0.3, errors_allowed=True
        )
    assert (run.messages, run.errors, run.first_error) == (1, 1, "publish: no answer")
