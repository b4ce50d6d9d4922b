"""The written form of a leader's deal: `members/leader`, or a node's data in ZooKeeper.

`members/leader` is one small file that each deal replaces (FORMAT.md, "Members"). It is a hint and
is not flushed: after a power cut it may be old or unreadable, and a member then takes the lead.
"""

import json
import zlib
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from mq.coordination.assigning import NO_DEAL, Deal
from mq.model.errors import BadName
from mq.model.limits import KIB, MIB
from mq.store.core.root import Root
from mq.store.disk.files import is_gone
from mq.store.disk.replacing import replace_hint
from mq.store.format.members import leader_path, new_leader_path, parse_member

LEADER_BYTES_MAX: Final = 64 * MIB
# One node's data is under 1 MiB (jute.maxbuffer); a large assignment is compressed.
NODE_BYTES_MAX: Final = 1_000_000
NODE_PLAIN_BYTES_MAX: Final = 16 * KIB


_VERSION: Final = 1
_OBJECT: Final = b"{"


@dataclass(frozen=True, slots=True)
class Told:
    """A member's queues, and the leader that dealt them. A member follows only its current
    leader.
    """

    leader: str | None = None
    queues: frozenset[str] = frozenset()


NOTHING: Final = Told()


def print_told(leader: str, queues: Collection[str]) -> tuple[bytes, frozenset[str]]:
    """Prints a member's queues, compressed if long. Returns the data and the queues that fit into
    it: all, unless there are very many.
    """
    named = sorted(queues)
    while True:
        said = {"version": _VERSION, "leader": leader, "queues": named}
        data = json.dumps(said).encode("ascii")
        if len(data) > NODE_PLAIN_BYTES_MAX:
            data = zlib.compress(data)
        if len(data) <= NODE_BYTES_MAX:
            return data, frozenset(named)
        named = named[: len(named) // 2]


def parse_told(data: bytes) -> Told:
    """Parses the data; NOTHING for another version, or for none yet."""
    try:
        if data[:1] != _OBJECT:
            data = zlib.decompressobj().decompress(data, LEADER_BYTES_MAX)
        said = json.loads(data)
        if said["version"] != _VERSION:
            return NOTHING
        return Told(str(said["leader"]), frozenset(map(str, said["queues"])))
    except (ValueError, KeyError, TypeError, zlib.error):
        return NOTHING


class LeaderFile:
    """The leader's file, read again only when it has changed. For one thread."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._path = leader_path(root.layout)
        self._read: tuple[tuple[int, int, int], Deal] | None = None

    def read(self) -> Deal:
        """The leader's deal; NO_DEAL if it is missing or unreadable. Raises OSError."""
        files = self._root.files
        try:
            descriptor = files.open_read(self._path)
        except OSError as error:
            if is_gone(error):
                return NO_DEAL
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
    """Prints a deal: queues by members, as there are far more queues."""
    queues: dict[str, list[str]] = {}
    for queue, member in deal.assigned.items():
        queues.setdefault(member, []).append(queue)
    said = {"version": _VERSION, "leader": deal.leader, "assigned": queues}
    return json.dumps(said).encode("ascii") + b"\n"


def parse_deal(text: bytes) -> Deal:
    """Parses a deal; NO_DEAL for another version."""
    try:
        said = json.loads(text)
        if said["version"] != _VERSION:
            return NO_DEAL
        assigned = {
            str(queue): parse_member(member)
            for member, queues in said["assigned"].items()
            for queue in queues
        }
        return Deal(parse_member(said["leader"]), assigned)
    except (ValueError, KeyError, TypeError, AttributeError, BadName):
        return NO_DEAL
