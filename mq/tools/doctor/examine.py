"""The whole examination: each probe in turn, and the conclusion."""

import contextlib
import errno
import functools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from mq.model.clock import Clock
from mq.model.errors import StartupError
from mq.store.disk.files import Files
from mq.store.disk.mounts import FileSystem, file_system_of
from mq.store.format.layout import FORMAT_LINE, OLD_FORMAT_LINES
from mq.tools.doctor import across, contests, flushes, machine, names, options, times
from mq.tools.doctor.conclusions import BEHIND, TOGETHER, Conclusion, conclude
from mq.tools.doctor.findings import Finding, Level, worst
from mq.tools.doctor.ground import Ground, staked_out, sweep
from mq.tools.doctor.partners import Pair, paired

# How long to wait at one mount for a change made at the other.
SEEN_WITHIN_S: Final = 10.0

# Errors that do not show a fault of the file system: no space, no descriptors or memory, the
# partner has ended.
_NOT_ITS_FAULT: Final = (
    errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EPIPE,
)  # fmt: skip

Act = Callable[[], Finding]


@dataclass(frozen=True, slots=True)
class Examination:
    """The findings for a root. `swept`: how many leftovers of killed doctors were removed."""

    root: str
    second: str | None
    findings: tuple[Finding, ...]
    conclusion: Conclusion
    swept: int


def examine(
    root: str,
    second: str | None,
    files: Files,
    clock: Clock,
    within_s: float = SEEN_WITHIN_S,
    begins: Callable[[str], None] = lambda probe: None,
) -> Examination:
    """Examines a root, and the storage between it and a second mount, if one is given. `within_s`:
    how long to wait at one mount for a change made at the other. `begins` is called with each
    probe's name. Leaves nothing behind. Raises StartupError if it cannot begin, and OSError if it
    cannot remove what it created.
    """
    root, second = os.path.abspath(root), second and os.path.abspath(second)
    file_system = file_system_of(root)
    mount, breaks = options.judge_mount(file_system)
    if second is not None:
        other, others = options.judge_mount(file_system_of(second))
        mount, breaks = _of_both(mount, other), breaks | others
    findings = [mount]

    def tried(probes: Iterator[tuple[str, Act]]) -> None:
        for probe, act in probes:
            begins(probe)
            findings.append(_tried(probe, act))
            if probe == across.SAME_STORAGE and findings[-1].level is Level.WRONG:
                return  # Further findings would be about two storages.

    with _begun(root, files, clock) as ground:
        with paired(ground.folder, ground.folder, clock, within_s) as pair:
            tried(_of_files(ground, file_system, pair))
            tried(_of_machine(ground, file_system))
            tried(_of_two("", ground, pair))
        if second is not None:
            with paired(ground.folder, ground.seen_from(second), clock, within_s) as apart:
                tried(_of_mounts(ground, apart, second))
        swept = sweep(ground, _locks_tell(findings, file_system))
    return Examination(
        root, second, tuple(findings), conclude(findings, file_system, breaks), swept
    )


@contextlib.contextmanager
def _begun(root: str, files: Files, clock: Clock) -> Iterator[Ground]:
    with contextlib.ExitStack() as stack:
        try:
            ground = stack.enter_context(staked_out(root, files, clock))
        except OSError as error:
            raise StartupError(f"{root} cannot be tried: {error}") from error
        yield ground


def _tried(probe: str, act: Act) -> Finding:
    """The act's finding. An error of its calls is a finding too."""
    try:
        return act()
    except OSError as error:
        facts = {"errno": error.errno}
        says = f"failed: {error.strerror or error}"
        if error.errno in _NOT_ITS_FAULT:
            return Finding(probe, Level.UNKNOWN, f"could not be tried: {says}", "", facts)
        return Finding(probe, Level.WRONG, says, "another file system, or its mount", facts)


def _of_files(ground: Ground, file_system: FileSystem, pair: Pair) -> Iterator[tuple[str, Act]]:
    timed = functools.cache(lambda: flushes.flushes(ground))
    own = file_system.mount_point == os.path.realpath(ground.root.root)
    yield "format", lambda: judge_format(_format_line(ground))
    yield "folders of the root", lambda: names.judge_journey(names.journey(ground))
    yield "rename", lambda: names.judge_renames(names.renames(ground, pair.right))
    yield "names", lambda: names.judge_names(names.names(ground))
    yield "fsync of files", lambda: flushes.judge_file_flushes(timed(), file_system)
    yield "fsync of folders", lambda: flushes.judge_folder_flushes(timed())
    yield "syncfs", lambda: flushes.judge_syncfs(file_system, own)
    yield "mtimes", lambda: times.judge_kept(times.kept(ground))
    yield "clock", lambda: times.judge_offset(times.offset_ms(ground), file_system)


def _of_machine(ground: Ground, file_system: FileSystem) -> Iterator[tuple[str, Act]]:
    yield "room", lambda: machine.judge_room(machine.room(ground))
    yield "rights", lambda: machine.judge_rights(machine.rights(ground))
    yield "descriptors", lambda: machine.judge_descriptors(*machine.descriptors())
    yield "inotify", lambda: machine.judge_told(machine.is_told(ground), file_system)


def _of_two(behind: str, ground: Ground, pair: Pair) -> Iterator[tuple[str, Act]]:
    """The probes for two processes. `behind`: the suffix of their names."""
    locks, claims, makers, updates = (f"{probe}{behind}" for probe in TOGETHER)
    file = behind.replace(" ", "-")
    yield locks, lambda: contests.judge_locks(locks, contests.locks(ground, pair, f"lock{file}"))
    yield (
        claims,
        lambda: contests.judge_race(claims, contests.race(ground, pair, f"claim{file}", True)),
    )
    yield (
        makers,
        lambda: contests.judge_race(makers, contests.race(ground, pair, f"make{file}", False)),
    )
    yield (
        updates,
        lambda: contests.judge_additions(
            updates,
            contests.additions(ground, pair, f"sum-in-place{file}", replaces=False),
            contests.additions(ground, pair, f"sum-by-rename{file}", replaces=True),
        ),
    )


def _of_mounts(ground: Ground, pair: Pair, second: str) -> Iterator[tuple[str, Act]]:
    same = across.SAME_STORAGE
    yield same, lambda: across.judge_same(across.same_storage(ground, pair), second)
    yield across.SEEN, lambda: across.judge_delays(across.delays(pair))
    yield from _of_two(BEHIND, ground, pair)


def _format_line(ground: Ground) -> str | None:
    try:
        return ground.files.read_file(ground.root.format, 100).decode("ascii", "replace")
    except FileNotFoundError:
        return None


def judge_format(line: str | None) -> Finding:
    """Every start refuses a root of another format."""
    if line is None:
        return Finding("format", Level.OK, "no root yet; the first start makes one")
    if line == FORMAT_LINE:
        return Finding("format", Level.OK, f"a root: {line.strip()}")
    if FORMAT_LINE.startswith(line.rstrip("\0")):
        return Finding("format", Level.NOTE, "not whole; the next start writes it again")
    if line in OLD_FORMAT_LINES:
        return Finding(
            "format", Level.WRONG, f"{line.strip()!r}, of an older mq", "run mqctl upgrade"
        )
    says = f"{line.strip()!r}; this mq knows {FORMAT_LINE.strip()!r}"
    return Finding("format", Level.WRONG, says, "the mq that made the root")


def _of_both(first: Finding, second: Finding) -> Finding:
    """Merges the findings about two mounts."""
    facts = {**first.facts, **{f"second_{name}": fact for name, fact in second.facts.items()}}
    do = "; ".join(dict.fromkeys(filter(None, (first.do, second.do))))
    says = first.says if first.says == second.says else f"{first.says}; second: {second.says}"
    return Finding("mount", worst((first.level, second.level)), says, do, facts)


def _locks_tell(findings: list[Finding], file_system: FileSystem) -> bool:
    """Whether a lock of another doctor on any machine is visible here."""
    held = {finding.probe for finding in findings if finding.level is Level.OK}
    if f"locks{BEHIND}" in held:
        return True
    return "locks" in held and not options.locks_are_local(file_system)
