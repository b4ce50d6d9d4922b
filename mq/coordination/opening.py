"""Makes the coordinator that `--coordinator` names."""

import contextlib
import os
import re
from typing import Final

from mq.coordination.coordinator import ASSIGN_EVERY_S, Alone, Coordinator, Pacing
from mq.coordination.file import FileCoordinator
from mq.coordination.zookeeper_address import EXAMPLE, SCHEME, Address
from mq.model.errors import BadName, StartupError
from mq.store.core.root import Root
from mq.store.format.members import parse_member, root_id_path

COORDINATOR_DEFAULT: Final = FileCoordinator.kind


def open_coordinator(
    text: str, root: Root, member: str, assign_every_s: float = ASSIGN_EVERY_S
) -> Coordinator:
    """The coordinator of this member, not started: `file`, `alone`, or `zookeeper://...`.

    Raises StartupError, which names the valid values; OSError.
    """
    try:
        parse_member(member)
    except BadName as error:
        raise StartupError(
            f"{member!r} is not a member name; use {error.expected} as --member"
        ) from None
    pacing = Pacing.of(assign_every_s)
    if text == FileCoordinator.kind:
        return FileCoordinator(root, member, pacing)
    if text == Alone.kind:
        return Alone(member)
    if text.partition("://")[0] == SCHEME:
        return _by_zookeeper(Address.parse(text), root, member, pacing)
    raise StartupError(
        f"there is no coordinator {text!r}; use file, alone, or {EXAMPLE} as --coordinator"
    )


def _by_zookeeper(address: Address, root: Root, member: str, pacing: Pacing) -> Coordinator:
    try:
        # The extra is needed only here.
        from mq.coordination.zookeeper import ZooKeeperCoordinator  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if error.name != "kazoo":
            raise
        raise StartupError(
            "--coordinator=zookeeper://... needs kazoo; pip install 'mq[zookeeper]'"
        ) from None
    client = root_id(root) if address.client is None else address.client
    return ZooKeeperCoordinator(address, client, root.clock, member, pacing)


_ID: Final = re.compile(r"mq-[0-9a-f]{16}")


def root_id(root: Root) -> str:
    """The root's own name, which tells roots at one ZooKeeper apart. The first caller makes it.
    Raises StartupError when a foreign file is in its place; OSError. Durable on return: yes.
    """
    path = root_id_path(root.layout)
    if root.files.linked(path) is None:
        with contextlib.suppress(FileExistsError):
            root.files.link(path, f"mq-{os.urandom(8).hex()}")
    root.files.sync_folder(root.layout.members)
    found = root.files.linked(path)
    if found is None or _ID.fullmatch(found) is None:
        raise StartupError(
            f"{path} must be the symbolic link that mq makes there, and is something else; delete "
            "it, and mq makes a new one"
        )
    return found
