"""Runs mqctl's command lines and Python's programs one after the other in one process, whose Spark
sessions share a JVM: most of what a program costs that does a little with Spark is the start of its
own.

`python spark_programs.py SOCKET`: it is asked as `mqctl_server` is, by `harness.mqctl.CLIENT`. The
first word is `mqctl` or `python`.
"""

import contextlib
import io
import json
import os
import runpy
import shlex
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.mqctl import CLIENT
from harness.mqctl_server import BYTES_MAX, DESCRIPTORS
from harness.processes import PATIENCE_S, eventually
from harness.spark_cluster import SITE
from mq.tools.mqctl import cli


@dataclass(frozen=True)
class Programs:
    """What programs are run with in the place of a process of their own."""

    path: Path

    def command(self, program: str) -> tuple[str, ...]:
        """What to run instead of `mqctl` or `python`."""
        return (sys.executable, "-S", "-E", "-c", CLIENT, str(self.path), program)

    @property
    def functions(self) -> str:
        """Both as bash has them."""
        return "".join(
            f'{program}() {{ {shlex.join(self.command(program))} "$@"; }}\n'
            for program in ("mqctl", "python")
        )


@contextlib.contextmanager
def programs_at(folder: Path) -> Iterator[Programs]:
    """Ended at the end, with its JVM."""
    folder.mkdir(exist_ok=True)
    path, log = folder / "programs", folder / "log"
    here = Path(__file__).parents[1]
    with log.open("wb") as sink:
        server = subprocess.Popen(
            [sys.executable, __file__, str(path)],
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            cwd=folder,
            env=os.environ
            | {
                "SPARK_LOCAL_IP": "127.0.0.1",
                "PYTHONPATH": os.pathsep.join(map(str, (here, here.parent))),
            },
            start_new_session=True,
        )
    try:
        eventually(path.exists, f"a socket at {path}", PATIENCE_S)
        yield Programs(path)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def run(program: str, *words: str) -> None:
    match program, words:
        case "mqctl", _:
            sys.argv = ["mqctl", *words]
            cli.main()
        case "python", ("-c", code, *rest):
            sys.argv = ["-c", *rest]
            exec(compile(code, "-c", "exec"), {"__name__": "__main__"})
        case "python", (path, *_):
            sys.argv = list(words)
            runpy.run_path(path, run_name="__main__")
        case _:
            raise SystemExit(f"no program: {program} {words}")


def attend(connection: socket.socket) -> None:
    """One program, from its beginning to its end."""
    text, descriptors, _, _ = socket.recv_fds(connection, BYTES_MAX, DESCRIPTORS)
    if not text:
        return
    said = json.loads(text)
    streams = sys.stdin, sys.stdout, sys.stderr
    given = [
        io.TextIOWrapper(open(each, mode), encoding="utf-8", write_through=True)  # noqa: SIM115
        for each, mode in zip(descriptors, ("rb", "wb", "wb"), strict=True)
    ]
    os.environ.clear()
    os.environ.update(said["env"])
    # For the workers of the JVM, which the first program that needs one starts.
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, [str(SITE), os.environ.get("PYTHONPATH")])
    )
    os.chdir(said["cwd"])
    code = 0
    try:
        # Not the descriptors themselves: the JVM would keep them.
        sys.stdin, sys.stdout, sys.stderr = given
        run(*said["argv"])
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
    except BaseException:
        traceback.print_exc()
        code = 1
    finally:
        sys.stdin, sys.stdout, sys.stderr = streams
        for each in given:
            each.close()
    connection.sendall(f"{os.getpid()}\n{code}\n".encode())


def serve(path: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(path)
        listener.listen()
        while True:
            connection, _ = listener.accept()
            with connection:
                attend(connection)


if __name__ == "__main__":
    serve(sys.argv[1])
