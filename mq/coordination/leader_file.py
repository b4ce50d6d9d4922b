"""members/leader: who leads, and which queues are whose; one small file that is replaced.

FORMAT.md, "Members". It is a hint, and not flushed: after a power cut it may be an older one, or
nothing that can be read, and then somebody takes the lead.
"""

import json
from typing import Final

from mq.coordination.assigning import NOBODY, Deal
from mq.model.errors import BadName
from mq.model.upkeep_limits import LEADER_BYTES_MAX
from mq.store.core.root import Root
from mq.store.disk.files import is_gone
from mq.store.disk.replacing import replace_hint
from mq.store.format.members import leader_path, new_leader_path, parse_member

_VERSION: Final = 1


class LeaderFile:
    """The file; it is read again only when it is another. For one thread."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._path = leader_path(root.layout)
        self._read: tuple[tuple[int, int, int], Deal] | None = None

    def read(self) -> Deal:
        """What it says; NOBODY where it is not there, or cannot be understood. Raises OSError."""
        files = self._root.files
        try:
            descriptor = files.open_read(self._path)
        except OSError as error:
            if is_gone(error):
                return NOBODY
            raise
        try:
            status = files.descriptor_status(descriptor)
            version = (status.st_ino, status.st_mtime_ns, status.st_size)
            if self._read is None or self._read[0] != version:
                text = files.read(descriptor, LEADER_BYTES_MAX, 0)
                self._read = version, parse_deal(text)
        finally:
            files.close(descriptor)
        return self._read[1]

    def write(self, deal: Deal) -> None:
        """Replaces it. Not durable on return. Raises OSError."""
        written = new_leader_path(self._root.layout)
        replace_hint(self._root.files, written, self._path, print_deal(deal))


def print_deal(deal: Deal) -> bytes:
    """As it is written: queues by members, as there are many more of them."""
    queues: dict[str, list[str]] = {}
    for queue, member in deal.assigned.items():
        queues.setdefault(member, []).append(queue)
    said = {"version": _VERSION, "leader": deal.leader, "assigned": queues}
    return json.dumps(said).encode("ascii") + b"\n"


def parse_deal(text: bytes) -> Deal:
    """Reads it; NOBODY for what is none of this version."""
    try:
        said = json.loads(text)
        if said["version"] != _VERSION:
            return NOBODY
        assigned = {
            str(queue): parse_member(member)
            for member, queues in said["assigned"].items()
            for queue in queues
        }
        return Deal(parse_member(said["leader"]), assigned)
    except (ValueError, KeyError, TypeError, AttributeError, BadName):
        return NOBODY
