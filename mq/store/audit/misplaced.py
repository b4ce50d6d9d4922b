"""Messages that lie ready in a bucket which is not their own: a fetch finds them, their ids do not.

A folder is looked through by its names alone.
"""

import os
from collections.abc import Callable
from typing import NamedTuple

from mq.model.errors import BadName
from mq.model.lifecycle import State
from mq.model.limits import UUID_CHARS
from mq.model.names import MessageId, QueueName
from mq.store.audit.breaches import Spot
from mq.store.core.root import Root
from mq.store.format.bucket_names import Shape, dashed, parse_bucket, shard_of
from mq.store.format.walk import entries_if_there, is_deep_folder

_PRIORITY_CHARS = len(",p=1")


class Looked(NamedTuple):
    """What lies in a bucket's folder: how many names, the messages among them that are misplaced,
    and the folders below it, as buckets are written.
    """

    names: int
    misplaced: list[Spot]
    below: list[str]


def look_for_misplaced(root: Root, queue: QueueName, bucket: str) -> Looked:
    """Looks through one folder of a queue's buckets. Raises SettingsUnreadable, OSError."""
    belongs = _belongs(root.places.shape(queue), bucket)
    names = 0
    misplaced, below = list[Spot](), list[str]()
    for entry in entries_if_there(root.files, root.layout.parent(State.READY, queue, bucket)):
        names += 1
        if belongs(entry.name):
            continue
        if is_deep_folder(entry):
            below.append(f"{bucket}{entry.name}/")
        elif (message_id := _message(entry)) is not None:
            misplaced.append(Spot(State.READY, queue, message_id, bucket))
    return Looked(names, misplaced, below)


def _belongs(shape: Shape, bucket: str) -> Callable[[str], bool]:
    """What tells of a name whether it is surely that of a message which belongs there."""
    outer, _, inner = bucket[:-1].partition("/")
    found = parse_bucket(outer)
    if found is None or len(found.digits) != shape.digits:
        return lambda _: False
    beginning, shards = dashed(found.digits + inner), shape.shards
    said = f",p={found.priority}" if found.priority else ""
    priority = slice(UUID_CHARS, UUID_CHARS + _PRIORITY_CHARS)
    if (found.shard is None) != (shards == 1):
        return lambda _: False

    def belongs(name: str) -> bool:
        return (
            name.startswith(beginning)
            and (name[priority] == said if said else not name.startswith(",p=", UUID_CHARS))
            and (found.shard is None or shard_of(name, shards) == found.shard)
        )

    return belongs


def _message(entry: "os.DirEntry[str]") -> MessageId | None:
    try:
        message_id = MessageId.parse(entry.name)
    except BadName:
        return None
    return message_id if entry.is_file(follow_symlinks=False) else None
