"""Messages by their ids and keys: looked at, and settled."""

import json
import signal
import sys

import pytest
from harness.mqctl import Mqctl
from harness.processes import Process, eventually
from harness.terminals import screen


def states(mqctl: Mqctl, queue: str) -> list[str]:
    rows = mqctl("peek", queue, "--state", "ready,delayed,leased", "--json").rows
    return [row["state"] for row in rows]


@pytest.mark.certificate
def test_a_peek_shows_messages_and_consumes_nothing(mqctl: Mqctl, queue: str) -> None:
    sent = mqctl("send", queue, "one\ttwo\x1b[31m", "x" * 100).lines
    for _ in range(2):
        rows = [line.split("\t") for line in mqctl("peek", queue).lines]
        assert [row[0] for row in rows] == sent
        # No message commands a terminal, or the columns.
        assert rows[0][-1] == "one\\ttwo\\x1b[31m"
        assert rows[1][-2:] == ["100", "x" * 60 + "…"]
    assert mqctl("peek", queue, "--after", sent[0], "--json").rows[0]["id"] == sent[1]


def test_a_group_waits_for_the_message_that_is_listed(mqctl: Mqctl, queue: str) -> None:
    first, second = mqctl("send", queue, "--group", "a-b", "1", "2").lines
    assert mqctl("groups", queue).lines == []
    mqctl("receive", queue)
    [row] = mqctl("groups", queue, "--json").json["groups"]
    assert (row["group"], row["id"], row["state"], row["receives"]) == ("a-b", first, "delayed", 1)
    assert mqctl("groups", queue).lines[0].split("\t")[:2] == ["a-b", first]
    mqctl("sideline", queue, first)
    assert mqctl("groups", queue).lines == []
    mqctl("receive", queue)
    assert mqctl("groups", queue).lines[0].split("\t")[1] == second


@pytest.mark.certificate
def test_a_peek_goes_over_pages_and_states(mqctl: Mqctl, queue: str) -> None:
    mqctl("send", queue, "--lines", stdin="\n".join("x" * 1100))
    mqctl("send", queue, "late", "--delay", "1h")
    assert len(mqctl("peek", queue, "--count", "5000").lines) == 1100
    rows = mqctl("peek", queue, "--count", "1101", "--state", "delayed,ready", "--json").rows
    assert [row["state"] for row in rows] == ["delayed"] + ["ready"] * 1100
    (urgent,) = mqctl("send", queue, "now", "--priority", "7", "--tag", "eu").lines
    chosen = ("peek", queue, "--select", "priority:5..", "--state", "delayed,ready")
    assert [line.split("\t")[0] for line in mqctl(*chosen).lines] == [urgent]
    assert [line.split("\t")[0] for line in mqctl("peek", queue, "--tag", "eu").lines] == [urgent]
    assert mqctl("peek", queue, "--state", "lost").code == 2
    assert mqctl("peek", queue, "--state", "ready,delayed", "--after", "x").code == 2


def test_a_read_shows_bytes_or_facts(mqctl: Mqctl, queue: str) -> None:
    (sent,) = mqctl("send", queue, "a", "--priority", "3").lines
    assert mqctl("read", queue, sent).out == b"a"
    facts = dict(line.split("\t") for line in mqctl("read", queue, sent, "--facts").lines)
    assert facts["priority"] == "3"
    assert facts["header content-type"] == "text/plain"
    assert mqctl("read", queue, sent, "--json").json["body"] == "a"
    missing = mqctl("read", queue, sent.replace(",p=3", ""))
    assert missing.code == 3
    assert "message-not-found" in missing.err


def test_a_key_finds_its_message(mqctl: Mqctl, queue: str) -> None:
    mqctl("send", queue, "a", "--key", "night/run 7")
    assert mqctl("keys", "read", queue, "night/run 7").out == b"a"
    assert mqctl("keys", "delete", queue, "night/run 7", "--receives", "5").code == 1
    assert mqctl("keys", "delete", queue, "night/run 7").code == 0
    assert mqctl("keys", "read", queue, "night/run 7").code == 3


def test_a_tag_finds_its_messages(mqctl: Mqctl, queue: str) -> None:
    sent = mqctl("send", queue, "a", "b", "c", "--tag", "night/run", "--tag", "x").lines
    assert mqctl("tags", "list", queue, "night/run").lines == [f"{each}\tready" for each in sent]
    rest = mqctl("tags", "list", queue, "x", "--count", "1", "--after", sent[0], "--json").json
    assert rest == {"messages": [{"id": sent[1], "state": "ready"}], "after": sent[1]}
    facts = mqctl("read", queue, sent[0], "--facts").lines
    assert "tag\tnight/run" in facts
    assert mqctl("ack", queue, sent[0]).code == 0
    assert mqctl("tags", "sideline", queue, "x", "--reason", "exception").lines == ["sidelined 2"]
    aside = f"{queue}_SIDELINE"
    assert mqctl("tags", "delete", aside, "x", "--json").json == {"tag": "x", "deleted": 2}
    assert mqctl("tags", "list", aside, "x").lines == []
    assert mqctl("tags", "list", queue, "y" * 65).code != 0


def test_a_history_says_what_became_of_a_message(mqctl: Mqctl, queue: str) -> None:
    mqctl("settings", queue, "history=true")
    (sent,) = mqctl("send", queue, "a").lines
    mqctl("ack", queue, sent)

    def events() -> list[str]:
        return [each["event"] for each in mqctl("history", queue, sent, "--json").json["events"]]

    eventually(lambda: events() == ["published", "removed"], "two events")
    assert [line.split("\t")[1] for line in mqctl("history", queue, sent).lines] == events()


def test_a_tag_has_a_history(mqctl: Mqctl, queue: str) -> None:
    (sent,) = mqctl("send", queue, "a", "--tag", "x").lines
    shown = mqctl("tags", "history", queue, "x")
    assert (shown.lines, "records no history" in shown.err) == ([], True)
    mqctl("settings", queue, "history=true")
    (sent,) = mqctl("send", queue, "b", "--tag", "x").lines
    mqctl("ack", queue, sent)

    def events() -> list[tuple[str, str]]:
        rows = (line.split("\t") for line in mqctl("tags", "history", queue, "x").lines)
        return [(row[1], row[2]) for row in rows]

    eventually(lambda: events() == [("published", sent), ("removed", sent)], "two events")
    found = mqctl("tags", "history", queue, "x", "--json").json
    assert (found["tag"], len(found["events"])) == ("x", 2)


def test_failures_say_why(mqctl: Mqctl, queue: str) -> None:
    (sent,) = mqctl("send", queue, "a").lines
    assert mqctl("release", queue, sent, "--reason", "not\nnow").code == 0
    assert mqctl("sideline", queue, sent, "--reason", "never").code == 0
    sideline = f"{queue}_SIDELINE"
    found = mqctl("failures", sideline, sent, "--json").json["failures"]
    said = [(each["event"], each["text"]) for each in found]
    assert said == [("released", "not\nnow"), ("sidelined", "never")]
    assert "never" in mqctl("failures", sideline, sent).text
    elsewhere = mqctl("failures", queue, sent)
    assert (elsewhere.code, elsewhere.out) == (3, b"")
    assert "QUEUE_SIDELINE" in elsewhere.err
    assert "never" in mqctl("read", sideline, sent, "--facts").text
    [row] = [json.loads(line) for line in mqctl("receive", sideline, "--json").lines]
    assert row["reason"] == "never"


@pytest.mark.certificate
def test_a_history_of_a_sideline_says_where_the_life_before_is(mqctl: Mqctl, queue: str) -> None:
    mqctl("settings", queue, "history=true")
    (sent,) = mqctl("send", queue, "a").lines
    mqctl("sideline", queue, sent)
    eventually(lambda: "sidelined" in mqctl("history", queue, sent).text, "the last event")
    told = mqctl("history", f"{queue}_SIDELINE", sent).err
    assert (
        told == f"The earlier events are in the history of {queue}: mqctl history {queue} {sent}\n"
    )


def test_a_history_of_a_sideline_says_which_queue_records_nothing(mqctl: Mqctl, queue: str) -> None:
    first, second = mqctl("send", queue, "a", "b").lines
    mqctl("sideline", queue, first, second)
    sideline = f"{queue}_SIDELINE"
    advice = f"The queue records no history. Turn it on: mqctl settings {queue} history=true\n"
    assert mqctl("history", sideline, first).err == advice
    assert mqctl("settings", queue, "history=true").code == 0
    assert (
        mqctl("history", sideline, first).err
        == f"The history of {queue} has no events of the message.\n"
    )
    assert mqctl("delete", queue, "--yes").code == 0
    assert (
        mqctl("history", sideline, second).err
        == f"The history of {queue} has no events of the message.\n"
    )


def test_a_sideline_that_is_not_there_is_not_to_be_created(mqctl: Mqctl, queue: str) -> None:
    told = mqctl("peek", f"{queue}_SIDELINE").err
    assert told.endswith("mq creates it when it sidelines the first message.\n")


@pytest.mark.certificate
def test_a_narrow_terminal_shows_what_columns_an_empty_table_has(
    both: tuple[Mqctl, Process], queue: str
) -> None:
    _, mq = both
    command = (sys.executable, "-m", "mq.tools.mqctl", "schedules", "list", queue, "--url", mq.url)
    with screen(*command, columns=40) as terminal:
        assert terminal.ends() == 0
        terminal.shows("schedule")


@pytest.mark.certificate
@pytest.mark.parametrize("columns", [30, 80])
def test_a_terminal_shows_ids_whole_whatever_its_width(
    both: tuple[Mqctl, Process], queue: str, columns: int
) -> None:
    mqctl, mq = both
    sent = mqctl("send", queue, "x" * 100, "--priority", "3", "--key", "night/run 7").lines
    sent += mqctl("send", queue, "short").lines
    mqctl("schedules", "add", queue, "take-stock-of-all-that-is-there", "a", "--every", "1h")
    for argv, whole in (
        (("peek", queue), sent),
        (("read", queue, sent[0], "--facts"), sent[:1]),
        (("queues",), [queue]),
        (("schedules", "list", queue), ["take-stock-of-all-that-is-there"]),
    ):
        command = (sys.executable, "-m", "mq.tools.mqctl", *argv, "--url", mq.url)
        with screen(*command, columns=columns) as terminal:
            assert terminal.ends() == 0
            for each in whole:
                terminal.shows(each)


def test_acks_of_many_say_what_became_of_each(mqctl: Mqctl, queue: str) -> None:
    first, second = mqctl("send", queue, "a", "b").lines
    missing = first[:-8] + "0000.txt"
    done = mqctl("ack", queue, first, missing)
    assert done.code == 5
    assert done.lines == [f"deleted {first}"]
    assert missing in done.err
    assert mqctl("ack", queue, missing).code == 3
    row, other = mqctl("ack", queue, second, missing, "--json").rows
    assert row == {"id": second, "done": True}
    assert other["problem"]["type"] == "urn:mq:problem:message-not-found"


@pytest.mark.certificate
def test_ids_are_read_from_stdin_in_batches(mqctl: Mqctl, queue: str) -> None:
    sent = mqctl("send", queue, "--lines", stdin="\n".join("x" * 1200))
    done = mqctl("ack", queue, "-", stdin=sent.text)
    assert done.code == 0
    assert len(done.lines) == 1200
    assert states(mqctl, queue) == []


def test_ids_are_settled_as_they_come_until_an_interrupt(mqctl: Mqctl, queue: str) -> None:
    (sent,) = mqctl("send", queue, "a").lines
    begun = mqctl.begin("ack", queue, "-")
    assert begun.stdin is not None
    assert begun.stdout is not None
    begun.stdin.write(f"{sent}\n".encode())
    assert begun.stdout.readline() == f"deleted {sent}\n".encode()
    begun.signal(signal.SIGINT)
    assert begun.wait() == 130
    begun.close()


def test_a_message_is_kept_longer_and_given_back(mqctl: Mqctl, queue: str) -> None:
    (sent,) = mqctl("send", queue, "a").lines
    assert mqctl("receive", queue).code == 0
    (row,) = mqctl("extend", queue, sent, "--for", "10m", "--receives", "1", "--json").rows
    assert row["receives"] == 1
    assert states(mqctl, queue) == ["delayed"]
    assert mqctl("release", queue, sent, "--receives", "7").code == 1
    assert mqctl("release", queue, sent).text == f"released {sent}\n"
    assert states(mqctl, queue) == ["ready"]
    assert mqctl("release", queue, sent, "--delay", "1h").code == 0
    assert states(mqctl, queue) == ["delayed"]
    assert mqctl("release", queue, sent, sent, "--receives", "1").code == 2


@pytest.mark.certificate
def test_a_message_is_sidelined_and_shovelled_back(mqctl: Mqctl, queue: str) -> None:
    sent = mqctl("send", queue, "a", "b").lines
    assert mqctl("sideline", queue, *sent, "--reason", "exception").code == 0
    assert states(mqctl, queue) == []
    (first, _) = mqctl("peek", f"{queue}_SIDELINE", "--json").rows
    assert first["sidelined"] == "exception"
    dry = mqctl("shovel", "start", queue, "--dry-run", "--wait", "--json").json
    assert (dry["moved"], dry["dry_run"]) == (2, True)
    assert mqctl("shovel", "start", queue, "--limit", "1", "--wait", "--json").json["moved"] == 1
    started = mqctl("shovel", "start", queue)
    assert started.code == 0
    shown = mqctl("shovel", "show", queue, "--follow", "--json").json
    assert (shown["id"], shown["state"]) == (started.lines[0], "done")
    assert states(mqctl, queue) == ["ready", "ready"]
    assert mqctl("shovel", "stop", queue, "--json").json["state"] == "done"


def test_a_shovel_that_never_ran_is_not_there(mqctl: Mqctl, queue: str) -> None:
    assert mqctl("shovel", "show", queue).code == 3
    refused = mqctl("shovel", "start", queue, "--priority", "high")
    assert refused.code == 1
    assert "bad-priority" in refused.err


def test_schedules_are_added_shown_and_removed(mqctl: Mqctl, queue: str) -> None:
    added = mqctl("schedules", "add", queue, "stock", "take stock", "--every", "1h", "--times", "3")
    assert added.text.startswith("scheduled stock: next at ")
    cron = ("--cron", "30 2 * * MON-FRI", "--tz", "Europe/Berlin", "--overlap", "skip")
    more = ("--tag", "a", "--tag", "b", "--group", "g", "--ttl", "1h")
    assert mqctl("schedules", "add", queue, "nightly", *cron, *more, stdin="night run").code == 0
    rows = [line.split("\t") for line in mqctl("schedules", "list", queue).lines]
    assert [row[:2] for row in rows] == [
        ["nightly", "30 2 * * MON-FRI Europe/Berlin"],
        ["stock", "every 3600 s"],
    ]
    shown = mqctl("schedules", "show", queue, "nightly", "--json").json
    assert (shown["body"], shown["overlap"]) == ("night run", "skip")
    assert (shown["ttl_s"], shown["group"], shown["tags"]) == (3600, "g", ["a", "b"])
    assert mqctl("schedules", "remove", queue, "stock").code == 0
    assert mqctl("schedules", "remove", queue, "stock").code == 3
    assert mqctl("schedules", "add", queue, "x", "y").code == 2
    assert mqctl("schedules", "add", queue, "x", "y", "--cron", "never").code == 1


@pytest.mark.certificate
def test_a_schedule_publishes(mqctl: Mqctl, queue: str) -> None:
    mqctl("schedules", "add", queue, "now", "a", "--every", "1h", "--delay", "0")
    received = mqctl("receive", queue, "--wait", "30", "--ack")
    assert received.out == b"a"


def test_tail_shows_messages_until_it_is_interrupted(mqctl: Mqctl, queue: str) -> None:
    mqctl("send", queue, "older", "old")
    begun = mqctl.begin("tail", queue, "-n", "1", "--json")
    assert begun.stdout is not None
    assert json.loads(begun.stdout.readline())["body"] == "old"
    mqctl("send", queue, "new")
    row = json.loads(begun.stdout.readline())
    assert (row["body"], row["state"], row["dropped"]) == ("new", "ready", 0)
    begun.signal(signal.SIGINT)
    assert begun.wait() == 130
    begun.close()
    assert mqctl("describe", queue, "--json").json["ready"] == 3
    assert mqctl("tail", "none").code == 3
