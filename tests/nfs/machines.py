"""Two machines with Linux's own NFS client over one real server, on a host that cannot mount NFS.

The machines are qemu's, emulated: a boot takes a minute. No KVM is asked for, which hangs where the
host is such a machine itself. Their file system is the host's own, by virtiofs, so that they run
the host's Python; their kernel is Debian's, which apt brings. Each mounts the export of an
nfs-ganesha on the host, as OPERATE.md says, and runs an mq there, one beside it an mq-mover, the
other an mq-reaper. A machine is killed as a whole, with what its kernel remembers; the server
likewise. Needs root and what `.ci/run` installs.
"""

import asyncio
import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from harness.needs import cannot_run, program
from harness.processes import eventually

from mq.tools.doctor.options import NFS_GOOD

VISIBILITY_S = 10.0
# Also beside much else on an emulated processor.
BOOT_S = 900.0

_VIRTIOFSD = "/usr/lib/qemu/virtiofsd"
_TOOLS = ("qemu-system-x86_64", "ganesha.nfsd", "busybox", "depmod", "mount.nfs4", "cpio")
_MODULES = ("virtio_pci", "virtio_net", "virtiofs", "nfs", "nfsv4", "virtio_rng")
_GANESHA = """\
NFS_CORE_PARAM { Protocols = 4; NFS_Port = %(port)d; Bind_addr = 127.0.0.1; Enable_NLM = false;
  Enable_RQUOTA = false; Enable_UDP = false; mount_path_pseudo = true; }
NFSv4 { Grace_Period = 5; Lease_Lifetime = 10; Minor_Versions = 1, 2; Delegations = false;
  RecoveryBackend = fs; RecoveryRoot = %(work)s/recovery; }
NFS_KRB5 { Active_krb5 = false; }
EXPORT { Export_Id = 1; Path = %(work)s/export; Pseudo = /export; Access_Type = RW;
  Squash = No_Root_Squash; SecType = sys; Transports = TCP; Protocols = 4; FSAL { Name = VFS; } }
"""
_INIT = """\
#!/bin/busybox sh
B=/bin/busybox
$B mkdir -p /proc /sys /dev /host
$B mount -t proc proc /proc; $B mount -t sysfs sys /sys; $B mount -t devtmpfs dev /dev
for module in /lib/*.ko; do $B insmod $module; done
$B ip link set lo up; $B ip link set eth0 up
$B ip addr add 10.0.2.15/24 dev eth0; $B ip route add default via 10.0.2.2
$B mount -t virtiofs host /host
$B mount -t proc proc /host/proc; $B mount -o bind /dev /host/dev
$B mount -t tmpfs tmp /host/mnt; $B mount -t tmpfs tmp /host/run
$B chroot /host /bin/sh $($B sed 's/.*script=\\([^ ]*\\).*/\\1/' /proc/cmdline)
$B poweroff -f
"""
# Two machines of one name share their state at the server, and get EIO.
_GUEST = """\
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root PYTHONDONTWRITEBYTECODE=1
busybox hostname %(name)s
mkdir /mnt/nfs
# As OPERATE.md says; a client that has lost the server asks it again after 5 s.
mount -t nfs4 -o port=%(port)d,timeo=50,%(options)s 10.0.2.2:/export /mnt/nfs
cd /mnt
%(python)s -m mq --root /mnt/nfs/root --address 0.0.0.0 --port 8080 --allow-anonymous \
  --visibility %(visibility_s)s &
# As its unit: it ends without a root, which mq makes, and starts again.
while :; do %(python)s -m %(beside)s --root /mnt/nfs/root; sleep 2; done &
wait
"""


def check_machines() -> None:
    """Skips the test, or fails it in CI, without what the machines are made of."""
    for tool in _TOOLS:
        program(tool)
    if not Path(_VIRTIOFSD).exists():
        cannot_run(f"needs {_VIRTIOFSD}")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@dataclass
class Machine:
    """One machine, whether it is up or not; what `harness.clients` want of a server."""

    name: str
    work: Path
    port: int = field(default_factory=_free_port)
    is_up: asyncio.Event = field(default_factory=asyncio.Event)
    _parts: "list[subprocess.Popen[bytes]]" = field(default_factory=list)

    @property
    def url(self) -> str:
        """Of its mq."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        """What it said on its console."""
        return (self.work / f"{self.name}.log").read_text(errors="replace")

    def start(self) -> None:
        """Begins its boot; it is up when its mq answers."""
        shared = self.work / f"{self.name}.socket"
        shared.unlink(missing_ok=True)
        folder = ("-o", "source=/", "-o", "cache=auto", "-o", "sandbox=chroot")
        self._run(_VIRTIOFSD, f"--socket-path={shared}", *folder)
        eventually(shared.exists, "the file system for a machine")
        (kernel,) = (self.work / "kernel/boot").glob("vmlinuz-*")
        script = self.work / f"{self.name}.sh"
        memory = "memory-backend-memfd,id=memory,size=768M,share=on"
        network = f"user,id=net,hostfwd=tcp:127.0.0.1:{self.port}-:8080"
        self._run(
            *("qemu-system-x86_64", "-M", "q35", "-cpu", "max", "-smp", "1", "-m", "768"),
            *("-accel", "tcg,thread=multi"),
            *("-object", memory, "-numa", "node,memdev=memory"),
            *("-nographic", "-nodefaults", "-no-reboot", "-serial", "stdio"),
            *("-chardev", f"socket,id=files,path={shared}"),
            *("-device", "vhost-user-fs-pci,chardev=files,tag=host"),
            *("-netdev", network, "-device", "virtio-net-pci,netdev=net,romfile="),
            *("-kernel", str(kernel), "-initrd", str(self.work / "initrd.gz")),
            # Without a timer of the machine's own an emulated one does not boot.
            *("-append", f"console=ttyS0 panic=-1 no_timer_check quiet script={script}"),
        )

    def _run(self, *command: str) -> None:
        with (self.work / f"{self.name}.log").open("ab") as log:
            self._parts.append(
                # It ends with the test that started it.
                subprocess.Popen(
                    ("setpriv", "--pdeathsig", "KILL", *command),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )

    def answers(self) -> bool:
        """Whether its mq serves."""
        for part in self._parts:
            assert part.poll() is None, f"{self.name} has ended: {self.log[-4000:]}"
        try:
            with urllib.request.urlopen(f"{self.url}/-/readyz", timeout=5):
                return True
        except (OSError, urllib.error.URLError):
            return False

    def wait(self) -> None:
        """Until it serves."""
        eventually(self.answers, f"an answer of {self.name}: {self.log[-4000:]}", BOOT_S)

    def kill(self) -> None:
        """As a power cut does."""
        for part in self._parts:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(part.pid, signal.SIGKILL)
            part.wait()
        self._parts.clear()


class Machines:
    """The server and the two machines. `root`: the mounted root, as the server's host has it."""

    def __init__(self, work: Path) -> None:
        self.root = work / "export" / "root"
        self.both = (Machine("one", work), Machine("other", work))
        self._work = work
        self._port = _free_port()
        for name in ("export", "recovery"):
            (work / name).mkdir()
        facts = {"port": self._port, "work": work}
        (work / "ganesha.conf").write_text(_GANESHA % facts)
        for machine, beside in zip(self.both, ("mq_mover", "mq_reaper"), strict=True):
            said = {"name": machine.name, "port": self._port, "options": NFS_GOOD, "beside": beside}
            said |= {"python": sys.executable, "visibility_s": VISIBILITY_S}
            (work / f"{machine.name}.sh").write_text(_GUEST % said)

    def start_server(self) -> None:
        """Until it listens."""
        files = {"-f": "ganesha.conf", "-L": "ganesha.log", "-p": "ganesha.pid"}
        (self._work / "ganesha.pid").unlink(missing_ok=True)
        flags = [word for flag, name in files.items() for word in (flag, str(self._work / name))]
        command = ["setpriv", "--pdeathsig", "KILL", "ganesha.nfsd", "-F", *flags]
        self._server = subprocess.Popen(command, start_new_session=True)
        eventually(self._listens, "a server that listens")

    def _listens(self) -> bool:
        assert self._server.poll() is None, (self._work / "ganesha.log").read_text()
        try:
            socket.create_connection(("127.0.0.1", self._port)).close()
        except OSError:
            return False
        return True

    def kill_server(self) -> None:
        """With all that it has in memory; what it has written to the disk stays."""
        self._server.kill()
        self._server.wait()


@contextlib.contextmanager
def machines(work: Path) -> Iterator[Machines]:
    """Both, once they serve; on exit they have ended."""
    check_machines()
    _make_kernel(work)
    made = Machines(work)
    made.start_server()
    try:
        for machine in made.both:
            machine.start()
        for machine in made.both:
            machine.wait()
        yield made
    finally:
        for machine in made.both:
            machine.kill()
        made.kill_server()


def _make_kernel(work: Path) -> None:
    """`kernel/`, Debian's, and `initrd.gz`, with the modules that lead to the host's files."""
    said = _run_tool("apt-cache", "depends", "linux-image-cloud-amd64")
    found = re.search(r"Depends: (linux-image-\S+)", said)
    if found is None:
        cannot_run("needs apt's lists, with linux-image-cloud-amd64")
    assert found is not None
    _run_tool("apt-get", "download", "-q", "-o", "APT::Sandbox::User=root", found[1], where=work)
    (package,) = work.glob("linux-image-*.deb")
    _run_tool("dpkg-deb", "-x", str(package), str(work / "kernel"))
    (modules,) = (work / "kernel/lib/modules").iterdir()
    _run_tool("depmod", "-b", str(work / "kernel"), modules.name)
    initrd = work / "initrd"
    for folder in ("bin", "lib", "proc", "sys", "dev", "host"):
        (initrd / folder).mkdir(parents=True)
    busybox = program("busybox")
    assert busybox is not None
    shutil.copy(busybox, initrd / "bin/busybox")
    for number, module in enumerate(_in_order(modules)):
        shutil.copy(module, initrd / f"lib/{number:02d}-{module.name}")
    (initrd / "init").write_text(_INIT)
    (initrd / "init").chmod(0o755)
    pack = "find . | cpio -o -H newc --quiet | gzip -1 > ../initrd.gz"
    _run_tool("sh", "-c", pack, where=initrd)


def _in_order(modules: Path) -> list[Path]:
    """The modules that are wanted, each behind those that it needs."""
    lines = (modules / "modules.dep").read_text().splitlines()
    needs = {path: rest.split() for path, _, rest in (line.partition(":") for line in lines)}
    named = {Path(path).name.partition(".")[0].replace("-", "_"): path for path in needs}
    order: dict[str, None] = {}

    def add(path: str) -> None:
        for each in reversed(needs[path]):
            add(each)
        order[path] = None

    for name in _MODULES:
        if name in named:  # Else it is built in.
            add(named[name])
    return [modules / path for path in order]


def _run_tool(*command: str, where: Path | None = None) -> str:
    done = subprocess.run(command, cwd=where, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout
