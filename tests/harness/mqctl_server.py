"""Runs command lines of mqctl, each in a process of its own that was forked from this one, which
has all of mqctl loaded: what takes half a second otherwise takes some milliseconds.

`python mqctl_server.py SOCKET`: each connection sends one datagram, a JSON object of `argv`, `cwd`
and `env`, with the three standard descriptors; and gets the process's number, then its exit code.
"""

import importlib
import io
import json
import os
import signal
import socket
import sys
import traceback
from typing import Any

from mq.tools.mqctl.cli import COMMANDS, main

DESCRIPTORS = 3
BYTES_MAX = 1 << 20


def load() -> None:
    for place in COMMANDS.values():
        try:
            importlib.import_module(place.module)
        except ModuleNotFoundError as error:
            if error.name is None or not place.module.startswith(error.name):
                raise


def become(said: dict[str, Any], descriptors: list[int]) -> None:
    """This process is the command line from here on; never returns."""
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(said["env"])
    os.chdir(said["cwd"])
    sys.argv = ["mqctl", *said["argv"]]
    sys.stdin = io.TextIOWrapper(open(0, "rb", closefd=False), encoding="utf-8")  # noqa: SIM115
    sys.stdout = io.TextIOWrapper(open(1, "wb", closefd=False), encoding="utf-8")  # noqa: SIM115
    sys.stderr = io.TextIOWrapper(
        open(2, "wb", closefd=False),  # noqa: SIM115
        encoding="utf-8",
        line_buffering=True,
    )
    signal.signal(signal.SIGINT, signal.default_int_handler)
    code = 70
    try:
        main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException as error:
        traceback.print_exception(error)
    finally:
        sys.stderr.flush()
        os._exit(code)


def attend(connection: socket.socket) -> None:
    """One command line, from its beginning to its end."""
    text, descriptors, _, _ = socket.recv_fds(connection, BYTES_MAX, DESCRIPTORS)
    if not text:
        return
    pid = os.fork()
    if pid == 0:
        connection.close()
        become(json.loads(text), descriptors)
    for descriptor in descriptors:
        os.close(descriptor)
    connection.sendall(f"{pid}\n".encode())
    _, status = os.waitpid(pid, 0)
    connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())


def serve(path: str) -> None:
    load()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(path)
        listener.listen()
        print("listening", flush=True)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        while True:
            connection, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                attend(connection)
                os._exit(0)
            connection.close()


if __name__ == "__main__":
    serve(sys.argv[1])
