"""The files in which members tell what they do: written when due, whole, and read by anybody."""

import errno
import json
from pathlib import Path

import pytest
from harness.clock import FakeClock
from harness.faults import FaultyFiles
from harness.logged import event

from mq.model.members import TOLD_EVERY_S, TOLD_GONE_S, Doing
from mq.model.names import QueueName
from mq.store.core.root import Root
from mq.store.members.files import TOLD_SOONEST_S, MemberFile, read_member, read_members
from mq.store.opening import open_root

IDLE = Doing("file")
BUSY = Doing("file", leader="a", queues=(QueueName.parse("orders"),))


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles()


@pytest.fixture
def opened(tmp_path: Path, files: FaultyFiles, clock: FakeClock) -> Root:
    return open_root(str(tmp_path / "root"), files, clock)


def names(root: Root) -> list[str]:
    return sorted(path.name for path in Path(root.layout.members).iterdir())


def told_ms(root: Root) -> int:
    member = read_member(root, "a")
    assert member is not None
    return member.told_ms


def test_a_member_tells_who_it_is_and_what_it_does(opened: Root, clock: FakeClock) -> None:
    MemberFile(opened, "a").tell(BUSY)
    (member,) = read_members(opened)
    assert (member.name, member.doing, member.queues_count) == ("a", BUSY, 1)
    assert (member.told_ms, member.started_ms) == (clock.now_ms(), clock.now_ms())
    assert member.leads
    # By `ls` and `jq` too.
    (path,) = Path(opened.layout.members).iterdir()
    assert path.name == "a.json"
    assert json.loads(path.read_text())["queues"] == {"count": 1, "names": ["orders"]}


def test_what_is_new_is_told_soon_and_the_same_again_after_some_time(
    opened: Root, clock: FakeClock
) -> None:
    told = MemberFile(opened, "a")
    assert (told.is_due(), told.next_due_s()) == (True, 0.0)
    told.tell(IDLE)
    first_ms = told_ms(opened)
    assert not told.is_due()
    clock.advance(TOLD_SOONEST_S / 2)
    told.tell(BUSY)
    assert told_ms(opened) == first_ms, "too soon"
    assert told.next_due_s() == TOLD_SOONEST_S / 2
    clock.advance(TOLD_SOONEST_S / 2)
    assert told.is_due()
    told.tell(BUSY)
    second_ms = told_ms(opened)
    assert second_ms == clock.now_ms()
    while clock.now_ms() < second_ms + (TOLD_EVERY_S - TOLD_SOONEST_S) * 1000:
        clock.advance(TOLD_SOONEST_S)
        told.tell(BUSY)
        assert told_ms(opened) == second_ms, "nothing new"
    clock.advance(TOLD_SOONEST_S)
    told.tell(BUSY)
    assert told_ms(opened) == second_ms + TOLD_EVERY_S * 1000


def test_a_member_that_tells_nothing_is_gone_and_one_that_ends_takes_its_file_away(
    opened: Root, clock: FakeClock
) -> None:
    a, b = MemberFile(opened, "a"), MemberFile(opened, "b")
    a.tell(IDLE)
    b.tell(IDLE)
    clock.advance(TOLD_GONE_S + 1)
    b.tell(IDLE)
    gone = {each.name: each.is_gone(clock.now_ms()) for each in read_members(opened)}
    assert gone == {"a": True, "b": False}
    b.leave()
    b.leave()
    assert [each.name for each in read_members(opened)] == ["a"]


@pytest.mark.parametrize("call", ["create", "write", "rename"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_what_cannot_be_told_is_said_once_and_told_later(
    call: str,
    code: int,
    opened: Root,
    files: FaultyFiles,
    clock: FakeClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    told = MemberFile(opened, "a")
    told.tell(IDLE)
    fault = files.fail(call, code, where="members/", times=2)
    for _ in range(2):
        clock.advance(TOLD_SOONEST_S)
        told.tell(BUSY)
        assert read_members(opened)[0].doing == IDLE
    assert fault.hits == 2
    assert [event(each) for each in caplog.records] == [
        "could not write this member's report; trying again"
    ]
    clock.advance(TOLD_SOONEST_S)
    told.tell(BUSY)
    assert read_members(opened)[0].doing == BUSY
    assert names(opened) == ["a.json"], "nothing half written is left"


def test_nothing_of_it_is_flushed(opened: Root, files: FaultyFiles) -> None:
    files.calls.clear()
    MemberFile(opened, "a").tell(IDLE)
    assert {call for call, _ in files.calls} & {"sync", "sync_folder", "sync_file_system"} == set()


def test_what_is_not_a_member_s_is_left_out(opened: Root) -> None:
    MemberFile(opened, "a").tell(IDLE)
    folder = Path(opened.layout.members)
    text = (folder / "a.json").read_bytes()
    (folder / "b.json").write_bytes(text)  # Copied by hand: it tells of another.
    (folder / "c.json").write_bytes(text[:20])
    (folder / "d.json").mkdir()
    (folder / "e.json").symlink_to(folder / "a.json")
    (folder / ".a.json.0123456789abcdef").write_bytes(text)
    (folder / "refresh").touch()
    (folder / "a.lease").touch()
    assert [each.name for each in read_members(opened)] == ["a"]
