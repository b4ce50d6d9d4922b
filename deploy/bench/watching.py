"""What a process costs while it runs, as Linux tells."""

from pathlib import Path
from typing import Final

_KIB: Final = 1024


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
