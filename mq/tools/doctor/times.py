"""Times: how precisely files keep them, and by which clock."""

from dataclasses import dataclass
from typing import Final

from mq.model.lifecycle import State
from mq.model.message import Stamp
from mq.store.core.clocks import measure_clock_offset_ms
from mq.store.disk.mounts import FileSystem
from mq.store.format.layout import Layout
from mq.store.opening import root_of
from mq.tools.doctor.findings import Finding, Level
from mq.tools.doctor.ground import Ground

# The offset that is tolerated for a clock that mq does not follow.
_OFFSET_MS_MAX: Final = 1000

# An odd second, and digits that distinguish each resolution from finer ones.
_STAMP: Final = Stamp(due_ms=1_700_000_001_123, receives=456, reason=7)
# The year 2100.
_FAR: Final = Stamp(due_ms=4_102_444_800_123, receives=456, reason=7)
_STEPS_NS: Final = (2 * 10**9, 10**9, 10**7, 10**6, 10**3, 100, 1)
_SECOND_NS: Final = 10**9


@dataclass(frozen=True, slots=True)
class Kept:
    """Two mtimes in nanoseconds, read again after their file was renamed."""

    near_ns: int
    far_ns: int | None


def kept(ground: Ground) -> Kept:
    """Sets mtimes like those of messages. Raises OSError."""
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
    """The milliseconds of an mtime are the due time, its microseconds the receives, its nanoseconds
    a reason.
    """
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


def offset_ms(ground: Ground) -> int:
    """How far the file system's clock is ahead of this machine's, in milliseconds, measured as mq
    does. Raises OSError.
    """
    own = Layout.of(ground.folder)
    ground.files.mkdir(own.folder(State.REMOVED))
    return measure_clock_offset_ms(root_of(own, ground.files, ground.clock, kind="doctor"))


def judge_offset(ahead_ms: int, file_system: FileSystem) -> Finding:
    """mq follows a server's clock where it knows of one."""
    facts = {"ahead_ms": ahead_ms, "followed": file_system.over_network}
    says = f"the file system's clock is {abs(ahead_ms)} ms {'ahead' if ahead_ms >= 0 else 'behind'}"
    if abs(ahead_ms) <= _OFFSET_MS_MAX:
        return Finding("clock", Level.OK, says, "", facts)
    if file_system.over_network:
        do = "set both clocks by NTP, for times that people read"
        return Finding("clock", Level.NOTE, f"{says}; mq measures and follows it", do, facts)
    says = f"{says}, which mq does not follow on this kind: messages would be due at other times"
    return Finding("clock", Level.WRONG, says, "set both clocks by NTP", facts)
