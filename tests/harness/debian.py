"""A machine of its own to install things on: Debian in a folder, as mmdebstrap makes it."""

import os
import re
import subprocess
import sys
from pathlib import Path

from harness.apart import apart
from harness.needs import cannot_run, program

_PACKAGES = "ca-certificates,curl,passwd,procps,python3,python3-venv,systemd"
_PATIENCE_S = 550.0
# In namespaces of its own: its mounts and processes go with the command; it has loopback, whose
# ports are all free, and no other network.
_ENTER = """
set -euo pipefail
"$2" -c '
import fcntl, socket, struct
with socket.socket() as any:
    fcntl.ioctl(any, 0x8914, struct.pack("16sh14x", b"lo", 0x1 | 0x40))
'
mount --rbind /dev "$1/dev"
mount -t proc proc "$1/proc"
mount -t tmpfs -o mode=755 run "$1/run"
exec chroot "$1" /usr/bin/env -i PATH=/usr/local/sbin:/usr/sbin:/usr/local/bin:/usr/bin:/bin \
    LANG=C.UTF-8 PIP_NO_INDEX=1 PIP_FIND_LINKS=/srv/wheels PIP_DISABLE_PIP_VERSION_CHECK=1 "${@:3}"
"""


class Machine:
    """Debian of this machine's release. `/srv/wheels` has what pip finds there, and all of it."""

    def __init__(self, folder: Path) -> None:
        if os.geteuid() != 0:
            cannot_run("needs root, for another machine's file system")
        for tool in ("mmdebstrap", "unshare"):
            program(tool)
        release = re.search(r"^VERSION_CODENAME=(\w+)", Path("/etc/os-release").read_text(), re.M)
        if release is None or "ID=debian" not in Path("/etc/os-release").read_text():
            cannot_run("needs a Debian, to make another")
            raise AssertionError
        self.folder = folder
        # In half of debootstrap's time.
        _run(
            "mmdebstrap", "--variant=minbase", f"--include={_PACKAGES}", release.group(1),
            str(folder),
        )  # fmt: skip
        (folder / "etc" / "hosts").write_text("127.0.0.1 localhost\n")
        self.wheels = folder / "srv" / "wheels"
        self.wheels.mkdir()

    def python(self) -> str:
        """The version of its Python, as "3.NN"."""
        (found,) = self.folder.glob("usr/bin/python3.[0-9]*[0-9]")
        return found.name.removeprefix("python")

    def provide(self, *wanted: str) -> None:
        """Has pip find there what pip finds here, with all that it needs."""
        _run(
            sys.executable, "-m", "pip", "download", "-q", "--dest", str(self.wheels),
            "--only-binary=:all:", f"--python-version={self.python()}", *wanted,
        )  # fmt: skip

    def says(self, *command: str, user: str = "root", home: str = "/root") -> str:
        """What it says there on both its outputs, as that user and in an empty environment; it has
        to end well, and ends whatever it has started.
        """
        as_user = ("setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups")
        return _run(
            *apart("--net", "--pid", "--fork", "--kill-child"),
            "bash", "-c", _ENTER, "enter", str(self.folder), sys.executable,
            *as_user, "env", f"--chdir={home}", f"HOME={home}", f"USER={user}", *command,
        )  # fmt: skip


def _run(*command: str) -> str:
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_PATIENCE_S,
    )
    assert done.returncode == 0, f"{command[0]} {command[-1]}: {done.stdout[-6000:]}"
    return done.stdout
