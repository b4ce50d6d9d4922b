"""Whose a root is: the one user that mq runs as there."""

import contextlib
import stat
from collections import Counter

from mq.store.core.root import Root


def owner_of(root: Root) -> int:
    """The user, by number, that most of the root's folders are of, since mq has made them. The one
    above them may be another's, as that of a volume is: it counts where they do not tell. Raises
    OSError where not even that can be looked at.
    """
    owners: Counter[int] = Counter()
    for folder in root.layout.folders():
        with contextlib.suppress(OSError):
            status = root.files.status(folder)
            if status is not None and stat.S_ISDIR(status.st_mode):
                owners[status.st_uid] += 2
    top = root.files.status(root.layout.root)
    if top is not None:
        owners[top.st_uid] += 1
    return max(owners, key=owners.__getitem__, default=-1)
