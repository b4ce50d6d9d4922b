"""Every state that a power cut may leave behind every operation, on four kinds of file systems.

The operations are played (`scripts.py`) on a file system that logs all changes; for each place in
the log each legal tree (`legal_states.py`) is made, started on, and held against what clients had
been told by then (`recovery.py`). MQ_TIMES=10 takes ten times as many samples where a cut
makes so many choices that not every tree is made. `pytest -x` with this file alone is the quick
way to see whether a flush is missing.
"""

import asyncio
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from crash.archive_scripts import ARCHIVE_SCRIPTS, ARCHIVES_IN_BUCKETS
from crash.bucket_scripts import BUCKET_SCRIPTS, FLUSHED_BETWEEN, two_names_in_a_bucket
from crash.bulk_scripts import BULK_SCRIPTS, WITH_WHOLE_FOLDS
from crash.calls import Log
from crash.changes import File, Tree
from crash.crossing_scripts import (
    CROSSING_SCRIPTS,
    CROSSINGS_IN_BUCKETS,
    WITH_TWO_NAMES_OF_A_CROSSING,
)
from crash.expiry_scripts import EXPIRY_SCRIPTS
from crash.faulty_disk import FaultyDisk, faulty_disk
from crash.fsck_scripts import FSCK_SCRIPTS, WITH_TWO_NAMES_OF_FSCK
from crash.images import Mark
from crash.key_scripts import KEY_SCRIPTS, NEW_FLUSHED_BETWEEN
from crash.lease_scripts import LEASE_SCRIPTS, LEASES_IN_BUCKETS
from crash.legal_states import Disk, Model
from crash.promises import Ledger
from crash.purge_scripts import PURGE_SCRIPTS
from crash.recovery import recovered
from crash.schedule_scripts import SCHEDULE_SCRIPTS, SCHEDULES_SIDE_BY_SIDE
from crash.scripts import SCRIPTS, SIDE_BY_SIDE, WITH_TWO_NAMES, Script
from crash.shovel_scripts import (
    SHOVEL_SCRIPTS,
    SHOVELS_FLUSHED_BETWEEN,
    WITH_TWO_NAMES_OF_A_SHOVEL,
)
from crash.sideline_scripts import SIDELINE_SCRIPTS, WITH_TWO_NAMES_OF_A_SIDELINE
from crash.stage import ROOT, stage
from crash.sweep_scripts import SWEEP_SCRIPTS
from crash.trees import fingerprint, trees
from harness.chance import TIMES
from harness.fuse import check_fuse
from harness.mounts import tmpfs
from harness.tally import tally

from mq.limits import FOLDER_FILES_MAX

EXHAUSTIVE = 128 * TIMES
SAMPLES = 4 * TIMES
UPKEEP_SCRIPTS = {**SHOVEL_SCRIPTS, **SWEEP_SCRIPTS, **EXPIRY_SCRIPTS}
# Stricter rules first: a tree that is legal twice is looked at once.
WHOLE = (Model.JOURNAL, Model.ATOMIC)

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.usefixtures("needs_root"),
    pytest.mark.timeout(180 * TIMES),
]


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder of memory, where trees are made."""
    with tmpfs(tmp_path_factory.mktemp("states") / "memory", "size=1g") as memory:
        yield memory


@pytest.fixture(scope="module")
def disk(memory: Path) -> Iterator[FaultyDisk]:
    check_fuse()
    with faulty_disk(memory) as disk:
        yield disk


def lay_out(tree: Tree, top: Path) -> None:
    """Makes the tree's files and folders."""
    first: dict[int, str] = {}
    top.mkdir()
    for path, file in tree.items():
        target = f"{top}{path}"
        if file is None:
            os.mkdir(target, 0o700)
        elif file.target is not None:
            os.symlink(file.target, target)
            os.utime(target, ns=(file.mtime_ns, file.mtime_ns), follow_symlinks=False)
        elif file.inode in first:
            os.link(first[file.inode], target)
        else:
            first[file.inode] = target
            _write(target, file)


def _write(target: str, file: File) -> None:
    descriptor = os.open(target, os.O_CREAT | os.O_WRONLY, 0o600)
    os.write(descriptor, file.data)
    os.utime(descriptor, ns=(file.mtime_ns, file.mtime_ns))
    os.close(descriptor)


def ledgers(log: Log) -> list[tuple[int, Ledger]]:
    """For a cut before each place of the log: how many marks are before it, and what they say."""
    marks = [(place, entry) for place, entry in enumerate(log) if isinstance(entry, Mark)]
    found = []
    for at in range(len(log) + 1):
        before = [mark for place, mark in marks if place < at]
        following = [mark for place, mark in marks if place >= at] or before[-1:]
        until_ms = following[0].facts["at_ms"]
        found.append((len(before), Ledger.of(before, until_ms)))
    return found


def models(script: Script) -> list[Model]:
    """Where operations run side by side, or begin where another died, one may flush the folder that
    another's rename has just left; mq relies on file systems to lose no file then, as all known
    ones do.
    """
    of_a_sideline = (*WITH_TWO_NAMES_OF_A_SIDELINE, *WITH_TWO_NAMES_OF_A_SHOVEL)
    of_a_sideline += (*WITH_TWO_NAMES_OF_A_CROSSING, *WITH_TWO_NAMES_OF_FSCK)
    if script in (*WITH_TWO_NAMES, *of_a_sideline, two_names_in_a_bucket):
        return [model for model in Model if model not in WHOLE]
    if script in WITH_WHOLE_FOLDS:
        return list(WHOLE)
    side_by_side = (*SIDE_BY_SIDE, *SCHEDULES_SIDE_BY_SIDE)
    flushed_between = (*FLUSHED_BETWEEN, *NEW_FLUSHED_BETWEEN, *SHOVELS_FLUSHED_BETWEEN)
    left_between = (*side_by_side, *flushed_between)
    return [model for model in Model if model is not Model.APART or script not in left_between]


def problems_of(script: Script, log: Log, seed: int, top: Path) -> Iterator[tuple[int, list[str]]]:
    """For each tree that is made, in the order of the log: the cut's place, what is broken."""
    told = ledgers(log)
    first = _first_cut(log)
    seen: set[tuple[int, int]] = set()
    for model in models(script):
        chance = random.Random(f"{model.name} {seed}")
        disk = Disk(model)
        for at in range(len(log) + 1):
            marks, ledger = told[at]
            for tree in trees(disk, EXHAUSTIVE, SAMPLES, chance) if at >= first else ():
                key = (marks, fingerprint(tree))
                if key in seen:
                    continue
                seen.add(key)
                try:
                    lay_out(tree, top)
                    problems = recovered(top / ROOT, ledger, model not in WHOLE, len(seen))
                finally:
                    shutil.rmtree(top)
                yield at, [f"{model.name}, cut at {at}: {problem}" for problem in problems]
            if at < len(log):
                disk.apply(log[at])


def _first_cut(log: Log) -> int:
    """The place behind which no other script has been."""
    known = [
        place
        for place, entry in enumerate(log)
        if isinstance(entry, Mark) and entry.facts["what"] == "known"
    ]
    return known[-1] if known else 0


async def play(
    script: Script, disk: FaultyDisk, memory: Path, folder_max: int = FOLDER_FILES_MAX
) -> Log:
    """Plays the script on an empty disk; its log."""
    try:
        async with stage(disk, folder_max) as on:
            await script(on)
            disk.mark("end")
    finally:
        log = await asyncio.to_thread(disk.save, memory / "log")
    return log


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
async def test_every_state_keeps_what_was_promised(
    script: Script, disk: FaultyDisk, memory: Path
) -> None:
    log = await play(script, disk, memory)
    assert_kept(script, log, memory)


@pytest.mark.parametrize("script", BUCKET_SCRIPTS.values(), ids=BUCKET_SCRIPTS)
async def test_every_state_keeps_what_was_promised_in_buckets(
    script: Script, disk: FaultyDisk, memory: Path
) -> None:
    """One message lies flat, one more in a bucket, and the others below that."""
    log = await play(script, disk, memory, folder_max=1)
    assert_kept(script, log, memory)


@pytest.mark.parametrize("script", KEY_SCRIPTS.values(), ids=KEY_SCRIPTS)
async def test_every_state_keeps_what_was_promised_of_keys(
    script: Script, disk: FaultyDisk, memory: Path
) -> None:
    log = await play(script, disk, memory)
    assert_kept(script, log, memory)


@pytest.mark.parametrize("script", LEASE_SCRIPTS.values(), ids=LEASE_SCRIPTS)
async def test_every_state_keeps_what_was_leased(
    script: Script, disk: FaultyDisk, memory: Path
) -> None:
    log = await play(script, disk, memory)
    assert_kept(script, log, memory)


@pytest.mark.parametrize("script", LEASES_IN_BUCKETS.values(), ids=LEASES_IN_BUCKETS)
async def test_every_state_keeps_what_was_leased_from_buckets(
    script: Script, disk: FaultyDisk, memory: Path
) -> None:
    log = await play(script, disk, memory, folder_max=1)
    assert_kept(script, log, memory)


@pytest.mark.parametrize("script", ARCHIVE_SCRIPTS.values(), ids=ARCHIVE_SCRIPTS)
async def test_every_state_keeps_what_was_to_be_archived(
    script: Script, disk: FaultyDisk, memory: Path
) -> None:
    log = await play(script, disk, memory)
    assert_kept(script, log, memory)


@pytest.mark.parametrize("script", ARCHIVES_IN_BUCKETS.values(), ids=ARCHIVES_IN_BUCKETS)
async def test_every_state_keeps_what_was_to_be_archived_from_buckets(
    script: Script, disk: FaultyDisk, memory: Path
) -> None:
    log = await play(script, disk, memory, folder_max=1)
    assert_kept(script, log, memory)


@pytest.mark.parametrize("folder_max", [FOLDER_FILES_MAX, 1], ids=["flat", "buckets"])
@pytest.mark.parametrize("script", PURGE_SCRIPTS.values(), ids=PURGE_SCRIPTS)
async def test_every_state_keeps_what_was_purged_and_configured(
    script: Script, disk: FaultyDisk, memory: Path, folder_max: int
) -> None:
    log = await play(script, disk, memory, folder_max)
    assert_kept(script, log, memory)


@pytest.mark.parametrize("folder_max", [FOLDER_FILES_MAX, 1], ids=["flat", "buckets"])
@pytest.mark.parametrize("script", SIDELINE_SCRIPTS.values(), ids=SIDELINE_SCRIPTS)
async def test_every_state_keeps_what_was_sidelined(
    script: Script, disk: FaultyDisk, memory: Path, folder_max: int
) -> None:
    log = await play(script, disk, memory, folder_max)
    assert_kept(script, log, memory)


@pytest.mark.parametrize("folder_max", [FOLDER_FILES_MAX, 1], ids=["flat", "buckets"])
@pytest.mark.parametrize("script", UPKEEP_SCRIPTS.values(), ids=UPKEEP_SCRIPTS)
async def test_every_state_keeps_what_time_did_something_to(
    script: Script, disk: FaultyDisk, memory: Path, folder_max: int
) -> None:
    log = await play(script, disk, memory, folder_max)
    assert_kept(script, log, memory)


@pytest.mark.parametrize("script", CROSSING_SCRIPTS.values(), ids=CROSSING_SCRIPTS)
async def test_every_state_keeps_what_crossed(
    script: Script, disk: FaultyDisk, memory: Path
) -> None:
    log = await play(script, disk, memory)
    assert_kept(script, log, memory)


@pytest.mark.parametrize("script", CROSSINGS_IN_BUCKETS, ids=lambda script: script.__name__)
async def test_every_state_keeps_what_crossed_into_a_bucket(
    script: Script, disk: FaultyDisk, memory: Path
) -> None:
    log = await play(script, disk, memory, folder_max=1)
    assert_kept(script, log, memory)


@pytest.mark.parametrize("script", FSCK_SCRIPTS.values(), ids=FSCK_SCRIPTS)
async def test_every_state_keeps_what_fsck_puts_right(
    script: Script, disk: FaultyDisk, memory: Path
) -> None:
    log = await play(script, disk, memory)
    assert_kept(script, log, memory)


@pytest.mark.parametrize("script", SCHEDULE_SCRIPTS.values(), ids=SCHEDULE_SCRIPTS)
async def test_every_state_keeps_what_was_scheduled(
    script: Script, disk: FaultyDisk, memory: Path
) -> None:
    log = await play(script, disk, memory)
    assert_kept(script, log, memory)


@pytest.mark.parametrize("folder_max", [FOLDER_FILES_MAX, 1], ids=["flat", "buckets"])
@pytest.mark.parametrize("script", BULK_SCRIPTS.values(), ids=BULK_SCRIPTS)
async def test_every_state_keeps_what_was_published_in_bulk(
    script: Script, disk: FaultyDisk, memory: Path, folder_max: int
) -> None:
    log = await play(script, disk, memory, folder_max)
    assert_kept(script, log, memory)


def assert_kept(script: Script, log: Log, memory: Path) -> None:
    """That every state that a cut may leave keeps what was promised."""
    states = 0
    for at, problems in problems_of(script, log, TIMES, memory / "tree"):
        states += 1
        if problems:
            told = "\n".join(map(str, log[max(0, at - 25) : at]))
            pytest.fail("\n".join([*problems[:5], "the last calls:", told]))
    tally("states", states)
