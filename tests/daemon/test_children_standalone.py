"""The commands as processes: mq with its children, its flags, its end, and what it says."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.commands import child_pid, is_running, run_command
from harness.folders import make_root
from harness.messages import put_entry
from harness.needs import cannot_run
from harness.processes import PATIENCE_S, Process, Processes, eventually
from harness.raw import RawConnection, raw_connection, raw_head, raw_request
from harness.waiting import comes_true

from mq import __version__
from mq.store.disk.mounts import file_system_of

CHILDREN = ("mq-mover", "mq-reaper")
MEMORY = Path("/dev/shm")


@pytest.fixture
def memory() -> Iterator[Path]:
    """A folder on tmpfs."""
    if file_system_of(str(MEMORY)).kind != "tmpfs":
        cannot_run("needs a tmpfs")
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        yield Path(folder)


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """A folder that is not on tmpfs."""
    if file_system_of(str(tmp_path)).in_memory:
        cannot_run("needs a file system that outlives the power")
    return tmp_path


def _request(process: Process, method: str, path: str, body: bytes | None = None) -> int:
    request = urllib.request.Request(process.url + path, data=body, method=method)
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
        return int(response.status)


def _is_refused(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) != 0


# Children.


def test_standalone_does_all_that_the_three_do(daemons: Processes, root: Path) -> None:
    mq = daemons.mq(root, "--standalone", "--visibility", "0.2")
    _request(mq, "PUT", "/orders")
    _request(mq, "POST", "/orders/messages", b"hello")
    receives: list[str] = []

    def fetched_twice() -> bool:
        with urllib.request.urlopen(f"{mq.url}/orders/messages", timeout=PATIENCE_S) as response:
            if response.status == 200:
                receives.append(response.headers["X-Message-Receives"])
        return len(receives) == 2

    eventually(fetched_twice)
    assert receives == ["1", "2"]
    removed = put_entry(root / "remove")
    eventually(lambda: not removed.exists())


def test_children_run_in_the_process_group_of_mq(daemons: Processes, root: Path) -> None:
    mq = daemons.mq(root, "--standalone")
    for daemon in CHILDREN:
        assert os.getpgid(child_pid(mq, daemon)) == os.getpgid(mq.popen.pid)


@pytest.mark.parametrize("daemon", CHILDREN)
def test_a_child_that_dies_is_started_again(daemons: Processes, root: Path, daemon: str) -> None:
    mq = daemons.mq(root, "--standalone")
    first = child_pid(mq, daemon)
    os.kill(first, signal.SIGKILL)
    mq.wait_for_log(f"starts again daemon={daemon}")

    def pids() -> list[str]:
        started = (re.search(rf"started daemon={daemon} pid=(\d+)", line) for line in mq.lines)
        return [match.group(1) for match in started if match]

    eventually(lambda: len(pids()) == 2)
    assert is_running(int(pids()[1]))
    eventually(lambda: not is_running(first))


@pytest.mark.certificate
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_children_go_with_mq(daemons: Processes, root: Path, number: signal.Signals) -> None:
    mq = daemons.mq(root, "--standalone")
    children = [child_pid(mq, daemon) for daemon in CHILDREN]
    mq.popen.send_signal(number)
    code = mq.popen.wait(PATIENCE_S)
    assert code == (-signal.SIGKILL if number == signal.SIGKILL else 0)
    try:
        for child in children:
            eventually(lambda child=child: not is_running(child))
    finally:
        for child in filter(is_running, children):
            os.kill(child, signal.SIGKILL)


def test_the_end_of_a_child_does_not_end_the_other_or_mq(daemons: Processes, root: Path) -> None:
    mq = daemons.mq(root, "--standalone")
    mover, reaper = (child_pid(mq, daemon) for daemon in CHILDREN)
    os.kill(mover, signal.SIGKILL)
    mq.wait_for_log("starts again daemon=mq-mover")
    assert _request(mq, "PUT", "/orders") == 201
    assert is_running(reaper)


@pytest.mark.certificate
def test_ctrl_c_reaches_all_and_starts_none_again(root: Path) -> None:
    # A group of its own, as a terminal makes one for a command.
    popen = subprocess.Popen(
        [sys.executable, "-m", "mq", "--standalone", "--root", str(root), "--port", "0"],
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    try:
        assert popen.stderr is not None
        # Each of the three says that it is about to work.
        said: list[str] = []
        for line in popen.stderr:
            said += re.findall(r": (listening|moving|reaping) ", line)
            if len(said) == 3:
                break
        os.killpg(popen.pid, signal.SIGINT)
        rest = popen.stderr.read()
        assert popen.wait(PATIENCE_S) == 0
    finally:
        if popen.poll() is None:
            os.killpg(popen.pid, signal.SIGKILL)
            popen.wait()
        popen.stderr.close()
    assert sorted(said) == ["listening", "moving", "reaping"]
    assert "started daemon" not in rest
    assert "Traceback" not in rest


# Flags.


PREFIXES = {"mq": "MQ", "mq_mover": "MQ_MOVER", "mq_reaper": "MQ_REAPER"}
SHARED = ("--root", "--log-format", "--log-level")
# What is asked of a command itself, and what a supervisor says to its child.
WITHOUT_VARIABLE = ("-h,", "--version", "--exit-with-stdin")


def _variable(module: str, flag: str) -> str:
    """The environment variable of a flag: what all daemons have is said to all of them."""
    prefix = "MQ" if flag in SHARED else PREFIXES[module]
    return f"{prefix}_{flag.removeprefix('--').upper().replace('-', '_')}"


@pytest.mark.parametrize(
    ("module", "flags"),
    [
        (
            "mq",
            {
                "--root",
                "--port",
                "--processes",
                "--peers",
                "--peer-index",
                "--durability",
                "--standalone",
            },
        ),
        ("mq_mover", {"--root", "--source", "--destination", "--delay", "--folder-max"}),
        ("mq_reaper", {"--root", "--source", "--keep"}),
    ],
)
def test_help_shows_each_flag_and_its_environment_variable(module: str, flags: set[str]) -> None:
    ended = run_command(module, "--help")
    assert ended.returncode == 0
    parts = re.split(r"\n  (?=--|-h)", ended.stdout.partition("Options:")[2])[1:]
    helps = {part.split()[0]: " ".join(part.split()) for part in parts}
    assert flags | set(SHARED) <= helps.keys()
    for flag in helps.keys() - set(WITHOUT_VARIABLE):
        assert f"[env var: {_variable(module, flag)}" in helps[flag]


def test_flags_come_from_the_environment(daemons: Processes, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    environment = {
        "MQ_ROOT": str(tmp_path / "from-environment"),
        "MQ_PORT": str(port),
        "MQ_VISIBILITY": "7",
        "MQ_MAX_BODY": "1KiB",
        "MQ_FOLDER_MAX": "1",
        "MQ_LOG_FORMAT": "json",
    }
    mq = daemons.start("mq", env=environment)
    facts = json.loads(mq.wait_for_log("listening").string)
    assert facts["port"] == port
    assert facts["page"] == f"http://localhost:{port}/-/"
    assert facts["root"] == environment["MQ_ROOT"]
    mq.port = port
    _request(mq, "PUT", "/orders")
    with urllib.request.urlopen(f"{mq.url}/orders", timeout=PATIENCE_S) as response:
        settings = json.load(response)["settings"]
    assert settings == {
        "visibility_s": 7,
        "priority_default": 0,
        "delay_default_s": 0,
        "in_flight_max": 0,
        "deliveries_per_s_max": 0,
        "idempotency_s": 300,
        "body_bytes_max": 1024,
        "history": False,
        "history_kept_s": 604800,
        "history_bytes_max": 1 << 30,
        "max_receives": 0,
        "message_ttl_s": 0,
        "expired_to": "remove",
        "expires_at": None,
        "expiry_grace_s": 86400,
        "shovel_interval_s": 0,
        "shovel_concurrency": 4,
        "shovel_max_receives": 20,
        "sweep_after_s": 1200,
        "consumers": 0,
        "paused": "none",
        "messages_max": 0,
        "bytes_max": 0,
        "overflow": "refuse",
        "sideline_to": None,
        "labels": {},
        "active_consumer": "any",
        "pack_messages_max": 0,
        "bucket": 8,
        "shards": 1,
    }
    for _ in range(2):
        _request(mq, "POST", "/orders/messages", b"x")
    assert len(list((tmp_path / "from-environment" / "queues" / "orders").glob("*/*"))) == 1


@pytest.mark.certificate
def test_a_flag_goes_before_the_environment(daemons: Processes, tmp_path: Path) -> None:
    mq = daemons.start(
        "mq", "--root", str(tmp_path / "a"), "--port", "0",
        env={"MQ_ROOT": str(tmp_path / "b"), "MQ_PORT": "1"},
    )  # fmt: skip
    mq.wait_for_log("listening")
    assert (tmp_path / "a" / "queues").is_dir()
    assert not (tmp_path / "b").exists()


@pytest.mark.certificate
def test_mover_and_reaper_take_theirs_from_the_environment(daemons: Processes, root: Path) -> None:
    make_root(root)
    reaper = daemons.start("mq_reaper", env={"MQ_ROOT": str(root), "MQ_REAPER_KEEP": "3600"})
    assert reaper.wait_for_log(r"reaping .*keep_s=3600").string.count(str(root))
    for folder in ("delay", "queues/orders"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    environment = {
        "MQ_MOVER_SOURCE": str(root / "delay"),
        "MQ_MOVER_DESTINATION": str(root / "queues"),
        "MQ_MOVER_DELAY": "0.01",
    }
    daemons.start("mq_mover", env=environment).wait_for_log("moving")
    # Due in the year 2286: only --delay moves it now.
    entry = put_entry(root / "delay", due_ms=10**13)
    eventually(lambda: not entry.exists())


@pytest.mark.parametrize("module", ["mq", "mq_mover", "mq_reaper"])
def test_a_flag_that_is_unknown_is_a_clear_error(module: str) -> None:
    ended = run_command(module, "--colour", "blue")
    assert ended.returncode == 2
    assert re.search("No such option:? '?--colour", ended.stderr)
    assert "Traceback" not in ended.stderr


@pytest.mark.certificate
def test_a_port_that_kubernetes_sets_is_told_as_such(root: Path) -> None:
    ended = run_command("mq", "--root", str(root), env={"MQ_PORT": "tcp://10.0.0.1:8080"})
    assert ended.returncode == 2
    assert "MQ_PORT" in ended.stderr
    assert "enableServiceLinks: false" in ended.stderr
    assert not root.exists()


@pytest.mark.certificate
@pytest.mark.parametrize(
    ("module", "flag", "value"),
    [
        ("mq", "--port", "http"),
        ("mq", "--port", "65536"),
        ("mq", "--processes", "0"),
        ("mq", "--processes", "65"),
        ("mq", "--processes", "all"),
        ("mq", "--peers", "-1"),
        ("mq", "--visibility", "0"),
        ("mq", "--max-body", "12 apples"),
        ("mq", "--commit", "never"),
        ("mq", "--durability", "some"),
        ("mq_mover", "--delay", "-1"),
        ("mq_reaper", "--keep", "long"),
        ("mq_reaper", "--log-format", "xml"),
    ],
)
@pytest.mark.parametrize("by", ["flag", "environment"])
def test_a_bad_value_is_a_clear_error(
    module: str, flag: str, value: str, by: str, root: Path
) -> None:
    if by == "flag":
        ended = run_command(module, "--root", str(root), flag, value)
    else:
        environment = {_variable(module, flag): value}
        ended = run_command(module, "--root", str(root), env=environment)
    assert ended.returncode == 2
    assert f"Invalid value for '{flag}'" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not root.exists()


@pytest.mark.parametrize("module", ["mq", "mq_mover", "mq_reaper"])
def test_version(module: str) -> None:
    ended = run_command(module, "--version")
    assert ended.returncode == 0
    assert ended.stdout.endswith(f" {__version__}\n")


# The end.


async def _half_a_publish(connection: RawConnection, body: bytes) -> None:
    """A publish in hand: the daemon has asked for its body, and got half of it."""
    await connection.send(
        raw_head("POST", "/orders/messages", f"Content-Length: {len(body)}", "Expect: 100-continue")
    )
    assert (await connection.response()).status == 100
    await connection.send(body[: len(body) // 2])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_lets_a_request_in_hand_end_well(
    daemons: Processes, root: Path, number: signal.Signals
) -> None:
    mq = daemons.mq(root, "--drain-timeout", "5")
    assert (await raw_request(mq.port, raw_head("PUT", "/orders"))).status == 201
    body = b"first half, second half"
    async with raw_connection(mq.port) as connection:
        await _half_a_publish(connection, body)
        mq.popen.send_signal(number)
        await comes_true(lambda: _is_refused(mq.port), "refusing new connections")
        await connection.send(body[len(body) // 2 :])
        published = await connection.response()
        assert published.status == 201
    assert mq.popen.wait(PATIENCE_S) == 0
    ready = root / "queues" / "orders" / published.headers["x-message-id"]
    assert ready.read_bytes() == body


@pytest.mark.certificate
async def test_a_request_that_does_not_end_is_given_up_after_the_drain_timeout(
    daemons: Processes, root: Path
) -> None:
    mq = daemons.mq(root, "--drain-timeout", "0.2")
    assert (await raw_request(mq.port, raw_head("PUT", "/orders"))).status == 201
    async with raw_connection(mq.port) as connection:
        await _half_a_publish(connection, b"never all of it")
        assert mq.terminate() == 0
        await connection.ended()
    assert list((root / "queues" / "orders").iterdir()) == []


@pytest.mark.certificate
async def test_an_idle_connection_does_not_keep_mq_alive(daemons: Processes, root: Path) -> None:
    mq = daemons.mq(root)
    async with raw_connection(mq.port) as connection, raw_connection(mq.port):
        await connection.send(raw_head("GET", "/-/livez"))
        assert (await connection.response()).status == 200
        assert mq.terminate() == 0
        assert await connection.ended() == b""


# What it says, and what it refuses.


@pytest.mark.certificate
@pytest.mark.parametrize("module", ["mq", "mq_mover", "mq_reaper"])
def test_json_logs_are_an_object_a_line(daemons: Processes, root: Path, module: str) -> None:
    flags = ["--root", str(root), "--log-format", "json", "--log-level", "debug"]
    if module == "mq":
        flags += ["--port", "0", "--standalone"]
    else:
        make_root(root)
    process = daemons.start(module, *flags)
    process.wait_for_log("listening|moving|reaping")
    assert process.terminate() == 0
    eventually(lambda: process.logged("drained|stopped"))
    assert process.lines
    for line in process.lines:
        event = json.loads(line)
        assert {"time", "level", "logger", "event"} <= event.keys()


@pytest.mark.certificate
def test_a_refusal_is_a_json_line_too(disk: Path) -> None:
    ended = run_command(
        "mq", "--root", str(make_root(disk)), "--durability", "none", "--log-format", "json"
    )
    assert ended.returncode == 1
    assert json.loads(ended.stderr)["level"] == "error"


@pytest.mark.certificate
def test_no_durability_is_refused_where_it_would_lose_messages(disk: Path) -> None:
    root = make_root(disk / "root")
    ended = run_command("mq", "--root", str(root), "--durability", "none", "--port", "0")
    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1
    assert "--durability=none is for a root in memory" in ended.stderr


def test_no_durability_is_allowed_by_force(daemons: Processes, disk: Path) -> None:
    mq = daemons.mq(disk / "root", "--durability", "none", "--force")
    assert mq.logged("commit=none")


@pytest.mark.certificate
def test_no_durability_is_allowed_in_memory(daemons: Processes, memory: Path) -> None:
    mq = daemons.mq(memory, "--durability", "none")
    assert mq.logged("commit=none")
    assert _request(mq, "PUT", "/orders") == 201
    assert _request(mq, "POST", "/orders/messages", b"hello") == 201


@pytest.mark.certificate
@pytest.mark.parametrize("also", [(), ("--standalone",)], ids=["alone", "standalone"])
def test_a_port_in_use_is_one_clear_line(root: Path, also: tuple[str, ...]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = run_command("mq", "--root", str(make_root(root)), "--port", str(port), *also)
    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1
    assert f"cannot listen on 127.0.0.1 port {port}" in ended.stderr
    assert "in use" in ended.stderr


@pytest.mark.certificate
def test_a_root_that_cannot_be_made_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for module in ("mq", "mq_mover", "mq_reaper"):
        ended = run_command(module, "--root", str(tmp_path / "file" / "root"))
        assert ended.returncode == 1
        assert ended.stderr.count("\n") == 1
        assert "Traceback" not in ended.stderr


@pytest.mark.certificate
def test_a_root_of_another_format_is_refused_by_all(root: Path) -> None:
    root.mkdir()
    (root / "format").write_text("mq 9\n")
    for module in ("mq", "mq_mover", "mq_reaper"):
        ended = run_command(module, "--root", str(root))
        assert ended.returncode == 1
        assert ended.stderr.count("\n") == 1
        assert "mq 9" in ended.stderr


@pytest.mark.certificate
def test_children_are_the_installed_daemons_wherever_mq_is_started(
    daemons: Processes, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("mq_mover", "mq_reaper", "click"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("raise SystemExit(3)")
    monkeypatch.chdir(tmp_path)
    # -P: as the installed script runs mq itself.
    flags = ("--root", str(root), "--port", "0", "--standalone")
    mq = daemons.start("mq", *flags, python=("-P",))
    mq.wait_for_log("mq-mover: moving")
    mq.wait_for_log("mq-reaper: reaping")
    assert not mq.logged("starts again")


@pytest.mark.parametrize("module", ["mq", "mq_mover", "mq_reaper"])
def test_an_empty_root_is_refused(module: str) -> None:
    ended = run_command(module, "--root", "")
    assert ended.returncode == 2
    assert "is empty" in ended.stderr


@pytest.mark.certificate
def test_the_log_says_why_a_publish_was_unavailable(daemons: Processes, root: Path) -> None:
    mq = daemons.mq(root)
    assert _request(mq, "PUT", "/q") == 201
    (root / "new").rename(root / "elsewhere")
    with pytest.raises(urllib.error.HTTPError) as refused:
        _request(mq, "POST", "/q/messages", b"x")
    refused.value.close()
    line = mq.wait_for_log("unavailable")
    assert "No such file" in line.string
