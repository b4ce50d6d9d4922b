"""Two mounts of one storage: when one side sees what the other did."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from mq.model.message import Stamp
from mq.tools.doctor.findings import Finding, Level
from mq.tools.doctor.ground import TOKEN_BYTES, Ground
from mq.tools.doctor.options import NFS_GOOD
from mq.tools.doctor.partners import Pair

# Rounds for each of two mounts, and the delay that still counts as immediate.
_SEEN_ROUNDS: Final = 3
_SEEN_SOON_S: Final = 1.5

SAME_STORAGE: Final = "same storage"
SEEN: Final = "seen across mounts"
_STAMP: Final = Stamp(due_ms=1_700_000_000_123, receives=456, reason=7)


@dataclass(frozen=True, slots=True)
class Same:
    """Whether a nonce written on one side was read on the other, each way."""

    there: bool
    back: bool
    is_one_mount: bool
    """Whether both are one file system of this kernel, and so share its caches."""
    within_s: float


def same_storage(ground: Ground, pair: Pair) -> Same:
    """Writes a nonce at each side and reads it at the other. Raises OSError."""
    seen: list[bool] = []
    for source, target in ((pair.left, pair.right), (pair.right, pair.left)):
        name, nonce = f"nonce-{source.name}", os.urandom(TOKEN_BYTES).hex()
        if seen == [False]:
            seen.append(False)  # The other side does not have the doctor's folder.
            break
        source.partner.ask("make", path=source.path(name), text=nonce)
        at_s = target.partner.ask(
            "await_name", path=target.path(name), by_listing=False, within_s=pair.within_s
        )
        found = at_s is not None and target.partner.ask("read", path=target.path(name)) == nonce
        seen.append(found)
    devices = [
        None if (status := ground.files.status(side.folder)) is None else status.st_dev
        for side in (pair.left, pair.right)
    ]
    return Same(seen[0], seen[1], devices[0] == devices[1], pair.within_s)


def judge_same(found: Same, second: str) -> Finding:
    """The probes across mounts mean something only on one storage, and for machines only at two
    mounts.
    """
    facts = {"there": found.there, "back": found.back, "one_mount": found.is_one_mount}
    if not (found.there and found.back):
        says = f"{second} is another storage: files written at one are not read at the other "
        says += f"within {found.within_s:g} s"
        do = "give a second mount of the same folder"
        return Finding(SAME_STORAGE, Level.WRONG, says, do, facts)
    if found.is_one_mount:
        says = "both are one file system of this machine, whose processes see everything at once: "
        says += "that says nothing of a second machine"
        do = "for NFS: mount it twice with nosharecache; or try it on the second machine"
        return Finding(SAME_STORAGE, Level.NOTE, says, do, facts)
    return Finding(SAME_STORAGE, Level.OK, "two mounts of one", "", facts)


@dataclass(frozen=True, slots=True)
class Delays:
    """Seconds until one side saw what the other did, the longest of all rounds in both directions;
    None: not within `within_s`.
    """

    listing_s: float | None
    looked_for_s: float | None
    """For a name that was searched for before it existed."""
    name_s: float | None
    """For a name that was not searched for before."""
    mtime_s: float | None
    opened_sees_mtime: bool
    """Whether a process that opens and locks a file sees the mtime that the other side has just
    set.
    """
    within_s: float


def delays(pair: Pair) -> Delays:
    """Creates files on each side in turn and searches for them on the other. Raises OSError."""
    return Delays(
        _longest(pair, lambda each, name: _seen(each, name, by_listing=True, before=True)),
        _longest(pair, lambda each, name: _seen(each, name, by_listing=False, before=True)),
        _longest(pair, lambda each, name: _seen(each, name, by_listing=False, before=False)),
        _longest(pair, _stamp_seen),
        all(_opened_sees(each) for each in (pair, pair.turned())),
        pair.within_s,
    )


def _longest(pair: Pair, delay: Callable[[Pair, str], float | None]) -> float | None:
    """The longest of several rounds in each direction; None once something was never seen."""
    longest = 0.0
    for _ in range(_SEEN_ROUNDS):
        for each in (pair, pair.turned()):
            took_s = delay(each, f"seen-{os.urandom(TOKEN_BYTES).hex()}")
            if took_s is None:
                return None
            longest = max(longest, took_s)
    return longest


def _seen(pair: Pair, name: str, by_listing: bool, before: bool) -> float | None:
    """The left side creates a file; returns the seconds until the right side sees it. `before`: the
    right side starts to search before the file exists.
    """
    asked = {"path": pair.right.path(name), "by_listing": by_listing}
    if before:
        pair.right.partner.ask("await_name", **asked, within_s=0.0)
        pair.right.partner.tell("await_name", **asked, within_s=pair.within_s)
        try:
            made_s = pair.left.partner.ask("make", path=pair.left.path(name))
        finally:
            at_s = pair.right.partner.answer()
    else:
        made_s = pair.left.partner.ask("make", path=pair.left.path(name))
        at_s = pair.right.partner.ask("await_name", **asked, within_s=pair.within_s)
    return None if at_s is None else max(0.0, at_s - made_s)


def _stamp_seen(pair: Pair, name: str) -> float | None:
    """The left side sets an mtime; returns the seconds until the right side sees it, which had read
    the old one.
    """
    if _seen(pair, name, by_listing=False, before=False) is None:
        return None
    left, right, wanted_ns = pair.left, pair.right, _STAMP.mtime_ns()
    right.partner.ask("mtime", path=right.path(name))
    right.partner.tell(
        "await_mtime", path=right.path(name), mtime_ns=wanted_ns, within_s=pair.within_s
    )
    try:
        made_s = left.partner.ask("stamp", path=left.path(name), mtime_ns=wanted_ns)
    finally:
        at_s = right.partner.answer()
    return None if at_s is None else max(0.0, at_s - made_s)


def _opened_sees(pair: Pair) -> bool:
    """The left side sets an mtime; returns whether the right side, which had read the old one, sees
    it at once when it opens and locks the file.
    """
    name = f"opened-{pair.left.name}"
    if _seen(pair, name, by_listing=False, before=False) is None:
        return False
    left, right = pair.left, pair.right
    right.partner.ask("mtime", path=right.path(name))
    left.partner.ask("stamp", path=left.path(name), mtime_ns=_STAMP.mtime_ns())
    found_ns = right.partner.ask("mtime", path=right.path(name), locked=True)
    return bool(found_ns == _STAMP.mtime_ns())


def judge_delays(found: Delays) -> Finding:
    """A delay only makes mq slower, since renames and locks decide each change. But a locked file
    must be seen as it is.
    """
    times = {
        "a listing": found.listing_s,
        "a name": found.name_s,
        "a name looked for before": found.looked_for_s,
        "an mtime": found.mtime_s,
    }
    facts = {
        "listing_s": found.listing_s,
        "name_s": found.name_s,
        "looked_for_s": found.looked_for_s,
        "mtime_s": found.mtime_s,
        "opened_sees_mtime": found.opened_sees_mtime,
    }
    do = f"mount with {NFS_GOOD} (NFS), or without caching"
    if not found.opened_sees_mtime:
        says = "who opened and locked a file saw an old mtime: deliveries would be miscounted"
        return Finding(SEEN, Level.WRONG, says, do, facts)
    said = ", ".join(f"{what} {_after(time_s, found.within_s)}" for what, time_s in times.items())
    if None in times.values():
        return Finding(SEEN, Level.WRONG, said, do, facts)
    if max(time_s or 0.0 for time_s in times.values()) > _SEEN_SOON_S:
        return Finding(SEEN, Level.WARN, f"{said}: others' messages come late", do, facts)
    return Finding(SEEN, Level.OK, said, "", facts)


def _after(time_s: float | None, within_s: float) -> str:
    if time_s is None:
        return f"not within {within_s:g} s"
    return f"after {time_s * 1000:.0f} ms" if time_s < 1 else f"after {time_s:.1f} s"
