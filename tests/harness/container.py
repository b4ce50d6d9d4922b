"""A process of an image as a container has it, made by util-linux.

It is the first of its processes, sees no other and no network but its own loopback, and writes
nowhere but in its volume: the image's files are read-only. It has the image's user, environment and
command, no capability, and can gain none.
"""

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.apart import apart
from harness.image import Image
from harness.processes import PATIENCE_S, eventually

_UP = (
    "import fcntl, socket, struct; "
    "fcntl.ioctl(socket.socket(), 0x8914, struct.pack('16sh', b'lo', 0x41))"
)
_ENTER = """
set -eu
files=$1 volume=$2 target=$3 workdir=$4
shift 4
{python} -c "{up}"
mount --bind "$files" "$files"
mount --bind "$volume" "$files$target"
mount -t proc proc "$files/proc"
mount --rbind /dev "$files/dev"
mount -o remount,bind,ro "$files"
exec chroot "$files" sh -c 'cd "$0" && exec "$@"' "$workdir" "$@"
"""


@dataclass
class Container:
    """One that runs."""

    image: Image
    popen: "subprocess.Popen[str]"
    _log: Path
    _env: dict[str, str]

    @property
    def log(self) -> str:
        return self._log.read_text()

    def execute(self, *command: str, env: dict[str, str] | None = None) -> str:
        """What a further process in it says, as `docker exec` starts one; it has to end well."""
        before = _as_user(self.image, self._env | (env or {}))
        done = self._within(("--mount", "--pid", "--root"), before, command)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}{self.log}"
        return done.stdout

    def curl(self, *arguments: str) -> str:
        """What this machine's curl gets in its network."""
        asked = ["curl", "-sS", "--max-time", str(4 * PATIENCE_S)]
        done = self._within(("--net",), asked, arguments)
        assert done.returncode == 0, f"{arguments}: {done.stderr}{self.log}"
        return done.stdout

    def stop(self) -> int:
        """What it ends with after SIGTERM."""
        subprocess.run(["kill", "-TERM", str(self._first())], check=True)
        return self.popen.wait(4 * PATIENCE_S)

    def _first(self) -> int:
        """The pid, outside, of its first process."""

        def child() -> int:
            assert self.popen.poll() is None, self.log
            pid = self.popen.pid
            said = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            return int(said[0]) if said else 0

        return eventually(child, "the container's first process")

    def _within(
        self, namespaces: tuple[str, ...], before: list[str], command: tuple[str, ...]
    ) -> "subprocess.CompletedProcess[str]":
        enter = ["nsenter", "--target", str(self._first()), "--net", *namespaces]
        return subprocess.run(
            [*enter, *before, *command], capture_output=True, text=True, timeout=4 * PATIENCE_S
        )


@contextlib.contextmanager
def container(
    image: Image, volume: Path, log: Path, *command: str, env: dict[str, str] | None = None
) -> Iterator[Container]:
    """A container with `volume` at the image's one; `command` in place of the image's."""
    (target,) = image.config["Volumes"]
    environment = image.environment | (env or {})
    with log.open("w") as said:
        popen = subprocess.Popen(
            [
                *apart("--pid", "--fork", "--kill-child", "--ipc", "--uts", "--net"),
                "sh", "-c", _ENTER.format(python=sys.executable, up=_UP), "sh",
                str(image.rootfs), str(volume), target, image.config["WorkingDir"],
                *_as_user(image, environment), *(command or image.config["Cmd"]),
            ],
            stdin=subprocess.DEVNULL, stdout=said, stderr=said, text=True,
        )  # fmt: skip
    try:
        yield Container(image, popen, log, environment)
    finally:
        popen.send_signal(signal.SIGKILL)
        popen.wait()


def _as_user(image: Image, environment: dict[str, str]) -> list[str]:
    user, group = image.config["User"].split(":")
    variables = [f"{name}={value}" for name, value in environment.items()]
    return [
        "setpriv", "--reuid", user, "--regid", group, "--clear-groups", "--inh-caps=-all",
        "--bounding-set=-all", "--no-new-privs", "env", "--ignore-environment", *variables,
    ]  # fmt: skip
