"""mqctl as a process: run to its end, or begun, to be signalled and waited for."""

import contextlib
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from harness import mqctl_server
from harness.processes import PATIENCE_S, Process, processes

# What a shell runs in mqctl's place: hands its command line and descriptors over, and waits.
CLIENT = """
import json, os, socket, sys
with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as it:
    it.connect(sys.argv[1])
    said = {"argv": sys.argv[2:], "cwd": os.getcwd(), "env": dict(os.environ)}
    socket.send_fds(it, [json.dumps(said).encode()], [0, 1, 2])
    answers = it.makefile().read().split()
code = int(answers[1]) if len(answers) == 2 else 70
sys.exit(code if code >= 0 else 128 - code)
"""


@dataclass(frozen=True)
class Ended:
    """A command that has ended."""

    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode()

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def rows(self) -> list[Any]:
        return [json.loads(line) for line in self.lines]

    @property
    def error(self) -> Any:
        """What --json says on stderr of a failure."""
        return json.loads(self.err.splitlines()[-1])["error"]


@dataclass(eq=False)
class Begun:
    """A command that runs. Its stdin, stdout and stderr are pipes, or what was given."""

    connection: socket.socket
    stdin: "IO[bytes] | None"
    stdout: "IO[bytes] | None"
    stderr: "IO[bytes] | None"
    pid: int = 0
    answers: "IO[str]" = field(init=False)

    def __post_init__(self) -> None:
        self.answers = self.connection.makefile()
        self.pid = int(self.answers.readline())

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def wait(self) -> int:
        """Its exit code; that of a signal is negative."""
        return int(self.answers.readline())

    def has_ended(self) -> bool:
        return not Path(f"/proc/{self.pid}").exists()

    def close(self) -> None:
        for each in (self.stdin, self.stdout, self.stderr, self.answers, self.connection):
            if each is not None:
                with contextlib.suppress(OSError):
                    each.close()


class Mqctl:
    """Runs mqctl against one mq: `mqctl("queues", "--json").json`."""

    def __init__(self, path: Path, url: str) -> None:
        self.path = path
        self.url = url
        self._begun: list[Begun] = []

    def __call__(
        self, *argv: str, stdin: bytes | str = b"", cwd: Path | None = None, **env: str
    ) -> Ended:
        begun = self.begin(*argv, cwd=cwd, **env)
        assert begun.stdin is not None
        assert begun.stdout is not None
        assert begun.stderr is not None
        errors: list[bytes] = []
        stderr = begun.stderr
        reading = threading.Thread(target=lambda: errors.append(stderr.read()))
        given = stdin.encode() if isinstance(stdin, str) else stdin
        writing = threading.Thread(target=_write, args=(begun.stdin, given))
        reading.start()
        writing.start()
        out = begun.stdout.read()
        code = begun.wait()
        reading.join(PATIENCE_S)
        writing.join(PATIENCE_S)
        begun.close()
        self._begun.remove(begun)
        return Ended(code, out, errors[0].decode())

    def begin(
        self,
        *argv: str,
        cwd: Path | None = None,
        stdin: int | None = None,
        stdout: int | None = None,
        **env: str,
    ) -> Begun:
        """Begins it. `stdin`, `stdout`: descriptors of the caller's in the place of pipes."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.connect(str(self.path))
        connection.settimeout(PATIENCE_S)
        stdin_read, stdin_write = os.pipe() if stdin is None else (stdin, -1)
        out_read, out_write = os.pipe() if stdout is None else (-1, stdout)
        err_read, err_write = os.pipe()
        usual = {name: value for name, value in os.environ.items() if not name.startswith("MQ_")}
        said = {
            "argv": argv,
            "cwd": str(cwd or Path.cwd()),
            "env": {**usual, "MQ_URL": self.url, "NO_COLOR": "1", **env},
        }
        socket.send_fds(connection, [json.dumps(said).encode()], [stdin_read, out_write, err_write])
        begun = Begun(
            connection,
            None if stdin is not None else os.fdopen(stdin_write, "wb", buffering=0),
            None if stdout is not None else os.fdopen(out_read, "rb"),
            os.fdopen(err_read, "rb"),
        )
        self._begun.append(begun)
        os.close(err_write)
        if stdin is None:
            os.close(stdin_read)
        if stdout is None:
            os.close(out_write)
        return begun

    def end_all(self) -> None:
        """What still runs, as after a test that failed, is killed."""
        for begun in self._begun:
            if not begun.has_ended():
                begun.signal(signal.SIGKILL)
            begun.close()

    def function(self) -> str:
        """mqctl as bash has it: a function."""
        python = shlex.join([sys.executable, "-S", "-E", "-c", CLIENT, str(self.path)])
        return f'mqctl() {{ {python} "$@"; }}\n'


def _write(pipe: "IO[bytes]", given: bytes) -> None:
    # Who reads no stdin may be gone by now.
    with contextlib.suppress(BrokenPipeError):
        pipe.write(given)
    with contextlib.suppress(BrokenPipeError):
        pipe.close()


@contextlib.contextmanager
def mqctl_server_at(path: Path) -> Iterator[None]:
    """What runs mqctl's command lines, while the block lasts."""
    server = subprocess.Popen(
        [sys.executable, mqctl_server.__file__, str(path)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        assert server.stdout.readline() == "listening\n"
        yield
    finally:
        server.kill()
        server.wait(PATIENCE_S)
        assert server.stdout is not None
        server.stdout.close()


@contextlib.contextmanager
def mqctl_for(folder: Path, *flags: str) -> Iterator[tuple[Mqctl, Process]]:
    """mqctl, and an mq with a root in the folder."""
    path = folder / "mqctl"
    with processes() as started, mqctl_server_at(path):
        mq = started.mq(folder / "root", *flags)
        mqctl = Mqctl(path, mq.url)
        try:
            yield mqctl, mq
        finally:
            mqctl.end_all()
