"""Converts roots of older formats."""

import errno
import os
from collections.abc import Callable
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
from mq.store.core.turns import take
from mq.store.disk.files import Files
from mq.store.disk.flush import FsyncFlusher, NoFlusher
from mq.store.disk.group import run_alone
from mq.store.format.layout import FORMAT_LINE, Layout
from mq.store.format.trends import trends_turn
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


def test_a_root_that_was_converted_is_flushed_once_more(tmp_path: Path, clock: FakeClock) -> None:
    """The process that converted it may have died before its last flush."""
    files, top = FaultyFiles(), tmp_path / "root"
    open_root(str(top), Files(), clock)
    assert converted(top, clock, files) is None
    assert ("sync_folder", str(top)) in files.calls


def test_foreign_files_among_the_keys_stay(tmp_path: Path, clock: FakeClock) -> None:
    top = tmp_path / "root"
    old_root(top, clock)
    (top / "keys" / "gone" / "0f" / "notes").write_text("mine")
    (top / "keys" / "README").write_text("mine")
    assert converted(top, clock, Files()) is not None
    assert (top / "keys" / "gone" / "0f" / "notes").read_text() == "mine"
    assert (top / "keys" / "README").read_text() == "mine"


def test_foreign_files_keep_their_folder_and_are_named(tmp_path: Path, clock: FakeClock) -> None:
    top = tmp_path / "root"
    old_root(top, clock)
    (top / "keys" / "README").write_text("mine")
    done = converted(top, clock, Files())
    assert done is not None
    assert done.kept == (str(top / "keys"),)


def in_place_of_a_queue(top: Path) -> Path:
    (top / "keys" / "linked" / "0f").mkdir(parents=True)
    (top / "queues" / "linked").symlink_to(top.parent)
    return top / "queues" / "linked"


def in_place_of_links(top: Path) -> Path:
    (top / "queues" / "orders" / ".keys").touch()
    return top / "queues" / "orders" / ".keys"


def in_place_of_all_links(top: Path) -> Path:
    (top / "keys").rename(top.parent / "keys")
    (top / "keys").symlink_to(top.parent / "keys")
    return top / "keys"


@pytest.mark.parametrize("damage", [in_place_of_a_queue, in_place_of_links, in_place_of_all_links])
def test_what_is_in_the_way_is_named_before_anything_changes(
    tmp_path: Path, clock: FakeClock, damage: Callable[[Path], Path]
) -> None:
    top = tmp_path / "root"
    messages = old_root(top, clock)
    path = damage(top)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(StartupError, match=str(path)):
        converted(top, clock, Files())
    assert sorted(tmp_path.rglob("*")) == before
    assert (top / "format").read_text() == OLD_LINE
    if damage is in_place_of_all_links:
        path.unlink()
        (tmp_path / "keys").rename(top / "keys")
    else:
        path.unlink()
    assert converted(top, clock, Files()) is not None
    assert message_files(top)["queues"] == messages


def test_what_daemons_and_others_left_is_no_obstacle(tmp_path: Path, clock: FakeClock) -> None:
    top = tmp_path / "root"
    messages = old_root(top, clock)
    (top / ".doctor.0123456789abcdef").mkdir()
    (top / ".format.0123456789abcdef").write_text("mq")
    (top / "remove" / f"{OTHER.text}:{UuidSource(clock).next()}.k").touch()
    (top / "members").rmdir()
    assert converted(top, clock, Files()) is not None
    assert message_files(top)["queues"] == messages
    assert not (top / ".format.0123456789abcdef").exists()


def test_a_root_whose_load_an_mq_records_is_refused(tmp_path: Path, clock: FakeClock) -> None:
    top = tmp_path / "root"
    old_root(top, clock)
    root = root_of(Layout.of(top), Files(), clock)
    (top / "trends").mkdir()
    turn = take(root, trends_turn(root.layout))
    assert turn is not None
    with pytest.raises(StartupError, match="an mq is at work"):
        converted(top, clock, Files())
    turn.end()
    assert converted(top, clock, Files()) is not None


def test_a_root_of_an_unknown_format_is_refused(tmp_path: Path, clock: FakeClock) -> None:
    open_root(str(tmp_path / "root"), Files(), clock)
    (tmp_path / "root" / "format").write_text("mq 9\n")
    with pytest.raises(StartupError, match="'mq 9', which this mq does not know"):
        converted(tmp_path / "root", clock, Files())
