"""Folders mounted as from an NFS server, by clients that answer wrongly when told."""

import contextlib
import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.fuse import served
from harness.processes import PATIENCE_S

ALWAYS = -1


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
    folder.mkdir(exist_ok=True)
    with served("nfs.imitation", where, str(folder), str(control), json.dumps(options)):
        yield Mount(where, control)
