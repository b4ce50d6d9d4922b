"""A root as fsck works on it: nothing is made or tried before it is known to be one."""

import os
from pathlib import Path
from typing import Final

from mq.model.clock import SystemClock
from mq.store.audit.opening import open_for_audit
from mq.store.core.root import Root
from mq.store.core.server_clock import ClockFollower
from mq.store.core.trust import Risk, refuse, risks
from mq.store.core.whose import owner_of
from mq.store.disk.files import Files, OwnersFiles
from mq.store.disk.flush import Flusher
from mq.store.disk.mounts import choose_flusher
from mq.store.format.layout import Layout

_FLUSH_THREADS: Final = 2
_KIND: Final = "mqctl"


def open_for_fsck(path: Path) -> tuple[Root, Flusher, list[Risk]]:
    """The root, whose folders may be away, what makes changes of it durable, and what other users
    could do to it; on a mount, with the clock of its server. Raises StartupError when it is none,
    is of another format, may not be read, or is surely in other users' hands.
    """
    clock = SystemClock()
    root = open_for_audit(path, Files(), clock, _KIND)
    owner, user = owner_of(root), os.geteuid()
    # The superuser works on the root of any user, as that user.
    found = risks(root.layout.root, root.files, owner if user == 0 else user, root.layout.folders())
    refuse(found)
    if owner != user:
        root = Root.of(Layout.of(root.layout.root), OwnersFiles(owner), clock, kind=_KIND)
    ClockFollower(root, clock).follow()
    return root, choose_flusher(root.layout.root, root.files, _FLUSH_THREADS), found
