"""How many cores a process may use, by files as Linux and its containers have them."""

import os
from pathlib import Path

import pytest

from mq.runtime.cores import usable_cores

CORES = len(os.sched_getaffinity(0))


class Machine:
    """A process's files in /proc, and its control groups' below `groups`."""

    def __init__(self, where: Path) -> None:
        self.proc, self.groups = where / "proc", where / "groups"
        self.proc.mkdir()
        self.groups.mkdir()

    def is_in(
        self, cgroup: str, mounted: str = "/", kind: str = "cgroup2", options: str = ""
    ) -> None:
        mount = f"30 23 0:26 {mounted} {self.groups} rw shared:4 - {kind} {kind} rw{options}\n"
        (self.proc / "cgroup").write_text(cgroup)
        (self.proc / "mountinfo").write_text("22 1 8:1 / / rw - ext4 /dev/sda1 rw\n" + mount)

    def has(self, file: str, text: str) -> None:
        path = self.groups / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_without_a_quota_all_cores_of_the_affinity_count(machine: Machine) -> None:
    machine.is_in("0::/system.slice/mq.service\n")
    machine.has("system.slice/mq.service/cpu.max", "max 100000\n")
    assert usable_cores(machine.proc) == CORES


def test_without_proc_all_cores_count(tmp_path: Path) -> None:
    assert usable_cores(tmp_path / "none") == CORES


@pytest.mark.parametrize(
    ("quota", "cores"), [("100000 100000", 1), ("50000 100000", 1), ("1000 100000", 1)]
)
def test_the_quota_of_its_own_group_counts(machine: Machine, quota: str, cores: int) -> None:
    machine.is_in("0::/mq\n")
    machine.has("mq/cpu.max", quota + "\n")
    assert usable_cores(machine.proc) == cores


def test_a_part_of_a_core_counts_as_one(machine: Machine) -> None:
    machine.is_in("0::/mq\n")
    machine.has("mq/cpu.max", "101000 100000\n")
    assert usable_cores(machine.proc) == min(CORES, 2)


def test_the_quota_of_a_group_around_it_counts(machine: Machine) -> None:
    machine.is_in("0::/pods/pod1/mq\n")
    machine.has("pods/cpu.max", "100000 100000\n")
    machine.has("pods/pod1/mq/cpu.max", "max 100000\n")
    assert usable_cores(machine.proc) == 1


def test_a_container_sees_its_own_group_as_the_mount(machine: Machine) -> None:
    machine.is_in("0::/../other/mq\n", mounted="/docker/1234")
    machine.has("cpu.max", "100000 100000\n")
    assert usable_cores(machine.proc) == 1


def test_a_mount_of_a_part_of_the_groups_leads_to_the_process_s(machine: Machine) -> None:
    machine.is_in("0::/docker/1234/mq\n", mounted="/docker/1234")
    machine.has("mq/cpu.max", "100000 100000\n")
    assert usable_cores(machine.proc) == 1


def test_the_first_version_s_quota_counts(machine: Machine) -> None:
    machine.is_in("4:memory:/a\n3:cpu,cpuacct:/mq\n", kind="cgroup", options=",cpu,cpuacct")
    machine.has("mq/cpu.cfs_quota_us", "100000\n")
    machine.has("mq/cpu.cfs_period_us", "100000\n")
    assert usable_cores(machine.proc) == 1


def test_no_quota_is_minus_one_in_the_first_version(machine: Machine) -> None:
    machine.is_in("3:cpu:/\n", kind="cgroup", options=",cpu")
    machine.has("cpu.cfs_quota_us", "-1\n")
    machine.has("cpu.cfs_period_us", "100000\n")
    assert usable_cores(machine.proc) == CORES


@pytest.mark.parametrize("text", ["", "\n", "many 100000\n", "100000 0\n", "100000\n"])
def test_a_file_that_says_nothing_sets_no_quota(machine: Machine, text: str) -> None:
    machine.is_in("0::/mq\n")
    machine.has("mq/cpu.max", text)
    assert usable_cores(machine.proc) == CORES
