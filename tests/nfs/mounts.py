"""Folders mounted as from an NFS server, by clients that answer wrongly when told."""

import contextlib
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.mounts import unmount
from harness.needs import cannot_run
from harness.processes import PATIENCE_S, eventually

ALWAYS = -1

_TESTS = Path(__file__).parent.parent


@dataclass(frozen=True, slots=True)
class Mount:
    """One client's view of the server's folder."""

    where: Path
    control: Path

    def tell(self, what: str, **arguments: Any) -> dict[str, int]:
        """A command to the client; how often it answered wrongly until then, by kind."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(PATIENCE_S)
            connection.connect(str(self.control))
            connection.sendall(json.dumps([what, arguments]).encode() + b"\n")
            answer: dict[str, int] = json.loads(connection.makefile().readline())
        return answer

    def arm(
        self, call: str, code: int, where: str = "", times: int = 1, done: bool = False
    ) -> None:
        """The next such calls on a path with this in it are answered so; `done`: after
        they were made.
        """
        self.tell("arm", call=call, code=code, where=where, times=times, done=done)

    def heal(self) -> None:
        """No more wrong answers."""
        self.tell("heal")

    def hits(self) -> dict[str, int]:
        return self.tell("hits")


@contextlib.contextmanager
def nfs_mount(work: Path, name: str, **options: Any) -> Iterator[Mount]:
    """`work/server`, made when missing, mounted at `work/name` as by a client with these options
    (`imitation.Options`).
    """
    folder, where, control = work / "server", work / name, work / f"{name}.socket"
    for each in (folder, where):
        each.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "nfs.imitation", str(where), str(folder), str(control)]
    client = subprocess.Popen([*command, json.dumps(options)], cwd=_TESTS)
    try:
        eventually(lambda: client.poll() is not None or where.is_mount(), "the FUSE mount")
        assert client.poll() is None, f"the FUSE process ended with {client.returncode}"
        yield Mount(where, control)
        unmount(where)
        assert client.wait(PATIENCE_S) == 0
    finally:
        # Whatever failed, no mount stays, nor one that nobody serves any more.
        subprocess.run(["umount", "--quiet", "--lazy", str(where)], check=False)
        client.kill()
        client.wait(PATIENCE_S)


def check_fuse() -> None:
    """Skips the test, or fails it in CI, where nothing can be mounted."""
    if not Path("/dev/fuse").exists():
        cannot_run("needs /dev/fuse")
    tried = subprocess.run([sys.executable, "-c", "import mfusepy"], capture_output=True, text=True)
    if tried.returncode != 0:
        cannot_run(f"needs mfusepy and libfuse3: {tried.stderr.strip().splitlines()[-1]}")
