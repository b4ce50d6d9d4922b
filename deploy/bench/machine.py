"""The machine: what a table's heading says of it, and what a process uses."""

import os
import platform
from pathlib import Path
from typing import Final

from aiohttp import __version__ as aiohttp_version

from deploy.bench.ceiling import Commit
from mq.store.disk import mounts
from mq.store.disk.mounts import file_system_of

_KIB: Final = 1024
_FLUSHES_FIELD: Final = 15  # Of a block device's stat, since Linux 5.5.


def heading(where: Path, commit: Commit, *more: str) -> str:
    """File system, device, durability, commit mode, kernel, cores, Python, and more lines."""
    durability = "none" if commit == "none" else "media"
    kind = file_system_of(str(where)).kind + ("" if has_journal(where) else " without a journal")
    cores = len(os.sched_getaffinity(0))
    return "\n".join(
        (
            f"file system {kind} on {_device(where)}",
            f"durability {durability}, commit {commit}",
            f"kernel {platform.system()} {platform.release()}, {cores} cores",
            f"load average before: {os.getloadavg()[0]:.1f}",
            f"Python {platform.python_version()}, aiohttp {aiohttp_version}",
            *more,
        )
    )


def has_journal(where: Path) -> bool:
    """Whether the file system there has a journal, as far as Linux tells: ext4 can lack one."""
    found = file_system_of(str(where))
    return found.kind != "ext4" or mounts.has_journal(found.device)


def flushes(where: Path) -> int | None:
    """How often the device under the path was told to flush its cache, so far; None: not known."""
    device = _block_device(where)
    try:
        fields = (device / "stat").read_text().split() if device is not None else []
    except OSError:
        fields = []
    return int(fields[_FLUSHES_FIELD]) if len(fields) > _FLUSHES_FIELD else None


def _block_device(where: Path) -> Path | None:
    number = where.stat().st_dev
    device = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    return device.resolve() if device.exists() else None


def _device(where: Path) -> str:
    """The block device under the path and how it caches writes; `no device` for tmpfs."""
    device = _block_device(where)
    if device is None:
        return "no device"
    for disk in (device, device.parent):  # A partition's disk is the folder above it.
        try:
            cache = (disk / "queue" / "write_cache").read_text().strip()
        except OSError:
            continue
        return f"/dev/{device.name} (write cache: {cache})"
    return f"/dev/{device.name}"


def resident_mib(pid: int) -> tuple[float, float]:
    """The resident memory of a process now, and the most that it was, MiB."""
    facts = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
    )
    now, most = (int(facts[fact].split()[0]) / _KIB for fact in ("VmRSS", "VmHWM"))
    return now, most


def cpu_s(pid: int) -> float:
    """The seconds of a core that a process's threads of now have used so far, to the nanosecond."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9
