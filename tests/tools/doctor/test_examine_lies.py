"""File systems that do not do what mq needs: each lie is found, and nothing else is said wrong."""

import pytest
from tools.doctor.examining import SOON_S, Mounts, examined, finding, grounds, levels

from mq.model.clock import SystemClock
from mq.store.disk.mounts import file_system_of
from mq.tools.doctor.across import delays, judge_delays
from mq.tools.doctor.contests import judge_race, race
from mq.tools.doctor.findings import SOMETHING_WRONG, Level, exit_code
from mq.tools.doctor.partners import paired
from mq.tools.doctor.times import judge_offset, offset_ms

pytestmark = pytest.mark.needs_root


def test_no_fsync_of_folders_no_types_and_coarse_times_are_less_and_not_wrong(
    mounts: Mounts,
) -> None:
    where = mounts.mount("mount", "folders", "types", mtime_step_ns=1000)
    found = examined(where)
    assert exit_code(found.findings) == 0
    assert levels(found)["fsync of folders"] is Level.WARN
    assert finding(found, "mtimes").facts["kept_to_ns"] == 1000
    assert found.conclusion.durability == "media, but for folders"
    assert found.conclusion.clustering == "many processes on one machine"


def test_what_no_mq_runs_on_is_all_told_at_once(mounts: Mounts) -> None:
    where = mounts.mount("mount", "links", "cases", "lengths", mtime_step_ns=10**9)
    found = examined(where)
    assert exit_code(found.findings) == SOMETHING_WRONG
    assert levels(found)["mtimes"] is Level.WRONG
    names = finding(found, "names")
    assert names.level is Level.WRONG
    assert names.facts["symbolic_links"] is False
    assert names.facts["case_sensitive"] is False
    assert names.facts["name_bytes_max"] == 143
    assert (found.conclusion.durability, found.conclusion.clustering) == ("none", "none")


def test_locks_that_everybody_has_lose_updates_on_one_machine(mounts: Mounts) -> None:
    found = examined(mounts.mount("mount", "locks"))
    assert levels(found)["locks"] is Level.WRONG
    assert levels(found)["updates"] is Level.WRONG
    assert finding(found, "updates").facts["lost"] != 0
    assert found.conclusion.clustering == "one process"


def test_an_fsync_that_fails_is_no_durability(mounts: Mounts) -> None:
    found = examined(mounts.mount("mount", "fsync"))
    assert levels(found)["fsync of files"] is Level.WRONG
    assert found.conclusion.durability == "none"


def test_two_mounts_that_see_each_other_are_many_machines(mounts: Mounts) -> None:
    found = examined(mounts.mount("one"), mounts.mount("other"))
    assert exit_code(found.findings) == 0
    # As libfuse does it: nobody can ask of what is unlinked.
    assert finding(found, "names").level is Level.WARN
    assert finding(found, "same storage").level is Level.OK
    assert finding(found, "locks across mounts").level is Level.OK
    assert found.conclusion.clustering == "many machines"


def test_a_mount_that_remembers_what_it_read_loses_updates(mounts: Mounts) -> None:
    found = examined(mounts.mount("one", "contents"), mounts.mount("other", "contents"))
    assert exit_code(found.findings) == SOMETHING_WRONG
    assert "updates" not in levels(found)
    updates = finding(found, "updates across mounts")
    assert updates.level is Level.WRONG
    assert updates.facts["lost_in_place"] != 0
    assert updates.facts["lost_by_rename"] != 0
    assert found.conclusion.clustering == "many processes on one machine"


def test_a_rename_that_leaves_the_old_name_is_won_by_both(mounts: Mounts) -> None:
    where = mounts.mount("mount", "claims")
    with grounds(where) as ground, paired(ground.folder, ground.folder, SystemClock(), 1.0) as pair:
        found = race(ground, pair, "claim", claims=True)
    assert found.by_both > 0
    assert judge_race("claims", found).level is Level.WRONG


def test_a_name_that_stays_hidden_and_an_mtime_that_stays_old_are_told(mounts: Mounts) -> None:
    where, other = mounts.mount("one"), mounts.mount("other", "times", negative_s=3600)
    with (
        grounds(where) as ground,
        paired(ground.folder, ground.seen_from(str(other)), SystemClock(), SOON_S) as pair,
    ):
        found = delays(pair)
    assert found.listing_s is not None
    assert found.name_s is not None
    assert found.looked_for_s is None
    assert found.mtime_s is None
    assert not found.opened_sees_mtime
    assert judge_delays(found).level is Level.WRONG


@pytest.mark.parametrize(("kind", "level"), [("sshfs", Level.NOTE), ("lies", Level.WRONG)])
def test_a_clock_that_is_ahead_is_followed_where_mq_knows_of_it(
    mounts: Mounts, kind: str, level: Level
) -> None:
    where = mounts.mount("mount", kind=kind, clock_offset_ms=60_000)
    with grounds(where) as ground:
        ahead_ms = offset_ms(ground)
    assert 50_000 < ahead_ms < 70_000
    assert judge_offset(ahead_ms, file_system_of(str(where))).level is level
