"""How many cores this process may use: its affinity, and the CPU quotas of its control groups."""

import math
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

PROCESSES_AUTO_MAX: Final = 8
"""Beyond these the disk's flushes are the limit, and each process takes some 60 MB."""

_GROUP: Final = re.compile(r"\d+:([^:]*):(/.*)")


def usable_cores(proc: Path = Path("/proc/self")) -> int:
    """The cores of the affinity mask, or fewer where a container's CPU quota allows less time; a
    part of a core counts as one.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min([cores or 1, *map(math.ceil, _quotas(proc))]))


def processes_auto() -> int:
    """The number of processes for `auto`: 1 except on Linux, where alone SO_REUSEPORT spreads
    connections over listening sockets.
    """
    return min(usable_cores(), PROCESSES_AUTO_MAX) if sys.platform == "linux" else 1


def _quotas(proc: Path) -> Iterator[float]:
    """The quotas of the process's control groups and of those around them, in cores."""
    try:
        groups = (proc / "cgroup").read_text().splitlines()
        mounts = [line.split() for line in (proc / "mountinfo").read_text().splitlines()]
    except OSError:
        return  # Not Linux, or no /proc.
    for line in groups:
        if (found := _GROUP.fullmatch(line)) is None:
            continue
        controllers, path = found.groups()
        if controllers and "cpu" not in controllers.split(","):
            continue
        for mount in mounts:
            kind, options = mount[mount.index("-") + 1], mount[-1].split(",")
            if kind == "cgroup2" if not controllers else kind == "cgroup" and "cpu" in options:
                for folder in _around(Path(mount[4]), mount[3], path):
                    yield from _quota(folder)


def _around(mount: Path, mounted: str, path: str) -> Iterator[Path]:
    """The group's folder below the mount, and those around it. A container sees its own group as
    the mount's root, whatever its path is outside.
    """
    below = PurePosixPath(path)
    if below.is_relative_to(mounted):
        below = PurePosixPath("/") / below.relative_to(mounted)
        for each in (below, *below.parents):
            yield mount / each.relative_to("/")
    else:
        yield mount


def _quota(folder: Path) -> Iterator[float]:
    for quota, period in (("cpu.max", None), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
        try:
            found = (folder / quota).read_text().split()
            found += (folder / period).read_text().split() if period else []
            if int(found[0]) > 0:
                yield int(found[0]) / int(found[1])
        except (OSError, ValueError, IndexError, ZeroDivisionError):
            continue  # No such file in this version of control groups, or "max".
