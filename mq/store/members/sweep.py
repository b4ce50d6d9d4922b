"""Taking away what members that are gone have left in members/, and what nobody goes on writing
there and in shovels/.
"""

import contextlib
import os

from mq.model.errors import BadName
from mq.model.message import Stamp
from mq.model.upkeep_limits import MEMBER_TOLD_KEPT_S, UNFINISHED_KEPT_S
from mq.store.core.root import Root, unlink_if_there
from mq.store.format.layout import is_unfinished
from mq.store.format.members import Of, parse_member_file
from mq.store.format.walk import entries_if_there


def sweep_members(root: Root) -> int:
    """Takes away what a member told, and how far its sweep had come, a day after it said so last;
    and files that were being written an hour ago. How many. What is foreign stays. Raises OSError.
    Durable: no; what a crash brings back is swept again.
    """
    swept = 0
    for folder in (root.layout.members, root.layout.shovels):
        for entry in entries_if_there(root.files, folder):
            kept_s = _kept_s(root, folder, entry.name)
            if kept_s is not None and _is_older(root, entry, kept_s):
                unlink_if_there(root.files, entry.path)
                swept += 1
    return swept


def _kept_s(root: Root, folder: str, name: str) -> float | None:
    """How long a file of this name stays when nobody writes to it; None: it is not looked after
    here.
    """
    if is_unfinished(name):
        return UNFINISHED_KEPT_S
    if folder == root.layout.members:
        with contextlib.suppress(BadName):
            # Leases go by the leader's word: it knows who renews his.
            return None if parse_member_file(name)[1] is Of.LEASE else MEMBER_TOLD_KEPT_S
    return None


def _is_older(root: Root, entry: "os.DirEntry[str]", seconds: float) -> bool:
    if not entry.is_file(follow_symlinks=False):
        return False
    status = root.files.status(entry.path)
    if status is None:
        return False
    told_ms = Stamp.from_mtime_ns(status.st_mtime_ns).due_ms
    return root.aged_ms(seconds) - told_ms > seconds * 1000
