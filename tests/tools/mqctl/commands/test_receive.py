"""What receive prints, keeps, deletes and gives back, whatever ends it."""

import json
import os
import signal
from pathlib import Path

import pytest
from harness.mqctl import Mqctl
from harness.processes import eventually


def counts(mqctl: Mqctl, queue: str) -> tuple[int, int]:
    """Ready, and in flight."""
    said = mqctl("describe", queue, "--json").json
    return said["ready"], said["in_flight"]


def has(mqctl: Mqctl, queue: str, ready: int, in_flight: int) -> None:
    eventually(
        lambda: counts(mqctl, queue) == (ready, in_flight), f"{ready} ready, {in_flight} in flight"
    )


@pytest.mark.certificate
def test_one_message_is_its_bytes_and_comes_back(mqctl: Mqctl, queue: str) -> None:
    mqctl("send", queue, stdin=b"\x00\xff\n\n")
    received = mqctl("receive", queue)
    assert (received.code, received.out) == (0, b"\x00\xff\n\n")
    assert "returns to the queue at" in received.err
    command = received.err.split("delete it: ")[1].split()
    assert mqctl(*command[1:]).code == 0
    has(mqctl, queue, 0, 0)


@pytest.mark.certificate
def test_nothing_to_receive_is_a_code_of_its_own(mqctl: Mqctl, queue: str) -> None:
    assert mqctl("receive", queue).code == 3
    assert mqctl("receive", queue, "--wait", "300ms", "--count", "5").code == 3
    assert mqctl("receive", queue, "--json").error["exit"] == 3


def test_several_end_in_a_line_each_and_are_deleted_with_ack(mqctl: Mqctl, queue: str) -> None:
    mqctl("send", queue, "a", "b\n", "c")
    received = mqctl("receive", queue, "--count", "10", "--ack")
    assert received.out == b"a\nb\n\nc\n"
    assert received.err == ""
    has(mqctl, queue, 0, 0)


@pytest.mark.certificate
def test_more_than_a_page_is_received(mqctl: Mqctl, queue: str) -> None:
    lines = [f"line {number}" for number in range(250)]
    mqctl("send", queue, "--lines", stdin="\n".join(lines))
    assert mqctl("receive", queue, "--count", "230", "--ack").lines == lines[:230]
    has(mqctl, queue, 20, 0)


def test_json_is_a_line_each_with_all_that_a_message_says(mqctl: Mqctl, queue: str) -> None:
    mqctl("send", queue, "a", "--key", "k", "--header", "ce-id: 1")
    mqctl("send", queue, stdin=b"\xff")
    first, second = mqctl("receive", queue, "--count", "2", "--json").rows
    assert (first["body"], first["key"], first["receives"]) == ("a", "k", 1)
    assert first["headers"]["ce-id"] == "1"
    assert second["body_base64"] == "/w=="


def test_a_wait_ends_when_a_message_comes(mqctl: Mqctl, queue: str) -> None:
    begun = mqctl.begin("receive", queue, "--wait", "60", "--ack")
    mqctl("send", queue, "late")
    assert begun.stdout is not None
    assert begun.stdout.read() == b"late"
    assert begun.wait() == 0
    begun.close()


def test_following_goes_on_until_it_is_interrupted(mqctl: Mqctl, queue: str) -> None:
    begun = mqctl.begin("receive", queue, "--follow", "--ack")
    assert begun.stdout is not None
    for word in ("one", "two"):
        mqctl("send", queue, word)
        assert begun.stdout.readline() == word.encode() + b"\n"
    has(mqctl, queue, 0, 0)
    begun.signal(signal.SIGINT)
    assert begun.wait() == 130
    begun.close()


def test_a_termination_ends_it_with_its_own_code(mqctl: Mqctl, queue: str) -> None:
    begun = mqctl.begin("receive", queue, "--follow", "--ack")
    mqctl("send", queue, "one")
    assert begun.stdout is not None
    assert begun.stdout.readline() == b"one\n"
    begun.signal(signal.SIGTERM)
    assert begun.wait() == 143
    begun.close()


def test_following_without_ack_is_wrong_usage(mqctl: Mqctl, queue: str) -> None:
    assert mqctl("receive", queue, "--follow").code == 2
    assert mqctl("receive", queue, "--follow", "--ack", "--wait", "5").code == 2


def test_what_was_not_printed_is_released_when_the_reader_goes(mqctl: Mqctl, queue: str) -> None:
    mqctl("send", queue, "--lines", stdin="\n".join(["x" * 30_000] * 20))
    read, write = os.pipe()
    begun = mqctl.begin("receive", queue, "--count", "20", "--ack", stdout=write)
    os.close(write)
    assert os.read(read, 10)
    os.close(read)
    assert begun.wait() == 141
    assert begun.stderr is not None
    assert begun.stderr.read() == b""
    begun.close()
    ready, in_flight = counts(mqctl, queue)
    eventually(lambda: counts(mqctl, queue)[1] == 0, "nothing in flight")
    # What a pipe holds was handed over.
    assert ready + in_flight <= 19
    assert counts(mqctl, queue)[0] >= 15


def test_what_was_not_printed_is_released_by_an_interrupt(mqctl: Mqctl, queue: str) -> None:
    mqctl("send", queue, "--lines", stdin="\n".join(["x" * 300_000] * 5))
    read, write = os.pipe()
    begun = mqctl.begin("receive", queue, "--count", "5", "--ack", stdout=write)
    os.close(write)
    assert os.read(read, 10)
    # It stands in a write that nobody reads.
    begun.signal(signal.SIGINT)
    assert begun.wait() == 130
    begun.close()
    os.close(read)
    has(mqctl, queue, 5, 0)


def test_an_output_that_is_full_releases_and_says_so(mqctl: Mqctl, queue: str) -> None:
    mqctl("send", queue, "a", "b")
    full = os.open("/dev/full", os.O_WRONLY)
    begun = mqctl.begin("receive", queue, "--count", "2", "--ack", stdout=full)
    os.close(full)
    assert begun.wait() == 1
    assert begun.stderr is not None
    assert b"No space left on device" in begun.stderr.read()
    begun.close()
    has(mqctl, queue, 2, 0)


@pytest.mark.certificate
def test_messages_that_came_too_late_to_be_deleted_are_told(mqctl: Mqctl, queue: str) -> None:
    mqctl("send", queue, "--lines", stdin="\n".join(["x" * 40_000] * 4))
    read, write = os.pipe()
    begun = mqctl.begin(
        *("receive", queue, "--count", "4", "--ack", "--visibility", "1", "--json"), stdout=write
    )
    os.close(write)
    with open(read, encoding="utf-8") as rows:
        first = json.loads(rows.readline())
        # It stands in a write until this reads on; another has received them all by then.
        others: list[str] = []

        def received_by_another() -> bool:
            found = mqctl("receive", queue, "--count", "4", "--visibility", "60", "--json")
            others.extend(row["id"] for row in found.rows)
            return len(set(others)) == 4

        eventually(received_by_another, "all four at another")
        rows.read()
    assert begun.wait() == 5
    assert begun.stderr is not None
    error = json.loads(begun.stderr.read().splitlines()[-1])["error"]
    assert {each["id"] for each in error["not_deleted"]} == set(others)
    assert "delivered-again" in error["not_deleted"][0]["why"]
    assert first["id"] in set(others)
    begun.close()
    has(mqctl, queue, 0, 4)


def test_selected_messages_alone_are_received(mqctl: Mqctl, queue: str) -> None:
    mqctl("send", queue, "low")
    mqctl("send", queue, "high", "--priority", "5")
    assert mqctl("receive", queue, "--select", "priority:..3").out == b"low"


def test_a_folder_takes_messages_by_their_ids(mqctl: Mqctl, queue: str, tmp_path: Path) -> None:
    sent = mqctl("send", queue, "a", "b").lines
    folder = tmp_path / "inbox"
    received = mqctl("receive", queue, "--count", "5", "--ack", "--to", str(folder))
    assert received.lines == [str(folder / each) for each in sent]
    assert [(folder / each).read_text() for each in sent] == ["a", "b"]
    assert sorted(path.name for path in folder.iterdir()) == sent
    has(mqctl, queue, 0, 0)


def test_a_message_that_comes_again_takes_its_own_place(
    mqctl: Mqctl, queue: str, tmp_path: Path
) -> None:
    (sent,) = mqctl("send", queue, "a").lines
    assert mqctl("receive", queue, "--to", str(tmp_path)).code == 0
    mqctl("release", queue, sent)
    (row,) = mqctl("receive", queue, "--to", str(tmp_path), "--ack", "--json").rows
    assert row["file"] == str(tmp_path / sent)
    assert "body" not in row
    assert (tmp_path / sent).read_text() == "a"


def test_a_folder_that_cannot_be_is_said_before_anything_is_fetched(
    mqctl: Mqctl, queue: str, tmp_path: Path
) -> None:
    mqctl("send", queue, "a")
    lost = mqctl("receive", queue, "--ack", "--to", str(tmp_path / "no" / "folder"))
    assert lost.code == 1
    assert "No such file or directory" in lost.err
    has(mqctl, queue, 1, 0)
