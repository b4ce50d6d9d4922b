"""Small file systems of memory, mounted for a test and gone after it."""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

from harness.needs import cannot_run


@contextlib.contextmanager
def tmpfs(where: Path, *options: str) -> Iterator[Path]:
    """A tmpfs at `where`, such as `tmpfs(path, "size=4m")`."""
    where.mkdir(parents=True, exist_ok=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", ",".join((*options, "mode=0700")), "mq-test", str(where)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode != 0:
        cannot_run(f"cannot mount a tmpfs: {mounted.stderr.strip()}")
    try:
        yield where
    finally:
        # Lazily, as a file that is open still must not leave the mount behind.
        subprocess.run(["umount", "--lazy", str(where)], check=True)


def remount(where: Path, option: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{option}", str(where)], check=True)
