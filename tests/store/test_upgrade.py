"""Converts roots of older formats."""

import errno
import os
from pathlib import Path

import pytest
from harness.audits import assert_audits_clean
from harness.clock import FakeClock
from harness.faults import FaultyFiles
from harness.folders import message_files
from harness.old_format import KINDS, OLD_LINE, make_old

from mq.model.errors import KeyTaken, MqError, StartupError
from mq.model.names import Key, MessageId, QueueName, UuidSource
from mq.store.core.root import Root
from mq.store.disk.files import Files
from mq.store.disk.flush import FsyncFlusher, NoFlusher
from mq.store.disk.group import run_alone
from mq.store.format.layout import FORMAT_LINE, Layout
from mq.store.opening import open_root, root_of
from mq.store.operations.publish import Draft, publish
from mq.store.operations.queues import create_queue
from mq.store.upgrade import Upgraded, upgrade

QUEUE = QueueName.parse("orders")
OTHER = QueueName.parse("others")
KEY = Key("night")
ONCE = Key("once")
CALLS_MAX = 200
CHANGES = ("create", "rename", "unlink", "rmdir", "link")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def draft(root: Root, *, is_once: bool = False, key: Key | None = KEY) -> Draft:
    message_id = MessageId(UuidSource(root.clock).next(), key=key)
    idempotency = ONCE if is_once else None
    return Draft(QUEUE, message_id, root.now_ms(), idempotency=idempotency)


def old_root(top: Path, clock: FakeClock) -> list[str]:
    """A root with a message that has both keys, and what deleted queues have left. Returns the
    message.
    """
    root = open_root(str(top), Files(), clock)
    for queue in (QUEUE, OTHER):
        run_alone(create_queue(root, queue), NoFlusher())
    run_alone(publish(root, draft(root, is_once=True), b"x"), NoFlusher())
    make_old(top)
    uuid = UuidSource(clock).next()
    for folder in ("keys/gone", "groups/gone", f"remove/gone:{uuid}.k", f"remove/gone:{uuid}.i"):
        (top / folder / "0f").mkdir(parents=True, mode=0o700)
        (top / folder / "0f" / "x").symlink_to(f"{uuid},k=x")
        (top / folder / "0f" / ".lock").touch()
    return message_files(top)["queues"]


def assert_converted(top: Path, clock: FakeClock, messages: list[str]) -> None:
    assert (top / "format").read_text() == FORMAT_LINE
    assert not [kind for kind in KINDS if (top / kind).exists()]
    assert os.listdir(top / "remove") == []
    assert message_files(top)["queues"] == messages
    assert_audits_clean(top)
    root = open_root(str(top), Files(), clock)
    with pytest.raises(KeyTaken):
        run_alone(publish(root, draft(root), b"y"), NoFlusher())
    first = run_alone(publish(root, draft(root, is_once=True, key=None), b"y"), NoFlusher())
    assert messages == [f"{QUEUE.text}:{first.text}"]


def converted(top: Path, clock: FakeClock, files: Files) -> Upgraded | None:
    flusher = FsyncFlusher(files, 1)
    try:
        return upgrade(root_of(Layout.of(top), files, clock), flusher)
    finally:
        flusher.close()


def test_a_root_keeps_its_messages_and_keys(tmp_path: Path, clock: FakeClock) -> None:
    top = tmp_path / "root"
    messages = old_root(top, clock)
    with pytest.raises(StartupError, match=f"run: mqctl upgrade {top}"):
        open_root(str(top), Files(), clock)
    assert converted(top, clock, Files()) == Upgraded(OLD_LINE.strip(), moved=2, removed=4)
    assert_converted(top, clock, messages)
    assert converted(top, clock, Files()) is None


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_conversion_that_ends_at_any_call_goes_on(tmp_path: Path, code: int) -> None:
    """No mq starts on the root until all of it is there."""
    for after in range(CALLS_MAX):
        top, files, clock = tmp_path / str(after), FaultyFiles(), FakeClock()
        messages = old_root(top, clock)
        fault = files.fail("", code, times=1, after=after)
        try:
            converted(top, clock, files)
        except (OSError, MqError):
            if (top / "format").read_text() != FORMAT_LINE:
                with pytest.raises(StartupError):
                    open_root(str(top), Files(), clock)
        assert files.open_paths() == [], str(fault)
        converted(top, clock, Files())
        assert_converted(top, clock, messages)
        if not fault.hits:
            return
    raise AssertionError("it never comes to an end")


def test_all_is_flushed_before_the_format_says_so(tmp_path: Path, clock: FakeClock) -> None:
    """Also where the file system does not keep the order of changes."""
    files = FaultyFiles()
    old_root(tmp_path / "root", clock)
    converted(tmp_path / "root", clock, files)
    flushed = files.calls.index(("sync_file_system", str(tmp_path / "root")))
    moved = [
        number
        for number, (name, path) in enumerate(files.calls)
        if name in CHANGES and "format" not in path
    ]
    assert moved
    assert max(moved) < flushed
    assert any("/.format." in path for _, path in files.calls[flushed:])


def test_foreign_files_among_the_keys_stay(tmp_path: Path, clock: FakeClock) -> None:
    top = tmp_path / "root"
    old_root(top, clock)
    (top / "keys" / "gone" / "0f" / "notes").write_text("mine")
    (top / "keys" / "README").write_text("mine")
    assert converted(top, clock, Files()) is not None
    assert (top / "keys" / "gone" / "0f" / "notes").read_text() == "mine"
    assert (top / "keys" / "README").read_text() == "mine"


def test_a_root_of_an_unknown_format_is_refused(tmp_path: Path, clock: FakeClock) -> None:
    open_root(str(tmp_path / "root"), Files(), clock)
    (tmp_path / "root" / "format").write_text("mq 9\n")
    with pytest.raises(StartupError, match="'mq 9', which this mq does not know"):
        converted(tmp_path / "root", clock, Files())
