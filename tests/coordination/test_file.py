"""The file coordinator: what lies in members/, clocks that are set, and disks that fail."""

import errno
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from harness.faults import FaultyFiles
from harness.members import FileBench, queues_named

from mq.coordination.coordinator import ASSIGN_EVERY_S, Pacing
from mq.coordination.file import FileCoordinator
from mq.coordination.leases import MEMBER_FORGOTTEN_S
from mq.model.errors import StartupError
from mq.store.disk.files import Files

ORDERS = queues_named("orders")[0]


@pytest.fixture
def three(file_bench: FileBench) -> FileBench:
    """Three members, of whom `a` leads."""
    file_bench.queues = queues_named("q1", "q2", "q3", "q4", "q5", "q6")
    file_bench.join("a", "b", "c")
    file_bench.settle()
    assert file_bench.leader() == "a"
    return file_bench


def members(bench: FileBench) -> Path:
    return bench.path / "members"


def test_what_lies_there_says_it(three: FileBench) -> None:
    said = json.loads((members(three) / "leader").read_text())
    assert said == {"version": 1, "leader": "a", "assigned": {"b": ["q2", "q5"], "c": ["q3", "q6"]}}
    assert {each.name for each in members(three).iterdir()} == {
        "leader",
        ".lock",
        "a.lease",
        "b.lease",
        "c.lease",
    }


def test_one_that_stops_leaves_no_lease(three: FileBench) -> None:
    three.leave("b")
    assert not (members(three) / "b.lease").exists()


def test_no_two_processes_are_one_member(three: FileBench) -> None:
    second = FileCoordinator(three.root, "a")
    with pytest.raises(StartupError, match="another process is the member a"):
        second.start()
    second.run_once(three.queues)
    assert not second.has(ORDERS)
    assert not second.view().is_connected
    assert three.leader() == "a"


def test_members_of_long_ago_are_swept(three: FileBench) -> None:
    three.kill("b")
    assert (members(three) / "b.lease").exists()
    three.clock.advance(MEMBER_FORGOTTEN_S - ASSIGN_EVERY_S)
    three.pass_s(3)
    assert (members(three) / "b.lease").exists()
    three.pass_s(3 * ASSIGN_EVERY_S)
    assert not (members(three) / "b.lease").exists()
    three.settle()


def test_a_lease_that_somebody_took_away_is_made_again(three: FileBench) -> None:
    for name in "abc":
        (members(three) / f"{name}.lease").unlink()
    # By this, others are told that it has left; at its next look it finds so itself.
    three.clock.advance(Pacing().look_s)
    for member in three.members.values():
        member.run_once(three.queues)
    three.pass_s(ASSIGN_EVERY_S)
    three.settle()
    assert (members(three) / "a.lease").exists()


@pytest.mark.parametrize("text", [b"", b"{", b'{"version": 1, "leader": "nobody", "assigned": {}}'])
def test_a_leaders_file_that_says_nothing_is_written_anew(three: FileBench, text: bytes) -> None:
    path = members(three) / "leader"
    path.unlink()
    path.write_bytes(text)
    three.pass_s(2)
    three.settle()
    assert json.loads(path.read_text())["leader"] == three.leader()


def test_foreign_names_are_left_alone(three: FileBench) -> None:
    names = [".lease", "a b.lease", "notes", ".hidden", "sub.lease"]
    for name in names[:-1]:
        (members(three) / name).touch()
    (members(three) / names[-1]).mkdir()
    three.pass_s(2 * ASSIGN_EVERY_S)
    three.pass_s(2 * ASSIGN_EVERY_S)
    three.settle()
    assert all((members(three) / name).exists() for name in names)


@pytest.mark.parametrize("step_s", [-3600.0, 3600.0])
def test_a_clock_that_is_set_moves_no_queue(three: FileBench, step_s: float) -> None:
    """By an hour, in either direction: leases look old, or of the future, until they are renewed,
    and yet all go on; one that has just come is believed by its steady clock.
    """
    before = three.shares()
    three.clock.set_ms(three.clock.now_ms() + round(step_s * 1000))
    three.pass_s(Pacing().renew_s + 1)
    assert three.leader() == "a"
    three.pass_s(ASSIGN_EVERY_S)
    assert three.shares() == before
    three.kill("a")
    three.settle()
    assert three.leader() != "a"


def test_a_machine_that_slept_has_nothing_when_it_wakes_up(three: FileBench) -> None:
    """Its steady clock stood still."""
    three.clock.set_ms(three.clock.now_ms() + 60_000)
    assert three.shares() == {"a": [], "b": [], "c": []}


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT], ids=["ENOSPC", "EDQUOT"])
def test_who_is_alone_leads_also_where_the_disk_is_full(file_bench: FileBench, code: int) -> None:
    """After a restart for instance. What frees room is perhaps among its work."""
    file_bench.queues = queues_named("orders")
    file_bench.join("before")
    file_bench.settle()
    file_bench.kill("before")
    files = file_bench.files["a"] = FaultyFiles()
    full = files.fail("create", code, "members")
    file_bench.join("a")
    file_bench.pass_s(Pacing().gone_s + Pacing().believe_s)
    assert full.hits
    member = file_bench.members["a"]
    assert member.has(ORDERS)
    assert member.view().leader == "a"
    assert json.loads((members(file_bench) / "leader").read_text())["leader"] == "before"
    files.heal()
    file_bench.pass_s(2 * Pacing().look_s)
    assert json.loads((members(file_bench) / "leader").read_text())["leader"] == "a"
    assert member.has(ORDERS)


def test_a_lock_that_a_stopped_process_holds_is_waited_for_no_longer(three: FileBench) -> None:
    files = Files()
    descriptor = files.open_kept(str(members(three) / ".lock"))
    try:
        assert files.lock(descriptor)
        three.kill("a")
        three.pass_s(Pacing().gone_s + 2)
        assert three.leader() is None
        three.pass_s(Pacing().gone_s + 2)
        assert three.leader() in ("b", "c")
        three.settle()
    finally:
        files.close(descriptor)


def test_a_leader_that_lost_the_lead_does_not_write_over_it(three: FileBench) -> None:
    """It was stopped, and another leads by now."""
    three.stop_still("a")
    three.until(lambda: three.leader() in ("b", "c"), "another leader")
    leads = three.leader()
    written = (members(three) / "leader").read_bytes()
    woken = three.members["a"]
    woken.run_once(three.queues)
    assert woken.view().leader == leads
    assert (members(three) / "leader").read_bytes() == written
    assert not any(woken.has(queue) for queue in three.queues)


def test_a_disk_that_fails_is_nobodys_end(three: FileBench) -> None:
    for name in "abc":
        three.cut_off(name)
    three.pass_s(Pacing().believe_s + 1)
    assert three.shares() == {"a": [], "b": [], "c": []}
    for name in "abc":
        three.mend(name)
    three.settle()


def test_what_was_dealt_is_not_written_again(three: FileBench) -> None:
    before = (members(three) / "leader").stat().st_ino
    three.pass_s(3 * ASSIGN_EVERY_S)
    assert (members(three) / "leader").stat().st_ino == before


def test_what_a_dead_leader_had_goes_on_within_two_refreshes(three: FileBench) -> None:
    three.kill("a")
    three.pass_s(2 * ASSIGN_EVERY_S)
    assert three.all_are_owned()


@pytest.mark.certificate
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOENT, errno.ENOSPC])
def test_every_call_may_fail(root: Path, code: int) -> None:
    """Each of them once: none of it reaches whoever makes the turns, and all is dealt out."""
    for after in range(1000):
        bench = FileBench(root)
        bench.queues = queues_named("q1", "q2", "q3")
        files = bench.files["a"] = FaultyFiles()
        fault = files.fail("", code, "/members", times=1, after=after)
        bench.join("a", "b")
        bench.settle()
        bench.leave("a")
        bench.settle()
        bench.end()
        if not fault.hits:
            break
        assert files.open_paths() == []
    assert after > 20


def test_who_comes_is_dealt_to_at_once(three: FileBench) -> None:
    """And has it when who had it before has surely given it up."""
    three.join("d")
    three.pass_s(Pacing().believe_s - 1)
    assert three.shares()["d"] == []
    three.pass_s(5)
    assert len(three.shares()["d"]) == 1
    assert three.all_are_owned()


def test_who_was_away_for_long_and_not_missed_begins_anew(three: FileBench) -> None:
    """Others may have dealt, and dealt back, meanwhile."""
    three.stop_still("b")
    three.pass_s(Pacing().believe_s + 1)
    three.wake_up("b")
    three.pass_s(1)
    assert three.members["b"].view().assigned["q2"] == "b"
    assert three.shares()["b"] == []
    three.settle()


class LateFiles(Files):
    """Files of one that is stopped just before it gets a lock, and goes on when it is too late."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: Callable[[], None] | None = None

    def lock(self, descriptor: int) -> bool:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return super().lock(descriptor)


@pytest.mark.parametrize("leads", [True, False])
def test_one_that_was_about_to_write_reads_again(file_bench: FileBench, leads: bool) -> None:
    """By then another leads."""
    file_bench.queues = queues_named("q1", "q2", "q3")
    late = file_bench.files["a"] = LateFiles()
    file_bench.join("a")
    if leads:
        file_bench.settle()
    file_bench.join("b")
    file_bench.members["b"].start()
    path = members(file_bench) / "leader"
    said = b'{"version": 1, "leader": "b", "assigned": {"a": ["q1"]}}'
    late.meanwhile = lambda: bool(path.write_bytes(said)) or None
    file_bench.clock.advance(ASSIGN_EVERY_S)
    file_bench.members["b"].start()
    file_bench.members["a"].run_once(file_bench.queues)
    assert late.meanwhile is None
    assert path.read_bytes() == said
    assert file_bench.members["a"].view().leader == "b"
    file_bench.settle()
    assert file_bench.leader() == "b"
