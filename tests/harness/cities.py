"""The example with the cities of the world, run as a person runs it, and what it says."""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from harness.spark_cluster import CHECKOUT, SITE

SCRIPT = CHECKOUT / "tests" / "examples" / "cities.py"
PATIENCE_S = 400.0


@dataclass(frozen=True)
class Account:
    """What the example printed: its figures by their names, and its verdict."""

    figures: dict[str, int]
    verdict: str

    @property
    def delivered(self) -> tuple[int, int]:
        """So many to Parquet, and so many over HTTP."""
        return (
            self.figures["delivered to Parquet, by the stream"],
            self.figures["delivered over HTTP"],
        )


def run_cities(
    url: str, root: Path, out: Path, *flags: str, command: tuple[str, ...] = (sys.executable,)
) -> Account:
    """The example run to its end by `command`; one that fails shows what it said."""
    done = subprocess.run(
        [*command, str(SCRIPT), "--url", url, "--root", str(root), "--out", str(out), *flags],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": f"{SITE}:{CHECKOUT}"},
        cwd=out.parent,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-8000:]
    lines = done.stdout.splitlines()
    rows = [re.match(r" *(\S.*?)  +([0-9,]+)(?: .*)?$", line) for line in lines]
    figures = {row[1]: int(row[2].replace(",", "")) for row in rows if row is not None}
    return Account(figures, lines[-1])
