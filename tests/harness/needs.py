"""What a test needs of the machine."""

import os
import shutil
from collections.abc import Iterable

import pytest

# Debian's package of a program, where its name is another.
_PACKAGES = {
    "busybox": "busybox-static",
    "cc": "gcc libc6-dev",
    "chromium": "chromium fonts-dejavu-core",
    "depmod": "kmod",
    "fusermount3": "fuse3",
    "ganesha.nfsd": "nfs-ganesha nfs-ganesha-vfs libnfs13",
    "java": "default-jre-headless",
    "losetup": "mount",
    "mkfs.btrfs": "btrfs-progs",
    "mkfs.ext4": "e2fsprogs",
    "mkfs.xfs": "xfsprogs",
    "mount.nfs4": "nfs-common",
    "nginx": "nginx-light",
    "node": "nodejs",
    "promtool": "prometheus",
    "qemu-system-x86_64": "qemu-system-x86",
    "rabbitmqctl": "rabbitmq-server",
    "systemd-analyze": "systemd",
    "systemd-socket-activate": "systemd",
    "unshare": "util-linux",
    "zookeeper": "libzookeeper-java",
}
# What is no program.
_FILES = {"zookeeper": "/usr/share/java/zookeeper.jar"}
# Where Debian has programs that are not on the path of an ordinary user.
_SYSTEM_PATH = "/usr/sbin:/sbin"


def cannot_run(reason: str) -> None:
    """Skips a test that this machine cannot run; in CI that is a failure."""
    if os.environ.get("CI"):
        pytest.fail(f"CI must be able to run this: {reason}")
    pytest.skip(reason)


def program(name: str) -> str:
    """The path of a program that is not Python's. Without it the test cannot run."""
    path = found(name)
    if path is None:
        cannot_run(f"needs {name}: apt-get install {_PACKAGES.get(name, name)}")
    assert path is not None
    return path


def found(name: str) -> str | None:
    """The path of a program, where it is on this machine."""
    if name in _FILES:
        return _FILES[name] if os.path.exists(_FILES[name]) else None
    return shutil.which(name) or shutil.which(name, path=_SYSTEM_PATH)


def packages_of(programs: Iterable[str]) -> set[str]:
    """Debian's packages of these programs."""
    return {package for name in programs for package in _PACKAGES.get(name, name).split()}
