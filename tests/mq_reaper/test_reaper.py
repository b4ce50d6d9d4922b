"""Reaping a real folder, by ctime and --keep, under a clock that the test moves."""

import contextlib
import errno
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness.clock import FakeClock
from harness.commands import run_command
from harness.faults import FaultyFiles
from harness.folders import make_old
from harness.logged import event
from harness.messages import ctime_ms, new_id, put_entry, put_file
from harness.processes import PATIENCE_S, Processes, eventually

from mq.model.clock import SystemClock
from mq.store.disk.files import Files
from mq.store.opening import open_root
from mq.store.operations.reap import reap
from mq_reaper.reaper import Reaper

MESSAGE_NAME = "orders:0192f3a2-7c4e-7d2a-9b1e-0123456789ab"


@pytest.fixture
def clock() -> FakeClock:
    """An hour ahead of the files that a test makes."""
    clock = FakeClock()
    clock.advance(3600)
    return clock


@pytest.fixture
def folder(root: Path) -> Path:
    """The remove/ of a root whose other folders are there too."""
    for name in ("new", "queues", "delay", "remove"):
        (root / name).mkdir(parents=True)
    return root / "remove"


def _reaper(
    folder: Path, clock: FakeClock, keep_s: float = 0, files: Files | None = None
) -> Reaper:
    return Reaper(files or Files(), clock, str(folder), keep_s)


def _deleted_queue(folder: Path, messages: int) -> Path:
    deleted = folder / f"orders:{new_id().text}.d"
    deleted.mkdir()
    for _ in range(messages):
        put_file(deleted / new_id().text, b"body")
    return deleted


def test_a_removed_message_is_unlinked(folder: Path, clock: FakeClock) -> None:
    entry = put_entry(folder)
    reaper = _reaper(folder, clock)
    assert reaper.run_once() == 1
    assert not entry.exists()
    assert reaper.next_due_s() is None
    assert reaper.run_once() == 0


def test_a_message_is_kept_for_so_long_after_it_was_removed(folder: Path, clock: FakeClock) -> None:
    # Its mtime, a due time of long ago, says nothing of when it was removed.
    entry = put_entry(folder, due_ms=1000)
    goes_ms = ctime_ms(entry) + 60_000
    reaper = _reaper(folder, clock, keep_s=60)
    clock.reach(goes_ms - 1)
    assert reaper.run_once() == 0
    assert entry.exists()
    assert reaper.next_due_s() == pytest.approx(0.001)
    clock.reach(goes_ms)
    assert reaper.run_once() == 1
    assert not entry.exists()


def test_a_clock_that_is_set_ahead_shortens_nothing(folder: Path, clock: FakeClock) -> None:
    entry = put_entry(folder)
    reaper = _reaper(folder, clock, keep_s=60)
    clock.reach(ctime_ms(entry))
    reaper.run_once()
    clock.set_ms(clock.now_ms() + 10**9)
    assert reaper.run_once() == 0
    clock.advance(59)
    assert reaper.run_once() == 0
    assert entry.exists()
    assert reaper.next_due_s() == pytest.approx(1)
    clock.advance(1)
    assert reaper.run_once() == 1


def test_what_comes_while_others_are_kept_is_kept_too(folder: Path, clock: FakeClock) -> None:
    first = put_entry(folder)
    reaper = _reaper(folder, clock, keep_s=60)
    clock.reach(ctime_ms(first))
    reaper.run_once()
    second = put_entry(folder)
    goes_ms = [(entry, ctime_ms(entry) + 60_000) for entry in (first, second)]
    for entry, goes in goes_ms:
        clock.reach(goes)
        reaper.run_once()
        assert not entry.exists()


@pytest.mark.certificate
def test_many_messages_go(folder: Path, clock: FakeClock) -> None:
    for _ in range(2000):
        put_entry(folder)
    assert _reaper(folder, clock).run_once() == 2000
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("messages", [0, 1, 300])
def test_a_deleted_queue_goes_with_its_contents(
    folder: Path, clock: FakeClock, messages: int
) -> None:
    deleted = _deleted_queue(folder, messages)
    assert _reaper(folder, clock).run_once() == messages + 1
    assert not deleted.exists()


def test_a_deleted_queue_is_kept_as_a_message_is(folder: Path, clock: FakeClock) -> None:
    deleted = _deleted_queue(folder, 2)
    reaper = _reaper(folder, clock, keep_s=60)
    clock.reach(ctime_ms(deleted) + 59_999)
    assert reaper.run_once() == 0
    assert len(list(deleted.iterdir())) == 2
    clock.reach(ctime_ms(deleted) + 60_000)
    assert reaper.run_once() == 3


def test_a_deleted_queue_s_keys_go(folder: Path, clock: FakeClock) -> None:
    deleted = _deleted_queue(folder, 2)
    for kind in (".keys", ".idempotency", ".firings", ".groups"):
        for hashed in ("00", "ff"):
            (deleted / kind / hashed).mkdir(parents=True)
            (deleted / kind / hashed / "k").symlink_to(new_id().text)
            (deleted / kind / hashed / ".lock").touch()
            (deleted / kind / hashed / ".new").symlink_to("x")
    assert _reaper(folder, clock).run_once() == 2 + 4 * 2 * 3 + 1
    assert list(folder.iterdir()) == []


def test_what_is_no_key_among_a_deleted_queue_s_stays(folder: Path, clock: FakeClock) -> None:
    keys = _deleted_queue(folder, 2) / ".keys" / "00"
    keys.mkdir(parents=True)
    (keys / "k").symlink_to(new_id().text)
    (keys / "notes").write_text("mine")
    assert _reaper(folder, clock).run_once() == 3
    assert (keys / "notes").read_text() == "mine"


@pytest.mark.parametrize("make", [Path.touch, lambda path: path.symlink_to("/etc")])
def test_what_has_the_name_of_keys_and_is_no_folder_stays(
    folder: Path, clock: FakeClock, make: Callable[[Path], object]
) -> None:
    deleted = _deleted_queue(folder, 2)
    make(deleted / ".keys")
    assert _reaper(folder, clock).run_once() == 2
    assert os.listdir(deleted) == [".keys"]


def test_a_deleted_queue_with_a_foreign_file_keeps_that(folder: Path, clock: FakeClock) -> None:
    deleted = _deleted_queue(folder, 2)
    foreign = put_file(deleted / "notes.txt", b"mine")
    reaper = _reaper(folder, clock)
    assert reaper.run_once() == 2
    assert foreign.read_bytes() == b"mine"
    foreign.unlink()
    clock.advance(1)
    os.utime(folder)  # As the next removal does.
    assert reaper.run_once() == 1
    assert not deleted.exists()


def _plain(path: Path) -> None:
    put_file(path, b"foreign")


def _folder(path: Path) -> None:
    path.mkdir()
    put_file(path / new_id().text, b"foreign")


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("notes.txt", _plain),
        ("orders:notes", _plain),
        ("orders:notes.d", _folder),
        (".probe", _plain),
        (".nfs0000000000000001", _plain),
        ("folder", _folder),
        (MESSAGE_NAME, _folder),
        (f"{MESSAGE_NAME}.d", _plain),
        (f".{MESSAGE_NAME}.d", _folder),
    ],
)
def test_foreign_names_are_left_alone(
    folder: Path, clock: FakeClock, name: str, make: Callable[[Path], None]
) -> None:
    foreign = folder / name
    make(foreign)
    entry = put_entry(folder)
    assert _reaper(folder, clock).run_once() == 1
    assert not entry.exists()
    assert foreign.exists()
    assert not foreign.is_dir() or len(list(foreign.iterdir())) == 1


def test_foreign_names_are_reported(
    folder: Path, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("notes.txt", "orders:notes", ".hidden"):
        put_file(folder / name)
    _reaper(folder, clock).run_once()
    [record] = caplog.records
    assert event(record) == "foreign names are left alone"
    fields = record.fields  # type: ignore[attr-defined]
    assert fields["count"] == 2
    assert fields["for_example"] in ("notes.txt", "orders:notes")


@pytest.mark.parametrize("kind", ["message", "queue"])
def test_a_symbolic_link_is_not_followed(folder: Path, clock: FakeClock, kind: str) -> None:
    outside = _deleted_queue(folder.parent, 1)
    kept = next(outside.iterdir())
    link = folder / (MESSAGE_NAME if kind == "message" else f"{MESSAGE_NAME}.d")
    link.symlink_to(kept if kind == "message" else outside)
    _reaper(folder, clock).run_once()
    assert kept.read_bytes() == b"body"


@pytest.mark.parametrize("when", ["listed", "unlinked"])
def test_files_that_vanish_meanwhile_are_done(folder: Path, clock: FakeClock, when: str) -> None:
    class RacingFiles(Files):
        """Another reaper is a step ahead."""

        def entries(self, folder: str) -> "Iterator[os.DirEntry[str]]":
            for entry in super().entries(folder):
                if when == "listed" and not entry.is_dir():
                    os.unlink(entry.path)
                yield entry

        def unlink(self, path: str) -> None:
            if when == "unlinked":
                os.unlink(path)
            super().unlink(path)

    for _ in range(3):
        put_entry(folder)
    _deleted_queue(folder, 3)
    _reaper(folder, clock, files=RacingFiles()).run_once()
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("call", ["status", "unlink"])
def test_a_file_that_cannot_be_seen_or_unlinked_does_not_keep_the_others(
    folder: Path, clock: FakeClock, call: str
) -> None:
    stuck = {put_entry(folder) for _ in range(3)}
    for _ in range(50):
        put_entry(folder)

    files = FaultyFiles()
    for path in stuck:
        files.fail(call, errno.EPERM, path.name)
    reaper = _reaper(folder, clock, files=files)
    for _ in range(3):
        clock.advance(1)
        # Whether a pass that could not do it all says so is open.
        with contextlib.suppress(PermissionError):
            reaper.run_once()
    assert set(folder.iterdir()) == stuck


def test_two_reapers_share_a_folder(folder: Path, clock: FakeClock) -> None:
    for _ in range(10):
        put_entry(folder)
    reapers = [_reaper(folder, clock), _reaper(folder, clock)]
    assert [reaper.run_once() for reaper in reapers] == [10, 0]


def test_a_source_folder_that_is_gone_is_an_error_and_may_come_back(
    folder: Path, clock: FakeClock
) -> None:
    put_entry(folder)
    reaper = _reaper(folder, clock)
    aside = folder.rename(folder.with_name("aside"))
    with pytest.raises(FileNotFoundError):
        reaper.run_once()
    aside.rename(folder)
    assert reaper.run_once() == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_command_reaps_what_is_there_and_what_comes_until_a_signal(
    daemons: Processes, folder: Path, number: signal.Signals
) -> None:
    before = put_entry(folder)
    reaper = daemons.reaper("--source", str(folder))
    after = put_entry(folder)
    eventually(lambda: not before.exists() and not after.exists())
    reaper.popen.send_signal(number)
    assert reaper.popen.wait(PATIENCE_S) == 0
    eventually(lambda: reaper.logged("stopped"))


def test_the_command_reaps_only_the_root_s_remove(daemons: Processes, root: Path) -> None:
    open_root(str(root), Files(), SystemClock())
    alive = [put_entry(root / name) for name in ("new", "delay")]
    removed = put_entry(root / "remove")
    daemons.reaper("--root", str(root))
    eventually(lambda: not removed.exists())
    assert all(path.exists() for path in alive)


def test_the_command_keeps_as_told(daemons: Processes, folder: Path) -> None:
    kept = put_entry(folder)
    reaper = daemons.reaper("--source", str(folder), "--keep", "3600")
    # A pass was made once a foreign name is reported.
    put_file(folder / "notes.txt")
    reaper.wait_for_log("foreign names are left alone")
    assert kept.exists()


@pytest.mark.certificate
@pytest.mark.parametrize("name", ["new", "queues", "delay"])
@pytest.mark.parametrize(
    "spelling", ["{}", "{}/", "remove/../{}", "link"], ids=["plain", "slash", "dots", "symlink"]
)
def test_a_folder_of_messages_that_are_alive_is_refused(
    daemons: Processes, folder: Path, name: str, spelling: str
) -> None:
    root = folder.parent
    (root / "link").symlink_to(name)
    alive = put_entry(root / name)
    reaper = daemons.start("mq_reaper", "--source", f"{root}/{spelling.format(name)}")
    eventually(lambda: reaper.popen.poll() is not None or reaper.logged("reaping"))
    assert reaper.popen.poll() == 1
    eventually(lambda: reaper.logged("holds messages that are not removed"))
    assert len(reaper.lines) == 1
    assert alive.exists()


@pytest.mark.certificate
@pytest.mark.parametrize("flag", ["source", "remove", "root"])
def test_a_link_is_refused(folder: Path, flag: str) -> None:
    """Whoever points it elsewhere would have other files unlinked."""
    root, outside = folder.parent, folder.parent.parent / "outside"
    (root / "format").write_text("mq 3\n")
    folder.rename(outside)
    folder.symlink_to(outside)
    kept = put_entry(outside)
    said = ("--source", str(folder)) if flag == "source" else ("--root", str(root))
    if flag == "root":
        link = root.parent / "link"
        link.symlink_to(root)
        said = ("--root", str(link))
    ended = run_command("mq_reaper", *said, "--keep", "0")
    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1
    assert "is a symbolic link" in ended.stderr
    assert kept.exists()


def test_a_folder_that_is_not_there_is_refused(folder: Path) -> None:
    ended = run_command("mq_reaper", "--source", str(folder / "missing"))
    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1
    assert "is not a folder" in ended.stderr


def test_what_could_not_be_unlinked_is_tried_again(folder: Path, clock: FakeClock) -> None:
    class UnwillingFiles(Files):
        failures = 1

        def unlink(self, path: str) -> None:
            if self.failures:
                self.failures -= 1
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            super().unlink(path)

    entry = put_entry(folder)
    reaper = _reaper(folder, clock, files=UnwillingFiles())
    with pytest.raises(OSError, match="error"):
        reaper.run_once()
    assert reaper.run_once() == 1
    assert not entry.exists()


@pytest.mark.parametrize(
    "make",
    [lambda path: path.symlink_to("/etc/hostname"), os.mkfifo, lambda path: path.mkdir()],
    ids=["link", "fifo", "folder"],
)
@pytest.mark.parametrize("within", [False, True], ids=["in remove", "in a deleted queue"])
def test_what_only_has_a_message_s_name_is_left_alone(
    folder: Path, clock: FakeClock, make: Callable[[Path], None], within: bool
) -> None:
    where = _deleted_queue(folder, 3) if within else folder
    foreign = where / (new_id().text if within else MESSAGE_NAME)
    make(foreign)
    entry = put_entry(folder)
    reaper = _reaper(folder, clock)
    reaper.run_once()
    assert os.path.lexists(foreign)
    assert not entry.exists()
    assert not within or list(where.iterdir()) == [foreign]


def _in_bucket(folder: Path, name: str) -> Path:
    (folder / name).mkdir(parents=True)
    return put_entry(folder / name)


def test_what_lies_in_buckets_is_unlinked_and_buckets_of_long_ago_go(
    folder: Path, clock: FakeClock
) -> None:
    entries = [_in_bucket(folder, name) for name in ("0192f3a2/7c", "0192f3a3", "7fffffff/00")]
    entries.append(put_entry(folder / "0192f3a2"))
    reaper = _reaper(folder, clock)
    assert reaper.run_once() == 4
    assert not any(entry.exists() for entry in entries)
    assert [path.name for path in folder.iterdir()] == ["7fffffff"]


def test_what_comes_to_a_bucket_is_found(folder: Path, clock: FakeClock) -> None:
    """The bucket's mtime changes, and not that of remove/."""
    _in_bucket(folder, "7fffffff")
    reaper = _reaper(folder, clock)
    assert reaper.run_once() == 1
    make_old(folder)
    make_old(folder / "7fffffff")
    assert reaper.run_once() == 0
    put_entry(folder / "7fffffff")
    clock.advance(60)
    assert reaper.run_once() == 1


def test_what_is_kept_in_a_bucket_is_told_of(folder: Path, clock: FakeClock) -> None:
    entry = _in_bucket(folder, "0192f3a2/7c")
    reaper = _reaper(folder, clock, keep_s=60)
    clock.reach(ctime_ms(entry) + 59_999)
    assert reaper.run_once() == 0
    assert reaper.next_due_s() == pytest.approx(0.001)
    assert entry.exists()


def test_a_deleted_queue_s_buckets_go_with_it(folder: Path, clock: FakeClock) -> None:
    deleted = _deleted_queue(folder, 2)
    for name in ("p9-0192f3a2-3/7c", "7fffffff"):
        (deleted / name).mkdir(parents=True)
        put_file(deleted / name / new_id().text, b"body")
    assert _reaper(folder, clock).run_once() == 5
    assert not deleted.exists()


def test_foreign_names_in_buckets_are_left_alone(folder: Path, clock: FakeClock) -> None:
    _in_bucket(folder, "0192f3a2")
    foreign = put_file(folder / "0192f3a2" / "README")
    deleted = _deleted_queue(folder, 1)
    (deleted / "0192f3a2").mkdir()
    kept = put_file(deleted / "0192f3a2" / "README")
    _reaper(folder, clock).run_once()
    assert foreign.exists()
    assert kept.exists()


def test_a_pass_ends_after_so_many_names_and_the_next_goes_on(
    folder: Path, clock: FakeClock
) -> None:
    deleted = _deleted_queue(folder, 25)
    for rest in (15, 5):
        assert reap(Files(), str(folder), clock.now_ms(), 0, limit=10).more
        assert len(list(deleted.iterdir())) == rest
    last = reap(Files(), str(folder), clock.now_ms(), 0, limit=10)
    assert (last.files, last.folders, last.more) == (5, 1, False)
