"""`mqctl bench` against real daemons: what it measures, whose messages it leaves alone, and that
nothing of it is left.
"""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any
from urllib.request import Request, urlopen

import pytest
from harness.processes import PATIENCE_S, Process, Processes, eventually, processes

from mq.tools.mqctl.cli import run

QUICK = ("--warm-up", "0", "--connections", "4")


def ask(url: str, method: str = "GET", body: bytes | None = None) -> Any:
    with urlopen(Request(url, body, method=method), timeout=PATIENCE_S) as answer:
        text = answer.read()
    return json.loads(text) if text else None


def queues(mq: Process) -> list[str]:
    return [each["name"] for each in ask(f"{mq.url}/-/queues")["queues"]]


@pytest.fixture(scope="module")
def mq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with processes() as started:
        yield started.mq(tmp_path_factory.mktemp("root") / "root")


def bench(mq: Process, capsys: pytest.CaptureFixture[str], *flags: str) -> tuple[int, Any]:
    """The exit code, and what it said as JSON."""
    code = run(["bench", "--url", mq.url, "--json", *QUICK, *flags])
    said = capsys.readouterr()
    return code, json.loads(said.out or said.err)


@pytest.mark.parametrize(
    ("flags", "requests"),
    [((), 50), (("--batch", "20"), 3), (("--idempotent",), 50), (("--warm-up", "0.1"), 50)],
)
def test_as_many_as_were_said_are_published_fetched_and_deleted(
    mq: Process, capsys: pytest.CaptureFixture[str], flags: tuple[str, ...], requests: int
) -> None:
    code, said = bench(mq, capsys, "-n", "50", *flags)
    assert (code, said["whole"]) == (0, True)
    for name in ("publish", "fetch", "delete"):
        found = said["operations"][name]
        assert (found["messages"], found["failed"]) == (50, 0)
        assert 0 < found["latency"]["p50_s"] <= found["latency"]["max_s"]
        assert found["messages_per_s"] > 0
    assert said["operations"]["publish"]["requests"] == requests
    assert said["server"]["durability"]
    assert queues(mq) == []


def test_idempotency_keys_are_sent_where_they_were_asked_for(
    mq: Process, capsys: pytest.CaptureFixture[str]
) -> None:
    """A queue that was there stays, and so do its keys."""
    ask(f"{mq.url}/keyed", "PUT")
    try:
        root = mq.popen.args[mq.popen.args.index("--root") + 1]  # type: ignore[union-attr,operator,index]
        links = subprocess.run(["ls", "-R", f"{root}/idempotency"], capture_output=True).stdout
        assert bench(mq, capsys, "-n", "5", "--queue", "keyed")[0] == 0
        after = subprocess.run(["ls", "-R", f"{root}/idempotency"], capture_output=True).stdout
        assert after == links
        assert bench(mq, capsys, "-n", "5", "--queue", "keyed", "--idempotent")[0] == 0
        keyed = subprocess.run(["ls", "-R", f"{root}/idempotency"], capture_output=True).stdout
        assert len(keyed.split()) >= len(links.split()) + 5
    finally:
        ask(f"{mq.url}/keyed", "DELETE")


def test_a_rate_is_kept_and_the_time_ends_it(
    mq: Process, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = bench(mq, capsys, "--seconds", "0.5", "--rate", "40")
    assert code == 0
    published = said["operations"]["publish"]
    assert published["requests"] + published["unsent"] == 20
    assert queues(mq) == []


def test_the_report_for_people(mq: Process, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "--url", mq.url, "-n", "10", *QUICK]) == 0
    out = capsys.readouterr().out
    for word in ("publish", "fetch", "delete", "messages/s", "p99 ms", "durability"):
        assert word in out


def test_a_queue_that_holds_messages_is_left_alone(
    mq: Process, capsys: pytest.CaptureFixture[str]
) -> None:
    ask(f"{mq.url}/mine", "PUT")
    theirs = [ask(f"{mq.url}/mine/messages", "POST", b"a pizza")["id"] for _ in range(3)]
    try:
        code, said = bench(mq, capsys, "-n", "5", "--queue", "mine")
        assert (code, said["error"]["messages"]) == (1, 3)
        code, said = bench(mq, capsys, "-n", "20", "--queue", "mine", "--among-others")
        assert (code, said["operations"]["fetch"]["messages"]) == (0, 20)
        with urlopen(f"{mq.url}/mine/peek?state=ready,delayed", timeout=PATIENCE_S) as answer:
            left = [json.loads(line) for line in answer]
        assert [each["id"] for each in left] == theirs
        assert all(each["receives"] == 0 for each in left)
    finally:
        ask(f"{mq.url}/mine", "DELETE")


def test_a_queue_that_was_there_stays_and_one_that_was_not_goes(
    mq: Process, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench(mq, capsys, "-n", "5", "--queue", "new")[0] == 0
    assert queues(mq) == []
    ask(f"{mq.url}/old", "PUT")
    assert bench(mq, capsys, "-n", "5", "--queue", "old")[0] == 0
    assert queues(mq) == ["old"]
    assert ask(f"{mq.url}/old")["ready"] == 0
    ask(f"{mq.url}/old", "DELETE")


class Running:
    """A bench as a process, until it publishes."""

    def __init__(self, url: str, *flags: str) -> None:
        command = [
            sys.executable,
            "-m",
            "mq.tools.mqctl",
            "bench",
            "--url",
            url,
            "--json",
            *QUICK,
            *flags,
        ]
        self.popen = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def ends(self) -> tuple[int, Any]:
        out, err = self.popen.communicate(timeout=PATIENCE_S)
        assert out, err
        return self.popen.returncode, json.loads(out)


def holds_messages(mq: Process) -> bool:
    return any(ask(f"{mq.url}/{name}")["totals"]["published"] for name in queues(mq))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_what_is_stopped_cleans_up(mq: Process, number: signal.Signals) -> None:
    running = Running(mq.url, "--seconds", "600")
    eventually(lambda: holds_messages(mq), "a message of the bench")
    running.popen.send_signal(number)
    running.popen.send_signal(number)
    code, said = running.ends()
    assert (code, said["stopped_by"], said["queue_left"]) == (128 + number, number.name, None)
    assert said["operations"]["publish"]["messages"] > 0
    assert queues(mq) == []


def test_what_is_stopped_in_a_queue_of_others_takes_its_own_away(mq: Process) -> None:
    ask(f"{mq.url}/mine", "PUT")
    theirs = ask(f"{mq.url}/mine/messages", "POST", b"a pizza")["id"]
    try:
        running = Running(mq.url, "--seconds", "600", "--queue", "mine", "--among-others")
        eventually(
            lambda: ask(f"{mq.url}/mine")["totals"]["published"] > 20, "the bench's messages"
        )
        running.popen.send_signal(signal.SIGTERM)
        assert running.ends()[0] == 128 + signal.SIGTERM
        with urlopen(f"{mq.url}/mine/peek?state=ready,delayed", timeout=PATIENCE_S) as answer:
            assert [json.loads(line)["id"] for line in answer] == [theirs]
    finally:
        ask(f"{mq.url}/mine", "DELETE")


def test_somebody_else_who_publishes_keeps_his_message_and_the_queue(mq: Process) -> None:
    running = Running(mq.url, "--seconds", "1", "--queue", "shared")
    eventually(lambda: "shared" in queues(mq), "the bench's queue")
    ask(f"{mq.url}/shared/messages", "POST", b"not the bench's")
    try:
        code, said = running.ends()
        assert (code, said["queue_left"], said["whole"]) == (5, "shared", False)
        with urlopen(f"{mq.url}/shared/peek?state=ready,delayed", timeout=PATIENCE_S) as answer:
            assert [json.loads(line)["body"] for line in answer] == ["not the bench's"]
        assert ask(f"{mq.url}/shared/settings")["expires_at"] is None
    finally:
        ask(f"{mq.url}/shared", "DELETE")


def test_what_cannot_be_cleaned_up_is_told(daemons: Processes, root: Any) -> None:
    mq = daemons.mq(root)
    running = Running(mq.url, "--seconds", "600", "--timeout", "1")
    eventually(lambda: holds_messages(mq), "a message of the bench")
    name = queues(mq)[0]
    mq.kill()
    code, said = running.ends()
    assert (code, said["queue_left"]) == (5, name)
    assert said["gave_up"]
    assert said["operations"]["publish"]["errors"]
    # Killed without a word it would not stay either.
    again = daemons.mq(root)
    assert ask(f"{again.url}/{name}/settings")["expires_at"]


def test_what_cannot_be_is_told(mq: Process, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "--url", "http://127.0.0.1:1", *QUICK]) == 4
    assert "cannot be reached" in capsys.readouterr().err
    assert run(["bench", "--url", mq.url, "-n", "1", "--seconds", "1"]) == 2
    assert run(["bench", "--url", mq.url, "--batch", "2", "--idempotent"]) == 2
    assert run(["bench", "--url", mq.url, "--queue", "no name"]) == 2
    assert queues(mq) == []
