"""`mqctl top` on real terminals, in pipes, and against daemons that come and go."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from harness.processes import PATIENCE_S, Process, Processes, eventually, processes
from harness.terminals import ENTERS, LEAVES, SHOWS_CURSOR, Screen, screen

from mq.tools.mqctl.cli import run

QUEUES = ("events", "orders", "parts")
CTRL_C, CTRL_Z = "\x03", "\x1a"


def ask(url: str, method: str, body: bytes | None = None) -> None:
    with urlopen(Request(url, body, method=method), timeout=PATIENCE_S) as answer:
        answer.read()


@pytest.fixture(scope="module")
def mq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with processes() as started:
        mq = started.mq(tmp_path_factory.mktemp("root") / "root")
        for name in QUEUES:
            ask(f"{mq.url}/{name}", "PUT")
        ask(f"{mq.url}/orders_SIDELINE", "PUT")
        for _ in range(3):
            ask(f"{mq.url}/orders/messages", "POST", b"a pizza")
        yield mq


def top(mq: Process, *flags: str) -> Sequence[str]:
    return (
        sys.executable,
        "-m",
        "mq.tools.mqctl",
        "top",
        "--url",
        mq.url,
        "--interval",
        "0.2",
        *flags,
    )


def is_as_before(terminal: Screen) -> bool:
    """Its modes, its main screen and its cursor."""
    drawn = terminal.drawn
    return (
        terminal.modes == terminal.before
        and drawn.rfind(LEAVES) > drawn.rfind(ENTERS) >= 0
        and drawn.rfind(SHOWS_CURSOR) > drawn.rfind("\x1b[?25l")
    )


@pytest.mark.certificate
def test_it_shows_the_queues_does_what_keys_say_and_leaves_no_trace(mq: Process) -> None:
    with screen(*top(mq)) as terminal:
        for name in QUEUES:
            terminal.shows(name)
        terminal.shows("ready, durability")
        assert terminal.modes != terminal.before

        at = terminal.type(">>")
        terminal.shows("by queue", at)
        at = terminal.type("r")
        terminal.shows("by queue, reversed", at)
        at = terminal.type("/even")
        terminal.shows("filter: even_", at)
        at = terminal.shows("1 shown", at)
        at = terminal.type("\r")
        terminal.shows("filter 'even'", at)
        at = terminal.type("p")
        terminal.shows("PAUSED", at)
        at = terminal.type("\x1b")
        terminal.shows("parts", at)
        at = terminal.type("\x1b[B")
        terminal.shows(">orders", at)

        at = len(terminal.drawn)
        terminal.resize(50, 12)
        terminal.popen.send_signal(signal.SIGWINCH)
        terminal.shows("queues 3", at)
        terminal.type("q")
        assert terminal.ends() == 0
        eventually(lambda: is_as_before(terminal), "the terminal as it was")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_signals_leave_the_terminal_as_it_was(mq: Process, number: signal.Signals) -> None:
    with screen(*top(mq)) as terminal:
        terminal.shows("orders")
        if number is signal.SIGINT:
            terminal.type(CTRL_C)
        else:
            terminal.popen.send_signal(number)
        assert terminal.ends() == 128 + number
        eventually(lambda: is_as_before(terminal), "the terminal as it was")


@pytest.mark.certificate
def test_it_stops_and_goes_on(mq: Process) -> None:
    with screen("bash", "--norc", "--noprofile", "-i") as terminal:
        at = terminal.type(f"stty -a; {' '.join(top(mq))}\n")
        at = terminal.shows("orders", at + len(mq.url))
        at = terminal.type(CTRL_Z)
        at = terminal.shows("Stopped", at)
        assert terminal.drawn.rfind(LEAVES) > terminal.drawn.rfind(ENTERS)
        at = terminal.type("echo so $((6 * 7))\n")
        at = terminal.shows("so 42", at)
        at = terminal.type("fg\n")
        at = terminal.shows(ENTERS, at)
        at = terminal.shows("orders", at)
        at = terminal.type("q")
        terminal.shows(LEAVES, at)
        at = terminal.type("echo ended $?\n")
        terminal.shows("ended 0", at)
        terminal.type("exit\n")
        assert terminal.ends() == 0


@pytest.mark.certificate
def test_a_daemon_that_goes_is_shown_and_one_that_comes_back_too(
    daemons: Processes, tmp_path: Path
) -> None:
    mq = daemons.mq(tmp_path / "root")
    ask(f"{mq.url}/orders", "PUT")
    with screen(*top(mq)) as terminal:
        terminal.shows("orders")
        mq.kill()
        at = terminal.shows("cannot be reached")
        daemons.mq(tmp_path / "root", port=mq.port)
        at = terminal.shows("ready, durability", at)
        terminal.type("q")
        assert terminal.ends() == 0


@pytest.mark.certificate
def test_one_that_is_never_there_is_waited_for(mq: Process) -> None:
    nowhere = [*top(mq)]
    nowhere[nowhere.index(mq.url)] = "http://127.0.0.1:1"
    with screen(*nowhere) as terminal:
        terminal.shows("cannot be reached")
        terminal.type("q")
        assert terminal.ends() == 0


def test_one_picture_for_a_pipe(mq: Process, capsys: pytest.CaptureFixture[str]) -> None:
    said = ["top", "--url", mq.url, "--once", "--interval", "0.2", "--queue", "ord*"]
    assert run([*said, "--sort", "queue"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "\x1b" not in "".join(lines)
    assert [line.split()[:2] for line in lines[4:]] == [["total", "3"], ["orders", "3"]]
    assert run([*said, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [queue["name"] for queue in document["queues"]] == ["orders"]
    assert document["totals"]["ready"] == 3
    assert document["queues"][0]["published_per_s"] == 0.0
    assert document["readiness"]["durability"].partition(",")[0] in ("media", "memory")


@pytest.mark.certificate
def test_a_line_each_look_also_of_one_that_went(daemons: Processes, tmp_path: Path) -> None:
    mq = daemons.mq(tmp_path / "root")
    ask(f"{mq.url}/orders", "PUT")
    with subprocess.Popen([*top(mq), "--json"], stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        ticks = (json.loads(line) for line in running.stdout)
        first = next(ticks)
        assert first["reached"]
        assert first["queues"][0]["name"] == "orders"
        ask(f"{mq.url}/orders/messages", "POST", b"a pizza")
        assert next(tick for tick in ticks if tick["queues"][0]["ready"] == 1)
        mq.kill()
        lost = next(tick for tick in ticks if not tick["reached"])
        assert lost["lost_for_s"] >= 0
        assert lost["queues"][0]["ready"] == 1
        running.send_signal(signal.SIGINT)
        running.stdout.read()
        assert running.wait(PATIENCE_S) == 130


def test_what_cannot_be_is_told(mq: Process, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["top", "--url", mq.url]) == 2
    assert "--once" in capsys.readouterr().err
    assert run(["top", "--url", "http://127.0.0.1:1", "--once"]) == 4
    assert "cannot be reached" in capsys.readouterr().err
    assert run(["top", "--url", mq.url, "--once", "--interval", "0"]) == 2


@pytest.mark.certificate
def test_many_queues_are_asked_about_in_turn(mq: Process) -> None:
    """With room for one a look, each has its turn."""
    flags = ("--json", "--requests", "1")
    with subprocess.Popen([*top(mq), *flags], stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        ticks = [json.loads(running.stdout.readline()) for _ in range(3)]
        running.send_signal(signal.SIGINT)
        running.stdout.read()
    assert [tick["queues_seen"] for tick in ticks] == [1, 2, 3]
    assert all(tick["queues_known"] == 3 for tick in ticks)
