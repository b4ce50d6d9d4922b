"""What the daemons refuse at their start: one line has what is wrong, what would be right, and what
to do.
"""

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest
from harness.folders import make_root

from mq.coordination.zookeeper_address import EXAMPLE
from mq.model.errors import StartupError
from mq.runtime.activation import cannot_listen
from mq.store.opening import cannot_open

DAEMONS: Final = ("mq", "mq_mover", "mq_reaper")
PATIENCE_S: Final = 120


def nothing(_: Path) -> None: ...


def linked(top: Path) -> None:
    (top / "disk").mkdir()
    (top / "root").symlink_to(top / "disk")


def made(top: Path) -> None:
    make_root(top / "root")


def with_a_file_for_queues(top: Path) -> None:
    (top / "root").mkdir()
    (top / "root" / "format").write_text("mq 3\n")
    (top / "root" / "queues").write_text("")


def of_another_format(top: Path) -> None:
    (top / "root").mkdir()
    (top / "root" / "format").write_text("mq 9\n")


def open_to_all(top: Path) -> None:
    (top / "root").mkdir()
    (top / "root").chmod(0o777)


def below_a_file(top: Path) -> None:
    (top / "root").write_text("")


def two_folders(top: Path) -> None:
    for name in ("a", "root", "root/new", "root/queues"):
        (top / name).mkdir()


@dataclass(frozen=True)
class Case:
    """A start that is refused; `{top}` is the test's folder, `{root}` the root in it."""

    says: str
    daemons: tuple[str, ...] = DAEMONS
    flags: tuple[str, ...] = ("--root", "{root}")
    before: Callable[[Path], None] = nothing
    environment: dict[str, str] = field(default_factory=dict)


ROOT: Final = ("--root", "{root}")
CASES: Final = {
    "no-parent": Case(
        "cannot make the root {top}/no/root: there is no folder {top}/no; correct --root (MQ_ROOT),"
        " or mkdir -p {top}/no",
        ("mq",),
        flags=("--root", "{top}/no/root"),
    ),
    "no-root": Case(
        "there is no root at {root}; mount its file system, correct --root, or start mq on it "
        "first, which makes one",
        ("mq_mover", "mq_reaper"),
    ),
    "required": Case(
        "there is no root at {root}; mount its file system, correct --root, or start mq on it "
        "first, which makes one",
        ("mq",),
        (*("--root", "{root}"), "--require-root"),
    ),
    "link": Case(
        "the root {root} is a symbolic link, which could lead elsewhere while mq runs; set "
        "--root (MQ_ROOT) to the folder itself, {top}/disk",
        ("mq_mover",),
        before=linked,
    ),
    "file": Case(
        "{root} is not a folder: a file, or a symbolic link, which mq does not follow; move it "
        "away, and start again",
        ("mq",),
        before=below_a_file,
    ),
    "no-folder": Case(
        "{root}/queues is not a folder: a file, or a symbolic link, which mq does not follow; "
        "move it away, and start again",
        ("mq_mover",),
        before=with_a_file_for_queues,
    ),
    "format": Case(
        "{root}/format has the format 'mq 9', and this mq knows 'mq 3'; use the mq "
        "that made the root, or another root",
        before=of_another_format,
    ),
    "mode": Case(
        "{root} has mode 0777: every user may change it; chmod 700 {root}",
        ("mq",),
        before=open_to_all,
    ),
    "exposed": Case(
        "0.0.0.0 can be reached from elsewhere, and every caller could do everything; name the "
        "callers with --tokens, --jwks, --jwks-url or --tls-client-ca, or use --allow-anonymous",
        ("mq",),
        (*ROOT, "--address", "0.0.0.0", "--port", "0"),
    ),
    "no-address": Case(
        "cannot listen on 192.0.2.1 port 0: Cannot assign requested address; correct the address",
        ("mq",),
        (*ROOT, "--address", "192.0.2.1", "--port", "0", "--allow-anonymous"),
    ),
    "metrics": Case(
        "cannot serve metrics on 192.0.2.1 port 9: Cannot assign requested address; correct the "
        "address",
        ("mq_reaper",),
        (*ROOT, "--metrics", "192.0.2.1:9"),
        made,
    ),
    "no-memory": Case(
        "a crash would lose messages for nothing; leave it out, or use --force",
        ("mq",),
        ("--root", "/var/tmp/{name}", "--port", "0", "--durability", "none"),
    ),
    "manager": Case(
        "NOTIFY_SOCKET, which the service manager sets, must be a socket's path, or @ and a name, "
        "not 'nowhere'; correct or unset it",
        ("mq",),
        environment={"NOTIFY_SOCKET": "nowhere"},
    ),
    "watchdog": Case(
        "WATCHDOG_USEC, which the service manager sets, must be a number of microseconds, not "
        "'soon'; correct or unset it",
        ("mq_mover",),
        environment={"NOTIFY_SOCKET": "@mq-test", "WATCHDOG_USEC": "soon"},
    ),
    "half-a-pair": Case(
        "--source and --destination go together; use both, or neither",
        ("mq_mover",),
        ("--source", "{top}/a"),
        two_folders,
    ),
    "new": Case(
        "mq writes messages in {root}/new, where a file may be half written, and delivers them "
        "itself; use another --source",
        ("mq_mover",),
        ("--source", "{root}/new", "--destination", "{root}/queues"),
        two_folders,
    ),
    "alive": Case(
        "{root}/queues holds messages that are not removed, and mq-reaper would unlink them; "
        "use --source {root}/remove",
        ("mq_reaper",),
        ("--source", "{root}/queues"),
        two_folders,
    ),
    "coordinator": Case(
        f"there is no coordinator 'etcd'; use file, alone, or {EXAMPLE} as --coordinator",
        ("mq_mover",),
        (*ROOT, "--coordinator", "etcd"),
        made,
    ),
}


@pytest.mark.certificate
def test_each_daemon_says_what_it_refuses_and_what_to_do(tmp_path: Path) -> None:
    """All start at once: most of a start is Python's own."""
    tmp_path.chmod(0o700)
    begun = []
    for name, case in CASES.items():
        for daemon in case.daemons:
            top = tmp_path / f"{name}-{daemon}"
            top.mkdir()
            case.before(top)
            known = {
                "top": str(top),
                "root": str(top / "root"),
                "name": f"mq-refused-{os.getpid()}",
            }
            flags = [each.format(**known) for each in case.flags]
            process = subprocess.Popen(
                [sys.executable, "-m", daemon, *flags],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                env={**os.environ, **case.environment},
            )
            begun.append((name, daemon, process, case.says.format(**known)))
    wrong = {}
    for name, daemon, process, says in begun:
        said, _ = process.communicate(timeout=PATIENCE_S)
        last = said.rstrip("\n").rpartition("\n")[2]
        if process.returncode != 1 or not last.endswith(says) or "Traceback" in said:
            wrong[name, daemon] = (process.returncode, said, says)
    assert wrong == {}


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (
            PermissionError(13, "x", "/r/new"),
            "Permission denied: /r/new; run as the user that owns",
        ),
        (OSError(30, "x", "/r/new"), "Read-only file system: /r/new; mount its file system for"),
        (OSError(28, "x", "/r/new"), "No space left on device: /r/new; free space"),
        (OSError(5, "x", "/r/new"), "Input/output error: /r/new; run mqctl doctor on the folder"),
        (OSError("odd"), "odd; run mqctl doctor"),
    ],
)
def test_a_root_that_cannot_be_opened(error: OSError, says: str) -> None:
    found = cannot_open("/r", error)
    assert isinstance(found, StartupError)
    assert str(found).startswith(f"cannot open /r: {says}")


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (OSError(98, "Address already in use"), "end the process that listens there, or use"),
        (PermissionError(13, "Permission denied"), "use a port from 1024, or give the process"),
        (socket.gaierror(-2, "Name or service not known"), "correct the address"),
        (OverflowError("port must be 0-65535"), "correct the address"),
    ],
)
def test_a_port_that_cannot_be_had(error: Exception, says: str) -> None:
    found = str(cannot_listen("here", 80, error))
    assert found.startswith("cannot listen on here port 80: ")
    assert f"; {says}" in found
