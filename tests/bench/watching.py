"""What a process costs while it runs, as Linux tells."""

import os
from pathlib import Path
from typing import Final

_KIB: Final = 1024
_TICKS_S: Final = os.sysconf("SC_CLK_TCK")


def resident_mib(pid: int) -> tuple[float, float]:
    """The resident memory of a process now, and the most that it was, MiB."""
    facts = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
    )
    now, most = (int(facts[fact].split()[0]) / _KIB for fact in ("VmRSS", "VmHWM"))
    return now, most


def cpu_s(pid: int) -> float:
    """The seconds of a core that a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_S
