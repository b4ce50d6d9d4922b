"""A root's own name, by which its members tell it from other roots at one ZooKeeper."""

import contextlib
import os
import re
from typing import Final

from mq.model.errors import StartupError
from mq.store.core.root import Root
from mq.store.format.members import root_id_path

_ID: Final = re.compile(r"mq-[0-9a-f]{16}")


def root_id(root: Root) -> str:
    """The name, which the first who asks makes. Raises StartupError when there is something else in
    its place; OSError. Durable on return: yes.
    """
    path = root_id_path(root.layout)
    if root.files.linked(path) is None:
        with contextlib.suppress(FileExistsError):
            root.files.link(path, f"mq-{os.urandom(8).hex()}")
    root.files.sync_folder(root.layout.members)
    found = root.files.linked(path)
    if found is None or _ID.fullmatch(found) is None:
        raise StartupError(f"{path} is not what mq makes there; take it away, for a new one")
    return found
