"""Messages by their ids and keys: looked at, and settled."""

import signal
import sys

import pytest
from harness.mqctl import Mqctl
from harness.processes import Process, eventually
from harness.terminals import screen


def states(mqctl: Mqctl, queue: str) -> list[str]:
    rows = mqctl("peek", queue, "--state", "ready,delayed,leased", "--json").rows
    return [row["state"] for row in rows]


def test_a_peek_shows_messages_and_consumes_nothing(mqctl: Mqctl, queue: str) -> None:
    sent = mqctl("send", queue, "one\ttwo\x1b[31m", "x" * 100).lines
    for _ in range(2):
        rows = [line.split("\t") for line in mqctl("peek", queue).lines]
        assert [row[0] for row in rows] == sent
        # No message commands a terminal, or the columns.
        assert rows[0][-1] == "one\\ttwo\\x1b[31m"
        assert rows[1][-2:] == ["100", "x" * 60 + "…"]
    assert mqctl("peek", queue, "--after", sent[0], "--json").rows[0]["id"] == sent[1]


def test_a_peek_goes_over_pages_and_states(mqctl: Mqctl, queue: str) -> None:
    mqctl("send", queue, "--lines", stdin="\n".join("x" * 1100))
    mqctl("send", queue, "late", "--delay", "1h")
    assert len(mqctl("peek", queue, "--count", "5000").lines) == 1100
    rows = mqctl("peek", queue, "--count", "1101", "--state", "delayed,ready", "--json").rows
    assert [row["state"] for row in rows] == ["delayed"] + ["ready"] * 1100
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


def test_a_history_says_what_became_of_a_message(mqctl: Mqctl, queue: str) -> None:
    mqctl("settings", queue, "history=true")
    (sent,) = mqctl("send", queue, "a").lines
    mqctl("ack", queue, sent)

    def events() -> list[str]:
        return [each["event"] for each in mqctl("history", queue, sent, "--json").json["events"]]

    eventually(lambda: events() == ["published", "removed"], "two events")
    assert [line.split("\t")[1] for line in mqctl("history", queue, sent).lines] == events()


def test_a_history_of_a_sideline_says_where_the_life_before_is(mqctl: Mqctl, queue: str) -> None:
    mqctl("settings", queue, "history=true")
    (sent,) = mqctl("send", queue, "a").lines
    mqctl("sideline", queue, sent)
    eventually(lambda: "sidelined" in mqctl("history", queue, sent).text, "the last event")
    told = mqctl("history", f"{queue}_SIDELINE", sent).err
    assert told == f"What came before is in the history of {queue}: mqctl history {queue} {sent}\n"


def test_a_history_of_a_sideline_says_which_queue_records_nothing(mqctl: Mqctl, queue: str) -> None:
    first, second = mqctl("send", queue, "a", "b").lines
    mqctl("sideline", queue, first, second)
    sideline = f"{queue}_SIDELINE"
    advice = f"Nothing is recorded now: mqctl settings {queue} history=true\n"
    assert mqctl("history", sideline, first).err == advice
    assert mqctl("settings", queue, "history=true").code == 0
    assert mqctl("history", sideline, first).err == f"{queue} has no history of the message.\n"
    assert mqctl("delete", queue, "--yes").code == 0
    assert mqctl("history", sideline, second).err == f"{queue} has no history of the message.\n"


def test_a_sideline_that_is_not_there_is_not_to_be_created(mqctl: Mqctl, queue: str) -> None:
    told = mqctl("peek", f"{queue}_SIDELINE").err
    assert told.endswith("mq creates it when it sidelines the first message.\n")


def test_a_narrow_terminal_shows_what_columns_an_empty_table_has(
    both: tuple[Mqctl, Process], queue: str
) -> None:
    _, mq = both
    command = (sys.executable, "-m", "mq.tools.mqctl", "schedules", "list", queue, "--url", mq.url)
    with screen(*command, columns=40) as terminal:
        assert terminal.ends() == 0
        terminal.shows("schedule")


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
    assert added.text.startswith("stock is next at ")
    cron = ("--cron", "30 2 * * MON-FRI", "--tz", "Europe/Berlin", "--overlap", "skip")
    assert mqctl("schedules", "add", queue, "nightly", *cron, stdin="night run").code == 0
    rows = [line.split("\t") for line in mqctl("schedules", "list", queue).lines]
    assert [row[:2] for row in rows] == [
        ["nightly", "30 2 * * MON-FRI Europe/Berlin"],
        ["stock", "every 3600 s"],
    ]
    shown = mqctl("schedules", "show", queue, "nightly", "--json").json
    assert (shown["body"], shown["overlap"]) == ("night run", "skip")
    assert mqctl("schedules", "remove", queue, "stock").code == 0
    assert mqctl("schedules", "remove", queue, "stock").code == 3
    assert mqctl("schedules", "add", queue, "x", "y").code == 2
    assert mqctl("schedules", "add", queue, "x", "y", "--cron", "never").code == 1


def test_a_schedule_publishes(mqctl: Mqctl, queue: str) -> None:
    mqctl("schedules", "add", queue, "now", "a", "--every", "1h", "--delay", "0")
    received = mqctl("receive", queue, "--wait", "30", "--ack")
    assert received.out == b"a"
