"""Ready messages in a wrong bucket: a fetch finds them, a lookup by id does not.

Scans a folder by names alone.
"""

import os
from collections.abc import Callable
from typing import NamedTuple

from mq.model.errors import BadName
from mq.model.lifecycle import State
from mq.model.limits import UUID_CHARS
from mq.model.names import MessageId, QueueName
from mq.store.core.root import Root
from mq.store.format.bucket_names import Shape, dashed, parse_bucket, shard_of
from mq.store.format.layout import Place
from mq.store.format.walk import Folder, entries_if_there, holds_at

_PRIORITY_CHARS = len(",p=1")


class Looked(NamedTuple):
    """A bucket's folder: its number of names, the misplaced messages among them, and the folders
    below it, as buckets.
    """

    names: int
    misplaced: list[Place]
    below: list[str]


def look_for_misplaced(root: Root, queue: QueueName, bucket: str) -> Looked:
    """Scans one folder of a queue's buckets. Blocking. Raises SettingsUnreadable, OSError."""
    belongs = _belongs(root.facts.shape_now(queue), bucket)
    names = 0
    misplaced, below = list[Place](), list[str]()
    folder = Folder(root.layout.parent(State.READY, queue, bucket), holds_at(bucket), bucket)
    for entry in entries_if_there(root.files, folder.path):
        names += 1
        if belongs(entry.name):
            continue
        if (inner := folder.inner(entry)) is not None:
            below.append(inner.spot)
        elif (message_id := _message(entry)) is not None:
            misplaced.append(Place(State.READY, queue, message_id, bucket))
    return Looked(names, misplaced, below)


def _belongs(shape: Shape, bucket: str) -> Callable[[str], bool]:
    """A predicate on names: true if the message certainly belongs into the bucket."""
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
