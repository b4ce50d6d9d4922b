"""Commands in a mount namespace of their own, which holds no mount of another test's.

A namespace begins with all mounts that there are. While it has them, what another test unmounts is
not gone: a FUSE server goes on, a disk is not flushed, a device is busy.
"""

# Lazily, as they are others' too; one that has just gone is none to complain of.
_LET_GO = r"""
awk '$2 ~ "/pytest-of-[^/]*/." { print $2 }' /proc/self/mounts | sort -r |
while read -r place; do umount --lazy "$place" 2>/dev/null || true; done
exec "$@"
"""


def apart(*more: str) -> list[str]:
    """What goes before a command that is to run so; `more`: namespaces beside, and what else
    unshare(1) is told. For root.
    """
    return ["unshare", "--mount", *more, "sh", "-c", _LET_GO, "sh"]
