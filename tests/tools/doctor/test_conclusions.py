"""What is made of facts: of mounts' options, times, races, and of all findings together."""

import resource

import pytest

from mq.model.limits import MIB
from mq.store.disk.mounts import FileSystem
from mq.tools.doctor.across import Delays, Same, judge_delays, judge_same
from mq.tools.doctor.conclusions import conclude
from mq.tools.doctor.contests import (
    Additions,
    Locks,
    Race,
    judge_additions,
    judge_locks,
    judge_race,
)
from mq.tools.doctor.examine import judge_format
from mq.tools.doctor.findings import Finding, Level, exit_code, worst
from mq.tools.doctor.flushes import Flushes, judge_file_flushes, judge_folder_flushes, judge_syncfs
from mq.tools.doctor.machine import (
    Rights,
    Room,
    judge_descriptors,
    judge_rights,
    judge_room,
    judge_told,
)
from mq.tools.doctor.names import Journey, Names, Renames, judge_journey, judge_names, judge_renames
from mq.tools.doctor.options import judge_mount, locks_are_local
from mq.tools.doctor.times import Kept, judge_kept, judge_offset

EXT4 = FileSystem("ext4", "/")
UNORDERED = EXT4
"""It has no journal."""
XFS = FileSystem("xfs", "/")
GOOD_NFS = "rw,vers=4.2,hard,lookupcache=positive,acdirmin=1,acdirmax=1,local_lock=none"


def mounted(kind: str, options: str) -> FileSystem:
    return FileSystem(kind, "/mnt", "0:1", tuple(options.split(",")))


@pytest.mark.parametrize(
    ("kind", "options", "level", "breaks", "says"),
    [
        ("ext4", "rw,relatime", Level.OK, set(), ""),
        ("ext4", "ro,relatime", Level.WRONG, set(), "read-only"),
        ("ext4", "rw,nobarrier", Level.WRONG, {"durability"}, "barriers"),
        ("ext4", "rw,barrier=0", Level.WRONG, {"durability"}, "barriers"),
        ("xfs", "rw,sync", Level.WARN, set(), "sync"),
        ("tmpfs", "rw", Level.WARN, set(), "memory"),
        ("overlay", "rw,volatile", Level.WRONG, {"durability"}, "volatile"),
        ("overlay", "rw", Level.WARN, set(), "container"),
        ("nfs4", GOOD_NFS, Level.OK, set(), ""),
        ("nfs4", GOOD_NFS.replace("4.2", "4.0"), Level.WRONG, {"machines"}, "vers=4.0"),
        ("nfs", GOOD_NFS.replace("4.2", "3"), Level.WRONG, {"machines"}, "vers=3"),
        ("nfs4", GOOD_NFS.replace("hard", "soft"), Level.WRONG, {"durability"}, "soft"),
        ("nfs4", GOOD_NFS.replace("hard", "softerr"), Level.WRONG, {"durability"}, "soft"),
        ("nfs4", GOOD_NFS.replace("=none", "=all"), Level.WRONG, {"machines"}, "locks"),
        ("nfs4", GOOD_NFS + ",nocto", Level.WRONG, {"machines"}, "nocto"),
        ("nfs4", GOOD_NFS.replace("positive", "all"), Level.WARN, set(), "lookupcache=all"),
        # What is as by default is not listed: lookupcache=all, acdirmin=30, acdirmax=60.
        ("nfs4", "rw,vers=4.1,hard", Level.WARN, set(), "lookupcache=all"),
        ("nfs4", "rw,vers=4.1,hard", Level.WARN, set(), "acdirmin=30, acdirmax=60"),
        ("nfs4", "rw,vers=4.1,hard,noac", Level.WARN, set(), "noac"),
        ("cifs", "rw,nobrl", Level.WRONG, {"machines"}, "nobrl"),
        ("9p", "rw,cache=loose", Level.WRONG, {"machines"}, "cache=loose"),
        ("fuse.sshfs", "rw", Level.NOTE, set(), "not tried"),
        ("unknown", "", Level.WARN, set(), "nothing is known"),
    ],
)
def test_mounts(kind: str, options: str, level: Level, breaks: set[str], says: str) -> None:
    found, broken = judge_mount(mounted(kind, options))
    assert (found.level, broken) == (level, breaks)
    assert says in found.says
    assert found.do or level in (Level.OK, Level.NOTE) or kind == "unknown"


@pytest.mark.parametrize(
    ("kind", "options", "local"),
    [
        ("ext4", "rw", False),
        ("nfs4", "rw,local_lock=none", False),
        ("nfs4", "rw,local_lock=flock", True),
        ("nfs", "rw,nolock", True),
        ("fuse.sshfs", "rw", True),
        ("unknown", "", True),
    ],
)
def test_where_another_machines_lock_is_seen(kind: str, options: str, local: bool) -> None:
    assert locks_are_local(mounted(kind, options)) is local


@pytest.mark.parametrize(
    ("near_ns", "far", "level", "step_ns"),
    [
        (1_700_000_001_123_456_007, True, Level.OK, 1),
        (1_700_000_001_123_456_007, False, Level.NOTE, 1),
        (1_700_000_001_123_456_000, True, Level.WARN, 1000),
        (1_700_000_001_123_000_000, True, Level.WRONG, 10**6),
        (1_700_000_001_120_000_000, True, Level.WRONG, 10**7),
        (1_700_000_001_000_000_000, True, Level.WRONG, 10**9),
        (1_700_000_000_000_000_000, True, Level.WRONG, 2 * 10**9),
        (5, True, Level.WRONG, None),
    ],
)
def test_mtimes(near_ns: int, far: bool, level: Level, step_ns: int | None) -> None:
    found = judge_kept(Kept(near_ns, 4_102_444_800_123_456_007 if far else 2**31 * 10**9))
    assert (found.level, found.facts["kept_to_ns"]) == (level, step_ns)


def test_a_clock_that_is_off_is_wrong_where_mq_does_not_follow_it() -> None:
    assert judge_offset(-900, EXT4).level is Level.OK
    assert judge_offset(-5000, EXT4).level is Level.WRONG
    assert judge_offset(5000, mounted("nfs4", "rw")).level is Level.NOTE


def race(left: list[int], right: list[int], there: int = 4) -> Race:
    return Race(4, left, right, there)


@pytest.mark.parametrize(
    ("found", "level"),
    [
        (race([0, 2], [1, 3]), Level.OK),
        (race([0, 1, 2, 3], []), Level.WARN),
        (race([0, 1], [1, 2, 3]), Level.WRONG),
        (race([0, 1], [2]), Level.WRONG),
        (race([0, 1], [2, 3], there=3), Level.WRONG),
    ],
)
def test_races(found: Race, level: Level) -> None:
    assert judge_race("claims", found).level is level


def test_updates() -> None:
    sound = Additions(2, [1, 3], [2, 4], 4)
    assert (sound.lost, sound.turns) == (0, 3)
    assert judge_additions("updates", sound, sound).level is Level.OK
    in_turn = Additions(2, [1, 2], [3, 4], 4)
    assert in_turn.turns == 1
    lossy = Additions(2, [1, 2], [1, 2], 2)
    found = judge_additions("updates", sound, lossy)
    assert (found.level, found.facts["lost"]) == (Level.WRONG, 2)
    alone = Additions(1, [1], [], 2)
    assert judge_additions("updates", alone, alone).level is Level.WARN


@pytest.mark.parametrize("broken", range(4))
def test_each_way_that_locks_can_fail(broken: int) -> None:
    assert judge_locks("locks", Locks(True, True, True, True)).level is Level.OK
    facts = [index != broken for index in range(4)]
    assert judge_locks("locks", Locks(*facts)).level is Level.WRONG


def test_renames() -> None:
    assert judge_renames(Renames(True, True, 9, 0, True)).level is Level.OK
    for found in (
        Renames(False, True, 9, 0, True),
        Renames(True, False, 9, 0, True),
        Renames(True, True, 9, 1, True),
        Renames(True, True, 9, 0, False),
    ):
        assert judge_renames(found).level is Level.WRONG


def test_the_folders_of_a_root() -> None:
    states = ("new", "queues", "delay", "remove")
    assert judge_journey(Journey()).level is Level.OK
    assert judge_journey(Journey(missing=states)).level is Level.OK
    assert judge_journey(Journey(missing=("delay",))).level is Level.WARN
    assert judge_journey(Journey(linked=("delay",))).level is Level.WRONG
    assert judge_journey(Journey(elsewhere=("keys",))).level is Level.WRONG
    across = judge_journey(Journey(failed=("new", "queues", 18)))
    assert across.level is Level.WRONG
    assert "one file system" in across.do


NAMES = Names(255, True, True, True, 1, 0, True, True)


def test_names() -> None:
    assert judge_names(NAMES).level is Level.OK
    assert judge_names(Names(255, True, True, True, 1, 1, True, True)).level is Level.NOTE
    assert judge_names(Names(255, True, True, True, 1, 0, False, True)).level is Level.WARN
    for wrong in (
        Names(143, True, True, True, 1, 0, True, True),
        Names(255, False, True, True, 1, 0, True, True),
        Names(255, True, False, True, 1, 0, True, True),
        Names(255, True, True, False, 1, 0, True, True),
        Names(255, True, True, True, 2, 0, True, True),
        Names(255, True, True, True, 1, 0, True, False),
    ):
        assert judge_names(wrong).level is Level.WRONG


@pytest.mark.parametrize(
    ("room", "level"),
    [
        (Room(200 * MIB, 64 * MIB, 100_000, 1000), Level.OK),
        (Room(200 * MIB, 64 * MIB, None, 0), Level.OK),
        (Room(100 * MIB, 64 * MIB, 100_000, 1000), Level.WARN),
        (Room(200 * MIB, 64 * MIB, 1500, 1000), Level.WARN),
        (Room(64 * MIB, 64 * MIB, 100_000, 1000), Level.WRONG),
        (Room(200 * MIB, 64 * MIB, 1000, 1000), Level.WRONG),
    ],
)
def test_room(room: Room, level: Level) -> None:
    assert judge_room(room).level is level


def test_descriptors() -> None:
    assert judge_descriptors(256, resource.RLIM_INFINITY).level is Level.OK
    assert judge_descriptors(1024, 1024).level is Level.WARN
    assert judge_descriptors(256, 256).level is Level.WRONG


@pytest.mark.parametrize(
    ("rights", "level"),
    [
        (Rights(1, 0o022, 0o600, 1, 0o700, False, (), (1,)), Level.OK),
        (Rights(1, 0o022, 0o600, 1, 0o700, False, (), ()), Level.OK),
        (Rights(1, 0o022, 0o600, 1, 0o2700, True, (), (1,)), Level.NOTE),
        (Rights(0, 0o022, 0o600, 65534, 0o700, False, (), (65534,)), Level.NOTE),
        (Rights(0, 0o022, 0o600, 0, 0o700, False, (), (1,)), Level.WARN),
        (Rights(1, 0o277, 0o400, 1, 0o500, False, (), ()), Level.WRONG),
        (Rights(1, 0o022, 0o600, 1, 0o700, False, ("delay",), (2,)), Level.WRONG),
    ],
)
def test_rights(rights: Rights, level: Level) -> None:
    assert judge_rights(rights).level is level


def test_inotify() -> None:
    assert judge_told(True, EXT4).level is Level.OK
    assert judge_told(True, mounted("nfs4", "rw")).level is Level.NOTE
    assert judge_told(False, EXT4).level is Level.WARN
    assert judge_told(None, EXT4).level is Level.WARN


def test_flushes() -> None:
    quick = Flushes([0.001], [0.001], False)
    assert judge_file_flushes(quick, EXT4).level is Level.OK
    assert judge_file_flushes(Flushes([0.2], [0.2], False), EXT4).level is Level.WARN
    nothing = Flushes([0.000_001], [0.000_001], False)
    assert judge_file_flushes(nothing, EXT4).level is Level.WARN
    assert judge_file_flushes(nothing, FileSystem("tmpfs", "/")).level is Level.OK
    assert judge_folder_flushes(quick).level is Level.OK
    assert judge_folder_flushes(Flushes([0.001], [0.001], True)).level is Level.WARN
    assert judge_syncfs(mounted("vfat", "rw"), True).facts["commit"] == "fsync"
    assert judge_syncfs(EXT4, False).facts["commit"] == "fsync"


def test_two_mounts() -> None:
    assert judge_same(Same(True, True, False, 10), "/b").level is Level.OK
    assert judge_same(Same(True, True, True, 10), "/b").level is Level.NOTE
    assert judge_same(Same(True, False, False, 10), "/b").level is Level.WRONG
    assert judge_delays(Delays(0.1, 0.1, 0.1, 0.1, True, 10)).level is Level.OK
    late = judge_delays(Delays(0.1, 5.0, 0.1, 0.1, True, 10))
    assert late.level is Level.WARN
    assert "looked for before after 5.0 s" in late.says
    assert judge_delays(Delays(0.1, None, 0.1, 0.1, True, 10)).level is Level.WRONG
    assert judge_delays(Delays(0.1, 0.1, 0.1, 0.1, False, 10)).level is Level.WRONG


def test_formats() -> None:
    assert judge_format(None).level is Level.OK
    assert judge_format("mq 3\n").level is Level.OK
    assert judge_format("mq 1\n").do == "run mqctl upgrade"
    assert judge_format("mq").level is Level.NOTE
    assert judge_format("mq 4\n").level is Level.WRONG


def findings(**others: Level) -> list[Finding]:
    """Of all that is tried at one mount, `ok` but for these; `_` in a name is a space."""
    probes = (
        "format", "folders of the root", "rename", "names", "fsync of files", "fsync of folders",
        "mtimes", "rights", "locks", "claims", "first makers", "updates",
    )  # fmt: skip
    given = {probe.replace("_", " "): level for probe, level in others.items()}
    return [
        *(Finding(probe, given.pop(probe, Level.OK), "") for probe in probes),
        *(Finding(probe, level, "") for probe, level in given.items()),
    ]


@pytest.mark.parametrize(
    ("file_system", "others", "durability", "clustering"),
    [
        (XFS, {}, "media", "many processes on one machine"),
        (UNORDERED, {}, "media, if it keeps the order of changes", "many processes on one machine"),
        (FileSystem("tmpfs", "/"), {}, "memory", "many processes on one machine"),
        (XFS, {"mtimes": Level.WRONG}, "none", "none"),
        (XFS, {"fsync_of_files": Level.WRONG}, "none", "many processes on one machine"),
        (XFS, {"fsync_of_folders": Level.WRONG}, "none", "many processes on one machine"),
        (XFS, {"locks": Level.WRONG}, "media", "one process"),
        (XFS, {"claims": Level.UNKNOWN}, "media", "one process"),
        (XFS, {"room": Level.WRONG}, "media", "many processes on one machine"),
        (XFS, {"same_storage": Level.OK}, "media", "many machines"),
        (XFS, {"same_storage": Level.WRONG}, "media", "many processes on one machine"),
        (
            XFS,
            {"same_storage": Level.OK, "updates_across_mounts": Level.WRONG},
            "media",
            "many processes on one machine",
        ),
        (
            XFS,
            {"same_storage": Level.OK, "seen_across_mounts": Level.WARN},
            "media",
            "many machines",
        ),
    ],
)
def test_what_all_of_it_comes_to(
    file_system: FileSystem, others: dict[str, Level], durability: str, clustering: str
) -> None:
    found = conclude(findings(**others), file_system, frozenset())
    assert (found.durability, found.clustering) == (durability, clustering)


def test_options_alone_can_break_a_promise() -> None:
    nfs = mounted("nfs4", GOOD_NFS)
    two = findings(same_storage=Level.OK)
    assert conclude(two, nfs, frozenset({"durability"})).durability == "none"
    assert conclude(two, nfs, frozenset({"machines"})).clustering == "many processes on one machine"
    assert conclude(two, nfs, frozenset()).clustering == "many machines"


def test_what_is_less_says_why() -> None:
    alone = conclude(findings(), mounted("nfs4", GOOD_NFS), frozenset())
    assert any("second mount" in why for why in alone.why)
    assert any("server" in why for why in alone.why)


def test_the_worst_decides_the_exit_code() -> None:
    assert worst([]) is Level.OK
    assert exit_code(findings(room=Level.WARN)) == 0
    assert exit_code(findings(room=Level.UNKNOWN)) == 1
    assert exit_code(findings(room=Level.UNKNOWN, names=Level.WRONG)) == 5
