"""The command mq-mover as a real process."""

import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.commands import run_command
from harness.folders import make_root
from harness.messages import put_entry
from harness.needs import cannot_run
from harness.processes import PATIENCE_S, Processes, eventually

from mq.model.clock import SystemClock

MEMORY = Path("/dev/shm")


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """A source and a destination with one queue, `orders`, in a folder of their own."""
    source, destination = tmp_path / "waiting", tmp_path / "served"
    source.mkdir()
    (destination / "orders").mkdir(parents=True)
    return source, destination


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Path]:
    """A folder on another file system than tmp_path's."""
    if not MEMORY.is_dir() or MEMORY.stat().st_dev == tmp_path.stat().st_dev:
        cannot_run("needs a second file system")
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        yield Path(folder)


def _due(in_ms: int) -> int:
    return SystemClock().now_ms() + in_ms


def _flags(pair: tuple[Path, Path]) -> tuple[str, ...]:
    return "--source", str(pair[0]), "--destination", str(pair[1])


def _is_there(destination: Path, entry: Path) -> bool:
    return (destination / "orders" / entry.name.partition(":")[2]).exists()


@pytest.mark.certificate
def test_a_pair_of_folders_moves_what_is_already_there_and_what_comes(
    daemons: Processes, pair: tuple[Path, Path]
) -> None:
    source, destination = pair
    before = put_entry(source, due_ms=_due(-1000))
    later = put_entry(source, due_ms=_due(3_600_000))
    mover = daemons.mover(*_flags(pair))
    after = put_entry(source, due_ms=_due(100))
    for entry in (before, after):
        eventually(lambda entry=entry: _is_there(destination, entry), entry.name)
    assert later.exists()
    assert mover.terminate() == 0


@pytest.mark.certificate
def test_a_delay_counts_from_when_a_message_came_whatever_its_due_time(
    daemons: Processes, pair: tuple[Path, Path]
) -> None:
    source, destination = pair
    entry = put_entry(source, due_ms=_due(3_600_000))
    daemons.mover(*_flags(pair), "--delay", "0.01")
    eventually(lambda: _is_there(destination, entry))


@pytest.mark.certificate
def test_a_root_s_messages_are_moved(daemons: Processes, root: Path) -> None:
    daemons.mover("--root", str(root))
    (root / "queues" / "orders").mkdir()
    entry = put_entry(root / "delay", due_ms=_due(100))
    eventually(lambda: _is_there(root / "queues", entry))


@pytest.mark.certificate
def test_a_restart_loses_no_timer(daemons: Processes, pair: tuple[Path, Path]) -> None:
    source, destination = pair
    entries = [put_entry(source, due_ms=_due(200 * number)) for number in range(5)]
    daemons.mover(*_flags(pair)).kill()
    daemons.mover(*_flags(pair))
    for entry in entries:
        eventually(lambda entry=entry: _is_there(destination, entry), entry.name)


@pytest.mark.certificate
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_well(
    daemons: Processes, pair: tuple[Path, Path], number: signal.Signals
) -> None:
    mover = daemons.mover(*_flags(pair))
    mover.popen.send_signal(number)
    assert mover.popen.wait(PATIENCE_S) == 0
    eventually(lambda: mover.logged("stopped"))


@pytest.mark.certificate
def test_it_waits_for_a_source_that_goes_and_comes_back(
    daemons: Processes, pair: tuple[Path, Path]
) -> None:
    source, destination = pair
    mover = daemons.mover(*_flags(pair))
    aside = source.rename(source.with_name("aside"))
    mover.wait_for_log("a pass failed")
    entry = put_entry(aside, due_ms=_due(-1000))
    aside.rename(source)
    eventually(lambda: _is_there(destination, entry))


@pytest.mark.parametrize(
    "spelling", ["new", "new/", "remove/../new", "link"], ids=["plain", "slash", "dots", "symlink"]
)
def test_new_is_refused_as_a_source(daemons: Processes, root: Path, spelling: str) -> None:
    for name in ("new", "queues", "delay", "remove"):
        (root / name).mkdir(parents=True)
    (root / "link").symlink_to("new")
    half_written = put_entry(root / "new", due_ms=1000)
    mover = daemons.start(
        "mq_mover", "--source", f"{root}/{spelling}", "--destination", f"{root}/queues"
    )
    eventually(lambda: mover.popen.poll() is not None or mover.logged("moving"))
    assert mover.popen.poll() == 1
    eventually(lambda: mover.logged("half written"))
    assert len(mover.lines) == 1
    assert half_written.exists()


@pytest.mark.parametrize("flag", ["--source", "--destination"])
def test_half_a_pair_is_refused(tmp_path: Path, flag: str) -> None:
    ended = run_command("mq_mover", flag, str(tmp_path))
    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1
    assert "--source and --destination go together" in ended.stderr


def test_a_root_takes_no_delay(root: Path) -> None:
    ended = run_command("mq_mover", "--root", str(root), env={"MQ_MOVER_DELAY": "1"})
    assert ended.returncode == 1
    assert "--delay (MQ_MOVER_DELAY) needs --source and --destination" in ended.stderr
    assert not root.exists()


def test_a_folder_that_is_not_there_is_refused(pair: tuple[Path, Path]) -> None:
    missing = pair[0] / "missing"
    ended = run_command("mq_mover", "--source", str(missing), "--destination", str(pair[1]))
    assert ended.returncode == 1
    assert f"{missing} is not a folder" in ended.stderr


def test_two_file_systems_are_refused_by_name(pair: tuple[Path, Path], elsewhere: Path) -> None:
    entry = put_entry(pair[0], due_ms=1000)
    ended = run_command("mq_mover", "--source", str(pair[0]), "--destination", str(elsewhere))
    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1
    assert f"{pair[0]} and {elsewhere} are on different file systems" in ended.stderr
    assert entry.exists()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--coordinator", "etcd"), "no coordinator 'etcd'; use file, alone, or zookeeper://"),
        (("--member", "no/name"), "'no/name' is not a member name"),
    ],
    ids=["coordinator", "member"],
)
def test_what_cannot_share_the_upkeep_is_refused(
    root: Path, flags: tuple[str, str], said: str
) -> None:
    ended = run_command("mq_mover", "--root", str(make_root(root)), *flags)
    assert ended.returncode == 1
    assert said in ended.stderr


@pytest.mark.parametrize("value", ["0", "nan"])
@pytest.mark.parametrize("flag", ["--assign-every", "--refresh"])
def test_an_interval_of_nothing_is_refused(root: Path, flag: str, value: str) -> None:
    ended = run_command("mq_mover", "--root", str(root), flag, value)
    assert ended.returncode == 2
    assert flag in ended.stderr


@pytest.mark.certificate
def test_two_movers_of_one_root_are_told_apart_and_leave_when_they_end(
    daemons: Processes, root: Path
) -> None:
    movers = {
        name: daemons.mover("--root", str(root), "--member", name, "--assign-every", "1")
        for name in ("a", "b")
    }
    for name in movers:
        eventually(lambda name=name: (root / "members" / f"{name}.json").exists(), name)
    for name, mover in movers.items():
        assert mover.terminate() == 0
        assert not list((root / "members").glob(f"{name}.*"))
