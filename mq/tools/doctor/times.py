"""Times: how exactly files keep them, how fine the file system's own are, and by whose clock."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from mq.model.lifecycle import State
from mq.model.message import Stamp
from mq.store.core.root import Root
from mq.store.core.server_clock import measure_clock_offset_ms
from mq.store.disk.mounts import FileSystem
from mq.store.format.layout import Layout
from mq.tools.doctor.findings import Finding, Level
from mq.tools.doctor.ground import Ground
from mq.tools.doctor.limits import OFFSET_MS_MAX, TIMES_SAMPLED

# An odd second, and digits that tell each step from the finer ones.
_STAMP: Final = Stamp(due_ms=1_700_000_001_123, receives=456, reason=7)
# The year 2100.
_FAR: Final = Stamp(due_ms=4_102_444_800_123, receives=456, reason=7)
_STEPS_NS: Final = (2 * 10**9, 10**9, 10**7, 10**6, 10**3, 100, 1)
_SECOND_NS: Final = 10**9


@dataclass(frozen=True, slots=True)
class Kept:
    """What was left of two mtimes, nanoseconds, once their file was renamed and looked at anew."""

    near_ns: int
    far_ns: int | None


def kept(ground: Ground) -> Kept:
    """Sets mtimes as messages have them. Raises OSError."""
    far: int | None
    try:
        far = _kept(ground, "far", _FAR)
    except OSError:
        far = None
    return Kept(_kept(ground, "near", _STAMP), far)


def _kept(ground: Ground, name: str, stamp: Stamp) -> int:
    files = ground.files
    descriptor = files.create(ground.path(f"stamp-{name}"))
    try:
        files.stamp(descriptor, stamp.mtime_ns())
        files.sync(descriptor)
    finally:
        files.close(descriptor)
    files.rename(ground.path(f"stamp-{name}"), ground.path(f"stamped-{name}"))
    found = files.status(ground.path(f"stamped-{name}"))
    return -1 if found is None else found.st_mtime_ns


def judge_kept(found: Kept) -> Finding:
    """Milliseconds are when a message is due, microseconds its receives, nanoseconds a reason."""
    wanted = _STAMP.mtime_ns()
    far = found.far_ns is not None and abs(found.far_ns - _FAR.mtime_ns()) < _SECOND_NS
    step_ns = next((step for step in _STEPS_NS if _is_cut(found.near_ns, step)), None)
    facts = {"kept_to_ns": step_ns, "after_2038": far}
    lead = "kept to "
    if step_ns is None or step_ns > 1000:
        says = f"{lead}{_length(step_ns)}; mq counts deliveries in their microseconds"
        do = "ext4 with inodes of 256 bytes, xfs, btrfs, or NFS from one of these"
        return Finding("mtimes", Level.WRONG, says, do, facts)
    if found.near_ns != wanted:
        says = f"{lead}{_length(step_ns)}: why a message was sidelined is lost"
        return Finding("mtimes", Level.WARN, says, "", facts)
    if not far:
        says = f"{lead}the nanosecond, and to 2038: nothing can be due later"
        return Finding("mtimes", Level.NOTE, says, "", facts)
    return Finding("mtimes", Level.OK, f"{lead}the nanosecond, and beyond 2038", "", facts)


def _is_cut(found_ns: int, step_ns: int) -> bool:
    wanted = _STAMP.mtime_ns()
    return found_ns in (wanted // step_ns * step_ns, -(-wanted // step_ns) * step_ns)


def _length(step_ns: int | None) -> str:
    match step_ns:
        case None:
            return "something else"
        case 1:
            return "the nanosecond"
        case 100:
            return "100 ns"
        case 1000:
            return "the microsecond"
        case _ if step_ns < _SECOND_NS:
            return f"{step_ns // 10**6} ms"
        case _:
            return f"{step_ns // _SECOND_NS} s"


@dataclass(frozen=True, slots=True)
class Grains:
    """The coarsest step that all times which the file system set itself are whole numbers of."""

    mtime_step_ns: int
    ctime_step_ns: int


def grains(ground: Ground) -> Grains:
    """Makes files and reads their times. Raises OSError."""
    files = ground.files
    mtimes, ctimes = [], []
    for number in range(TIMES_SAMPLED):
        descriptor = files.create(ground.path(f"grain-{number}"))
        try:
            files.write(descriptor, b"grain\n")
            files.sync(descriptor)
            found = files.descriptor_status(descriptor)
        finally:
            files.close(descriptor)
        mtimes.append(found.st_mtime_ns)
        ctimes.append(found.st_ctime_ns)
    return Grains(step_of(mtimes), step_of(ctimes))


def step_of(times_ns: Iterable[int]) -> int:
    """The coarsest step, of those that file systems have, that divides all of these."""
    all_ns = list(times_ns)
    return next(step for step in _STEPS_NS if all(time % step == 0 for time in all_ns))


def judge_grains(found: Grains) -> Finding:
    """mq tells by folders' times whether they changed; where these are coarse, it lists again for
    two seconds.
    """
    facts = {"mtime_step_ns": found.mtime_step_ns, "ctime_step_ns": found.ctime_step_ns}
    coarsest_ns = max(found.mtime_step_ns, found.ctime_step_ns)
    if coarsest_ns >= _SECOND_NS:
        says = f"whole {_length(coarsest_ns)}: folders are listed more often than elsewhere"
        return Finding("file system's times", Level.WARN, says, "", facts)
    return Finding("file system's times", Level.OK, "finer than a second", "", facts)


def offset_ms(ground: Ground) -> int:
    """How far the file system's clock is ahead of this machine's, milliseconds; measured as mq
    does. Raises OSError.
    """
    own = Layout.of(ground.folder)
    ground.files.mkdir(own.folder(State.REMOVED))
    return measure_clock_offset_ms(Root.of(own, ground.files, ground.clock, kind="doctor"))


def judge_offset(ahead_ms: int, file_system: FileSystem) -> Finding:
    """mq follows a server's clock where it knows that there is one."""
    facts = {"ahead_ms": ahead_ms, "followed": file_system.over_network}
    says = f"the file system's clock is {abs(ahead_ms)} ms {'ahead' if ahead_ms >= 0 else 'behind'}"
    if abs(ahead_ms) <= OFFSET_MS_MAX:
        return Finding("clock", Level.OK, says, "", facts)
    if file_system.over_network:
        do = "set both clocks by NTP, for times that people read"
        return Finding("clock", Level.NOTE, f"{says}; mq measures and follows it", do, facts)
    says = f"{says}, which mq does not follow on this kind: messages would be due at other times"
    return Finding("clock", Level.WRONG, says, "set both clocks by NTP", facts)
