"""The conclusion from all findings: how durable mq is on this root, which machines may share it,
and which settings to use. Pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from mq.store.disk.mounts import PROMISE_IF_ORDERED, FileSystem
from mq.tools.doctor.across import SAME_STORAGE, SEEN
from mq.tools.doctor.findings import Finding, Level
from mq.tools.doctor.options import Breaks, is_shared

DurabilityHeld = Literal[
    "media", "media, if it keeps the order of changes", "media, but for folders", "memory", "none"
]
Clustering = Literal["none", "one process", "many processes on one machine", "many machines"]

TOGETHER: Final = ("locks", "claims", "first makers", "updates")
"""The probes of two processes at one mount."""
BEHIND: Final = " across mounts"
"""The suffix of their names if each process uses a mount of its own."""

_ACROSS: Final = (SAME_STORAGE, SEEN, *(f"{probe}{BEHIND}" for probe in TOGETHER))
# If one of these fails, mq does not start, or cannot keep its promises.
_ESSENTIAL: Final = ("rename", "folders of the root", "mtimes", "names", "rights", "format")


@dataclass(frozen=True, slots=True)
class Conclusion:
    """`why`: a line for each limit; `settings`: recommendations for mq, or for the mount."""

    durability: DurabilityHeld
    clustering: Clustering
    why: Sequence[str]
    settings: Sequence[str]


def conclude(
    findings: Sequence[Finding], file_system: FileSystem, breaks: frozenset[Breaks]
) -> Conclusion:
    """What mq can promise there, as far as it was tested."""
    found = {finding.probe: finding for finding in findings}
    why: list[str] = []
    durability = _durability(found, file_system, breaks, why)
    clustering = _clustering(found, file_system, breaks, why)
    return Conclusion(durability, clustering, tuple(why), tuple(_settings(found, durability)))


def _is_bad(found: Mapping[str, Finding], probes: Iterable[str]) -> list[str]:
    """The probes that were made and did not succeed."""
    bad = (Level.WRONG, Level.UNKNOWN)
    return [probe for probe in probes if probe in found and found[probe].level in bad]


def _durability(
    found: Mapping[str, Finding], file_system: FileSystem, breaks: frozenset[Breaks], why: list[str]
) -> DurabilityHeld:
    if bad := _is_bad(found, (*_ESSENTIAL, "fsync of files")):
        why.append(f"no durability: {', '.join(bad)}")
        return "none"
    if "durability" in breaks:
        why.append("no durability: the mount's options")
        return "none"
    if file_system.in_memory:
        why.append(f"memory alone: {file_system.kind} does not outlive the power")
        return "memory"
    if _is_bad(found, ("fsync of folders",)):
        why.append("no durability: fsync of folders")
        return "none"
    if found["fsync of folders"].facts.get("supported") is False:
        why.append("folders' names are on the disk when the file system says so")
        return "media, but for folders"
    if not file_system.keeps_changes:
        why.append("known to keep the order: xfs, ext4 with a journal and no fast_commit, btrfs")
    elif is_shared(file_system):
        why.append("media, if the server's fsync is: no client can see that")
    return "media" if file_system.keeps_changes else PROMISE_IF_ORDERED


def _clustering(
    found: Mapping[str, Finding], file_system: FileSystem, breaks: frozenset[Breaks], why: list[str]
) -> Clustering:
    if bad := _is_bad(found, _ESSENTIAL):
        why.append(f"mq does not run here: {', '.join(bad)}")
        return "none"
    if bad := _is_bad(found, TOGETHER):
        why.append(f"one process: {', '.join(bad)}")
        return "one process"
    if (one := _one_machine(found, file_system, breaks)) is None:
        return "many machines"
    if one:
        why.append(f"one machine{one}")
    return "many processes on one machine"


def _one_machine(
    found: Mapping[str, Finding], file_system: FileSystem, breaks: frozenset[Breaks]
) -> str | None:
    """Why it is limited to one machine, empty if that needs no explanation; None: it is not."""
    if "machines" in breaks:
        return ": the mount's options"
    if SAME_STORAGE not in found:
        tried = ", as far as was tried: give a second mount of the same storage"
        return tried if is_shared(file_system) else ""
    if bad := _is_bad(found, _ACROSS):
        return f": {', '.join(bad)}"
    if found[SAME_STORAGE].facts.get("one_mount"):
        return ", as far as was tried: both paths are one mount"
    return None


def _settings(found: Mapping[str, Finding], durability: DurabilityHeld) -> Iterable[str]:
    if durability == "memory":
        yield "--durability=none: nothing is gained by flushing memory"
    elif durability != "none":
        yield "--durability=media (the default)"
        if "syncfs" in found:
            yield f"--commit=auto (the default), which takes {found['syncfs'].facts['commit']} here"
    for finding in found.values():
        if finding.do and finding.level in (Level.WARN, Level.WRONG):
            yield f"{finding.probe}: {finding.do}"
