"""What send publishes, and what it says of what it did not."""

import os
from pathlib import Path

import pytest
from harness.mqctl import Mqctl
from harness.processes import eventually


def bodies(mqctl: Mqctl, queue: str) -> list[str]:
    return [row["body"] for row in mqctl("peek", queue, "--count", "5000", "--json").rows]


@pytest.mark.certificate
def test_each_argument_is_a_message_and_its_id_is_printed(mqctl: Mqctl, queue: str) -> None:
    sent = mqctl("send", queue, "one", "two")
    assert bodies(mqctl, queue) == ["one", "two"]
    assert [row["id"] for row in mqctl("peek", queue, "--json").rows] == sent.lines
    assert mqctl("read", queue, sent.lines[1]).out == b"two"


def test_stdin_is_one_message_byte_for_byte(mqctl: Mqctl, queue: str) -> None:
    body = bytes(range(256)) * 20_000
    sent = mqctl("send", queue, "--json", stdin=body)
    assert mqctl("read", queue, sent.json["id"]).out == body
    assert mqctl("read", queue, sent.json["id"], "--json").json["size"] == len(body)


def test_an_empty_stdin_is_an_empty_message(mqctl: Mqctl, queue: str) -> None:
    sent = mqctl("send", queue)
    assert mqctl("read", queue, sent.lines[0]).out == b""


def test_files_are_messages_of_their_type(mqctl: Mqctl, queue: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"n": 1}')
    (tmp_path / "b").write_bytes(b"\xff")
    sent = mqctl("send", queue, "-f", "a.json", "b", "-", "--json", cwd=tmp_path, stdin="c")
    assert [row.get("file") for row in sent.rows] == ["a.json", "b", None]
    types = [row["headers"]["content-type"] for row in mqctl("peek", queue, "--json").rows]
    assert types == ["application/json", *2 * ["application/octet-stream"]]


def test_a_file_that_is_not_there_is_told_and_the_others_are_sent(
    mqctl: Mqctl, queue: str, tmp_path: Path
) -> None:
    (tmp_path / "a").write_text("a")
    sent = mqctl("send", queue, "-f", "none", "a", cwd=tmp_path)
    assert sent.code == 5
    assert sent.err == "none: No such file or directory\n"
    assert bodies(mqctl, queue) == ["a"]
    alone = mqctl("send", queue, "-f", "none", cwd=tmp_path)
    assert alone.code == 1
    assert alone.err == "Error: none: No such file or directory\n"


def test_what_is_said_of_a_message_is_kept(mqctl: Mqctl, queue: str) -> None:
    said = ["--priority", "9", "--key", "k 1", "--visibility", "2m", "--content-type", "text/x"]
    sent = mqctl("send", queue, "a", *said, "--header", "ce-type: made", "--delay", "1h")
    (row,) = mqctl("peek", queue, "--state", "delayed", "--json").rows
    assert row["id"] == sent.lines[0]
    assert (row["priority"], row["key"]) == (9, "k 1")
    assert row["headers"] == {"content-type": "text/x", "ce-type": "made"}
    assert mqctl("send", queue, "b", "--key", "k 1").code == 1
    assert mqctl("send", queue, "b", "c", "--key", "k 2").code == 2


def test_with_an_idempotency_key_a_repeat_is_the_same_message(mqctl: Mqctl, queue: str) -> None:
    first = mqctl("send", queue, "a", "--idempotency-key", "run-7")
    assert mqctl("send", queue, "a", "--idempotency-key", "run-7").text == first.text
    assert bodies(mqctl, queue) == ["a"]


def test_what_cannot_be_together_is_wrong_usage(mqctl: Mqctl, queue: str) -> None:
    for wrong in (
        ["a", "--delay", "5", "--at", "2030-01-01T00:00:00Z"],
        ["a", "--lines"],
        ["a", "--pack"],
        ["--lines", "--key", "k"],
        ["--files"],
        ["a", "--at", "2030-01-01T00:00:00"],
        ["a", "--delay", "soon"],
        ["a", "--delay", "nan"],
        ["a", "--visibility", "1.5"],
        ["a", "--header", "no colon"],
        ["a", "--header", "ce-id: 1", "--header", "CE-ID: 2"],
    ):
        assert mqctl("send", queue, *wrong).code == 2, wrong
    assert bodies(mqctl, queue) == []


def test_what_can_be_no_header_is_wrong_usage(mqctl: Mqctl, queue: str) -> None:
    for wrong in (["--content-type", "a\nb"], ["--idempotency-key", "\n"]):
        refused = mqctl("send", queue, "a", *wrong)
        assert refused.code == 2
        assert refused.err.startswith("Error: Cannot send this: ")


def test_a_header_that_messages_do_not_keep_is_wrong_usage(mqctl: Mqctl, queue: str) -> None:
    for argv in (
        ["send", queue, "a"],
        ["send", queue, "--lines"],
        ["send", queue],
        ["schedules", "add", queue, "hourly", "a", "--every", "1h"],
    ):
        refused = mqctl(*argv, "--header", "X-Delay: 60", stdin="a\nb\n")
        assert refused.code == 2, argv
        assert refused.err.startswith("Error: Cannot send this: "), argv
        assert "X-Delay" in refused.err
        assert "Traceback" not in refused.err
    assert bodies(mqctl, queue) == []


def test_an_argument_is_the_bytes_that_were_said(mqctl: Mqctl, queue: str) -> None:
    (sent,) = mqctl("send", queue, os.fsdecode(b"\xff\xfe")).lines
    assert mqctl("read", queue, sent).out == b"\xff\xfe"


@pytest.mark.certificate
def test_each_line_is_a_message_in_order(mqctl: Mqctl, queue: str) -> None:
    lines = [f"line {number}" for number in range(2500)]
    sent = mqctl("send", queue, "--lines", stdin="\n".join(lines))
    assert sent.code == 0
    assert len(set(sent.lines)) == 2500
    assert bodies(mqctl, queue) == lines


def test_lines_may_share_files(mqctl: Mqctl, queue: str) -> None:
    mqctl("settings", queue, "pack_messages_max=100")
    sent = mqctl("send", queue, "--lines", "--pack", stdin="a\nb\nc\n")
    assert len({each[:20] for each in sent.lines}) == 1
    assert [",n=3" in each for each in sent.lines] == [True] * 3
    assert bodies(mqctl, queue) == ["a", "b", "c"]


def test_empty_lines_are_none_and_keep_their_numbers(mqctl: Mqctl, queue: str) -> None:
    sent = mqctl("send", queue, "--lines", "--json", stdin="a\n\n\r\nb\r\n\nc")
    assert [row["line"] for row in sent.rows] == [1, 4, 6]
    assert bodies(mqctl, queue) == ["a", "b", "c"]


def test_a_line_is_sent_before_the_next_one_comes(mqctl: Mqctl, queue: str) -> None:
    begun = mqctl.begin("send", queue, "--lines")
    assert begun.stdin is not None
    assert begun.stdout is not None
    begun.stdin.write(b"first\n")
    assert begun.stdout.readline()
    assert bodies(mqctl, queue) == ["first"]
    begun.stdin.write(b"last, without an end")
    begun.stdin.close()
    assert begun.wait() == 0
    begun.close()
    assert bodies(mqctl, queue) == ["first", "last, without an end"]


def test_a_line_that_mq_refuses_is_told_with_its_number(mqctl: Mqctl, queue: str) -> None:
    mqctl("settings", queue, "body_bytes_max=4")
    sent = mqctl("send", queue, "--lines", stdin="a\nabcdef\nb\n")
    assert sent.code == 5
    assert len(sent.lines) == 2
    assert sent.err.startswith("line 2: ")
    assert "body-too-large" in sent.err
    assert "2 lines sent; 1 refused" in sent.err
    assert bodies(mqctl, queue) == ["a", "b"]


@pytest.mark.certificate
def test_lines_for_a_paused_queue_are_certainly_not_sent(mqctl: Mqctl, queue: str) -> None:
    mqctl("settings", queue, "paused=publishes")
    refused = mqctl("send", queue, "--lines", stdin="a\nb\n")
    assert refused.code == 1
    assert "queue-paused" in refused.err
    assert "may be sent" not in refused.err


def test_an_endless_line_is_an_error_and_those_before_it_are_sent(mqctl: Mqctl, queue: str) -> None:
    sent = mqctl("send", queue, "--lines", "--json", stdin=b"a\n" + b"x" * (9 << 20))
    assert sent.code == 5
    assert "line 2 has more than" in sent.error["message"]
    assert sent.error["sent"] == 1
    assert bodies(mqctl, queue) == ["a"]


def test_what_was_read_before_a_read_error_is_sent_and_told(mqctl: Mqctl, queue: str) -> None:
    # The other end of a terminal that is gone gives an error, not an end.
    ours, theirs = os.openpty()
    os.write(ours, b"a\nb\n")
    begun = mqctl.begin("send", queue, "--lines", stdin=theirs)
    os.close(theirs)
    eventually(lambda: bodies(mqctl, queue) == ["a", "b"], "two messages")
    os.close(ours)
    assert begun.wait() == 5
    assert begun.stderr is not None
    told = begun.stderr.read().decode()
    assert "Input/output error, after line 2" in told
    assert "2 lines sent" in told
    begun.close()


def test_lines_for_a_queue_that_is_not_there_are_refused_as_a_whole(mqctl: Mqctl) -> None:
    sent = mqctl("send", "nowhere-at-all", "--lines", stdin="a\nb\n")
    assert sent.code == 3
    assert "There is no queue nowhere-at-all" in sent.err


def test_rows_say_their_own(mqctl: Mqctl, queue: str) -> None:
    rows = '{"body": "a", "priority": 9}\n{"body": "b", "prioritty": 9}\n\n{"json": {"n": 1}}\n'
    sent = mqctl("send", queue, "--rows", "--json", stdin=rows)
    assert sent.code == 5
    first, refused, last = sent.rows
    assert first["id"].endswith(",p=9.txt")
    assert (refused["line"], refused["problem"]["type"]) == (2, "urn:mq:problem:unknown-field")
    assert (last["line"], last["id"].rpartition(".")[2]) == (4, "json")
    for more in (["--lines"], ["x"], ["--priority", "1"], ["--header", "ce-type: a"]):
        assert mqctl("send", queue, "--rows", *more, stdin=rows).code == 2
