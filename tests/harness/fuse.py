"""File systems that a Python process of ours serves through FUSE."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from harness.mounts import unmount
from harness.needs import cannot_run
from harness.processes import PATIENCE_S, eventually

_TESTS = Path(__file__).parent.parent


def check_fuse(*devices: str) -> None:
    """Skips the test, or fails it in CI, where no such file system can be mounted."""
    for device in ("/dev/fuse", *devices):
        if not Path(device).exists():
            cannot_run(f"needs {device}")
    tried = subprocess.run([sys.executable, "-c", "import mfusepy"], capture_output=True, text=True)
    if tried.returncode != 0:
        cannot_run(f"needs mfusepy and libfuse3: {tried.stderr.strip().splitlines()[-1]}")


@contextlib.contextmanager
def served(module: str, where: Path, *arguments: str) -> Iterator[Path]:
    """Mounts at `where` what `python -m module where arguments` serves; on exit it has ended."""
    where.mkdir(exist_ok=True)
    server = subprocess.Popen([sys.executable, "-m", module, str(where), *arguments], cwd=_TESTS)
    try:
        eventually(lambda: server.poll() is not None or where.is_mount(), "the FUSE mount")
        assert server.poll() is None, f"the FUSE process ended with {server.returncode}"
        yield where
        unmount(where)
        assert server.wait(PATIENCE_S) == 0
    finally:
        server.kill()
        server.wait(PATIENCE_S)
        # Where it is mounted still: nothing can be asked of a mount whose server is gone.
        subprocess.run(["umount", "--lazy", str(where)], capture_output=True)
