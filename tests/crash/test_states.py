"""Every state that a power cut may leave behind every operation, on a file system that keeps the
order of changes.

The scripts (`registry.py`) are played on a file system that logs all changes; for each place in
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
from dataclasses import replace
from pathlib import Path

import pytest
from crash.calls import Log, Stamp, places_alike
from crash.changes import File, Tree
from crash.faulty_disk import FaultyDisk, faulty_disk
from crash.images import Mark
from crash.legal_states import Disk, Model
from crash.promises import Ledger
from crash.recovery import recovered
from crash.registry import Script, all_scripts
from crash.stage import ROOT, stage
from crash.trees import fingerprint, trees
from harness.chance import TIMES
from harness.fuse import check_fuse
from harness.mounts import tmpfs
from harness.tally import tally

EXHAUSTIVE = 128 * TIMES
SAMPLES = 4 * TIMES
SCRIPTS = all_scripts()

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
    """For a cut before each place of the log: what the marks before it say, and its number. Marks
    that promise nothing more have the number of those before them.
    """
    marks = [(place, entry) for place, entry in enumerate(log) if isinstance(entry, Mark)]
    found: list[tuple[int, Ledger]] = []
    for at in range(len(log) + 1):
        before = [mark for place, mark in marks if place < at]
        following = [mark for place, mark in marks if place >= at] or before[-1:]
        ledger = Ledger.of(before, following[0].facts["at_ms"])
        number, last = found[-1] if found else (0, ledger)
        is_new = replace(last, until_ms=ledger.until_ms) != ledger
        found.append((number + is_new, ledger))
    return found


def problems_of(
    script: Script, log: Log, seed: int, top: Path, shared: int = -1
) -> Iterator[tuple[int, list[str]]]:
    """For each tree that is made, in the order of the log: the cut's place, what is broken. Another
    script has those of the cuts up to `shared`.
    """
    told = ledgers(log)
    first = _first_cut(log)
    # The mtimes that no call has set are when a file was made or written, in one second. What mq
    # does by those it does after minutes: no tree is played twice that differs in them alone.
    stamps = {entry.mtime_ns for entry in log if isinstance(entry, Stamp)}
    seen: set[tuple[int, int]] = set()
    chance = random.Random(seed)
    disk = Disk(Model.JOURNAL)
    for at in range(len(log) + 1):
        promises, ledger = told[at]
        for tree in trees(disk, EXHAUSTIVE, SAMPLES, chance) if at >= first else ():
            key = (promises, fingerprint(tree, stamps))
            if key in seen:
                continue
            seen.add(key)
            if at <= shared:
                continue
            try:
                lay_out(tree, top)
                problems = recovered(top / ROOT, ledger, len(seen))
            finally:
                shutil.rmtree(top)
            yield at, [f"cut at {at}: {problem}" for problem in problems]
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


async def play(script: Script, disk: FaultyDisk, memory: Path) -> Log:
    """Plays the script on an empty disk; its log until the script's end. After that mq writes its
    totals alone, as `totals_scripts` do within theirs.
    """
    try:
        async with stage(disk, script.folder_max) as on:
            await script.play(on)
            disk.mark("end")
    finally:
        log = await asyncio.to_thread(disk.save, memory / "log")
    ends = (
        at
        for at, entry in enumerate(log)
        if isinstance(entry, Mark) and entry.facts["what"] == "end"
    )
    return log[: next(ends, len(log)) + 1]


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
async def test_every_state_keeps_what_was_promised(
    script: Script, disk: FaultyDisk, memory: Path
) -> None:
    log = await play(script, disk, memory)
    shared = -1
    if (flat := SCRIPTS.get(script.flat)) not in (None, script):
        # As far as no folder has been full, the same choices are made of the same trees there.
        shared = places_alike(await play(flat, disk, memory), log)
        assert shared < len(log), "it has nothing of its own: @script() is enough"
    states = 0
    for at, problems in problems_of(script, log, TIMES, memory / "tree", shared):
        states += 1
        if problems:
            told = "\n".join(map(str, log[max(0, at - 25) : at]))
            pytest.fail("\n".join([*problems[:5], "the last calls:", told]))
    tally("states", states)
