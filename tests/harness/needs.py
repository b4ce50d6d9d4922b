"""What a test needs of the machine."""

import os
import shutil

import pytest

# Debian's package of a program, where its name is another.
_PACKAGES = {
    "cc": "gcc libc6-dev",
    "chromium": "chromium fonts-dejavu-core",
    "ganesha.nfsd": "nfs-ganesha nfs-ganesha-vfs libnfs13",
    "java": "default-jre-headless",
    "losetup": "mount",
    "mkfs.btrfs": "btrfs-progs",
    "mkfs.ext4": "e2fsprogs",
    "mkfs.xfs": "xfsprogs",
    "nginx": "nginx-light",
    "promtool": "prometheus",
    "rabbitmqctl": "rabbitmq-server",
    "systemd-analyze": "systemd",
    "systemd-socket-activate": "systemd",
    "unshare": "util-linux",
}
# Where Debian has programs that are not on the path of an ordinary user.
_SYSTEM_PATH = "/usr/sbin:/sbin"


def cannot_run(reason: str) -> None:
    """Skips a test that this machine cannot run; in CI that is a failure."""
    if os.environ.get("CI"):
        pytest.fail(f"CI must be able to run this: {reason}")
    pytest.skip(reason)


def program(name: str) -> str:
    """The path of a program that is not Python's. Without it the test cannot run."""
    found = shutil.which(name) or shutil.which(name, path=_SYSTEM_PATH)
    if found is None:
        cannot_run(f"needs {name}: apt-get install {_PACKAGES.get(name, name)}")
    assert found is not None
    return found
