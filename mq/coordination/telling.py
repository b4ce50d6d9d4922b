"""What a leader tells a member by ZooKeeper: a node's data. Pure."""

import json
import zlib
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from mq.model.upkeep_limits import LEADER_BYTES_MAX, NODE_BYTES_MAX, NODE_PLAIN_BYTES_MAX

_VERSION: Final = 1
_OBJECT: Final = b"{"


@dataclass(frozen=True, slots=True)
class Told:
    """Which queues are the member's, and by whose word; a member believes its present leader's."""

    leader: str | None = None
    queues: frozenset[str] = frozenset()


NOTHING: Final = Told()


def print_told(leader: str, queues: Collection[str]) -> tuple[bytes, frozenset[str]]:
    """The data, and which of the queues found room in it: all but for a great many. A long one is
    compressed.
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
    """Reads it; NOTHING where it is none of this version, or none yet."""
    try:
        if data[:1] != _OBJECT:
            data = zlib.decompressobj().decompress(data, LEADER_BYTES_MAX)
        said = json.loads(data)
        if said["version"] != _VERSION:
            return NOTHING
        return Told(str(said["leader"]), frozenset(map(str, said["queues"])))
    except (ValueError, KeyError, TypeError, zlib.error):
        return NOTHING
