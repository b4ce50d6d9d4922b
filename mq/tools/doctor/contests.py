"""Contests of two processes on one storage: races for files, additions, and locks.

Each is held twice: with both processes at one mount, and with each at its own.
"""

import itertools
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from mq.tools.doctor.findings import Finding, Level
from mq.tools.doctor.ground import Ground
from mq.tools.doctor.partners import Pair

# Files in a race; the share that each side must win for it to count as a race; and, for each
# attempt, the time between two starts: if one side won all files, the race is repeated.
_RACED_FILES: Final = 100
_RACED_SHARE_MIN: Final = 0.02
_RACE_APART_S: Final = (0.0, 0.002, 0.005)
# The delay until both sides begin.
_START_IN_S: Final = 0.05
# Additions by each of two sides to one number; the alternations needed for it to count as a
# contest; and the attempts to reach them.
_ADDITIONS: Final = 50
_TURNS_MIN: Final = 10
_ADDITIONS_TRIES: Final = 3
# How long a partner may wait for a lock.
_LOCK_WAIT_S: Final = 10.0
_SEEN_LOOK_EVERY_S: Final = 0.001

_LOCKED: Final = "locked"


@dataclass(frozen=True, slots=True)
class Race:
    """The result of a race for `count` files: which files each side won, and how many exist."""

    count: int
    left: Sequence[int]
    right: Sequence[int]
    there: int
    started_each: bool = False
    """Whether each file had a start of its own, because one side had won all at first."""

    @property
    def by_both(self) -> int:
        """The number of files that both sides believe they won."""
        return len({*self.left} & {*self.right})

    @property
    def by_none(self) -> int:
        """The number of files that neither side believes it won."""
        return self.count - len({*self.left} | {*self.right})

    @property
    def is_sound(self) -> bool:
        """Whether exactly one side won each file."""
        return not self.by_both and not self.by_none and self.there == self.count

    @property
    def is_one_sided(self) -> bool:
        """Whether one side won nearly all files."""
        return min(len(self.left), len(self.right)) < self.count * _RACED_SHARE_MIN


def race(ground: Ground, pair: Pair, name: str, claims: bool) -> Race:
    """Both sides race for the same files: by rename, as messages are claimed, or by creating them.
    If one side wins all, the race is repeated, with a start of its own for each file. Raises
    OSError.
    """
    for apart_s in _RACE_APART_S:
        found = _race_once(ground, pair, f"{name}-{apart_s * 1000:.0f}-", claims, apart_s)
        if not found.is_one_sided or not found.is_sound:
            break
    return found


def _race_once(ground: Ground, pair: Pair, name: str, claims: bool, apart_s: float) -> Race:
    if claims:
        for number in range(_RACED_FILES):
            ground.files.close(ground.files.create(ground.path(f"{name}{number}")))
        _seen_by_both(pair, f"{name}{_RACED_FILES - 1}")
    left, right = pair.both(
        "race",
        name,
        claims=claims,
        count=_RACED_FILES,
        at_s=ground.clock.steady_s() + _START_IN_S,
        apart_s=apart_s,
    )
    return Race(_RACED_FILES, left, right, _there(ground, pair, name), apart_s > 0)


def _there(ground: Ground, pair: Pair, name: str) -> int:
    """The number of files in a listing, which may show one side's files later than the other's."""
    end_s = ground.clock.steady_s() + pair.within_s
    while True:
        there = sum(entry.name.startswith(name) for entry in ground.files.entries(ground.folder))
        if there >= _RACED_FILES or ground.clock.steady_s() >= end_s:
            return there
        threading.Event().wait(_SEEN_LOOK_EVERY_S)


def _seen_by_both(pair: Pair, name: str) -> None:
    for side in (pair.left, pair.right):
        asked = {"path": side.path(name), "by_listing": False, "within_s": pair.within_s}
        side.partner.ask("await_name", **asked)


def judge_race(probe: str, found: Race) -> Finding:
    """Each file must have exactly one winner, or messages are delivered twice, or lost."""
    facts = {
        "files": found.count,
        "left": len(found.left),
        "right": len(found.right),
        "by_both": found.by_both,
        "by_none": found.by_none,
        "started_each": found.started_each,
    }
    each = f"{len(found.left)} and {len(found.right)} of {found.count}"
    if not found.is_sound:
        says = (
            f"{found.by_both} of {found.count} won by both sides, {found.by_none} by none; "
            f"{found.there} are there"
        )
        return Finding(probe, Level.WRONG, says, "no other process of mq on this root", facts)
    again = ", each with a start of its own, as one side had all at first"
    says = f"each won by one side: {each}{again if found.started_each else ''}"
    if found.is_one_sided:
        return Finding(probe, Level.WARN, f"{says}: that says little of races", "", facts)
    return Finding(probe, Level.OK, says, "", facts)


@dataclass(frozen=True, slots=True)
class Additions:
    """The result of two sides that each added one to a number `each` times."""

    each: int
    left: Sequence[int]
    right: Sequence[int]
    number: int

    @property
    def lost(self) -> int:
        """Updates overwritten by a side that had not seen them."""
        return 2 * self.each - self.number

    @property
    def turns(self) -> int:
        """How often one side continued from the other's number."""
        owner = dict.fromkeys(self.left, 0) | dict.fromkeys(self.right, 1)
        order = [owner[number] for number in sorted(owner)]
        return sum(one != other for one, other in itertools.pairwise(order))


def additions(ground: Ground, pair: Pair, name: str, replaces: bool) -> Additions:
    """Both sides add to one number under one lock, in place or by replacing its file with a rename.
    If one side finished before the other began, the contest is repeated. Raises OSError.
    """
    for number in range(_ADDITIONS_TRIES):
        found = _additions_once(ground, pair, f"{name}-{number}", replaces)
        if found.lost or found.turns >= _TURNS_MIN:
            break
    return found


def _additions_once(ground: Ground, pair: Pair, name: str, replaces: bool) -> Additions:
    files = ground.files
    for made, content in ((name, b"000000000"), (f"{name}.lock", b"")):
        descriptor = files.create(ground.path(made))
        try:
            files.write(descriptor, content)
            files.sync(descriptor)
        finally:
            files.close(descriptor)
        _seen_by_both(pair, made)
    left, right = pair.both(
        "add",
        name,
        count=_ADDITIONS,
        at_s=ground.clock.steady_s() + _START_IN_S,
        replaces=replaces,
        within_s=_LOCK_WAIT_S,
    )
    # The larger of both views: an update that a cache hides is not lost.
    numbers = [side.partner.ask("read", path=side.path(name)) for side in (pair.left, pair.right)]
    added = max(int(said) if said and said.isdigit() else 0 for said in numbers)
    return Additions(_ADDITIONS, left, right, added)


def judge_additions(probe: str, in_place: Additions, by_rename: Additions) -> Finding:
    """If an addition is lost, so are changes under a lock (keys, settings, schedules)."""
    all_of = 2 * (in_place.each + by_rename.each)
    lost = in_place.lost + by_rename.lost
    facts = {
        "additions": all_of,
        "lost": lost,
        "lost_in_place": in_place.lost,
        "lost_by_rename": by_rename.lost,
        "turns": in_place.turns + by_rename.turns,
    }
    if lost:
        says = (
            f"{lost} of {all_of} updates lost: what one side wrote under the lock the other did "
            f"not see ({in_place.lost} in place, {by_rename.lost} by rename)"
        )
        return Finding(probe, Level.WRONG, says, "no other process of mq on this root", facts)
    says = f"none of {all_of} lost, the sides took turns {facts['turns']} times"
    if not facts["turns"]:
        return Finding(probe, Level.WARN, f"{says}: that says little", "", facts)
    return Finding(probe, Level.OK, says, "", facts)


@dataclass(frozen=True, slots=True)
class Locks:
    """How two processes' flocks affect each other."""

    excludes: bool
    follows_rename: bool
    comes_free: bool
    ends_with_its_process: bool


def locks(ground: Ground, pair: Pair, name: str) -> Locks:
    """The left side locks, the right side tries; then the left side unlocks, and is killed. Raises
    OSError.
    """
    left, right = pair.left, pair.right
    ground.files.close(ground.files.create(ground.path(name)))
    _seen_by_both(pair, name)
    left.partner.ask("lock", path=left.path(name))
    excludes = not _takes(pair, name)
    ground.files.rename(ground.path(name), ground.path(f"{name}.{_LOCKED}"))
    name = f"{name}.{_LOCKED}"
    _seen_by_both(pair, name)
    follows = not _takes(pair, name)
    left.partner.kill()  # Its locks go with it.
    ends = _takes(pair, name, _LOCK_WAIT_S)
    left.partner.ask("lock", path=left.path(name), within_s=_LOCK_WAIT_S)
    left.partner.ask("unlock", path=left.path(name))
    comes_free = bool(right.partner.ask("lock", path=right.path(name), within_s=_LOCK_WAIT_S))
    return Locks(excludes, follows, comes_free, ends)


def _takes(pair: Pair, name: str, within_s: float = 0.0) -> bool:
    """Whether the right side gets the lock; it unlocks it again."""
    path = pair.right.path(name)
    if not pair.right.partner.ask("lock", path=path, within_s=within_s):
        return False
    pair.right.partner.ask("unlock", path=path)
    return True


def judge_locks(probe: str, found: Locks) -> Finding:
    """flock must exclude others, follow its file through a rename, and end with its process."""
    bad = [
        says
        for holds, says in (
            (found.excludes, "two processes had one lock"),
            (found.follows_rename, "a lock was lost by its file's rename"),
            (found.comes_free, "a lock that was given back was not had again"),
            (found.ends_with_its_process, "a killed process's lock stayed"),
        )
        if not holds
    ]
    facts = {
        "excludes": found.excludes,
        "follows_rename": found.follows_rename,
        "comes_free": found.comes_free,
        "ends_with_its_process": found.ends_with_its_process,
    }
    if bad:
        return Finding(
            probe, Level.WRONG, "; ".join(bad), "no other process of mq on this root", facts
        )
    return Finding(probe, Level.OK, "flock keeps others out, and ends with its process", "", facts)
