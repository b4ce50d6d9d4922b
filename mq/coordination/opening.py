"""What `--coordinator` says, made into a coordinator."""

from typing import Final

from mq.coordination.alone import Alone
from mq.coordination.coordinator import Coordinator
from mq.coordination.file import FileCoordinator
from mq.coordination.pacing import Pacing
from mq.coordination.root_id import root_id
from mq.coordination.zookeeper_address import EXAMPLE, SCHEME, Address
from mq.model.errors import BadName, StartupError
from mq.model.upkeep_limits import ASSIGN_EVERY_S
from mq.store.core.root import Root
from mq.store.format.members import parse_member

COORDINATOR_DEFAULT: Final = FileCoordinator.kind


def open_coordinator(
    text: str, root: Root, member: str, assign_every_s: float = ASSIGN_EVERY_S
) -> Coordinator:
    """The coordinator of this member, not started: `file`, `alone`, or `zookeeper://...`.

    Raises StartupError, which says what would do; OSError.
    """
    try:
        parse_member(member)
    except BadName as error:
        raise StartupError(f"no member can be called {member!r}: {error.expected}") from None
    pacing = Pacing.of(assign_every_s)
    if text == FileCoordinator.kind:
        return FileCoordinator(root, member, pacing)
    if text == Alone.kind:
        return Alone(member)
    if text.partition("://")[0] == SCHEME:
        return _by_zookeeper(Address.parse(text), root, member, pacing)
    raise StartupError(f"no coordinator {text!r}: say file, alone, or {EXAMPLE}")


def _by_zookeeper(address: Address, root: Root, member: str, pacing: Pacing) -> Coordinator:
    try:
        # Only who asks for it needs the extra.
        from mq.coordination.zookeeper import ZooKeeperCoordinator  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if error.name != "kazoo":
            raise
        raise StartupError(
            "--coordinator=zookeeper://... needs kazoo: pip install 'mq[zookeeper]'"
        ) from None
    client = root_id(root) if address.client is None else address.client
    return ZooKeeperCoordinator(address, client, root.clock, member, pacing)
