"""How mqctl ends: what it says of what is not there, and where options are taken from."""

import asyncio
import os
import pty
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.mqctl import Mqctl
from harness.processes import Process, processes

from mq.tools.mqctl.cli import COMMANDS, SECTIONS


class Answering:
    """Answers each request with the same bytes, or never, and keeps what was asked."""

    def __init__(self, answer: bytes | None) -> None:
        self.asked: list[str] = []
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._connections: list[socket.socket] = []
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            self.asked.append(connection.recv(65536).decode("latin-1"))
            if self._answer is not None:
                connection.sendall(self._answer)
                connection.close()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        for connection in self._connections:
            connection.close()


PAGE = b"HTTP/1.1 200 OK\r\nContent-Length: 15\r\nConnection: close\r\n\r\n<html>hi</html>"
CLOSED = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


@pytest.fixture
def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@pytest.fixture
def answering(request: pytest.FixtureRequest) -> Iterator[Answering]:
    server = Answering(request.param)
    yield server
    server.close()


@pytest.mark.certificate
def test_where_nothing_listens_it_asks_whether_mq_runs(mqctl: Mqctl, closed_port: int) -> None:
    url = f"http://127.0.0.1:{closed_port}"
    gone = mqctl("queues", "--url", url)
    assert gone.code == 4
    assert gone.out == b""
    assert gone.err == (
        f"Error: mq cannot be reached at {url}: connection refused. Is mq running there? "
        "Set its address with --url or MQ_URL.\n"
    )
    assert mqctl("queues", "--json", MQ_URL=url).error["exit"] == 4


def test_a_url_without_a_scheme_is_of_http(both: tuple[Mqctl, Process]) -> None:
    mqctl, mq = both
    for host in ("localhost", "127.0.0.1"):
        assert mqctl("queues", "--url", f"{host}:{mq.port}").code == 0
    assert mqctl("queues", MQ_URL=f"localhost:{mq.port}").code == 0


def test_where_no_tls_is_spoken_that_is_said(both: tuple[Mqctl, Process]) -> None:
    mqctl, mq = both
    gone = mqctl("queues", "--url", mq.url.replace("http", "https"))
    assert gone.code == 4
    assert "TLS failed" in gone.err


@pytest.mark.parametrize("answering", [None], indirect=True)
def test_whether_mq_runs_is_asked_once(mqctl: Mqctl, answering: Answering) -> None:
    silent = mqctl("queues", "--url", answering.url.replace("http", "https"), "--timeout", "0.2")
    assert silent.code == 4
    assert silent.err.lower().count("is mq running there") == 1


@pytest.mark.parametrize("answering", [PAGE], indirect=True)
def test_what_is_no_mq_is_said_to_be_none(mqctl: Mqctl, answering: Answering) -> None:
    other = mqctl("queues", "--url", answering.url)
    assert other.code == 4
    assert "is not an mq server" in other.err
    assert "<html>hi</html>" in other.err


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_stream_that_is_closed_is_told(both: tuple[Mqctl, Process], closed: str) -> None:
    _, mq = both
    # A process of its own: what runs here instead of mqctl has all its streams.
    command = f"{sys.executable} -m mq.tools.mqctl ready --url {mq.url}"
    if closed == "<&-":
        command = f"{sys.executable} -m mq.tools.mqctl send orders --url {mq.url}"
    done = subprocess.run(
        ["sh", "-c", f"{command} {closed}"], capture_output=True, timeout=60, check=False
    )
    assert done.returncode == (0 if closed == "2>&-" else 1)
    assert (b"Bad file descriptor" in done.stderr) is ("2>" not in closed)
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("answering", [None], indirect=True)
def test_who_never_answers_is_left(mqctl: Mqctl, answering: Answering) -> None:
    silent = mqctl("ready", "--url", answering.url, "--timeout", "0.2")
    assert silent.code == 4
    assert "has not answered for 0.2 s" in silent.err


@pytest.mark.parametrize("answering", [CLOSED], indirect=True)
def test_tokens_are_sent_and_never_shown(
    mqctl: Mqctl, answering: Answering, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("of-the-file\n")
    there = ("--url", answering.url, "queues")
    for said, token in (
        ({"MQ_TOKEN": "of-the-environment"}, "of-the-environment"),
        ({"MQ_TOKEN_FILE": str(tmp_path / "token")}, "of-the-file"),
    ):
        refused = mqctl(*there, **said)
        assert refused.code == 1
        assert "token" in refused.err
        assert token not in refused.err
        assert f"Authorization: Bearer {token}\r\n" in answering.asked[-1]
    # What is said goes before the environment.
    mqctl(*there, "--token-file", str(tmp_path / "token"), MQ_TOKEN="of-the-environment")
    assert "Bearer of-the-file\r\n" in answering.asked[-1]


def test_a_token_that_cannot_be_is_refused_unseen(mqctl: Mqctl, tmp_path: Path) -> None:
    for argv in (
        ["--token", "se cret"],
        ["--token", ""],
        ["--token", "secret", "--token-file", "secret"],
        ["--token-file", str(tmp_path / "none")],
    ):
        refused = mqctl("queues", *argv)
        assert refused.code == 2
        assert "cret" not in refused.err
    refused = mqctl("queues", MQ_TOKEN="se\ncret")
    assert refused.code == 2
    assert "cret" not in refused.err


def test_options_stand_before_or_behind_and_behind_goes_first(
    mqctl: Mqctl, closed_port: int
) -> None:
    away = f"http://127.0.0.1:{closed_port}"
    assert mqctl("--url", mqctl.url, "queues", MQ_URL=away).code == 0
    assert mqctl("--url", away, "queues", "--url", mqctl.url).code == 0
    assert mqctl("queues", "--json", MQ_JSON="0").json
    assert mqctl("queues", MQ_JSON="1").json
    assert not mqctl("--json", "queues", "--no-json").text.startswith("{")


def test_a_url_that_is_none_is_wrong_usage(mqctl: Mqctl) -> None:
    for url in ("ftp://host", "http://", "http://host:99999", "http://h/?q=1"):
        assert mqctl("queues", "--url", url).code == 2, url


def test_a_password_in_a_url_is_not_shown(mqctl: Mqctl, closed_port: int) -> None:
    gone = mqctl("queues", "--url", f"http://me:secret@127.0.0.1:{closed_port}")
    assert gone.code == 4
    assert "secret" not in gone.err


def test_a_command_that_is_none_and_one_without_its_argument(mqctl: Mqctl) -> None:
    unknown = mqctl("quues")
    assert unknown.code == 2
    assert "Did you mean queues?" in unknown.err
    assert "Did you mean sideline or shovel?" in mqctl("dlq").err
    assert mqctl("describe").code == 2
    refused = mqctl("top", "--once", "--interval", "nan")
    assert refused.code == 2
    assert "'nan' is" in refused.err
    assert "number" in refused.err


def test_help_names_every_command_and_imports_none() -> None:
    watched = (
        "import sys; from mq.tools.mqctl.cli import run; code = run(['--help']); "
        "loaded = {'aiohttp', 'rich', 'mq.client'} & set(sys.modules); assert not loaded, loaded"
    )
    done = subprocess.run([sys.executable, "-c", watched], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for name, place in COMMANDS.items():
        assert name in done.stdout
        assert place.about in done.stdout.replace("\n", " ")


def test_every_command_has_help_and_the_global_options_are_in_one(mqctl: Mqctl) -> None:
    listed = mqctl("--help").text
    for name in COMMANDS:
        helped = mqctl(name, "--help")
        if "is not installed" in helped.err:
            continue
        assert helped.code == 0, name
        assert "--token-file" not in helped.text, name
    assert "--token-file" in listed
    assert "Global options: see `mqctl --help`." in mqctl("receive", "--help").text
    assert sum(map(len, SECTIONS.values())) == len(COMMANDS)


def test_completion_knows_commands(mqctl: Mqctl) -> None:
    for shell in ("bash", "zsh", "fish"):
        assert "_MQCTL_COMPLETE" in mqctl("completion", shell).text
    found = mqctl(_MQCTL_COMPLETE="bash_complete", COMP_WORDS="mqctl re", COMP_CWORD="1").lines
    assert {"plain,receive", "plain,read", "plain,release", "plain,ready"} <= set(found)
    mistyped = mqctl(_MQCTL_COMPLETE="bash_complete", COMP_WORDS="mqctl quues ", COMP_CWORD="2")
    assert (mistyped.code, mistyped.err) == (0, "")


def completed(mqctl: Mqctl, line: str, **env: str) -> list[str]:
    words = len(line.split()) - (not line.endswith(" "))
    found = mqctl(_MQCTL_COMPLETE="bash_complete", COMP_WORDS=line, COMP_CWORD=str(words), **env)
    assert (found.code, found.err) == (0, "")
    return [each.removeprefix("plain,") for each in found.lines if each]


def test_completion_asks_mq_for_names(mqctl: Mqctl, queue: str) -> None:
    assert queue in completed(mqctl, "mqctl peek ord")
    assert queue in completed(mqctl, f"mqctl top --queue {queue[:-1]}")
    assert completed(mqctl, "mqctl describe none-of-") == []
    mqctl("schedules", "add", queue, "nightly", "x", "--every", "1h")
    assert completed(mqctl, f"mqctl schedules show {queue} n") == ["nightly"]
    found = completed(mqctl, f"mqctl settings {queue} max_")
    assert "max_receives=" in found
    assert all(each.startswith("max_") for each in found)
    assert completed(mqctl, f"mqctl peek {queue} --state ready,de") == ["ready,delayed"]


def test_completion_offers_nothing_where_mq_cannot_be_asked(mqctl: Mqctl, queue: str) -> None:
    there = mqctl.url
    for url in ("http://127.0.0.1:1", "not a URL://"):
        assert completed(mqctl, "mqctl peek ord", MQ_URL=url) == []
        # An option before the command or after it is the one that is asked.
        for line in (f"mqctl --url {there} peek ord", f"mqctl peek --url {there} ord"):
            assert queue in completed(mqctl, line, MQ_URL=url)
    assert completed(mqctl, "mqctl settings none-of-these vis") == []


def on_terminal(mqctl: Mqctl, columns: int, *argv: str) -> str:
    ours, theirs = pty.openpty()
    begun = mqctl.begin(*argv, stdout=theirs, COLUMNS=str(columns))
    os.close(theirs)
    assert begun.wait() == 0
    begun.close()
    shown = os.read(ours, 65536).decode()
    os.close(ours)
    return shown


def test_a_peek_fits_80_columns(mqctl: Mqctl, queue: str) -> None:
    (sent,) = mqctl("send", queue, "x" * 100, "--delay", "90m").lines
    shown = on_terminal(mqctl, 80, "peek", queue, "--state", "delayed")
    assert all(len(line) <= 80 for line in shown.splitlines())
    assert sent in shown
    assert "in 1h" in shown
    absolute = on_terminal(mqctl, 200, "peek", queue, "--state", "delayed", "--absolute")
    assert mqctl("peek", queue, "--state", "delayed").lines[0].split("\t")[3] in absolute


def test_a_tail_on_a_terminal_is_a_line_a_message(mqctl: Mqctl, queue: str) -> None:
    (sent,) = mqctl("send", queue, "a pizza").lines
    ours, theirs = pty.openpty()
    begun = mqctl.begin("tail", queue, "-n", "1", stdout=theirs)
    os.close(theirs)
    shown = ""
    while "a pizza" not in shown:
        shown += os.read(ours, 65536).decode()
    begun.signal(signal.SIGINT)
    assert begun.wait() == 130
    begun.close()
    os.close(ours)
    assert shown.startswith(sent)


def test_on_a_terminal_there_is_a_table_and_nothing_commands_it(mqctl: Mqctl, queue: str) -> None:
    mqctl("send", queue, "bad \x1b]0;title\x07")
    shown = on_terminal(mqctl, 200, "peek", queue)
    assert "receives" in shown
    assert "bad \\x1b]0;title\\x07" in shown
    assert "\x1b]0" not in shown
    assert "\x07" not in shown


def test_somebody_at_a_terminal_is_asked(mqctl: Mqctl, queue: str) -> None:
    ours, theirs = pty.openpty()
    os.write(ours, b"n\n")
    begun = mqctl.begin("delete", queue, stdin=theirs)
    assert begun.wait() == 130
    begun.close()
    assert mqctl("describe", queue).code == 0
    os.write(ours, b"y\n")
    begun = mqctl.begin("delete", queue, stdin=theirs)
    assert begun.wait() == 0
    begun.close()
    os.close(theirs)
    os.close(ours)
    assert mqctl("describe", queue).code == 3


@pytest.mark.certificate
def test_as_a_program_of_its_own_it_ends_as_it_should(mqctl: Mqctl, queue: str) -> None:
    """`python -m mq.tools.mqctl`, not what the others' processes are forked from."""
    env = {**os.environ, "MQ_URL": mqctl.url}
    command = [sys.executable, "-m", "mq.tools.mqctl"]
    sent = subprocess.run(
        [*command, "send", queue, "-l"], input=b"a\nb\n" * 2000, capture_output=True, env=env
    )
    assert sent.returncode == 0
    head = f'{" ".join(command)} peek {queue} --count 4000 | head -1; exit "${{PIPESTATUS[0]}}"'
    piped = subprocess.run(["bash", "-c", head], capture_output=True, env=env)
    assert (piped.returncode, piped.stderr) == (141, b"")
    assert piped.stdout.count(b"\n") == 1


@pytest.mark.certificate
async def test_a_following_receive_outlives_a_restart_of_mq(mqctl: Mqctl, tmp_path: Path) -> None:
    with processes() as started:
        first = started.mq(tmp_path / "root")
        mqctl("--url", first.url, "create", "orders")
        begun = mqctl.begin("--url", first.url, "receive", "orders", "--follow", "--ack")
        assert begun.stdout is not None
        assert begun.stderr is not None
        mqctl("--url", first.url, "send", "orders", "one")
        assert begun.stdout.readline() == b"one\n"
        first.kill()
        assert b"trying again" in await asyncio.to_thread(begun.stderr.readline)
        started.mq(tmp_path / "root", port=first.port)
        mqctl("--url", first.url, "send", "orders", "two")
        assert await asyncio.to_thread(begun.stdout.readline) == b"two\n"
        begun.close()
